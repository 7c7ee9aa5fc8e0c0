"""Owns the names, places, numbers and other fillers of the templates. Evaluation draws from its own half of them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from demo.listing import listed

FIRST_NAMES = listed(
    "Anna Ben Clara David Emma Felix Grace Henry Ida Jack Karen Leo Maria Noah Olga Paul Quinn Rosa Sam "
    "Tina Uma Victor Wendy Xavier Yara Zoe Adam Bella Carl Diana Erik Fiona George Hanna Ivan Julia Kevin "
    "Laura Martin Nina Oscar Paula Robert Sarah Thomas Ursula Vera Walter Alice Bruno Cora Dylan Elena "
    "Frank Gina Hugo Irene James Kate Liam Mona Nora Otto Petra Rita Simon Theo Vivian Will Amy Bob Chloe "
    "Dan Eva Fred Gloria Harry Isla John Kim Lucy Mark Nick Olivia Peter Rachel Steve Tom Mia Lena Max "
    "Jonas Aisha Omar Priya Ravi Chen Mei Yuki Kenji Fatima Ali Sofia Diego Carmen Luis "
    "Abigail Agnes Albert Alex Alfie Amara Amelia Amir Andre Andrea Angela Angus Anika Anton April Archie "
    "Arjun Arthur Astrid Audrey Axel Barbara Beatrice Benjamin Bernard Beth Bianca Bill Billy Blake Bonnie "
    "Boris Brandon Brenda Brian Bridget Brooke Caleb Cameron Camille Carol Caroline Cecilia Cedric Charles "
    "Charlie Charlotte Christian Christine Claire Clive Colin Connor Conrad Curtis Cyril Daisy Daniel Daphne "
    "Darren Dean Deborah Dennis Derek Devi Diane Dominic Donna Dora Doris Dorothy Duncan Edgar Edith Edward "
    "Edwin Eileen Eleanor Eli Elias Elise Ella Ellen Elliot Elsa Emil Emily Enzo Eric Erin Esther Ethan Eugene "
    "Evan Evelyn Faith Farah Fay Ferdinand Finn Flora Florence Francis Freya Gabriel Gary Gemma Gerald Gerard "
    "Gilbert Gordon Graham Greg Greta Guy Gwen Hal Harold Harriet Harvey Hassan Hazel Heather Hector Heidi "
    "Helen Herbert Holly Howard Ian Imani Ines Ingrid Iris Isaac Isabel Ivy Jacob Jade Jake Jamal Jan Jane "
    "Janet Jasmine Jason Jean Jeff Jenny Jeremy Jerome Jesse Jill Joan Joanna Joe Joel Jordan Joseph Josh Joy "
    "Joyce Judith Judy Julian June Kai Kamal Karl Katie Keith Kelly Kenneth Kira Klara Kurt Kyle Lara Larry "
    "Lars Lee Leila Leonard Leroy Lewis Lily Linda Lionel Lisa Lloyd Logan Lois Lorenzo Louis Louise Luca "
    "Lucas Luna Lydia Mabel Maggie Malik Marcus Margaret Marie Marina Mario Marta Mary Mason Matt Matthew "
    "Maurice Maxine Megan Michael Michelle Mike Mila Milo Miriam Molly Monica Morgan Muriel Nadia Naomi "
    "Natalie Nathan Neil Nelly Nicole Nigel Nikita Noel Norman Oliver Olive Owen Pablo Pamela Pascal Patricia "
    "Patrick Pauline Pedro Penelope Percy Philip Phoebe Pierre Polly Rafael Raj Ralph Ramona Raymond Rebecca "
    "Rex Rhys Richard Rob Robin Roger Roland Ron Rory Rosie Ross Roy Ruby Rupert Ruth Ryan Sabrina Sally "
    "Samira Samuel Sandra Saul Scott Sean Sebastian Selma Seth Shane Sharon Sheila Sidney Silvia Simone Stella "
    "Stephen Stuart Sue Susan Suzanne Sven Sybil Tanya Tara Ted Teresa Terry Tessa Tim Timothy Toby Todd Tony "
    "Tracy Trevor Valentina Valerie Vanessa Veronica Victoria Viktor Vince Vincent Viola Violet Virginia Walt "
    "Wanda Warren Wayne Wilfred Wilma Winston Yasmin Yusuf Yvonne Zachary Zara Zelda"
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


RARE_SHARE = 0.4  # of the words and names in training come from the lexicon or are letters at random
CONSONANTS, VOWELS = "bcdfghjklmnprstvwz", "aeiou"
HELD_OUT_PHRASINGS = 5  # of so many phrasings the last one is left to evaluation
HELD_OUT_NUMBERS = 7  # multiples of it are left to evaluation, where a range is wide enough
T = TypeVar("T")


def read_common_words(text_folder: Path) -> dict[str, tuple[str, ...]]:
    """The lists of things.txt by name: things, ideas, people."""
    lines = (text_folder / "things.txt").read_text(encoding="utf-8").splitlines()
    return {kind: tuple(words.split()) for kind, words in (line.split(": ") for line in lines)}


@lru_cache
def halves(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What training draws from, and every fourth word, which is left to evaluation."""
    return tuple(word for index, word in enumerate(words) if index % 4), words[::4]


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
    lexicon: tuple[str, ...] = ()
    """Words of all kinds, so that training meets every token where a text has to be copied."""

    def first_name(self) -> str:
        return self.rng.choice(self.half(FIRST_NAMES))

    def half(self, words: list[str]) -> tuple[str, ...]:
        return halves(tuple(words))[self.held_out]

    def phrasing(self, options: Sequence[T]) -> T:
        """One of the ways to say something; of five or more, every fifth is held out."""
        return self.rng.choice(options if len(options) < HELD_OUT_PHRASINGS else self.own_phrasings(options))

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
        count, kind = self.rng.choice((2, 2, 3)), self.rng.random()
        while True:
            if self.held_out or not self.lexicon or kind > RARE_SHARE:
                word = "".join(self.rng.choice(SYLLABLES) for _ in range(count))
            else:
                word = self.rng.choice(self.lexicon) if kind < RARE_SHARE / 2 else self.letters(count)
            if (sum(map(ord, word)) % HELD_OUT_PHRASINGS == 0) == self.held_out:
                return word.capitalize()

    def letters(self, count: int) -> str:
        """So many syllables of letters at random."""
        pick = self.rng.choice
        syllables = (pick(CONSONANTS) + pick(VOWELS) + pick(("", "", pick(CONSONANTS))) for _ in range(count))
        return pick(("", "", pick(VOWELS))) + "".join(syllables)

    def rare(self, usual: str) -> str:
        """In training now and then a word of the lexicon in place of the usual one."""
        if self.held_out or not self.lexicon or self.rng.random() > RARE_SHARE:
            return usual
        return self.rng.choice(self.lexicon)

    def full_name(self) -> str:
        return self.first_name() + (" " + self.word() if self.rng.random() < 0.7 else "")

    def place(self) -> str:
        if self.rng.random() < 0.35:
            return self.rng.choice(CITIES)
        return self.word() + self.rng.choice(("", "", "", " Hill", " Bay", "ton", "ville", "burg", " Valley"))

    def thing(self) -> str:
        return self.rare(self.rng.choice(self.things))

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
