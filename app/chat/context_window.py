"""What the model is shown of a conversation. Drops nothing to make room: too long is refused by the engine, in numbers.

What is left out is a user's message the engine never answered (marked failed), unless it is the one to answer, and a
tool's result that the engine could not take (marked failed), in whose place stands a line that says so.
"""

from collections.abc import Sequence

from app.documents.rendering import fenced
from app.messages import Attachment, Message
from runtime.protocol import ChatMessage

UNREAD_RESULT = "Error: the result could not be read"


def build_context(messages: Sequence[Message], system_prompt: str = "") -> tuple[ChatMessage, ...]:
    """The engine's messages for a branch whose last message is to be answered."""
    head = (ChatMessage("system", system_prompt),) if system_prompt.strip() else ()
    last = len(messages) - 1
    return head + tuple(
        _to_chat(message) for i, message in enumerate(messages) if i == last or not is_left_out(message)
    )


def is_left_out(message: Message) -> bool:
    """Whether later turns don't show this message to the model."""
    return message.role == "user" and message.status == "failed"


def _to_chat(message: Message) -> ChatMessage:
    return ChatMessage(
        role=message.role,
        content=_content(message),
        reasoning=message.reasoning,
        tool_calls=message.tool_calls,
        generated_ids=message.generated_ids,
        tokenizer_fingerprint=message.tokenizer_fingerprint,
    )


def _content(message: Message) -> str:
    if message.role == "tool" and message.status == "failed":
        return UNREAD_RESULT
    # What the model wrote when it meant to call: as plain text, so that it can see what was wrong with it.
    raw = [call.raw for call in message.malformed_calls]
    answer = compose_content(message.content, message.attachments)
    return "\n\n".join([answer, *raw] if answer else raw)


def compose_content(text: str, attachments: Sequence[Attachment]) -> str:
    """The documents, each fenced under its name, then the user's words: what stays the same comes first."""
    blocks = [fenced(attachment) for attachment in attachments]
    return "\n\n".join([*blocks, text] if text else blocks)
