"""Which conversation is open: begin, list, open, rename, pin, delete and undo, export, import."""

from collections.abc import Callable
from pathlib import Path

from textual import on

from app.chat.attachments import path_of
from app.chat.chat_files import export_chat, import_chat
from app.errors import HotslotError
from app.sanitize import clean_line
from app.tui.screens.chat_base import ChatBase
from app.tui.screens.conversations import ConversationChoice, ConversationsScreen
from app.tui.screens.dialogs import AskTextScreen, ConfirmScreen
from app.tui.widgets.welcome import Welcome


class ConversationControls(ChatBase):
    """Nothing changes the open conversation while an answer comes."""

    async def action_new_chat(self) -> None:
        await self._go_to(None)

    def action_conversations(self, query: str = "") -> None:
        conversation = self.session.conversation
        screen = ConversationsScreen(self._store, query, conversation.id if conversation is not None else None)
        self.app.push_screen(screen, self._conversation_chosen)

    async def action_open_chat(self, words: str = "") -> None:
        """Open the one conversation that has these words; where there are more or none, show the list."""
        try:
            found = await self._store.run(self._store.list_conversations, 2, words) if words else []
        except HotslotError as error:
            self.say(str(error), "error")
            return
        if len(found) == 1:
            await self._go_to(found[0].id)
        else:
            self.action_conversations(words)

    async def _conversation_chosen(self, choice: ConversationChoice | None) -> None:
        if choice is None:
            return
        current = self.session.conversation
        if current is not None and current.id in choice.deleted_ids and not self._is_answering:
            self.session.new()
            await self.show_conversation()
        if choice.opened_id is not None:
            await self._go_to(choice.opened_id)
        elif current is not None and current.id in choice.new_titles:
            await self._rename(choice.new_titles[current.id])

    @on(Welcome.ChatChosen)
    async def chat_chosen(self, event: Welcome.ChatChosen) -> None:
        await self._go_to(event.conversation_id)

    async def _go_to(self, conversation_id: str | None) -> None:
        """Open a conversation, or begin one."""
        if self._is_answering:
            self.refuse_while_running()
            return
        try:
            if conversation_id is None:
                self.session.new()
            else:
                await self.session.open(conversation_id)
            await self.show_conversation()
        except HotslotError as error:
            self.say(str(error), "error")
        self.prompt.focus()

    # ---- the open conversation

    async def action_rename_chat(self, title: str = "") -> None:
        """Give it this title, or ask for one."""
        conversation = self.session.conversation
        if conversation is None:
            self.say("There is nothing to name yet; send a message first.", "warning")
        elif title:
            await self._rename(title)
        else:
            self.app.push_screen(AskTextScreen("Title of this chat", conversation.title), self._title_given)

    async def _title_given(self, title: str | None) -> None:
        if title is not None:
            await self._rename(title)

    async def _rename(self, title: str) -> None:
        try:
            await self.session.rename(clean_line(title))
        except HotslotError as error:
            self.say(str(error), "error")
        self.show_title()

    async def action_delete_chat(self, words: str = "") -> None:
        """Delete the open conversation; with words, choose which one in the list."""
        conversation = self.session.conversation
        if words or conversation is None:
            self.action_conversations(words)
        elif not self.refuse_while_running():
            question = f"Delete “{conversation.title or 'Untitled'}” with all its messages?"
            self.app.push_screen(ConfirmScreen(question, "Delete"), self._delete_answered)

    async def _delete_answered(self, is_sure: bool | None) -> None:
        conversation = self.session.conversation
        if not is_sure or conversation is None or not await self._store_does(self._store.delete, conversation.id):
            return
        await self._go_to(None)
        self.say("Deleted; Alt+U brings it back.")

    async def action_undo_delete(self) -> None:
        """Bring back what was deleted last."""
        try:
            back = await self._store.run(self._store.undelete_last)
        except HotslotError as error:
            self.say(str(error), "error")
            return
        await self._go_to(back.id)
        self.say("It is back.")

    async def action_pin_chat(self, words: str = "") -> None:
        """Pin the open conversation, or take the pin away; with words, choose which one in the list."""
        conversation = self.session.conversation
        if words or conversation is None:
            self.action_conversations(words)
            return
        try:
            stored = await self._store.run(self._store.conversation, conversation.id)
        except HotslotError as error:
            self.say(str(error), "error")
            return
        change = self._store.pin if stored.pinned_at is None else self._store.unpin
        if await self._store_does(change, conversation.id):
            self.say("Pinned." if stored.pinned_at is None else "No longer pinned.")

    async def _store_does(self, change: Callable[[str], None], conversation_id: str) -> bool:
        try:
            await self._store.run(change, conversation_id)
        except HotslotError as error:
            self.say(str(error), "error")
            return False
        return True

    # ---- files

    async def action_export_chat(self, path: str = "") -> None:
        """Write the open conversation to this .md or .json file, or ask for one."""
        if self.session.conversation is None:
            self.say("There is nothing to export yet; send a message first.", "warning")
        elif path:
            await self._export(path)
        else:
            here = str(Path.cwd()) + "/"
            self.app.push_screen(AskTextScreen("Export to which .md or .json file, or folder?", here), self._export)

    async def _export(self, path: str | None) -> None:
        conversation = self.session.conversation
        if path is None or conversation is None:
            return
        try:
            written = await self._store.run(export_chat, self._store, conversation.id, path_of(path))
        except HotslotError as error:
            self.say(str(error), "error")
        else:
            self.say(f"Exported to {written}")

    async def action_import_chat(self, path: str = "") -> None:
        """Read an exported .json file as a new conversation and open it, or ask for the file."""
        if path:
            await self._import(path)
        else:
            self.app.push_screen(AskTextScreen("Import which .json file?", ""), self._import)

    async def _import(self, path: str | None) -> None:
        if path is None:
            return
        try:
            conversation = await self._store.run(import_chat, self._store, path_of(path))
        except HotslotError as error:
            self.say(str(error), "error")
            return
        await self._go_to(conversation.id)
