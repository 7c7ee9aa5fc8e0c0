"""Messages as a person counts them: each of the user's by itself, what the model and its tools said between as one."""

from collections.abc import Sequence

from app.chat.session import ChatSession
from app.messages import Message
from runtime.errors import UsageError

Group = tuple[Message, ...]


def grouped(messages: Sequence[Message]) -> list[Group]:
    """Each message of the user by itself; what the model and its tools said between two of them together."""
    groups: list[Group] = []
    for message in messages:
        if message.role == "system":
            continue
        if message.role == "user" or not groups or groups[-1][0].role == "user":
            groups.append((message,))
        else:
            groups[-1] = (*groups[-1], message)
    return groups


def group_numbered(messages: Sequence[Message], number: str) -> Group:
    """The group of a number from 1, the last one for ''. Raises UsageError."""
    groups = grouped(messages)
    if not groups:
        raise UsageError("Nothing has been said yet.")
    if not number:
        return groups[-1]
    if not number.isdecimal() or not 1 <= int(number) <= len(groups):
        raise UsageError(f"There is no message {number}; /messages numbers them from 1 to {len(groups)}.")
    return groups[int(number) - 1]


def versions(session: ChatSession, group: Group) -> tuple[tuple[str, ...], int]:
    """Ids of all versions of a message or answer, and the place of the one in sight, from 0."""
    ids = session.siblings(group[0].id)
    return ids, ids.index(group[0].id)


def said(group: Group) -> str:
    """What a group says, without reasoning and tool results."""
    return "\n\n".join(message.content.strip() for message in group if message.role != "tool" and message.content)


def numbered_text(messages: Sequence[Message]) -> str:
    """The conversation with its numbers, to read and to name messages by."""
    parts = []
    for number, group in enumerate(grouped(messages), 1):
        speaker = "You" if group[0].role == "user" else group[0].model_name or "Model"
        parts.append(f"{number}. {speaker}: {said(group)}")
    return "\n\n".join(parts)
