"""The branch of the open conversation, in memory and in the store.

When the store can't take a message the chat goes on: the message is kept here, tried again before the next one, and
the user is told once. The store is only ever waited for, never run, on the event loop.
"""

from collections.abc import Sequence
from dataclasses import replace

from app.chat.message_tree import MessageTree
from app.chat.titles import first_words
from app.errors import StoreError
from app.messages import Attachment, Conversation, Message, MessageStatus, new_id
from app.sanitize import clean_line
from app.store.conversations import MessageLink, MissingConversationError, Store


class Transcript:
    """Messages from the first to the head; None as conversation: nothing has been said yet."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._unsaved: list[Message] = []
        self._notices: list[str] = []
        self.conversation: Conversation | None = None
        self.messages: tuple[Message, ...] = ()
        self._tree = MessageTree()

    @property
    def head_id(self) -> str | None:
        return self.messages[-1].id if self.messages else None

    @property
    def is_answered(self) -> bool:
        """Some branch goes on after the head."""
        return self.head_id is not None and self._tree.newest_leaf(self.head_id) != self.head_id

    def clear(self) -> None:
        """Leave the conversation for a new one."""
        self.conversation = None
        self.messages = ()
        self._unsaved = []
        self._tree = MessageTree()

    async def open(self, conversation_id: str) -> None:
        """Read a conversation from its head. Raises StoreError and keeps the present one then."""
        conversation, messages, links = await self._store.run(_read, self._store, conversation_id)
        self.conversation, self.messages, self._unsaved = conversation, tuple(messages), []
        self._tree = MessageTree(links)

    def siblings(self, message_id: str) -> tuple[str, ...]:
        """All messages that follow the same message as this one, itself included, oldest first."""
        return self._tree.siblings(message_id)

    async def show_branch_of(self, message_id: str) -> None:
        """See the conversation from the newest leaf under this message. Raises StoreError."""
        await self._save()
        assert self.conversation is not None
        leaf_id = self._tree.newest_leaf(message_id)
        conversation_id = self.conversation.id
        await self._store.run(self._store.set_head, conversation_id, leaf_id)
        await self.open(conversation_id)

    async def fork(self, message_id: str) -> None:
        """Go on in a new conversation that begins with all up to this message. Raises StoreError."""
        await self._save()
        forked = await self._store.run(self._store.fork, message_id)
        await self.open(forked.id)

    def begin(self, first_message: str, model: str) -> Conversation:
        """The open conversation, or a new one named after its first message."""
        if self.conversation is None:
            draft = Message("", None, "user", "")
            now = draft.created_at
            title = first_words(first_message)
            self.conversation = Conversation(new_id(), title, now, now, None, clean_line(model), title_source="words")
        return self.conversation

    async def append(self, message: Message) -> None:
        """Add the new head and store it, with all that could not be stored before.

        Interrupting the wait for the store does not keep the message from it.
        """
        self.messages = (*self.messages, message)
        self._tree.add(MessageLink(message.id, message.parent_id))
        self._unsaved.append(message)
        await self.save()

    async def save(self) -> None:
        """Store what is not stored yet; failing is a notice, not an error."""
        was_failing = len(self._unsaved) > 1
        try:
            await self._save()
        except StoreError as error:
            if not was_failing:
                self._notices.append(f"{error} The chat goes on, but is not saved for now.")
        else:
            if was_failing:
                self._notices.append("The chat is saved again.")

    async def _save(self) -> None:
        unsaved = tuple(self._unsaved)
        if not unsaved:
            return
        assert self.conversation is not None
        await self._store.run(_write, self._store, self.conversation, self.messages, unsaved)
        self._unsaved = [message for message in self._unsaved if message not in unsaved]

    async def mark_head(self, status: MessageStatus) -> None:
        """Change how the last message ended."""
        head = self._replace_head(replace(self.messages[-1], status=status))
        if not self._unsaved:
            try:
                await self._store.run(self._store.mark_message, head.id, status)
            except StoreError as error:
                self._notices.append(str(error))

    async def note_readings(self, attachments: tuple[Attachment, ...]) -> None:
        """Keep how the documents of the last message are read; the message shows these and no others."""
        head = self._replace_head(replace(self.messages[-1], attachments=attachments))
        if not self._unsaved:
            try:
                await self._store.run(self._store.set_attachments, head)
            except StoreError as error:
                self._notices.append(str(error))

    def _replace_head(self, head: Message) -> Message:
        self.messages = (*self.messages[:-1], head)
        self._unsaved = [head if message.id == head.id else message for message in self._unsaved]
        return head

    def step_back_to(self, message_id: str | None) -> None:
        """See the branch only up to this message, for another one to follow it; what came after stays in the store."""
        while self.messages and self.head_id != message_id:
            self.messages = self.messages[:-1]

    async def rename(self, title: str) -> None:
        """Raises StoreError."""
        if self.conversation is not None:
            await self._store.run(self._store.rename, self.conversation.id, title)
            self.conversation = replace(self.conversation, title=title, title_source="user")

    async def take_title(self, conversation_id: str, title: str) -> bool:
        """Call a conversation what a model suggests, unless the user has named it; returns whether the open one was.

        Raises StoreError.
        """
        was_taken = await self._store.run(self._store.suggest_title, conversation_id, title)
        if not was_taken or self.conversation is None or self.conversation.id != conversation_id:
            return False
        self.conversation = replace(self.conversation, title=title, title_source="model")
        return True

    def take_notices(self) -> list[str]:
        """What the user has not been told yet."""
        notices, self._notices = self._notices, []
        return notices


def _read(store: Store, conversation_id: str) -> tuple[Conversation, list[Message], list[MessageLink]]:
    conversation = store.conversation(conversation_id)
    return conversation, store.branch(conversation.head_id), store.links(conversation_id)


def _write(store: Store, conversation: Conversation, branch: Sequence[Message], unsaved: Sequence[Message]) -> None:
    try:
        store.append_messages(_of(conversation, unsaved))
    except MissingConversationError:
        # Not stored yet, or removed by another instance while it is open here: write all of it.
        store.write_conversation(conversation, _of(conversation, branch))


def _of(conversation: Conversation, messages: Sequence[Message]) -> list[Message]:
    return [replace(message, conversation_id=conversation.id) for message in messages]
