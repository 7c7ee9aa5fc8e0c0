"""The branch of the open conversation, in memory and in the store.

When the store can't take a message the chat goes on: the message is kept here, tried again before the next one, and
the user is told once.
"""

from dataclasses import replace

from app.chat.titles import first_words
from app.errors import StoreError
from app.messages import Conversation, Message, MessageStatus, new_id
from app.sanitize import clean_line
from app.store.conversations import MissingConversationError, Store


class Transcript:
    """Messages from the first to the head; None as conversation: nothing has been said yet."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unsaved: list[Message] = []
        self._notices: list[str] = []
        self.conversation: Conversation | None = None
        self.messages: tuple[Message, ...] = ()

    @property
    def head_id(self) -> str | None:
        return self.messages[-1].id if self.messages else None

    @property
    def has_unsaved(self) -> bool:
        return bool(self._unsaved)

    def clear(self) -> None:
        """Leave the conversation for a new one."""
        self.conversation = None
        self.messages = ()
        self._unsaved = []

    def open(self, conversation_id: str) -> None:
        """Read a conversation from its head. Raises StoreError and keeps the present one then."""
        conversation = self._store.conversation(conversation_id)
        messages = tuple(self._store.branch(conversation.head_id))
        self.conversation, self.messages, self._unsaved = conversation, messages, []

    def begin(self, first_message: str, model: str) -> Conversation:
        """The open conversation, or a new one named after its first message."""
        if self.conversation is None:
            draft = Message("", None, "user", "")
            now = draft.created_at
            self.conversation = Conversation(new_id(), first_words(first_message), now, now, None, clean_line(model))
        return self.conversation

    def append(self, message: Message) -> None:
        """Add the new head and store it, with all that could not be stored before."""
        self.messages = (*self.messages, message)
        self._unsaved.append(message)
        self.save()

    def save(self) -> None:
        """Store what is not stored yet; failing is a notice, not an error."""
        was_failing = len(self._unsaved) > 1
        try:
            self._save()
        except StoreError as error:
            if not was_failing:
                self._notices.append(f"{error} The chat goes on, but is not saved for now.")
        else:
            if was_failing:
                self._notices.append("The chat is saved again.")

    def _save(self) -> None:
        conversation = self.conversation
        assert conversation is not None
        try:
            self._append_unsaved(conversation)
        except MissingConversationError:
            # Not stored yet, or deleted by another instance while it is open here: write all of it.
            self._store.create_conversation(conversation.model, conversation.title, conversation.id)
            self._unsaved = list(self.messages)
            self._append_unsaved(conversation)

    def _append_unsaved(self, conversation: Conversation) -> None:
        while self._unsaved:
            self._store.append_message(replace(self._unsaved[0], conversation_id=conversation.id))
            self._unsaved.pop(0)

    def mark_head(self, status: MessageStatus) -> None:
        """Change how the last message ended."""
        head = replace(self.messages[-1], status=status)
        self.messages = (*self.messages[:-1], head)
        self._unsaved = [head if message.id == head.id else message for message in self._unsaved]
        if not self._unsaved:
            try:
                self._store.mark_message(head.id, status)
            except StoreError as error:
                self._notices.append(str(error))

    def drop_answer(self) -> None:
        """Step back to the last user message, to answer it again; the old answer stays in the store as a branch."""
        messages = self.messages
        while messages and messages[-1].role != "user":
            messages = messages[:-1]
        self.messages = messages

    def rename(self, title: str) -> None:
        """Raises StoreError."""
        if self.conversation is not None:
            self._store.rename(self.conversation.id, title)
            self.conversation = replace(self.conversation, title=title)

    def take_notices(self) -> list[str]:
        """What the user has not been told yet."""
        notices, self._notices = self._notices, []
        return notices
