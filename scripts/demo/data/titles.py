"""Owns short titles for conversations and the short reasoning that thinking mode shows."""

import random
import re

from demo.data.conversation import Conversation, Turn, pairs, with_reasoning
from demo.data.words import capitalised

ASKED = (
    "Write a short title for this conversation.\n\n{c}",
    "Give this conversation a title of at most six words.\n\n{c}",
    "{c}\n\nWrite a short title for the conversation above.",
    "Title this chat in a few words:\n\n{c}",
)
LEADS = re.compile(
    r"^(hi|hey|hello|please|so|well|ok|um|now|and|also|hotslot|quick question|i have a question|i want to know)[,:! ]+"
    r"|^(can|could|would) you |^do you know |^(please )?(tell|give|show|explain to) me (about |what |how )?|^i want to "
    r"|^(what|who|where|when|why|how)( is| are| was| does| do| did| can i| do i|'s)?( the| a| an| my)? ",
    re.I,
)


def title_of(question: str) -> str:
    """The question without its polite and asking words, at most six words."""
    text = question.split("\n")[0].strip()
    for _ in range(3):
        text = LEADS.sub("", text).strip()
    words = re.sub(r"[?!.\"]", "", text).split()[:6]
    return capitalised(" ".join(words)) if words else "Short chat"


def title_chat(rng: random.Random, question: str, answer: str) -> Conversation:
    shown = rng.choice((f"User: {question}\nAssistant: {answer}", f"User: {question}", question))
    return Conversation("title", pairs(rng.choice(ASKED).format(c=shown), title_of(question)))


def reason_for(rng: random.Random, turn: Turn, before: Turn, kind: str) -> str:
    """One or two short sentences that lead to the turn."""
    asked = before.content.split("\n")[-1].strip()
    shown = asked if len(asked) < 90 else asked[:80].rsplit(" ", 1)[0] + " ..."
    if turn.calls:
        call = turn.calls[0]
        return rng.choice(
            (f"The user asks: {shown} I need the {call.name} tool for this.", f"I should call {call.name}.")
        )
    if before.role == "tool":
        return rng.choice(("The tool has answered. I will tell the user.", "I have the result now, so I can answer."))
    if kind == "document":
        found = (
            "The document does not say that." if "document does not" in turn.content else "I will quote the sentence."
        )
        return rng.choice((f"I look for the answer in the document. {found}", f"I need to check the document. {found}"))
    return rng.choice(
        (
            f"The user says: {shown} I can answer this directly.",
            f"The user writes: {shown} I will give a short and friendly answer.",
            "This is easy. I will answer in one or two sentences.",
        )
    )


def with_thoughts(rng: random.Random, conversation: Conversation) -> Conversation:
    reasons = [
        reason_for(rng, turn, conversation.turns[index - 1], conversation.kind)
        for index, turn in enumerate(conversation.turns)
        if turn.role == "assistant"
    ]
    return with_reasoning(conversation, reasons)
