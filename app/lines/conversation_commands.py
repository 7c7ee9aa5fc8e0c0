"""Slash commands of the conversation: begin, list, open, name, pin, delete, export, import; versions and forks."""

from pathlib import Path

from app.chat.attachments import path_of
from app.chat.chat_files import export_chat, import_chat
from app.chat.message_groups import group_numbered, numbered_text, said, versions
from app.errors import StoreError
from app.lines.line_base import LineCommands, LineState
from app.messages import Conversation, Message
from app.sanitize import clean, clean_line
from runtime.errors import UsageError

MOST_LISTED = 30


class ConversationCommands(LineCommands):
    """Numbers are those of the last list."""

    def __init__(self, state: LineState) -> None:
        super().__init__(state)
        self._listed: list[Conversation] = []

    async def do_new_chat(self, argument: str) -> None:
        self.session.new()
        self.console.remark("A new chat begins with the next message.")

    async def do_conversations(self, words: str) -> None:
        found = await self.store.run(self.store.list_conversations, MOST_LISTED + 1, words)
        self._listed = found[:MOST_LISTED]
        hits = await self.store.run(self.store.search, words)
        excerpts = {hit.conversation_id: hit.excerpt for hit in reversed(hits)}
        if not self._listed:
            self.console.remark("Nothing found." if words else "No conversations yet.")
        for number, conversation in enumerate(self._listed, 1):
            is_open = self.session.conversation is not None and conversation.id == self.session.conversation.id
            mark = (" (open)" if is_open else "") + (" (pinned)" if conversation.pinned_at is not None else "")
            self.console.print(f"{number}. {clean_line(conversation.title or 'Untitled')}{mark}")
            if excerpt := clean_line(excerpts.get(conversation.id, "")):
                self.console.print(f"   {excerpt}")
        if len(found) > MOST_LISTED:
            self.console.remark(f"Only the first {MOST_LISTED} are listed; /search and other words find the rest.")

    async def do_open_chat(self, which: str) -> None:
        conversation = await self._find(which)
        await self.session.open(conversation.id)
        self.console.remark(f"Opened: {clean_line(conversation.title or 'Untitled')}")
        for message in self.session.messages[-2:]:
            self.console.print(shown_message(message))

    async def _find(self, which: str) -> Conversation:
        """The conversation of a number, or the newest one that has these words. Raises HotslotError."""
        if which.isdecimal():
            listed = self._listed or await self.store.run(self.store.list_conversations, MOST_LISTED)
            if not 1 <= int(which) <= len(listed):
                raise UsageError(f"There is no conversation {which}; /list numbers them.")
            return listed[int(which) - 1]
        if not which:
            raise UsageError("Which one? /list numbers them: then /open 2, or /open and words of it.")
        found = await self.store.run(self.store.list_conversations, 1, which)
        if not found:
            raise UsageError(f"No conversation has '{clean_line(which)}'; /list shows them.")
        return found[0]

    async def do_rename_chat(self, title: str) -> None:
        self._open_conversation()
        if not clean_line(title):
            raise UsageError("What should it be called? /rename and the new title.")
        await self.session.rename(title)
        self.console.remark(f"Renamed to: {clean_line(title)}")

    async def do_pin_chat(self, which: str) -> None:
        conversation = await self._find(which) if which else await self._stored()
        change = self.store.pin if conversation.pinned_at is None else self.store.unpin
        await self.store.run(change, conversation.id)
        words = "Pinned" if conversation.pinned_at is None else "No longer pinned"
        self.console.remark(f"{words}: {clean_line(conversation.title or 'Untitled')}")

    async def _stored(self) -> Conversation:
        """The open conversation as it is stored now."""
        return await self.store.run(self.store.conversation, self._open_conversation().id)

    async def do_delete_chat(self, which: str) -> None:
        conversation = await self._find(which) if which else self._open_conversation()
        is_open = self.session.conversation is not None and conversation.id == self.session.conversation.id
        if is_open:
            # Refused while an answer comes, before anything is deleted.
            self.session.new()
        await self.store.run(self.store.delete, conversation.id)
        self._listed = []
        self.console.remark(f"Deleted: {clean_line(conversation.title or 'Untitled')}; /undo brings it back.")

    async def do_undo_delete(self, argument: str) -> None:
        conversation = await self.store.run(self.store.undelete_last)
        self._listed = []
        self.console.remark(f"It is back: {clean_line(conversation.title or 'Untitled')}")

    # ---- files

    async def do_export_chat(self, written: str) -> None:
        path = await self.store.run(
            export_chat, self.store, self._open_conversation().id, path_of(written) if written else Path.cwd()
        )
        self.console.print(f"{clean_line(str(path))}")

    async def do_import_chat(self, written: str) -> None:
        if not written:
            raise UsageError("Which file? /import and the path of an exported .json file.")
        conversation = await self.store.run(import_chat, self.store, path_of(written))
        await self.session.open(conversation.id)
        self.console.remark(f"Imported and opened: {clean_line(conversation.title or 'Untitled')}")

    # ---- branches

    async def do_messages(self, argument: str) -> None:
        if not self.session.messages:
            self.console.remark("Nothing has been said yet.")
        else:
            self.console.print(clean(numbered_text(self.session.messages)))

    async def do_siblings(self, words: str) -> None:
        """The versions of the last answer, or of message #n; a number chooses one."""
        number, choice = split_number(words)
        ids, place = versions(self.session, group_numbered(self.session.messages, number))
        if choice:
            if not choice.isdecimal() or not 1 <= int(choice) <= len(ids):
                raise UsageError(f"There are {len(ids)} versions, numbered from 1.")
            place = int(choice) - 1
            await self.session.show_sibling(ids[place])
            self.console.print(clean(said(group_numbered(self.session.messages, number))))
        self.console.remark(f"Version {place + 1} of {len(ids)}; /siblings and a number shows another.")

    async def do_fork_chat(self, number: str) -> None:
        await self.session.fork(group_numbered(self.session.messages, number.removeprefix("#"))[-1].id)
        self.console.remark("A fork is open; the conversation it came from stays as it was.")

    # ---- helpers

    def _open_conversation(self) -> Conversation:
        if self.session.conversation is None:
            raise StoreError("No conversation is open; send a message or /open one.")
        return self.session.conversation


def split_number(words: str) -> tuple[str, str]:
    """'#3 rest' as ('3', 'rest'); without a number ('', words)."""
    if not words.startswith("#"):
        return "", words
    number, _, rest = words[1:].partition(" ")
    return number, rest.strip()


def shown_message(message: Message) -> str:
    """Who said what, for the plain terminal."""
    speaker = "You" if message.role == "user" else clean_line(message.model_name) or "Model"
    return f"{speaker}: {message.content.strip()}"
