"""Owns chats that are nothing but finding and copying: values of lists and tables, and words to repeat.

Keys and values are words at random, so that only the text in front has the answer.
"""

import random

from demo.data.conversation import Conversation, Turn, pairs
from demo.data.handwritten import varied
from demo.data.strings import compound, odd, piece
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
    "Repeat after me: {t}", "Say the following: {t}", "Can you repeat this? {t}", "Echo: {t}", "Write exactly: {t}",
    "Type this back to me: {t}", "Give me this back unchanged: {t}", "Without a change: {t}", "Letter by letter: {t}",
    "Print {t}", "Write {t}", "Just answer with {t}", "Your only answer should be: {t}", "Quote me: {t}",
    "I say: {t}\nYou say the same.", "{t}\n\nRepeat what stands above.", "{t}\nCopy that line.", "Output: {t}",
)  # fmt: skip
# What stands among other words, to be found there: {t} is asked for, {o} is another one.
AMONG = (
    "My file is called `{t}`. What is it called?", "The name of the file is \"{t}\". Repeat the file name.",
    "I wrote \"{t}\" on the board. What did I write?", "In quotes stands \"{t}\". Say only what is in quotes.",
    "First comes `{o}`, then `{t}`. What comes second?", "First comes `{t}`, then `{o}`. What comes first?",
    "Not `{o}` but `{t}` is right. Which one is right?", "I changed `{o}` to `{t}`. What is it now?",
    "I changed `{t}` to `{o}`. What was it before?", "Old: {o}\nNew: {t}\nSay the new one.",
    "Old: {t}\nNew: {o}\nSay the old one.", "A = {t}\nB = {o}\nWhat is A?", "A = {o}\nB = {t}\nWhat is B?",
    "The left one says \"{t}\" and the right one \"{o}\". What does the left one say?",
    "The left one says \"{o}\" and the right one \"{t}\". What does the right one say?",
    "Between the bars: |{t}| What stands there?", "<b>{t}</b> What is bold?", "(see {t}) What should I see?",
)  # fmt: skip
SPELL = (
    "Spell {t}", "Spell the word {t}.", "How is {t} spelled?", "How do you spell {t}?", "Please spell {t} for me.",
    "Spell this: {t}", "{t}, letter by letter please.", "Can you spell {t}?",
)  # fmt: skip
FRAMED = (
    ("Put this in quotes: {t}", '"{t}"'), ("Put this in brackets: {t}", "({t})"), ("Say this twice: {t}", "{t} {t}"),
    ("Write {t}, then {o}.", "{t} {o}"), ("Write {t} and {o} in two lines.", "{t}\n{o}"),
    ("Join {t} and {o}.", "{t}{o}"),
    ("Write {o} after {t}, with a comma.", "{t}, {o}"), ("Write {o} before {t}.", "{o} {t}"),
)  # fmt: skip
REPEAT_SHARE = 0.5
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
    """One to three texts, each to be said again, spelled, or found among other words."""
    turns = [turn for _ in range(fill.rng.choice((1, 1, 2, 3))) for turn in pairs(*repeated(fill))]
    return Conversation("repeat", tuple(turns))


def repeated(fill: Fillers) -> tuple[str, str]:
    """What is asked, and exactly what has to be said."""
    rng, kind = fill.rng, fill.rng.random()
    if kind < 0.1:
        word = piece(fill)
        return rng.choice(SPELL).format(t=word), "-".join(word)
    if kind < 0.2:
        asked, answer = rng.choice(FRAMED)
        names = {"t": compound(fill), "o": compound(fill)}
        return asked.format(**names), answer.format(**names)
    if kind < 0.4:
        text, other = odd(fill), odd(fill)
        return rng.choice(AMONG).format(t=text, o=other), text
    if kind < 0.7:
        text = odd(fill)
    else:
        text = " ".join(entry_word(fill) for _ in range(rng.choice((1, 1, 2, 3, 5, 8, 12, 20, 35))))
    return rng.choice(REPEAT).format(t=text), text


def copying_chat(fill: Fillers) -> Conversation:
    if fill.rng.random() < REPEAT_SHARE:
        return repeat_chat(fill)
    chat = lookup_chat(fill)
    if fill.rng.random() < 0.1:
        return Conversation("lookup", (*pairs(varied(fill.rng, "hello"), "Hello! How can I help you?"), *chat.turns))
    return chat
