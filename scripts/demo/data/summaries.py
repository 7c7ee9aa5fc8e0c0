"""Owns requests to sum up a short text, answered with its main sentence, shortened by rules."""

import random
import re

from demo.data.conversation import Conversation, Turn, pairs
from demo.data.words import Fillers, capitalised
from demo.listing import listed

ASKED = (
    "Summarise this text.", "Summarize this.", "What is this about?", "TL;DR", "Sum this up in one sentence.",
    "Can you summarize this for me?", "Give me a short summary.", "What does this text say, in short?", "Shorten this.",
    "What is the main point?", "In one sentence, please.", "Write a summary of this.", "Please sum up this text.",
    "What is the text about?", "Tell me briefly what this says.", "summarize", "whats this about", "tl;dr please",
    "Give me the gist.", "Make this shorter.", "I have no time to read this. What does it say?", "Main idea?",
    "Could you give me a one sentence summary?", "Please shorten this text.", "What is the key message here?",
    "Summarise the following text.", "What should I know from this?", "Sum it up, please.", "short summary please",
    "What is the topic of this text?",
)  # fmt: skip
ABOUT = ("about", "topic")
FRAMES = (
    "{q}\n\n{d}",
    "{d}\n\n{q}",
    "{q} {d}",
    'Text: "{d}"\n\n{q}',
    "{q}\n\nText:\n{d}",
    "Here is a text:\n\n{d}\n\n{q}",
)
FRAMES += ("<document>\n{d}\n</document>\n\n{q}", "{d}\n\n---\n{q}", "{q}\n---\n{d}", "Read this:\n{d}\n\n{q}")
SHORTER = ("shorter please", "can you make it shorter", "in fewer words", "that is too long", "even shorter", "short")
LEADS = re.compile(
    r"^(however|also|in addition|additionally|moreover|furthermore|for example|in general|overall|in fact|of course"
    r"|today|in the end|finally|usually|often|sometimes|in conclusion|therefore|as a result|well|so|in short), ",
    re.I,
)
COMMON = frozenset(
    listed(
        "the and are was were for with that this from have has had they their them its it's you your can will not but "
        "all more most many one also into which when where what who how than then there these those such about other "
        "some very just like over out may been being only each his her she our"
    )
)
LONGEST = 18
"""Words of a summary beyond which the end of the sentence is cut off at a comma or a side clause."""


def words_of(sentence: str) -> set[str]:
    """Content words, cut to their stem so that "dog" and "dogs" are one."""
    return {word[:6].rstrip("s") for word in re.findall(r"[a-z]{3,}", sentence.lower()) if word not in COMMON}


def main_sentence(sentences: list[str]) -> str:
    """The one that shares most words with the others; earlier ones have an advantage."""
    bags = [words_of(sentence) for sentence in sentences]

    def centrality(index: int) -> float:
        shared = sum(len(bags[index] & bag) for place, bag in enumerate(bags) if place != index)
        return shared / (len(bags[index]) + 3) ** 0.5 * (1.6 if index == 0 else 1.0)

    return sentences[max(range(len(sentences)), key=centrality)]


def condensed(sentence: str, longest: int = LONGEST) -> str:
    """Without leads and brackets, and cut before a side clause where it is long."""
    text = re.sub(r"\s*\([^)]*\)", "", LEADS.sub("", sentence)).strip()
    for mark in (
        r", (which|who|where|while|although|though|because|so that|including|such as|making) ",
        r"; ",
        r", and ",
        r", ",
    ):
        if len(text.split()) <= longest:
            break
        head = re.split(mark, text)[0]
        if len(head.split()) >= 6:
            text = head
    return capitalised(text.rstrip(".!?,; ") + ".")


def summary_of(sentences: list[str]) -> str:
    return condensed(main_sentence(sentences))


def summary_chat(fill: Fillers, sentences: list[str]) -> Conversation:
    rng = fill.rng
    question = fill.phrasing(ASKED)
    summary = summary_of(sentences)
    is_about = any(word in question.lower() for word in ABOUT)
    answer = f"The text says this: {summary}" if is_about and rng.random() < 0.3 else summary
    framed = fill.phrasing(FRAMES).format(q=question, d=laid_out(rng, sentences))
    turns: tuple[Turn, ...] = pairs(framed, answer)
    short = condensed(summary, 9)
    if short != summary and rng.random() < 0.2:
        turns += pairs(fill.phrasing(SHORTER), short)
    return Conversation("summary", turns, answer_loss="double")


def laid_out(rng: random.Random, sentences: list[str]) -> str:
    return ("\n" if rng.random() < 0.1 else " ").join(sentences)
