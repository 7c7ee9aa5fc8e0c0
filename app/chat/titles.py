"""What a conversation is called in lists: the first words of its first message, until a side call finds better ones."""

import re
from collections.abc import Sequence

from app.chat.side_calls import SideCalls
from app.messages import Message
from app.sanitize import clean_line
from runtime.protocol import ChatMessage

MAX_TITLE_CHARS = 60
REQUEST = "Write a short title for this conversation.\n\nUser: {question}\nAssistant: {answer}"
"""One of the forms that the demo model was trained on (scripts/demo/data/titles.py); any model understands it."""
_MOST_TOKENS = 24
_MOST_CHARS_READ = 600
"""Of the question and of the answer: a title is about the beginning."""
_LABEL = re.compile(r"^(title|heading|name)\s*:\s*", re.IGNORECASE)


def first_words(text: str, fallback: str = "New chat") -> str:
    """At most `MAX_TITLE_CHARS` characters of the text in one line, cut between words where possible."""
    line = " ".join(clean_line(text[: 8 * MAX_TITLE_CHARS]).split())
    if len(line) <= MAX_TITLE_CHARS:
        return line or fallback
    cut = line[: MAX_TITLE_CHARS - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut else cut).rstrip() + "…"


async def find_title(side_calls: SideCalls, messages: Sequence[Message]) -> str:
    """A title for the conversation that begins so, '' where the model has none. Raises SideCallError."""
    question = next((message for message in messages if message.role == "user"), None)
    answer = next((message.content for message in messages if message.role == "assistant" and message.content), "")
    if question is None or not answer:
        return ""
    asked = question.content or " ".join(attachment.name for attachment in question.attachments)
    prompt = REQUEST.format(question=_beginning(asked), answer=_beginning(answer))
    said = await side_calls.ask(
        "title", first_words(asked), (ChatMessage("user", prompt),), _MOST_TOKENS, question.conversation_id
    )
    return tidy_title(said)


def tidy_title(said: str) -> str:
    """The first line of what a model said, without label, quotes, emphasis and full stop; '' if nothing is left."""
    line = clean_line(next((line for line in said.split("\n") if line.strip()), ""))
    line = _LABEL.sub("", line.strip("#*_` ")).strip("#*_`\"'“”«» ").rstrip(".").strip()
    return first_words(line, fallback="")


def _beginning(text: str) -> str:
    line = " ".join(text[: 4 * _MOST_CHARS_READ].split())
    return line if len(line) <= _MOST_CHARS_READ else line[:_MOST_CHARS_READ].rsplit(" ", 1)[0] + " …"
