"""Documents of the chat: attach, count, choose how they are read, take back, read, and open what an answer cites."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from textual import on
from textual.timer import Timer

from app.chat.attachments import path_of, read_attachment, told_twice
from app.chat.cited import cited_numbered, cited_passages, document_and_line
from app.chat.document_reading import emptied
from app.documents.citations import CitedPassage
from app.documents.reading_plan import ReadingChoice
from app.errors import HotslotError
from app.messages import Attachment
from app.threads import in_thread
from app.tui.screens.chat_base import ChatBase
from app.tui.screens.documents import DocumentsScreen
from app.tui.screens.file_picker import FilePicker
from app.tui.screens.text_view import TextScreen
from app.tui.widgets.attachment_tray import AttachmentTray
from app.tui.widgets.citations import CitationLine, Citations
from app.tui.widgets.prompt import Prompt

TYPING_PAUSE_S = 0.6
"""After the last key, until a plan is made for what was written: searching a long document takes a second."""
CHOICES: tuple[ReadingChoice, ...] = get_args(ReadingChoice)


class AttachControls(ChatBase):
    """A file that can't be attached is refused in one line; one that can waits above the prompt."""

    reading: ReadingChoice = "auto"
    """How documents are to be shown to the model, as the user chose."""
    _has_plan_of_words = False
    """The plan on the screen depends on what is asked."""
    _replanning: Timer | None = None
    _reading_file: asyncio.Future[tuple[Attachment, str | None]] | None = None

    async def action_attach(self, path: str = "") -> None:
        """Attach the file; without a path, choose one."""
        if not path:
            self.app.push_screen(FilePicker(Path.cwd()), self._file_picked)
            return
        await self._attach_file(path_of(path))

    @on(Prompt.FilePasted)
    async def file_pasted(self, event: Prompt.FilePasted) -> None:
        await self._attach_file(event.path)

    async def _file_picked(self, path: Path | None) -> None:
        if path is not None:
            await self._attach_file(path.expanduser())
        self.prompt.focus()

    async def _attach_file(self, path: Path) -> None:
        """A large PDF takes seconds; a message sent meanwhile waits for it, leaving the app does not."""
        self._reading_file = asyncio.ensure_future(in_thread(lambda _: read_attachment(path, may_be_pipe=False)))
        try:
            attachment, notice = await self._reading_file
        except HotslotError as error:
            self.say(str(error), "error")
            return
        except asyncio.CancelledError:
            return
        finally:
            self._reading_file = None
        if notice:
            self.say(notice)
        if twice := told_twice(attachment, self.attachments.files):
            self.say(twice)
            return
        self.attachments.add(attachment)
        self._count_from(len(self.attachments.files) - 1)
        self.plan_reading()

    def take_back_files(self, attachments: Sequence[Attachment]) -> None:
        """Put files of a message that was not sent in front of those that wait; what waits already is not doubled."""
        returning: list[Attachment] = []
        for attachment in attachments:
            if twice := told_twice(attachment, self.attachments.files):
                self.say(twice)
            else:
                returning.append(attachment)
        self.attachments.restore(returning)
        self._count_from(0)
        self.plan_reading()

    def stop_reading_file(self) -> None:
        """The app ends: the file is not attached any more."""
        if self._reading_file is not None:
            self._reading_file.cancel()

    def _count_from(self, index: int) -> None:
        """Count this file and those after it: the first one has the word on citing."""
        self.run_worker(self._count(index), group="count")

    async def _count(self, index: int) -> None:
        files = self.attachments.files
        try:
            for place, attachment in enumerate(files[index:], index):
                others = await asyncio.to_thread(emptied, files[:place])
                with_file = await self.session.count_tokens("?", (*others, attachment))
                without = await self.session.count_tokens("?", others)
                if with_file is not None and without is not None:
                    self.attachments.note_tokens(attachment, with_file - without)
        except HotslotError:
            # Its size in bytes stays; sending it will say what is wrong, if anything is.
            return

    def plan_reading(self) -> None:
        """Show above the prompt how the documents would be read for what is written there now."""
        self.attachments.note_plan("")
        self._plan_anew()

    def plan_anew_soon(self) -> None:
        """Other words were written: they decide what is shown of a document that does not fit."""
        if self._has_plan_of_words and self.attachments.files:
            if self._replanning is not None:
                self._replanning.stop()
            self._replanning = self.set_timer(TYPING_PAUSE_S, self._plan_anew)

    def _plan_anew(self) -> None:
        if self.attachments.files:
            self.run_worker(self._plan_reading(), group="plan", exclusive=True)

    async def _plan_reading(self) -> None:
        self._has_plan_of_words = True
        try:
            plans = await self.session.plan_reading(self.prompt.text, self.attachments.files, self.reading)
        except HotslotError as error:
            self.attachments.note_plan(str(error), is_problem=True)
            return
        self._has_plan_of_words = any(plan.mode != "whole" for plan in plans)
        self.attachments.note_plan(" ".join(plan.line for plan in plans))

    def action_detach(self) -> None:
        if self.attachments.remove_last() is None:
            self.say("No file is attached; /attach and a path attaches one.", "warning")
        self.plan_reading()

    @on(AttachmentTray.RemoveAsked)
    def attachment_remove_asked(self, event: AttachmentTray.RemoveAsked) -> None:
        self.attachments.remove_at(event.index)
        self._count_from(event.index)
        self.plan_reading()

    def action_reading(self, choice: str = "") -> None:
        """Choose how documents are read; without a word take the next way."""
        wanted = choice or CHOICES[(CHOICES.index(self.reading) + 1) % len(CHOICES)]
        for known in CHOICES:
            if known == wanted:
                self.reading = known
                self.say(f"Documents are read: {known}.")
                self.plan_reading()
                return
        self.say(f"Documents are read {', '.join(CHOICES)}, not '{choice}'.", "warning")

    # ---- reading them

    def action_documents(self) -> None:
        self.app.push_screen(DocumentsScreen(self.session.documents, self.attachments.files), self._document_chosen)

    def _document_chosen(self, document: Attachment | None) -> None:
        if document is not None:
            self.app.push_screen(TextScreen(document.name, document.text))

    def action_cite(self, number: str = "") -> None:
        """Open the passage of a citation of the last answer that has one."""
        try:
            self._open_cited(cited_numbered(self.session.messages, self.session.documents, number))
        except HotslotError as error:
            self.say(str(error), "warning")

    @on(CitationLine.Opened)
    def citation_opened(self, event: CitationLine.Opened) -> None:
        self._open_cited(event.cited)

    def _open_cited(self, cited: CitedPassage) -> None:
        text, line = document_and_line(cited)
        self.app.push_screen(TextScreen(cited.place, text, line))

    async def show_citations(self) -> None:
        """Under each answer on the screen that cites a document, once."""
        documents = self.session.documents
        for answer in self.transcript.answers if documents else ():
            if not answer.query(Citations) and (passages := cited_passages(answer.text, documents)):
                await answer.mount(Citations(passages))
