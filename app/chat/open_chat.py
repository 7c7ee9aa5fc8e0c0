"""The conversation that a chat has open: what is in it, and going to another one or to another branch.

Asks no engine. While an answer comes the conversation stays what it is.
"""

from app.chat.transcript import Transcript
from app.messages import Attachment, Conversation, Message
from app.sanitize import clean_line
from app.store.conversations import Store
from runtime.errors import RequestError


class OpenChat:
    """The part of a `ChatSession` that front ends show and leaf through."""

    def __init__(self, store: Store) -> None:
        self._transcript = Transcript(store)

    def _refuse_if_answering(self) -> None:
        """Raises TurnInProgressError while the open conversation is being answered."""
        raise NotImplementedError

    @property
    def messages(self) -> tuple[Message, ...]:
        """The current branch, first message first."""
        return self._transcript.messages

    @property
    def conversation(self) -> Conversation | None:
        """None until the first message."""
        return self._transcript.conversation

    @property
    def documents(self) -> tuple[Attachment, ...]:
        """Those of the current branch, the oldest first: what citations name and `search_document` searches.

        One that several messages show is there once: as it was shown first, or whole where it ever was.
        """
        found: dict[tuple[str, str], Attachment] = {}
        for document in (document for message in self.messages for document in message.attachments):
            is_whole = document.reading is None or document.reading.mode == "whole"
            key = (document.name, document.text)
            found[key] = document if is_whole else found.get(key, document)
        return tuple(found.values())

    def new(self) -> None:
        """Leave this conversation; the next message begins another. Raises TurnInProgressError."""
        self._refuse_if_answering()
        self._transcript.clear()

    async def open(self, conversation_id: str) -> None:
        """Go on with a stored conversation. Raises StoreError, or TurnInProgressError."""
        self._refuse_if_answering()
        await self._transcript.open(conversation_id)

    async def rename(self, title: str) -> None:
        """Name the open conversation. Raises StoreError."""
        await self._transcript.rename(clean_line(title))

    def siblings(self, message_id: str) -> tuple[str, ...]:
        """Ids of all versions of this message (edits, or answers to one message), itself included, oldest first."""
        return self._transcript.siblings(message_id)

    async def show_sibling(self, message_id: str) -> None:
        """See the branch through this version of a message. Raises StoreError, or TurnInProgressError."""
        self._refuse_if_answering()
        await self._transcript.show_branch_of(message_id)

    async def fork(self, message_id: str) -> None:
        """Go on in a new conversation that begins with all up to this message.

        Raises StoreError, or TurnInProgressError.
        """
        self._refuse_if_answering()
        await self._transcript.fork(message_id)

    def _message(self, message_id: str) -> Message:
        for message in self.messages:
            if message.id == message_id:
                return message
        raise RequestError("This message is not part of what is shown; open its branch first.")
