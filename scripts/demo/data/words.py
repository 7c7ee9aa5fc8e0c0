"""Owns the names, places, numbers and other fillers of the templates. Evaluation draws from its own half of them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from demo.data.rewordings import AS_WRITTEN, Rewordings
from demo.listing import listed

FIRST_NAMES = listed(
    "Anna Ben Clara David Emma Felix Grace Henry Ida Jack Karen Leo Maria Noah Olga Paul Quinn Rosa Sam "
    "Tina Uma Victor Wendy Xavier Yara Zoe Adam Bella Carl Diana Erik Fiona George Hanna Ivan Julia Kevin "
    "Laura Martin Nina Oscar Paula Robert Sarah Thomas Ursula Vera Walter Alice Bruno Cora Dylan Elena "
    "Frank Gina Hugo Irene James Kate Liam Mona Nora Otto Petra Rita Simon Theo Vivian Will Amy Bob Chloe "
    "Dan Eva Fred Gloria Harry Isla John Kim Lucy Mark Nick Olivia Peter Rachel Steve Tom Mia Lena Max "
    "Jonas Aisha Omar Priya Ravi Chen Mei Yuki Kenji Fatima Ali Sofia Diego Carmen Luis"
)
SYLLABLES = listed(
    "ba be bo da del den dor el en far fen gar gil ham hol il jor ka kel kin la len lin lo lun ma mar mel "
    "mi mon na nel nor o pel per qui ra ren ri ro sa sel sol ta tel tor u val van vel ver wil win yor za "
    "zen"
)
MONTHS = listed("January February March April May June July August September October November December")
DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
COLORS = listed("red blue green yellow white black orange purple brown grey pink silver golden")
JOBS = listed(
    "teacher nurse doctor baker farmer pilot painter singer driver lawyer dentist cook carpenter engineer "
    "gardener librarian journalist programmer waiter plumber tailor photographer scientist student"
)
PETS = listed("dog cat rabbit parrot hamster horse goldfish turtle mouse pony canary snake")
FOODS = [
    "pizza",
    "soup",
    "rice",
    "pasta",
    "fish",
    "chocolate",
    "pancakes",
    "curry",
    "salad",
    "sushi",
    "lasagna",
    "apple pie",
    "noodles",
    "dumplings",
    "bread",
    "cheese",
]
HOBBIES = listed("painting chess swimming gardening cooking reading running singing fishing hiking dancing photography")
LANGUAGES = listed("Spanish French German Polish Japanese Italian Arabic Hindi Dutch Greek Korean Swedish")
CITIES = listed(
    "Paris London Berlin Madrid Rome Vienna Prague Oslo Dublin Lisbon Athens Tokyo Delhi Cairo Lima "
    "Boston Chicago Toronto Sydney Munich Hamburg Milan Seville Lyon Kyoto Mumbai Nairobi"
)


HELD_OUT_PHRASINGS = 5  # of so many phrasings the last one is left to evaluation
HELD_OUT_NUMBERS = 7  # multiples of it are left to evaluation, where a range is wide enough
T = TypeVar("T")


def read_common_words(text_folder: Path) -> dict[str, tuple[str, ...]]:
    """The lists of things.txt by name: things, ideas, people."""
    lines = (text_folder / "things.txt").read_text(encoding="utf-8").splitlines()
    return {kind: tuple(words.split()) for kind, words in (line.split(": ") for line in lines)}


def with_article(word: str) -> str:
    return ("an " if word[0].lower() in "aeiou" else "a ") + word


def capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


@dataclass(frozen=True)
class Fillers:
    """Draws fillers and phrasings; those of `held_out` are never drawn in training."""

    rng: random.Random
    things: tuple[str, ...]
    held_out: bool = False
    rewordings: Rewordings = AS_WRITTEN

    def first_name(self) -> str:
        return self.rng.choice(self.half(FIRST_NAMES))

    def half(self, words: list[str]) -> list[str]:
        return words[::4] if self.held_out else [word for index, word in enumerate(words) if index % 4]

    def phrasing(self, options: Sequence[T]) -> T:
        """One of the ways to say something; of five or more, every fifth is held out."""
        return self.rng.choice(options if len(options) < HELD_OUT_PHRASINGS else self.own_phrasings(options))

    def reworded(self, original: str) -> str:
        return self.rewordings.draw(self.rng, original, self.held_out)

    def own_phrasings(self, options: Sequence[T]) -> list[T]:
        last = HELD_OUT_PHRASINGS - 1
        return [option for i, option in enumerate(options) if (i % HELD_OUT_PHRASINGS == last) == self.held_out]

    def integer(self, low: int, high: int) -> int:
        """Within [low, high]; of ranges of 28 or more, multiples of seven are held out."""
        if high - low < 4 * HELD_OUT_NUMBERS:
            return self.rng.randint(low, high)
        while True:
            number = self.rng.randint(low, high)
            if (number % HELD_OUT_NUMBERS == 0) == self.held_out:
                return number

    def word(self) -> str:
        """A made-up name; its letters say whether it is held out."""
        count = self.rng.choice((2, 2, 3))
        while True:
            word = "".join(self.rng.choice(SYLLABLES) for _ in range(count))
            if (sum(map(ord, word)) % HELD_OUT_PHRASINGS == 0) == self.held_out:
                return word.capitalize()

    def full_name(self) -> str:
        return self.first_name() + (" " + self.word() if self.rng.random() < 0.7 else "")

    def place(self) -> str:
        if self.rng.random() < 0.35:
            return self.rng.choice(CITIES)
        return self.word() + self.rng.choice(("", "", "", " Hill", " Bay", "ton", "ville", "burg", " Valley"))

    def thing(self) -> str:
        return self.rng.choice(self.things)

    def year(self) -> str:
        return str(self.integer(1805, 2024))

    def number(self) -> str:
        low, high = self.rng.choice(((2, 30), (20, 99), (100, 999), (1000, 9999)))
        return str(self.integer(low, high))

    def clock(self) -> str:
        minutes = self.rng.choice(("", ":15", ":30", ":45"))
        return f"{self.rng.randint(1, 12)}{minutes} {self.rng.choice(('am', 'pm'))}"

    def day_of_year(self) -> str:
        return f"{self.rng.randint(1, 28)} {self.rng.choice(MONTHS)}"

    def date(self) -> str:
        return f"{self.rng.randint(1, 28)} {self.rng.choice(MONTHS)} {self.year()}"
