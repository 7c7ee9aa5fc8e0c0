"""Owns small sums: how people ask for them, the answer, and the steps that lead to it."""

import random
from dataclasses import dataclass

from demo.data.conversation import Conversation, Turn, pairs, with_reasoning
from demo.data.handwritten import varied
from demo.data.words import Fillers, capitalised

SIGNS = {"+": "plus", "-": "minus", "*": "times", "/": "divided by"}
ASKED = (
    "what is {e}", "how much is {e}", "what's {e}", "calculate {e}", "{e}", "can you calculate {e}", "{e} =",
    "what does {e} make", "solve {e}", "do you know what {e} is", "tell me what {e} is", "compute {e}", "whats {e}",
    "what do i get for {e}", "can you tell me {e}", "i need to know {e}", "please work out {e}", "quick: {e}",
    "how many is {e}", "what is the result of {e}", "help me with {e}", "do the sum {e}", "{e} makes", "{e} is what",
    "what would {e} be",
)  # fmt: skip
STORIES = {
    "+": (
        "i have {a} {t} and get {b} more, how many do i have",
        "there are {a} {t} in one box and {b} in another, how many are there",
        "anna has {a} {t} and ben has {b}, how many do they have together",
        "i bought {a} {t} yesterday and {b} today, how many is that",
        "if you add {b} {t} to {a} {t}, how many do you have",
    ),
    "-": (
        "i have {a} {t} and give away {b}, how many are left",
        "there were {a} {t} and {b} are gone, how many are there now",
        "i had {a} {t} and lost {b}, how many do i still have",
        "from {a} {t} we ate {b}, how many remain",
        "if i take {b} {t} from {a}, how many are left",
    ),
    "*": (
        "i have {a} bags with {b} {t} each, how many are there",
        "{a} boxes hold {b} {t} each, how many is that",
        "i buy {b} {t} a day for {a} days, how many do i have",
        "each of {a} children gets {b} {t}, how many do i need",
        "there are {a} rows of {b} {t}, how many in all",
    ),
    "/": (
        "i share {a} {t} among {b} children, how many does each get",
        "{a} {t} are put into {b} equal bags, how many are in each",
        "we divide {a} {t} by {b} people, how many for each",
        "split {a} {t} into {b} equal groups, how many in one group",
        "{b} friends share {a} {t}, how many does each get",
    ),
}
THINGS = (
    "apples",
    "books",
    "coins",
    "eggs",
    "cookies",
    "pens",
    "stamps",
    "balls",
    "cards",
    "flowers",
    "sweets",
    "nuts",
)
HELD_OUT_SUMS = 7


@dataclass(frozen=True)
class Sum:
    left: int
    sign: str
    right: int

    @property
    def result(self) -> int:
        results = {"+": self.left + self.right, "-": self.left - self.right, "*": self.left * self.right}
        return results[self.sign] if self.sign in results else self.left // self.right

    @property
    def written(self) -> str:
        return f"{self.left} {self.sign} {self.right}"

    @property
    def spoken(self) -> str:
        return f"{self.left} {SIGNS[self.sign]} {self.right}"

    @property
    def is_held_out(self) -> bool:
        return (3 * self.left + self.right) % HELD_OUT_SUMS == 0


def small_sum(rng: random.Random, held_out: bool = False) -> Sum:
    """Sums within 100 and the tables up to 12; every seventh pair of numbers is left to evaluation."""
    while True:
        sign = rng.choice("++--**/")
        high = 12 if sign in "*/" else rng.choice((12, 20, 100))
        left, right = rng.randint(0, high), rng.randint(0, high)
        if sign == "-" and right > left:
            left, right = right, left
        if sign == "/":
            right = max(1, right)
            left = right * rng.randint(0, 12)
        drawn = Sum(left, sign, right)
        if drawn.is_held_out == held_out:
            return drawn


def asked_and_answered(fill: Fillers) -> tuple[Sum, str, str]:
    """-> the sum, the question and the answer, which ends with the result."""
    rng = fill.rng
    drawn = small_sum(rng, fill.held_out)
    if rng.random() < 0.25 and drawn.right > 1 and drawn.left > 1:
        thing = rng.choice(THINGS)
        story = fill.phrasing(STORIES[drawn.sign]).format(a=drawn.left, b=drawn.right, t=thing)
        answer = rng.choice((f"{drawn.written} = {drawn.result}.", f"That makes {drawn.result}."))
        return drawn, varied(rng, story), answer
    shown = rng.choice((drawn.written, drawn.spoken, drawn.written.replace(" ", ""), drawn.written.replace("*", "x")))
    answers = (
        f"{drawn.written} = {drawn.result}.",
        f"{drawn.spoken} is {drawn.result}.",
        f"The answer is {drawn.result}.",
    )
    return drawn, varied(rng, fill.phrasing(ASKED).format(e=shown)), capitalised(rng.choice(answers))


def sum_chat(fill: Fillers, thinking: bool = False) -> Conversation:
    turns: tuple[Turn, ...] = ()
    steps = []
    for _ in range(fill.rng.choice((1, 1, 2, 3))):
        drawn, question, answer = asked_and_answered(fill)
        turns += pairs(question, answer)
        steps.append(steps_of(drawn))
    chat = Conversation("sum", turns, learns_questions=True)
    return with_reasoning(chat, steps) if thinking else chat


def steps_of(drawn: Sum) -> str:
    """The way to the result: "17 + 25: 10 + 20 = 30, 7 + 5 = 12, 30 + 12 = 42."."""
    left, right = drawn.left, drawn.right
    if (drawn.sign in "+-" and (left < 10 or right < 10)) or (drawn.sign == "-" and left % 10 < right % 10):
        return f"{drawn.written}: {counted(drawn)}."
    if drawn.sign in "+-":
        tens = Sum(left - left % 10, drawn.sign, right - right % 10)
        ones = Sum(left % 10, drawn.sign, right % 10)
        parts = [f"{part.written} = {part.result}" for part in (tens, ones, Sum(tens.result, "+", ones.result))]
        return f"{drawn.written}: {', '.join(parts)}."
    if drawn.sign == "*" and left > 5 and right > 2:
        parts = [Sum(5, "*", right), Sum(left - 5, "*", right)]
        both = Sum(parts[0].result, "+", parts[1].result)
        return f"{drawn.written}: {', '.join(f'{part.written} = {part.result}' for part in (*parts, both))}."
    if drawn.sign == "/":
        asked = f"which number times {right} makes {left}?"
        return f"{drawn.written}: {asked} {drawn.result} * {right} = {left}, so {drawn.result}."
    return f"{drawn.written} = {drawn.result}."


def counted(drawn: Sum) -> str:
    """Over the next ten where there is one, else at once; a subtraction takes the tens first."""
    left, right, sign = drawn.left, drawn.right, drawn.sign
    if sign == "-" and right >= 10:
        tens = Sum(left, "-", right - right % 10)
        last = Sum(tens.result, "-", right % 10)
        return f"{tens.written} = {tens.result}, {last.written} = {last.result}"
    if sign == "+" and left % 10 > 0 and right < 10 and left % 10 + right > 10:
        first = Sum(left, "+", 10 - left % 10)
        rest = Sum(first.result, "+", right - first.right)
        return f"{first.written} = {first.result}, {rest.written} = {rest.result}"
    return f"{drawn.written} = {drawn.result}"
