"""Owns the short reasoning that thinking mode shows: what is asked, and what has to be done for it."""

import random
import re

from demo.data.conversation import Call, Conversation, Turn, with_reasoning

NOT_THERE = re.compile(r"does not (say|mention)|cannot find|not in the (text|document)|says nothing", re.I)
QUOTED = re.compile(r'"([^"]{8,})"')
REMEMBERED = re.compile(r"^(Yes, your|Your|You (live|told|like|are(?! welcome)|work|drive|do|want|have not)|It is)\b")
OF_DOCUMENT = re.compile(r"\b(the document (says|does not)|according to the document)\b", re.I)
KINDS = (
    (r"\b(joke|funny|laugh)\b", "a joke", "I tell a short, harmless one."),
    (r"\b(story|tale)\b", "a story", "I tell a small story with a good end."),
    (r"\b(poem|rhyme|haiku|song)\b", "some verses", "I write a few short lines."),
    (r"\b(email|letter|card|toast|invitation|message|note)\b", "a text to use", "I write a short and polite one."),
    (r"\b(ideas?|suggest|recommend|list)\b", "ideas", "I give a few simple ones."),
    (r"\b(difference|better|bigger|faster|or)\b", "a comparison", "I compare the two and stay honest."),
    (
        r"^(how|what can i do|what should i|help me|any tips)\b|\b(way to|trick|advice|tips?)\b",
        "advice",
        "I give two or three simple steps.",
    ),
    (r"^why\b", "a reason", "I explain it in simple words."),
    (
        r"^(what|who|where|when|which|whats|what's|explain|define|tell me about)\b",
        "facts",
        "I say briefly what I know.",
    ),
    (r"\b(thank|thanks|thx)\b", "nothing, it is thanks", "I answer kindly."),
    (r"^(hi|hello|hey|good (morning|evening|day))\b", "a greeting", "I greet back and ask how I can help."),
    (r"\b(bye|goodbye|see you|good night)\b", "a goodbye", "I say goodbye warmly."),
    (
        r"^(i (want|need|would like|have) to|help|can you|could you)\b",
        "help",
        "I say what I can do and keep it simple.",
    ),
    (r"^(i|i'm|im|my|we)\b", "someone who listens", "The user tells something personal, so I answer with care."),
)


def shortened(text: str, most: int = 80) -> str:
    line = text.strip().split("\n")[-1].strip()
    return line if len(line) <= most else line[:most].rsplit(" ", 1)[0] + " ..."


def chat_reason(rng: random.Random, question: str, answer: str) -> str:
    shown = shortened(question)
    plain = re.sub(
        r"^(hi|hey|so|well|oh|ugh|ok so|btw|you know|honestly|hmm|by the way)[,! ]+(?=\w)", "", question.lower()
    )
    for pattern, wanted, to_do in KINDS:
        if re.search(pattern, plain):
            return rng.choice(
                (f'The user wrote "{shown}" and wants {wanted}. {to_do}', f"The user wants {wanted}. {to_do}")
            )
    return rng.choice(
        (f'The user wrote "{shown}" I answer in a short and friendly way.', "A short, friendly answer is best.")
    )


def document_reason(question: str, answer: str) -> str:
    asked = shortened(question)
    if NOT_THERE.search(answer):
        return f"I look for the answer to: {asked} No sentence of the text says it, so I must not guess."
    found = QUOTED.search(answer)
    sentence = found[1] if found else answer
    return f'I look for the answer to: {asked} The sentence says: "{sentence}"'


def call_reason(calls: tuple[Call, ...]) -> str:
    parts = []
    for call in calls:
        given = ", ".join(f"{name} = {shortened(str(value), 60)}" for name, value in call.arguments.items())
        parts.append(f"This needs {call.name}; " + (f"the argument is {given}." if given else "it takes no argument."))
    return " ".join(parts)


def recall_reason(question: str, answer: str) -> str:
    asked = shortened(question)
    if "not told me" in answer or "do not know" in answer:
        return f"The user asks: {asked} I find nothing about it in this chat."
    return f"The user asks: {asked} I look back in the chat. {answer}"


def reason_for(rng: random.Random, turn: Turn, before: Turn, kind: str) -> str:
    """One or two short sentences that lead to the turn."""
    if turn.calls:
        return call_reason(turn.calls)
    if before.role == "tool":
        return f"The result is: {shortened(before.content, 100)} I tell the user in a sentence."
    if kind == "document" and OF_DOCUMENT.search(turn.content):
        return document_reason(before.content, turn.content)
    if REMEMBERED.search(turn.content) and re.search(r"\b(my|i|me)\b", before.content.lower()):
        return recall_reason(before.content, turn.content)
    if kind == "title":
        return "I name the topic in a few words."
    if kind == "summary":
        return "I find the sentence that says what the text is about, and leave out details."
    return chat_reason(rng, before.content, turn.content)


def with_thoughts(rng: random.Random, conversation: Conversation) -> Conversation:
    reasons = [
        reason_for(rng, turn, conversation.turns[index - 1], conversation.kind)
        for index, turn in enumerate(conversation.turns)
        if turn.role == "assistant"
    ]
    return with_reasoning(conversation, reasons)
