"""Owns chats that are nothing but finding and copying: values of lists and tables, and words to repeat.

Keys and values are words at random, so that only the text in front has the answer.
"""

import random

from demo.data.conversation import Conversation, Turn, pairs
from demo.data.handwritten import varied
from demo.data.words import Fillers, capitalised

INTRODUCTIONS = (
    "Here is a list:", "This is my list:", "List:", "Notes:", "Some entries:", "Table:", "Please read this:", "Data:",
    "Keep this in mind:", "These are the values:", "From the office:", "", "",
)  # fmt: skip
ASKED = (
    "What is {k}?", "What does it say for {k}?", "Which value has {k}?", "What is the value of {k}?", "{k}?",
    "Tell me the value of {k}.", "What stands beside {k}?", "And {k}?", "What did I write for {k}?", "Find {k}.",
    "Look up {k}.", "What belongs to {k}?", "What is written next to {k}?", "I need the entry for {k}.", "Give me {k}.",
)  # fmt: skip
TURNED = (
    "Which entry is {v}?", "What has the value {v}?", "For what does it say {v}?", "Where does it say {v}?",
    "Which one is {v}?", "Who or what has {v}?", "To what does {v} belong?", "Beside what does {v} stand?",
)  # fmt: skip
ABSENT = ("The list does not say that.", "The list does not mention {k}.")
REPEAT = (
    "Repeat this: {t}", "Say: {t}", "Please repeat: {t}", "Copy this text: {t}", "Write exactly this: {t}", "Say {t}",
    "Repeat after me: {t}", "Say the following: {t}", "Can you repeat this? {t}", "Echo: {t}",
)  # fmt: skip
REPEAT_SHARE = 0.4
SHAPES = ("{k}: {v}", "{k} = {v}", "- {k}: {v}", "{k} | {v}", "* {k} - {v}", "{k}\t{v}", "{k} -> {v}", "{k} is {v}")


def entry_word(fill: Fillers) -> str:
    kind = fill.rng.random()
    if kind < 0.25 and fill.lexicon:
        word = fill.rng.choice(fill.lexicon)
    elif kind < 0.45 and fill.lexicon:
        word = blend(fill)
    elif kind < 0.6:
        word = fill.letters(fill.rng.choice((2, 3)))
    elif kind < 0.75:
        word = fill.full_name()
    else:
        word = fill.word()
    return capitalised(word) if fill.rng.random() < 0.3 else word


def blend(fill: Fillers) -> str:
    """The beginning of one word and the end of another: the pieces of which unknown words are made, to be copied."""
    first, last = fill.rng.choice(fill.lexicon), fill.rng.choice(fill.lexicon)
    return first[: fill.rng.randint(2, max(2, len(first) - 2))] + last[fill.rng.randrange(max(1, len(last) - 2)) :]


def entry_value(fill: Fillers) -> str:
    kind = fill.rng.random()
    if kind < 0.3:
        return fill.number()
    if kind < 0.4:
        return fill.rng.choice((fill.clock, fill.day_of_year, fill.year, fill.place))()
    return " ".join(entry_word(fill) for _ in range(fill.rng.choice((1, 1, 2, 3))))


def lookup_chat(fill: Fillers) -> Conversation:
    """A list of two to sixty entries, and questions on one to five of them; now and then on one that is not there."""
    rng = fill.rng
    count = rng.choice((2, 3, 4, 6, 8, 12, 16, 24, 40, 60))
    entries = {key: entry_value(fill) for key in dict.fromkeys(entry_word(fill) for _ in range(count))}
    shape = rng.choice(SHAPES)
    lines = {key: shape.format(k=key, v=value) for key, value in entries.items()}
    marks = marks_of(rng, list(lines))
    text = "\n".join(f"{marks[key]} {line}".strip() for key, line in lines.items())
    turns: list[Turn] = []
    for number, key in enumerate(rng.sample(list(entries), min(len(entries), rng.randint(1, 5)))):
        question, answer = asked(fill, key, entries, lines, marks)
        first = f"{rng.choice(INTRODUCTIONS)}\n{text}\n\n{question}".strip() if number == 0 else question
        turns += pairs(first, answer)
    return Conversation("lookup", tuple(turns), learns_choices=False)


def asked(
    fill: Fillers, key: str, entries: dict[str, str], lines: dict[str, str], marks: dict[str, str]
) -> tuple[str, str]:
    rng, value = fill.rng, entries[key]
    if rng.random() < 0.1:
        other = entry_word(fill)
        if other not in entries and other not in entries.values():
            return rng.choice(ASKED).format(k=other), rng.choice(ABSENT).format(k=other)
    if rng.random() < 0.25 and list(entries.values()).count(value) == 1:
        return rng.choice(TURNED).format(v=value), answered(rng, key, lines[key], marks[key])
    return rng.choice(ASKED).format(k=key), answered(rng, value, lines[key], marks[key])


def answered(rng: random.Random, short: str, line: str, mark: str) -> str:
    bare = line.lstrip("-* ")
    if mark:
        return rng.choice((f'The document says: "{bare}" {mark}', f"{short} {mark}"))
    return rng.choice((f"{short}", f"It is {short}.", f'The list says: "{bare}"'))


def marks_of(rng: random.Random, keys: list[str]) -> dict[str, str]:
    """Mostly none, else a line's number or a page of several lines before each line."""
    style, first, size = rng.random(), rng.choice((1, 1, rng.randint(2, 400))), rng.randint(1, 6)
    if style < 0.6:
        return dict.fromkeys(keys, "")
    if style < 0.8:
        return {key: f"[line {first + number}]" for number, key in enumerate(keys)}
    return {key: f"[p.{first + number // size}]" for number, key in enumerate(keys)}


def repeat_chat(fill: Fillers) -> Conversation:
    text = " ".join(entry_word(fill) for _ in range(fill.rng.choice((1, 1, 2, 3, 5, 8, 12, 20, 35))))
    return Conversation("repeat", pairs(fill.rng.choice(REPEAT).format(t=text), text))


def copying_chat(fill: Fillers) -> Conversation:
    if fill.rng.random() < REPEAT_SHARE:
        return repeat_chat(fill)
    chat = lookup_chat(fill)
    if fill.rng.random() < 0.1:
        return Conversation("lookup", (*pairs(varied(fill.rng, "hello"), "Hello! How can I help you?"), *chat.turns))
    return chat
