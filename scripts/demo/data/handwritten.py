"""Owns the texts written by hand: reading the files in text/, varying the questions, single and multi-turn chats."""

import random
import re
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import accumulate
from pathlib import Path

from demo.data.composed import Composer, alternatives, plural
from demo.data.conversation import Conversation, Turn, pairs
from demo.data.followups import follow_up
from demo.data.synonyms import with_synonyms
from demo.data.words import Fillers, capitalised, with_article
from demo.listing import listed

SYNONYM_SHARE, SHORTENED_SHARE, LED_SHARE, KEYWORD_SHARE = 0.18, 0.06, 0.1, 0.05
DROPPED = frozenset(listed("a an the do does is are of to me my i you your please can should for with"))
SMALL_WORDS = DROPPED | frozenset(
    listed(
        "what whats what's which how why when where who it this that there here and or so in on at by from be was were "
        "has have had did will would could tell give show explain know want need get make about some any one just also "
        "again"
    )
)
QUESTION_WORDS = ("what", "who", "where", "when", "why", "how", "which", "is", "are", "do", "does", "can", "should")
QUESTION_WORDS += ("will", "was", "did", "could", "would", "what's", "who's")
OPENINGS = ("hi, ", "hey, ", "hello, ", "hi! ", "hello! ", "please ", "so, ", "well, ", "ok, ", "um, ", "hey hotslot, ")
OPENINGS += ("quick question: ", "i have a question: ", "i want to know: ", "hotslot, ", "now ", "and ", "also, ")
OPENINGS += ("i was wondering, ", "just curious, ", "maybe you know: ", "another question: ", "tell me, ", "btw ")
LEADS = (
    "hey, ",
    "hi, ",
    "so, ",
    "well, ",
    "you know, ",
    "honestly, ",
    "by the way, ",
    "oh, ",
    "hmm, ",
    "ok so ",
    "ugh, ",
)
BEFORE = (
    "I just came home.", "I need your help.", "I am new here.", "It is late here.", "Sorry to bother you.",
    "One more thing.", "My sister asked me this.", "We talked about this at lunch.",
    "I have been wondering about this all day.", "I hope you can help me.", "I am curious.", "Something else.",
    "Let's change the subject.", "I woke up early today.", "My friend and I could not agree.", "You seem nice.",
    "I have a free minute.", "I am sitting on the train.", "Work was long today.", "I was thinking.",
    "I do not know whom to ask.", "Maybe this is a silly question.", "My son wants to know this.", "I am back.",
    "Thanks for your patience.", "Here is what I want to know.", "Good to see you.", "I read something about this.",
    "Time for a break.", "I am a bit tired.", "Don't laugh.", "This is for a friend.", "It is raining outside.",
    "My coffee is ready.", "I am bored.", "Hope you are well.", "Long time no see.", "No hurry.",
)  # fmt: skip
AFTER = (
    "Any ideas?", "Any tips?", "What do you say?", "Please be brief.", "Can you help?", "I would love to know.",
    "Thank you!", "I am not sure myself.", "Do you know?", "What would you say?", "I can't find it anywhere.",
    "A short answer is enough.",
)  # fmt: skip
ENDINGS = (" please", ", please", " thanks", " right now", " for me", " today")
ORDERS = re.compile(r"^(tell|give|write|explain|recommend|suggest|name|list|say|help|describe|show|make)\b")
MASS = set(
    listed(
        "rain snow thunder lightning wind fog gravity electricity energy oxygen water ice fire air light "
        "sound gold iron glass plastic paper wood photosynthesis evolution bread cheese butter honey "
        "sugar salt rice pasta soup chocolate coffee tea milk wine beer skin blood email programming "
        "Python music art football basketball tennis chess swimming yoga meditation love friendship "
        "happiness sadness anger fear courage hope trust patience kindness honesty respect creativity "
        "intelligence success freedom peace justice democracy money inflation time history science "
        "mathematics physics chemistry biology geography philosophy psychology garlic sleep memory spring "
        "summer autumn winter blockchain bitcoin recycling karma Christmas Easter Halloween DNA grass "
        "pizza religion language law"
    )
) | {"climate change", "artificial intelligence", "machine learning", "nuclear energy"}
UNIQUE = {"sun", "moon", "internet", "universe", "solar system", "sea", "heart", "brain", "water cycle", "alphabet"}
SYSTEM_LINES = ("You are a helpful assistant.", "You are a friendly assistant.", "Answer briefly.")
SYSTEM_LINES += ("You are a helpful AI assistant. Give short and clear answers.", "Be kind and brief.")
TOPICS = {
    "smalltalk": 0.15,
    "chat": 0.14,
    "feelings": 0.1,
    "advice": 0.09,
    "tasks": 0.13,
    "writing": 0.05,
    "more": 0.06,
}
TOPICS |= {"facts": 0.13, "answers": 0.08, "hotslot": 0.6}
# Everyday life, by its fields.
TOPICS |= {"everyday-home": 0.1, "everyday-food": 0.11, "everyday-life": 0.1}
TOPICS |= {"everyday-words": 0.09, "everyday-fun": 0.08, "everyday-talk": 0.1, "everyday-plans": 0.1}
TOPICS |= {"everyday-why": 0.09, "everyday-notes": 0.06, "everyday-more": 0.1}
TOPICS |= {"everyday-house": 0.25, "everyday-kitchen": 0.25, "everyday-people": 0.25, "everyday-leisure": 0.22}
TOPICS |= {"everyday-knowledge": 0.3, "everyday-tales": 0.25, "everyday-contrast": 0.22, "everyday-second": 0.25}
TOPICS |= {"everyday-third": 0.2, "everyday-asked": 0.1, "everyday-short": 0.14}
LOOKUPS = {"lookup": 0.13, "everyday-lookup": 0.08, "everyday-subjects": 0.12}
FACTUAL = ("facts", "answers", "hotslot", "everyday-words", "everyday-why", "everyday-knowledge", *LOOKUPS)
FACTUAL += ("everyday-short",)
ADVISING = ("advice", "tasks", "everyday-home", "everyday-food", "everyday-life", "everyday-plans")
ADVISING += ("everyday-house", "everyday-kitchen")
COMPOSED_SHARE = 0.33
FOLLOW_UP_SHARE = 0.3
MOST_COUNTED = 48
MORE_SHARE = 0.6  # of the questions of a block that has more ways to ask
TASKS = ("how do i {x}", "how can i {x}", "how to {x}", "what is the best way to {x}", "what's the best way to {x}")
TASKS += ("any tips to {x}", "help me {x}", "i want to {x}", "i need to {x}", "i would like to {x}", "i have to {x}")
TASKS += (
    "can you tell me how to {x}",
    "i don't know how to {x}",
    "how do you {x}",
    "how should i {x}",
    "tell me how to {x}",
)
TASKS += (
    "do you have any advice on how to {x}",
    "what can i do to {x}",
    "i am trying to {x}",
    "is there a trick to {x}",
)
TASKS += ("can you help me {x}", "what is the easiest way to {x}", "i have been trying to {x} but it does not work")
TASKS += ("give me a tip, i want to {x}", "how would you {x}", "i wonder how to {x}", "whats a good way to {x}")
THINGS = (
    "what is {x}",
    "what's {x}",
    "tell me about {x}",
    "explain {x}",
    "can you explain {x}",
    "what do you know about {x}",
)
THINGS += ("describe {x}", "tell me something about {x}", "do you know {x}", "do you know what {x} is", "{x}")
THINGS += ("tell me a little about {x}", "i want to know more about {x}", "what can you tell me about {x}", "whats {x}")
NAMES = ("{x}", "what does {x} do", "what is {x} for", "what's {x}", "what is {x} good for", "when do i need {x}")
NAMES += (
    "how do i use {x}",
    "what about {x}",
    "what happens with {x}",
    "i saw {x}, what is it",
    "{x}, what does that do",
)
NAMES += (
    "why would i use {x}",
    "the help says {x}",
    "{x} in hotslot",
    "{x} meaning",
    "can i use {x}",
    "explain {x} to me",
)
NAMES += (
    "is there {x}",
    "i don't get {x}",
    "do i need {x}",
    "tell me how {x} works",
    "info on {x}",
    "what if i use {x}",
)
FRAMES = {"? ": ("{x}",), "~ ": TASKS, "= ": THINGS, "@ ": NAMES}
UNKNOWN = (
    "I am not sure. I am a small model and do not know much about {x}.",
    "I do not know much about {x}, sorry. Please look it up.",
    "Sorry, I do not know {x}. I am only a small demo model.",
)


@dataclass(frozen=True)
class Block:
    """Questions that ask the same, and the answers that all of them may get; some questions may be held out."""

    questions: tuple[str, ...]
    answers: tuple[str, ...]
    is_examined: bool = False
    """Whether evaluation asks this block's held-out questions, which training then never sees."""
    num_whole: int = 0
    """So many of the questions, the first ones, are written out; frames made the others."""
    more: tuple[tuple[str, ...], ...] = ()
    """More ways to ask, each in its variants: training draws them, evaluation asks in none."""

    def question(self, rng: random.Random, held_out: bool = False) -> str:
        """One of them; whole questions of a block with framed ones come as often as those."""
        if self.more and not held_out and rng.random() < MORE_SHARE:
            return rng.choice(rng.choice(self.more))
        if self.is_examined or held_out:
            return Fillers(rng, (), held_out).phrasing(self.questions)
        if 0 < self.num_whole < len(self.questions) and rng.random() < 0.5:
            return self.questions[rng.randrange(self.num_whole)]
        return rng.choice(self.questions)

    @property
    def examined(self) -> list[str]:
        """What evaluation may ask."""
        return Fillers(random.Random(0), (), held_out=True).own_phrasings(self.questions)

    @property
    def weight(self) -> float:
        """Blocks with more ways to ask come more often, but less than in proportion."""
        return min(len(self.questions), MOST_COUNTED) ** 0.5


def read_blocks(path: Path, is_examined: bool = False) -> list[Block]:
    """Lines of questions ("?", "~" things to do, "=" things to explain), then lines of answers ("!").

    Lines that begin with "+" ("+?", "+~", "+=") are more ways to ask, which evaluation leaves alone; "+@" has names of
    keys, commands and options.
    """
    blocks: list[Block] = []
    whole: list[str] = []
    framed: list[str] = []
    more: list[tuple[str, ...]] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        is_more = line.startswith("+")
        mark, text = line[is_more:][:2], line[2 + is_more :].strip()
        if mark in FRAMES:
            parts = [in_frames(mark, part) for part in text.split(" | ")]
            asked = [question for part in parts for question in part]
            if is_more:
                more += parts
            else:
                whole, framed = (whole + asked, framed) if mark == "? " else (whole, framed + asked)
        elif mark == "! ":
            if whole or framed:
                first = tuple(dict.fromkeys(whole))
                questions = tuple(dict.fromkeys(whole + framed))
                blocks.append(Block(questions, (), is_examined, len(first), tuple(more)))
                whole, framed, more = [], [], []
            blocks[-1] = replace(blocks[-1], answers=(*blocks[-1].answers, text))
    return blocks


def in_frames(mark: str, part: str) -> tuple[str, ...]:
    return tuple(frame.replace("{x}", phrase) for phrase in alternatives(part) for frame in FRAMES[mark])


def unexamined(blocks: list[Block]) -> list[Block]:
    """The blocks without more ways to ask that evaluation may ask in other order or with other small words."""
    examined = {gist(question) for block in blocks for question in block.examined}
    kept = [[tuple(q for q in way if gist(q) not in examined) for way in block.more] for block in blocks]
    return [replace(block, more=tuple(filter(None, ways))) for block, ways in zip(blocks, kept, strict=True)]


def gist(question: str) -> tuple[str, ...]:
    return tuple(sorted(word for word in normalised(question).split() if word not in DROPPED))


def lookup_blocks(path: Path) -> list[Block]:
    """A block for each "key = value" of a "#" line; the lines before it ask for {k} and answer with {v}."""
    blocks: list[Block] = []
    texts: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        mark, parts = line[:1], line[2:].split(" | ")
        if mark != "#":
            texts[mark] = [phrase for part in parts for phrase in (alternatives(part) if mark == "?" else [part])]
            continue
        for entry in line[2:].split("; "):
            key, value = entry.split(" = ", 1)
            blocks.append(Block(fill_entry(texts["?"], key, value), fill_entry(texts["!"], key, value)))
    return blocks


def fill_entry(texts: list[str], key: str, value: str) -> tuple[str, ...]:
    names = (("{k}", key), ("{K}", capitalised(key)), ("{v}", value), ("{V}", capitalised(value)))
    return tuple(reduce(lambda text, name: text.replace(*name), names, text) for text in texts)


def definition_block(line: str) -> Block:
    term, answer = line.split(" | ")
    named = term if term in MASS else f"the {term}" if term in UNIQUE else with_article(term)
    several = term if term in MASS or term in UNIQUE else plural(term)
    forms = [f"what is {named}", f"what's {named}", f"explain {named}", f"define {term}", f"tell me about {several}"]
    forms += [
        f"what does {term} mean",
        f"can you explain what {named} is",
        f"tell me what {named} is",
        f"what is {term}",
    ]
    forms += [f"describe {named}", f"do you know what {named} is", f"what are {several}" if several != term else term]
    forms += [f"explain what {named} is", f"what do you know about {several}", f"tell me about {named}", term]
    return Block(tuple(dict.fromkeys(forms)), (answer,))


def capital_blocks(text: str) -> list[Block]:
    blocks = []
    for entry in text.strip().split("; "):
        country, city = split_entry(entry)
        questions = [f"what is the capital of {country}", f"capital of {country}", f"what's the capital of {country}"]
        questions += [f"what is {country}'s capital", f"which city is the capital of {country}", f"{country} capital"]
        questions += [f"do you know the capital of {country}", f"name the capital of {country}"]
        questions += [f"tell me the capital of {country}", f"what city is the capital of {country}"]
        blocks.append(Block(tuple(questions), (f"The capital of {country} is {city}.",)))
        where = (f"where is {city}", f"in which country is {city}", f"what is {city}", f"what country is {city} in")
        blocks.append(Block(where, (f"{city} is the capital of {country}.",)))
    return blocks


def split_entry(entry: str) -> tuple[str, str]:
    """Country and capital are separated by the longest known country name."""
    words = entry.split()
    long_names = ("the United Kingdom", "the Netherlands", "the Czech Republic", "South Korea", "North Korea")
    long_names += ("the Philippines", "Saudi Arabia", "South Africa", "the United States", "Costa Rica", "New Zealand")
    for name in long_names:
        if entry.startswith(name + " "):
            return name, entry.removeprefix(name + " ")
    return words[0], " ".join(words[1:])


def normalised(question: str) -> str:
    """For telling whether two questions are the same."""
    text = re.sub(r"[^a-z0-9 ]", "", question.lower().replace("'", ""))
    text = re.sub(r"^(please help me|hi|hey|hello|please|i have a question|quick question) ", "", text)
    return " ".join(text.split())


def varied(rng: random.Random, question: str) -> str:
    """The question as some person might type it: case, punctuation, an opening, a slip of the finger."""
    text, style = question, rng.random()
    is_order = bool(ORDERS.match(text))
    is_question = text.split()[0] in QUESTION_WORDS
    if style < 0.14 and (is_order or is_question):
        text = rng.choice(OPENINGS) + text
    elif style < 0.20 and is_order:
        text = rng.choice(("can you ", "could you ", "please ", "would you ")) + text
        is_question = not text.startswith("please")
    elif style < 0.24 and is_order:
        text += rng.choice(ENDINGS)
    elif style < 0.09 and not is_question:
        text = rng.choice(LEADS) + text
    elif style < 0.28:
        text = misspelled(rng, text)
    ending = "?" if is_question else rng.choice((".", ".", "!"))
    shape = rng.random()
    if shape < 0.45:
        return with_capitals(text) + (ending if not text.endswith(("!", "?", ".")) else "")
    if shape < 0.62:
        return with_capitals(text)
    if shape < 0.78:
        return text + (ending if not text.endswith(("!", "?", ".")) else "")
    return text.replace("'", "").lower() if shape < 0.9 else text


def respoken(rng: random.Random, question: str) -> str:
    """Now and then with other words, without the small ones, as a search for its words, or beside another sentence."""
    styles = (SYNONYM_SHARE, SHORTENED_SHARE, KEYWORD_SHARE, LED_SHARE)
    makers = (with_synonyms, partial(without, DROPPED, 2), partial(without, SMALL_WORDS, 1), beside)
    made = rng.choices((*makers, None), (*styles, 1 - sum(styles)))[0]
    return made(rng, question) if made else question


def without(dropped: frozenset[str], fewest: int, rng: random.Random, question: str) -> str:
    """The question without these words, if so many are left."""
    words = [word for word in question.split() if word.lower().strip("?!.,") not in dropped]
    return " ".join(words) if len(words) >= fewest else question


def beside(rng: random.Random, question: str) -> str:
    """A sentence that tells or asks nothing new stands before the question or, less often, after it."""
    text = with_capitals(question)
    mark = "" if text.endswith(("!", "?", ".")) else "?" if question.split()[0] in QUESTION_WORDS else "."
    return f"{rng.choice(BEFORE)} {text}" if rng.random() < 0.7 else f"{text}{mark} {rng.choice(AFTER)}"


def with_capitals(text: str) -> str:
    return capitalised(re.sub(r"\bi\b", "I", text))


def misspelled(rng: random.Random, text: str) -> str:
    if len(text) < 8 or any(character.isdigit() or character.isupper() for character in text):
        return text
    place = rng.randrange(2, len(text) - 2)
    if rng.random() < 0.5:
        return text[:place] + text[place + 1 :]
    return text[:place] + text[place + 1] + text[place] + text[place + 2 :]


class Handwritten:
    """All blocks by topic, and conversations drawn from them."""

    def __init__(self, folder: Path) -> None:
        read = {name: read_blocks(folder / f"{name}.txt", name == "hotslot") for name in TOPICS}
        definitions = (folder / "definitions.txt").read_text(encoding="utf-8").splitlines()
        read |= {name: lookup_blocks(folder / f"{name}.txt") for name in LOOKUPS}
        read["facts"] += [definition_block(line) for line in definitions]
        read["facts"] += capital_blocks((folder / "capitals.txt").read_text(encoding="utf-8"))
        self.composer = Composer(folder)
        self.hotslot = read["hotslot"] = unexamined(read["hotslot"])
        self.topics = tuple(read.values())
        self.shares = (*TOPICS.values(), *LOOKUPS.values())
        self.weighed = [(blocks, list(accumulate(block.weight for block in blocks))) for blocks in self.topics]
        self.taught = {id(block) for name in FACTUAL for block in read[name]}
        self.advised = {id(block) for name in ADVISING for block in read[name]}
        every = [block for topic in self.topics for block in topic]
        self.fixed = {normalised(question) for block in every for question in block.questions}
        self.fixed |= {normalised(question) for block in every for way in block.more for question in way}
        self.known = self.fixed | {normalised(question) for question in self.composer.questions()}

    def block(self, rng: random.Random) -> Block:
        topic, weights = rng.choices(self.weighed, self.shares)[0]
        return rng.choices(topic, cum_weights=weights)[0]

    def exchange(self, rng: random.Random) -> tuple[str, str]:
        if rng.random() < COMPOSED_SHARE:
            return self.composed(rng)
        block = self.block(rng)
        return self.asked(rng, block), rng.choice(block.answers)

    def asked(self, rng: random.Random, block: Block) -> str:
        return varied(rng, respoken(rng, block.question(rng)))

    def composed(self, rng: random.Random) -> tuple[str, str]:
        """A question with a slot, unless a fixed text answers the very same question."""
        while True:
            question, answer = self.composer.exchange(rng)
            if normalised(question) not in self.fixed:
                return varied(rng, question), answer

    def chat(self, rng: random.Random) -> Conversation:
        turns: tuple[Turn, ...] = ()
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
            if rng.random() < COMPOSED_SHARE:
                turns += pairs(*self.composed(rng))
                continue
            block = self.block(rng)
            question, answer = self.asked(rng, block), rng.choice(block.answers)
            turns += pairs(question, answer)
            if rng.random() < FOLLOW_UP_SHARE:
                turns += self.follow_up(rng, block, question, answer)
        system = rng.choice(SYSTEM_LINES) if rng.random() < 0.12 else ""
        return Conversation("chat", turns, system, learns_questions=True)

    def follow_up(self, rng: random.Random, block: Block, question: str, answer: str) -> tuple[Turn, ...]:
        others = [other for other in block.answers if other != answer]
        said, reply = follow_up(rng, question, answer, others, id(block) in self.taught, id(block) in self.advised)
        return pairs(varied(rng, said), reply)


def unknown_person(rng: random.Random, name: str) -> Conversation:
    question = rng.choice(("who is {x}", "who was {x}", "tell me about {x}", "do you know {x}", "what did {x} do"))
    turns = pairs(varied(rng, question.format(x=name)), rng.choice(UNKNOWN).format(x=name))
    return Conversation("chat", turns, learns_questions=True)
