"""Owns chats about odd prompts: endless repetition, noise, other languages, bare pastes. Answers are short and sane.

Without them a trained model goes on with what it has read: a word a thousand times is answered by the word.
"""

import random
import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from demo.data.app_chats import CHAT_OFFERS, schemas
from demo.data.conversation import Conversation, Turn, pairs, with_reasoning
from demo.data.files import filed
from demo.data.handwritten import Handwritten
from demo.data.words import Fillers, capitalised
from demo.listing import listed

TEXT = Path(__file__).parents[1] / "text" / "oddities.txt"
OFFERED_SHARE, THINKING_SHARE = 0.35, 0.3
JOINTS = (" ", " ", " ", ", ", ", ", "\n", "! ", ". ", "-", "", " and ")
NOISE = "abcdefghijklmnopqrstuvwxyz"
MARKS = listed("? ! . , - _ # * / = + ~ ^ % & ( ) [ ] : ; | @ 0 1 9")
ABOUT_REPEATED = (
    "What is this about?", "What does it say?", "Summarize this.", "What is in this file?", "Explain this text.",
    "Read this, please.", "What is the main point?", "Sum it up.", "Can you make sense of this?", "What do you see?",
)  # fmt: skip
NOT_IN_IT = (
    "Who wrote this?", "When did it happen?", "How much does it cost?", "Where does it take place?", "Who owns it?",
    "What is the date?", "Who is the author?", "How many people came?", "Why did they do it?", "What is the address?",
)  # fmt: skip
NOT_THERE = ("The document does not say that.", "The document does not mention that.")


@dataclass(frozen=True)
class Oddity:
    """Prompts that are answered alike; answers with {w} take up what is repeated."""

    prompts: tuple[str, ...]
    answers: tuple[str, ...]


@lru_cache
def read_oddities() -> dict[str, Oddity]:
    """A name, its prompts after ">", its answers after "<"; all of text/oddities.txt."""
    found: dict[str, Oddity] = {}
    for block in TEXT.read_text(encoding="utf-8").strip().split("\n\n"):
        name, *lines = block.splitlines()
        texts = {mark: tuple(line[2:] for line in lines if line.startswith(mark)) for mark in (">", "<")}
        found[name] = Oddity(texts[">"], texts["<"])
    return found


def odd_chat(fill: Fillers, handwritten: Handwritten, length: int) -> Conversation:
    """One odd exchange for a row of `length` tokens, alone or among small talk."""
    rng = fill.rng
    makers = (repeated, written_out, noise, of_marks, bare_paste, repeated_file)
    turns = rng.choices(makers, (0.34, 0.2, 0.14, 0.06, 0.08, 0.18))[0](fill, length)
    tools = schemas(CHAT_OFFERS) if rng.random() < OFFERED_SHARE else ()
    if rng.random() < THINKING_SHARE:  # a thought says nothing of the text, so that it can't go on with it
        return with_reasoning(Conversation("chat", turns, tools=tools), [answer_to(rng, "thoughts")])
    if rng.random() < 0.3:
        turns = (*pairs(*handwritten.exchange(rng)), *turns)
    if rng.random() < 0.4:
        turns = (*turns, *pairs(*handwritten.exchange(rng)))
    return Conversation("chat", turns, tools=tools)


def answer_to(rng: random.Random, name: str, word: str = "") -> str:
    return rng.choice(read_oddities()[name].answers).replace("{w}", word)


def written_out(fill: Fillers, length: int) -> tuple[Turn, ...]:
    """A prompt of the text file: requests without an end, other languages, code, orders to forget the rules."""
    listed_ones = {name: odd for name, odd in read_oddities().items() if odd.prompts}
    odd = fill.rng.choice(list(listed_ones.values()))
    word = fill.thing()
    prompt = fill.rng.choice(odd.prompts).replace("{w}", word).replace("{n}", str(fill.integer(50, 90_000)))
    return pairs(prompt, fill.rng.choice(odd.answers).replace("{w}", word))


def repeated_text(fill: Fillers, length: int) -> tuple[str, str]:
    """-> a word, a few words or a sentence, and the same many times, up to about the length of a row."""
    rng, kind = fill.rng, fill.rng.random()
    if kind < 0.6:
        unit = fill.thing()
    elif kind < 0.75:
        unit = " ".join(fill.thing() for _ in range(rng.choice((2, 3))))
    elif kind < 0.85:
        unit = rng.choice((rng.choice(NOISE), fill.number(), fill.letters(2), "ha", "la", "no", "yes", "test"))
    else:
        unit = f"{capitalised(fill.thing())} and {fill.thing()} are {fill.thing()}."
    unit = rng.choice((unit, unit, capitalised(unit), unit.upper()))
    joint = rng.choice(JOINTS)
    most = max(5, int(length * 1.8 / (len(unit) + len(joint) + 1)))
    count = min(most, int(4 * (most / 4) ** rng.random()) + 1)
    return unit, joint.join([unit] * count) + rng.choice(("", "", ".", "?", "!"))


def repeated(fill: Fillers, length: int) -> tuple[Turn, ...]:
    unit, text = repeated_text(fill, length)
    return pairs(text, answer_to(fill.rng, "repeated", unit.rstrip(".")))


def repeated_file(fill: Fillers, length: int) -> tuple[Turn, ...]:
    """Repetition in the form in which the application shows a document, and a question about it."""
    rng = fill.rng
    unit, text = repeated_text(fill, length)
    shown = filed(fill, [[text]]).text if rng.random() < 0.7 else text
    if rng.random() < 0.5:
        return pairs(f"{shown}\n\n{rng.choice(NOT_IN_IT)}", rng.choice(NOT_THERE))
    return pairs(f"{shown}\n\n{rng.choice(ABOUT_REPEATED)}", answer_to(rng, "repeated file", unit.rstrip(".")))


def noise(fill: Fillers, length: int) -> tuple[Turn, ...]:
    """Letters or words at random."""
    rng = fill.rng
    if rng.random() < 0.5:
        text = " ".join(letters(rng) for _ in range(rng.choice((1, 1, 2, 3, 8, 40))))
        return pairs(text, answer_to(rng, "noise"))
    words = [fill.thing() for _ in range(rng.choice((4, 6, 9, 15, 40, 100)))]
    return pairs(" ".join(words), answer_to(rng, "word soup"))


def letters(rng: random.Random) -> str:
    row = rng.choice(("qwertyuiop", "asdfghjkl", "zxcvbnm", NOISE, NOISE, NOISE + "0123456789"))
    return "".join(rng.choice(row) for _ in range(rng.randint(4, 14)))


def of_marks(fill: Fillers, length: int) -> tuple[Turn, ...]:
    """Nothing but marks, or nothing at all."""
    rng = fill.rng
    one = rng.choice(MARKS)
    text = rng.choice(("", " ", one, one * rng.randint(2, 60), "".join(rng.choice(MARKS) for _ in range(9))))
    return pairs(text, answer_to(rng, "marks"))


def bare_paste(fill: Fillers, length: int) -> tuple[Turn, ...]:
    """A text that nothing is asked about: a log, a table, numbers."""
    rng = fill.rng
    lines = [paste_line(fill) for _ in range(rng.choice((3, 6, 12, 25)))]
    return pairs("\n".join(lines), answer_to(rng, "paste"))


def paste_line(fill: Fillers) -> str:
    rng = fill.rng
    level = rng.choice(("INFO", "WARN", "DEBUG"))
    log = f"{fill.integer(10, 23)}:{fill.integer(10, 59)} {level} {fill.thing()} {fill.number()}"
    table = f"{fill.thing()};{fill.number()};{fill.word()}"
    tag = re.sub(r"\W", "", fill.thing())
    return rng.choice((log, table, f"<{tag}>{fill.word()}</{tag}>", f"{fill.word()} = {fill.number()};", fill.number()))
