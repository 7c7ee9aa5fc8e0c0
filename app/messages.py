"""What a conversation is made of. Frozen values; a message never changes but for its status
and how its documents are read, a fork is one more row."""

import time
import uuid
from dataclasses import dataclass, field
from typing import Literal

from runtime.protocol import Role, ToolCall

MessageStatus = Literal["complete", "cancelled", "failed", "length"]
"""`length`: the answer met its token limit. A user's message is `failed` when the engine refused it as it is."""
TitleSource = Literal["words", "model", "user"]
"""Who named a conversation: its first words, a model that read its beginning, or the user."""

ToolStatus = Literal["done", "failed", "denied", "rejected", "cancelled"]
"""How a tool call ended: `failed` by the tool's own error, `denied` by the user or a rule, `rejected` before anyone was
asked (unknown tool, unfit arguments, repeated too often)."""


def new_id() -> str:
    """An id no other instance will make."""
    return uuid.uuid4().hex


DocumentKind = Literal["text", "code", "pages"]
"""How places in a document are named: `text` by the line where a paragraph begins, `code` by each line, `pages` by the
page; pages are parted by `PAGE_BREAK`."""
PAGE_BREAK = "\ue00c"
"""Of the private use area: no filter for the screen takes it out, and none is left in what a document says."""


ReadingMode = Literal["whole", "passages", "all"]
"""How a document is shown to the model: all of its text, passages that a search found, notes of reading it piece by
piece."""


@dataclass(frozen=True)
class Reading:
    """What one message shows of a document, decided once and kept, so that the prompt stays the same.

    `blocks` are ranges [first, end) of the document's blocks, for passages; `notes` belong to reading all of it.
    `is_follow_up`: the document was attached to an earlier message, and this one shows more of it.
    """

    mode: ReadingMode
    blocks: tuple[tuple[int, int], ...] = ()
    notes: str = ""
    is_follow_up: bool = False


@dataclass(frozen=True)
class Attachment:
    """A document that goes with a message: sanitised name, and the sanitised text of the whole of it.

    `reading` None: not decided yet, which shows the whole.
    """

    name: str
    text: str
    kind: DocumentKind = "text"
    reading: Reading | None = None


@dataclass(frozen=True)
class MalformedCall:
    """A tool call that could not be read: what the model wrote and why, both sanitised."""

    raw: str
    reason: str


@dataclass(frozen=True)
class Message:
    """One message of a conversation; `parent_id` None is a first message.

    `content` is the user's own words or the answer, without reasoning and without attachments; of a tool's message
    it is what the model reads. `tool_name` and `tool_status` belong to a tool's message: the call it answers is the
    one at the same place among the calls of the assistant's message before it, the unreadable ones last.
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
    malformed_calls: tuple[MalformedCall, ...] = ()
    tool_name: str = ""
    """Empty for a call that could not be read."""
    full_result: str = ""
    """All that a tool returned where `content` is less of it; the model never reads it."""
    tool_status: ToolStatus | Literal[""] = ""


@dataclass(frozen=True)
class Conversation:
    """A tree of messages seen from one of its leaves, `head_id` (None: no message yet). Times are Unix seconds."""

    id: str
    title: str
    created_at: float
    updated_at: float
    head_id: str | None
    model: str
    pinned_at: float | None = None
    title_source: TitleSource = "user"
