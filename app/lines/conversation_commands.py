"""Slash commands of the conversation: begin, list, open, rename, delete."""

from app.errors import StoreError
from app.lines.line_base import LineCommands, LineState
from app.messages import Conversation, Message
from app.sanitize import clean_line
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
        self._listed = await self.store.run(self.store.list_conversations, MOST_LISTED, words)
        hits = await self.store.run(self.store.search, words)
        excerpts = {hit.conversation_id: hit.excerpt for hit in reversed(hits)}
        if not self._listed:
            self.console.remark("Nothing found." if words else "No conversations yet.")
        for number, conversation in enumerate(self._listed, 1):
            is_open = self.session.conversation is not None and conversation.id == self.session.conversation.id
            mark = " (open)" if is_open else ""
            self.console.print(f"{number}. {clean_line(conversation.title or 'Untitled')}{mark}")
            if excerpt := clean_line(excerpts.get(conversation.id, "")):
                self.console.print(f"   {excerpt}")

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

    async def do_delete_chat(self, which: str) -> None:
        conversation = await self._find(which) if which else self._open_conversation()
        title = clean_line(conversation.title or "Untitled")
        answer = await self.ask(f"Delete '{title}' with all its messages? y or n")
        if self.state.input.is_terminal and answer.lower() not in ("y", "yes"):
            self.console.remark("Kept.")
            return
        await self.store.run(self.store.delete, conversation.id)
        if self.session.conversation is not None and conversation.id == self.session.conversation.id:
            self.session.new()
        self._listed = []
        self.console.remark(f"Deleted: {title}")

    def _open_conversation(self) -> Conversation:
        if self.session.conversation is None:
            raise StoreError("No conversation is open; send a message or /open one.")
        return self.session.conversation


def shown_message(message: Message) -> str:
    """Who said what, for the plain terminal."""
    speaker = "You" if message.role == "user" else clean_line(message.model_name) or "Model"
    return f"{speaker}: {message.content.strip()}"
