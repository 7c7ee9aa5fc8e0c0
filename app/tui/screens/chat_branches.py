"""Messages of the conversation one by one: mark one, say it in other words, see its versions, fork from it."""

from collections.abc import Awaitable

from app.chat.events import TurnEvents
from app.chat.message_groups import Group, group_numbered, grouped, numbered_text, versions
from app.documents.reading_plan import ReadingChoice
from app.errors import HotslotError
from app.messages import Message
from app.tui.screens.chat_base import ChatBase
from app.tui.screens.text_view import TextScreen
from app.tui.widgets.answer_block import AnswerBlock
from app.tui.widgets.message_blocks import UserBlock
from runtime.errors import UsageError


class BranchControls(ChatBase):
    """Without a mark, the last message or answer is meant."""

    reading: ReadingChoice
    """Of the documents' part of the screen."""
    _edited_id: str | None = None
    """The message that the prompt will replace when it is sent."""

    async def answer_turn(self, turn: TurnEvents, has_documents: bool = False) -> None:
        """Show a turn that answers the last message on the screen; `has_documents`: new ones come with it."""
        raise NotImplementedError

    # ---- the mark

    def action_select_older(self) -> None:
        self._move_mark(-1)

    def action_select_newer(self) -> None:
        self._move_mark(1)

    def _move_mark(self, step: int) -> None:
        blocks = self._spoken
        if not blocks:
            return
        marked = next((place for place, block in enumerate(blocks) if block.has_class("marked")), len(blocks))
        place = marked + step
        for block in blocks:
            block.remove_class("marked")
        if 0 <= place < len(blocks):
            blocks[place].add_class("marked")
            blocks[place].scroll_visible(animate=False)
            self.say_marked()
        elif place < 0:
            blocks[0].add_class("marked")

    def say_marked(self) -> None:
        """The hint under the prompt while a message is marked."""
        self.show_title()

    @property
    def has_mark(self) -> bool:
        return any(block.has_class("marked") for block in self._spoken)

    def clear_mark(self) -> bool:
        """Take the mark away; returns whether there was one."""
        had_mark = self.has_mark
        for block in self._spoken:
            block.remove_class("marked")
        self.show_title()
        return had_mark

    @property
    def _spoken(self) -> list[UserBlock | AnswerBlock]:
        return [block for block in self.transcript.blocks if isinstance(block, UserBlock | AnswerBlock)]

    def _group(self, number: str) -> Group:
        """The numbered one, else the marked one, else the last. Raises UsageError."""
        marked = next((block.message_id for block in self._spoken if block.has_class("marked")), None)
        if not number and marked is not None:
            for group in grouped(self.session.messages):
                if any(message.id == marked for message in group):
                    return group
        return group_numbered(self.session.messages, number)

    # ---- editing

    async def action_edit_message(self, words: str = "") -> None:
        """Put a message of the user into the prompt; sending it makes a new version of it."""
        number, _, text = words[1:].partition(" ") if words.startswith("#") else ("", "", words)
        try:
            message = self._edited(number)
        except HotslotError as error:
            self.say(str(error), "warning")
            return
        self._edited_id = message.id
        if text.strip():
            await self.send_edit(text)
            return
        self.prompt.set_text(message.content)
        self.prompt.focus()
        self.show_title()

    def _edited(self, number: str) -> Message:
        group = self._group(number)
        if group[0].role == "user":
            return group[0]
        before = self.session.messages[: self.session.messages.index(group[0])]
        asked = next((message for message in reversed(before) if message.role == "user"), None)
        if asked is None:
            raise UsageError("There is no message of yours to edit.")
        return asked

    def cancel_edit(self) -> bool:
        """Send the prompt as a message of its own again; returns whether a message was being edited."""
        was_editing, self._edited_id = self._edited_id is not None, None
        if was_editing:
            self.prompt.take()
            self.show_title()
        return was_editing

    async def send_edit(self, text: str) -> None:
        """Say the edited message in these words, and answer it."""
        edited_id, self._edited_id = self._edited_id, None
        if edited_id is None or self.refuse_while_running():
            return
        place = next((at for at, message in enumerate(self.session.messages) if message.id == edited_id), None)
        if place is None:
            self.say("The message you edited is not in sight any more; open its branch first.", "warning")
            return
        edited = self.session.messages[place]
        self.clear_mark()
        await self.transcript.show_messages(self.session.messages[:place])
        await self.transcript.add(UserBlock(text, tuple(file.name for file in edited.attachments)))
        await self.answer_turn(self.session.edit(edited_id, text, self.reading))

    # ---- versions and forks

    async def action_siblings(self, number: str = "") -> None:
        """The next version of the marked message or last answer, or the one of this number."""
        await self._show_version(1, number)

    async def action_previous_sibling(self) -> None:
        await self._show_version(-1, "")

    async def _show_version(self, step: int, number: str) -> None:
        try:
            ids, place = self._versions()
            if number and (not number.isdecimal() or not 1 <= int(number) <= len(ids)):
                raise UsageError(f"There are {len(ids)} versions, numbered from 1.")
        except HotslotError as error:
            self.say(str(error), "warning")
            return
        chosen = int(number) - 1 if number else (place + step) % len(ids)
        if len(ids) == 1:
            self.say("There is one version only; Ctrl+R answers again, Alt+E edits your message.")
        elif await self.do(self.session.show_sibling(ids[chosen])):
            await self.show_conversation()
            self.say(f"Version {chosen + 1} of {len(ids)}.")

    def _versions(self) -> tuple[tuple[str, ...], int]:
        """Of the marked one; else of the last answer, or of the message it answers where only that has several."""
        group = self._group("")
        ids, place = versions(self.session, group)
        groups = grouped(self.session.messages)
        if len(ids) == 1 and not self.has_mark and len(groups) > 1:
            return versions(self.session, groups[-2])
        return ids, place

    async def action_fork_chat(self, number: str = "") -> None:
        """Go on in a new conversation that ends with the marked or numbered message."""
        try:
            group = self._group(number.removeprefix("#"))
        except HotslotError as error:
            self.say(str(error), "warning")
            return
        if await self.do(self.session.fork(group[-1].id)):
            await self.show_conversation()
            self.say("This is a fork; the chat it came from stays as it was.")

    def action_messages(self) -> None:
        """The conversation with its numbers."""
        if self.session.messages:
            self.app.push_screen(TextScreen("Messages", numbered_text(self.session.messages)))
        else:
            self.say("Nothing has been said yet.", "warning")

    async def do(self, change: Awaitable[object]) -> bool:
        """Wait for a change of the conversation; a refusal is said."""
        try:
            await change
        except HotslotError as error:
            self.say(str(error), "error")
            return False
        return True
