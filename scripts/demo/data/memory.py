"""Owns chats in which the user tells something and asks for it later, and small sums."""

import random
from dataclasses import dataclass

from demo.data.conversation import Conversation, Turn, pairs
from demo.data.handwritten import varied
from demo.data.words import COLORS, FOODS, JOBS, PETS, Fillers, capitalised, with_article


@dataclass(frozen=True)
class Fact:
    """Ways to tell it, replies, ways to ask for it later, answers, and the word that must be in the answer."""

    told: tuple[str, ...]
    replies: tuple[str, ...]
    asked: tuple[str, ...]
    answers: tuple[str, ...]
    key: str


def name_fact(fill: Fillers) -> Fact:
    name = fill.first_name() if fill.rng.random() < 0.75 else fill.word()
    told = (
        f"my name is {name}",
        f"hi, i am {name}",
        f"hello! i'm {name}",
        f"you can call me {name}",
        f"call me {name}",
    )
    told += (
        f"i'm {name}",
        f"i am {name}, nice to meet you",
        f"my name's {name}",
        f"hi, my name is {name}",
        f"it's {name}",
    )
    replies = (f"Nice to meet you, {name}! How can I help you?", f"Hello, {name}! What can I do for you?")
    replies += (f"Hi {name}! It is nice to meet you.",)
    asked = ("what is my name", "do you remember my name", "who am i", "what's my name", "what did i say my name was")
    asked += ("do you know my name", "can you tell me my name", "say my name", "remember my name", "how am i called")
    return Fact(told, replies, asked, (f"Your name is {name}.", f"You are {name}.", f"Yes, your name is {name}."), name)


def home_fact(fill: Fillers) -> Fact:
    place = fill.place()
    told = (f"i live in {place}", f"my home is in {place}", f"i come from {place}", f"i am from {place}")
    replies = (f"{place} sounds like a nice place. What do you like about it?", f"How nice! What is {place} like?")
    asked = ("where do i live", "do you know where i live", "where am i from", "which city do i live in")
    return Fact(told, replies, asked, (f"You live in {place}.", f"You told me that you live in {place}."), place)


def color_fact(fill: Fillers) -> Fact:
    color = fill.rng.choice(COLORS)
    told = (f"my favorite color is {color}", f"i like the color {color} best", f"my favourite colour is {color}")
    replies = (f"{capitalised(color)} is a lovely color!", f"I like {color} too.")
    asked = (
        "what is my favorite color",
        "which color do i like",
        "what's my favourite colour",
        "what color do i like best",
    )
    return Fact(told, replies, asked, (f"Your favorite color is {color}.", f"You like {color} best."), color)


def food_fact(fill: Fillers) -> Fact:
    food = fill.rng.choice(FOODS)
    told = (f"my favorite food is {food}", f"i love to eat {food}", f"i love {food}")
    replies = (f"{capitalised(food)} sounds good! How do you like to eat it?", f"Good choice, {food} is tasty.")
    asked = ("what is my favorite food", "what do i like to eat", "which food do i love")
    return Fact(told, replies, asked, (f"Your favorite food is {food}.", f"You like to eat {food}."), food)


def pet_fact(fill: Fillers) -> Fact:
    pet, name = fill.rng.choice(PETS), fill.first_name() if fill.rng.random() < 0.5 else fill.word()
    told = (f"i have {with_article(pet)} called {name}", f"my {pet} is called {name}", f"my {pet}'s name is {name}")
    told += (f"i have {with_article(pet)} named {name}", f"i got {with_article(pet)}, her name is {name}")
    replies = (f"How nice! What is {name} like?", f"{name} is a lovely name for {with_article(pet)}.")
    asked = (
        f"what is my {pet} called",
        f"what is the name of my {pet}",
        f"what's my {pet}'s name",
        "what is my pet called",
    )
    return Fact(told, replies, asked, (f"Your {pet} is called {name}.", f"The name of your {pet} is {name}."), name)


def job_fact(fill: Fillers) -> Fact:
    job = fill.rng.choice(JOBS)
    told = (f"i work as {with_article(job)}", f"my job is {job}", f"i am {with_article(job)} by profession")
    replies = ("That sounds like interesting work. What do you like about it?", "Good to know! Do you enjoy it?")
    asked = ("what is my job", "what do i do for work", "what do i work as", "what's my profession")
    return Fact(told, replies, asked, (f"You work as {with_article(job)}.", f"You are {with_article(job)}."), job)


def age_fact(fill: Fillers) -> Fact:
    age = str(fill.rng.randint(7, 90))
    told = (f"i am {age} years old", f"my age is {age}", f"i turned {age} today", f"i'm {age}")
    replies = (f"{age} is a good age!", "Thank you for telling me.")
    asked = ("how old am i", "what is my age", "do you remember how old i am")
    return Fact(told, replies, asked, (f"You are {age} years old.",), age)


FACTS = (name_fact, name_fact, name_fact, home_fact, color_fact, food_fact, pet_fact, pet_fact, job_fact, age_fact)


def recall_chat(fill: Fillers, fillers: list[tuple[Turn, ...]], between: int) -> tuple[Conversation, list[str]]:
    """Facts are told, `between` other exchanges follow, then each fact is asked -> chat and the keys of its answers."""
    rng = fill.rng
    makers = {maker.__name__: maker for maker in rng.sample(FACTS, rng.choice((1, 1, 2, 3)))}
    facts = [maker(fill) for maker in makers.values()]
    turns: list[Turn] = []
    for fact in facts:
        turns += pairs(varied(rng, rng.choice(fact.told)), rng.choice(fact.replies))
    for _ in range(between):
        turns += rng.choice(fillers)
    asked = rng.sample(facts, len(facts))
    for fact in asked:
        turns += pairs(varied(rng, rng.choice(fact.asked)), rng.choice(fact.answers))
    return Conversation("recall", tuple(turns), learns_questions=True), [fact.key for fact in asked]


SIGNS = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}
SUM_FORMS = ("what is {e}", "how much is {e}", "what's {e}", "calculate {e}", "{e}", "can you calculate {e}", "{e} =")
SUM_FORMS += ("what does {e} make", "solve {e}", "do you know what {e} is", "tell me what {e} is", "compute {e}")


def small_sum(rng: random.Random) -> tuple[str, str, str]:
    """-> expression in signs, in words, and the result."""
    sign = rng.choice("++--**/")
    high = 12 if sign in "*/" else rng.choice((12, 20, 100))
    left, right = rng.randint(0, high), rng.randint(0, high)
    if sign == "-" and right > left:
        left, right = right, left
    if sign == "/":
        right = max(1, right)
        left = right * rng.randint(0, 12)
    result = {"+": left + right, "-": left - right, "*": left * right, "/": left // max(1, right)}[sign]
    return f"{left} {sign} {right}", f"{left} {SIGNS[sign]} {right}", str(result)


def sum_chat(rng: random.Random) -> Conversation:
    turns: tuple[Turn, ...] = ()
    for _ in range(rng.choice((1, 1, 2, 3))):
        signs, words, result = small_sum(rng)
        asked = rng.choice((signs, words, signs.replace(" ", ""), signs.replace("*", "x")))
        answer = rng.choice((f"{signs} = {result}.", f"{words} is {result}.", f"The answer is {result}."))
        turns += pairs(varied(rng, rng.choice(SUM_FORMS).format(e=asked)), capitalised(answer))
    return Conversation("sum", turns, learns_questions=True)
