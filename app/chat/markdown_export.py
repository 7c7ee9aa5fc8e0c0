"""A conversation as Markdown to read or to print: the branch that is seen, with what belongs to each message."""

import json
import re
from collections.abc import Sequence
from datetime import UTC, datetime

from app.messages import Conversation, Message
from app.store.conversations import Store

_ENDINGS = {"cancelled": "stopped", "failed": "failed", "length": "cut at its limit of tokens"}
_HEADINGS = {"user": "You", "system": "System"}


def export_markdown(store: Store, conversation_id: str) -> str:
    """The file of the branch that the conversation is seen from. Blocking; raises StoreError."""
    conversation = store.conversation(conversation_id)
    return to_markdown(conversation, store.branch(conversation.head_id))


def to_markdown(conversation: Conversation, branch: Sequence[Message]) -> str:
    """Reasoning is folded, attachments are named, calls and results are code. Times are UTC."""
    date = datetime.fromtimestamp(conversation.created_at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    blocks = [f"# {conversation.title or 'Untitled'}", f"{date} · {conversation.model}"]
    for message in branch:
        blocks += _blocks_of(message)
    return "\n\n".join(blocks) + "\n"


def _blocks_of(message: Message) -> list[str]:
    blocks = [f"## {_heading(message)}"]
    blocks += [f"Attached: {file.name} ({len(file.text):,} characters)" for file in message.attachments]
    if message.reasoning.strip():
        blocks.append(f"<details>\n<summary>Reasoning</summary>\n\n{message.reasoning.strip()}\n\n</details>")
    if message.content.strip():
        blocks.append(_fenced(message.content) if message.role == "tool" else message.content.strip())
    blocks += [
        f"Called {call.name}:\n\n" + _fenced(json.dumps(call.arguments, ensure_ascii=False, indent=1), "json")
        for call in message.tool_calls
    ]
    if message.status in _ENDINGS:
        blocks.append(f"*({_ENDINGS[message.status]})*")
    return blocks


def _heading(message: Message) -> str:
    if message.role == "tool":
        return f"Result of {message.tool_name}" if message.tool_name else "Unreadable call"
    return _HEADINGS.get(message.role) or message.model_name or "Answer"


def _fenced(text: str, language: str = "") -> str:
    longest = max((len(run) for run in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"
