"""Which conversation is open: begin, list, open, rename, delete."""

from textual import on

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
        if not is_sure or conversation is None:
            return
        try:
            await self._store.run(self._store.delete, conversation.id)
        except HotslotError as error:
            self.say(str(error), "error")
            return
        await self._go_to(None)
