"""Attaching text files to the next message: reads them, counts their tokens, takes them back."""

import asyncio

from textual import on

from app.chat.attachments import path_of, read_attachment
from app.errors import HotslotError
from app.messages import Attachment
from app.tui.screens.chat_base import ChatBase
from app.tui.widgets.attachment_tray import AttachmentTray


class AttachControls(ChatBase):
    """A file that can't be attached is refused in one line; one that can waits above the prompt."""

    async def action_attach(self, path: str = "") -> None:
        """Attach the file; without a path, show how to name one."""
        if not path:
            self._offer_to_attach()
            return
        try:
            attachment, notice = await asyncio.to_thread(read_attachment, path_of(path), may_be_pipe=False)
        except HotslotError as error:
            self.say(str(error), "error")
            return
        if notice:
            self.say(notice)
        self.attachments.add(attachment)
        self.run_worker(self._count(attachment), group="count")

    def _offer_to_attach(self) -> None:
        if self.prompt.text:
            self.say("Write /attach and the file's path in an empty prompt; your text comes after it.")
        else:
            self.prompt.set_text("/attach ")
            self.prompt.focus()

    async def _count(self, attachment: Attachment) -> None:
        try:
            with_file = await self.session.count_tokens("?", (attachment,))
            without = await self.session.count_tokens("?")
        except HotslotError:
            # Its size in bytes stays; sending it will say what is wrong, if anything is.
            return
        if with_file is not None and without is not None:
            self.attachments.note_tokens(attachment, with_file - without)

    def action_detach(self) -> None:
        if self.attachments.remove_last() is None:
            self.say("No file is attached; /attach and a path attaches one.", "warning")

    @on(AttachmentTray.RemoveAsked)
    def attachment_remove_asked(self, event: AttachmentTray.RemoveAsked) -> None:
        self.attachments.remove_at(event.index)
