"""Documents and side calls on the plain terminal: how they are read, what answers cite, what runs beside the chat."""

from typing import get_args

from app.chat.cited import cited_numbered
from app.documents.reading_plan import ReadingChoice
from app.lines.line_base import LineCommands
from app.sanitize import clean, clean_line
from runtime.errors import UsageError

CHOICES: tuple[ReadingChoice, ...] = get_args(ReadingChoice)


class DocumentCommands(LineCommands):
    """Prints whole lines only."""

    async def do_reading(self, choice: str) -> None:
        for known in CHOICES:
            if known == choice:
                self.state.reading = known
        if choice and choice not in CHOICES:
            raise UsageError(f"Documents are read {', '.join(CHOICES)}, not '{clean_line(choice)}'.")
        self.console.remark(f"Documents are read: {self.state.reading}.")
        if self.state.attachments:
            for planned in await self.session.plan_reading("", self.state.attachments, self.state.reading):
                self.console.remark(clean_line(planned.line))

    async def do_documents(self, argument: str) -> None:
        documents = self.session.documents
        if not documents and not self.state.attachments:
            self.console.remark("No document is attached; /attach and a path attaches one.")
        for document in documents:
            mode = document.reading.mode if document.reading is not None else "whole"
            self.console.print(f"{clean_line(document.name)}: {len(document.text):,} characters, shown: {mode}")
        for document in self.state.attachments:
            self.console.print(f"{clean_line(document.name)}: {len(document.text):,} characters, for the next message")

    async def do_cite(self, number: str) -> None:
        cited = cited_numbered(self.session.messages, self.session.documents, number)
        self.console.print(f"{clean_line(cited.place)}:")
        self.console.print(clean(cited.excerpt))

    async def do_side_calls(self, words: str) -> None:
        side_calls = self.session.side_calls
        if words:
            number = words.removeprefix("cancel").strip()
            chosen = [call for call in side_calls.calls if number in ("", "all", "stop")]
            if number.isdecimal() and 1 <= int(number) <= len(side_calls.calls):
                chosen = [side_calls.calls[int(number) - 1]]
            if not chosen:
                raise UsageError(f"There is no side call {clean_line(number)}; /side numbers them.")
            for call in chosen:
                side_calls.cancel(call.id)
            self.console.remark("Cancelled.")
            return
        if not side_calls.calls:
            self.console.remark("No side calls yet.")
        for place, call in enumerate(side_calls.calls, 1):
            latency = "" if call.latency_s is None else f", {call.latency_s:.1f} s"
            tokens = f"{call.usage.prompt_tokens:,} tokens in, {call.usage.completion_tokens:,} out"
            problem = f": {call.error}" if call.error else ""
            self.console.print(f"{place}. {call.kind} {call.state}, {tokens}{latency}: {call.subject}{problem}")
