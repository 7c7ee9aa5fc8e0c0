"""What the model is shown of a conversation. Drops nothing to make room: too long is refused by the engine, in numbers.

What is left out is a user's message the engine never answered (marked failed), unless it is the one to answer, and a
tool's result that the engine could not take (marked failed), in whose place stands a line that says so.
"""

from collections.abc import Sequence

from app.documents.rendering import example_mark, fenced
from app.messages import Attachment, Message
from runtime.protocol import ChatMessage

UNREAD_RESULT = "Error: the result could not be read"
CITATION_REQUEST = "Where you use a document, quote it and add the mark of the place, such as {mark}."


def build_context(
    messages: Sequence[Message], system_prompt: str = "", asks_for_citations: bool = False
) -> tuple[ChatMessage, ...]:
    """The engine's messages for a branch whose last message is to be answered.

    `asks_for_citations`: every message with documents asks to cite them.
    """
    head = (ChatMessage("system", system_prompt),) if system_prompt.strip() else ()
    last = len(messages) - 1
    return head + tuple(
        _to_chat(message, asks_for_citations)
        for i, message in enumerate(messages)
        if i == last or not is_left_out(message)
    )


def is_left_out(message: Message) -> bool:
    """Whether later turns don't show this message to the model."""
    return message.role == "user" and message.status == "failed"


def _to_chat(message: Message, asks_for_citations: bool) -> ChatMessage:
    return ChatMessage(
        role=message.role,
        content=_content(message, asks_for_citations),
        reasoning=message.reasoning,
        tool_calls=message.tool_calls,
        generated_ids=message.generated_ids,
        tokenizer_fingerprint=message.tokenizer_fingerprint,
    )


def _content(message: Message, asks_for_citations: bool) -> str:
    if message.role == "tool" and message.status == "failed":
        return UNREAD_RESULT
    # What the model wrote when it meant to call: as plain text, so that it can see what was wrong with it.
    raw = [call.raw for call in message.malformed_calls]
    answer = compose_content(message.content, message.attachments, asks_for_citations)
    return "\n\n".join([answer, *raw] if answer else raw)


def compose_content(text: str, attachments: Sequence[Attachment], asks_for_citations: bool = False) -> str:
    """The documents, each fenced under its name, then the user's words: what stays the same comes first."""
    blocks = [fenced(attachment) for attachment in attachments]
    marks = {example_mark(attachment) for attachment in attachments} - {""} if asks_for_citations else set()
    asking = [CITATION_REQUEST.format(mark=" or ".join(sorted(marks, reverse=True)))] if marks else []
    return "\n\n".join([*blocks, *asking, *([text] if text else [])])
