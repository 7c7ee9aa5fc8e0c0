"""What a conversation is made of. Frozen values; a message never changes but for its status, a fork is one more row."""

import time
import uuid
from dataclasses import dataclass, field
from typing import Literal

from runtime.protocol import Role, ToolCall

MessageStatus = Literal["complete", "cancelled", "failed", "length"]
"""`length`: the answer met its token limit. A user's message is `failed` when the engine refused it as it is."""


def new_id() -> str:
    """An id no other instance will make."""
    return uuid.uuid4().hex


@dataclass(frozen=True)
class Attachment:
    """A text file that goes with a message: sanitised name and sanitised text."""

    name: str
    text: str


@dataclass(frozen=True)
class Message:
    """One message of a conversation; `parent_id` None is a first message.

    `content` is the user's own words or the answer, without reasoning and without attachments.
    `generated_ids` are valid for the tokenizer with `tokenizer_fingerprint`. `created_at` is Unix seconds.
    """

    conversation_id: str
    parent_id: str | None
    role: Role
    content: str
    id: str = field(default_factory=new_id)
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    generated_ids: tuple[int, ...] = ()
    tokenizer_fingerprint: str = ""
    status: MessageStatus = "complete"
    created_at: float = field(default_factory=time.time)
    model_name: str = ""


@dataclass(frozen=True)
class Conversation:
    """A tree of messages seen from its newest leaf, `head_id` (None: no message yet). Times are Unix seconds."""

    id: str
    title: str
    created_at: float
    updated_at: float
    head_id: str | None
    model: str
