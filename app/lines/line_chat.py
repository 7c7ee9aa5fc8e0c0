"""The loop of the line-oriented chat: a line is a message or a slash command of the one action table.

Lines of a script are taken one after the other. At a terminal, commands work while an answer runs, and messages wait.
"""

import asyncio
import signal
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, contextmanager, suppress
from typing import Any

from app.actions import SlashCommand, line_actions, parse_slash
from app.chat.events import PermissionAsked, TurnEvents
from app.chat.message_groups import group_numbered
from app.errors import HotslotError
from app.lines.conversation_commands import ConversationCommands, split_number
from app.lines.document_commands import DocumentCommands
from app.lines.line_base import LineState
from app.lines.message_commands import MessageCommands
from app.lines.model_commands import ModelCommands
from app.lines.shelf_commands import ShelfCommands
from app.lines.tool_commands import ToolCommands
from app.lines.turn_printer import TurnPrinter
from app.sanitize import clean_line
from runtime.errors import UsageError

INTERRUPTED = 130
Handler = Callable[[str], Awaitable[None]]

NOT_WHILE_ANSWERING = frozenset(
    {"regenerate", "edit_message", "new_chat", "open_chat", "delete_chat", "import_chat", "siblings", "fork_chat"}
)
"""Commands that change what is being answered; typed during an answer they wait for its end."""


class LineChat:
    """`run` reads to the end of the input, /quit, or the second Ctrl+C in a row, and returns the exit status."""

    def __init__(self, state: LineState) -> None:
        self._state = state
        self._session, self._console, self._input = state.session, state.console, state.input
        self._tools = ToolCommands(state)
        models = ModelCommands(state, self.answer)
        self._shelf = ShelfCommands(state, models.use_model)
        groups = (
            MessageCommands(state),
            ConversationCommands(state),
            DocumentCommands(state),
            self._tools,
            models,
            self._shelf,
        )
        self._handlers = self._collect(groups)
        self._handlers |= {"quit": self._quit, "regenerate": self._regenerate, "edit_message": self._edit}
        self._num_interrupts = 0
        self._is_answering = False
        self._has_quit = False
        self._interrupted = asyncio.Event()
        """Set by the Ctrl+C that ends the program."""
        self._live: set[asyncio.Task[None]] = set()
        """Commands typed while an answer runs."""

    @staticmethod
    def _collect(groups: tuple[object, ...]) -> dict[str, Handler]:
        found: dict[str, Handler] = {}
        for action in line_actions():
            for group in groups:
                if (handler := getattr(group, f"do_{action.name}", None)) is not None:
                    found[action.name] = handler
        return found

    def check_integrity(self) -> None:
        """Every action of the table that has a meaning here is answered. Raises AssertionError naming the first."""
        for action in line_actions():
            assert action.name in self._handlers, f"/{action.command} has no answer in hotslot chat"

    # ---- the loop

    async def run(self) -> int:
        try:
            return await self._run()
        finally:
            await self._shelf.close()

    async def _run(self) -> int:
        with self._input.terminal_kept(), self._interrupts():
            talking = asyncio.create_task(self._talk())
            ending = asyncio.create_task(self._interrupted.wait())
            await asyncio.wait({talking, ending}, return_when=asyncio.FIRST_COMPLETED)
            if talking.done():
                ending.cancel()
                await talking
                return 0
            # The turn ends with what it has: its iteration is closed, and the partial answer is stored.
            talking.cancel()
            with suppress(asyncio.CancelledError):
                await talking
            self._console.end_line()
            return INTERRUPTED

    async def _talk(self) -> None:
        if self._input.is_terminal:
            self._console.remark("Write a message, /help for commands, /quit or Ctrl+D to leave.")
        while not self._has_quit and (line := await self._input.read()) is not None:
            if self._input.is_terminal:
                # Nobody types a script's lines between two interrupts.
                self._num_interrupts = 0
            await self._take(line)

    async def _take(self, line: str) -> None:
        try:
            command = parse_slash(line)
            if isinstance(command, SlashCommand):
                await self._obey(command)
            elif command is not None:
                self._console.notice(
                    f"there is no command /{command}; /help lists them. Put a space before it to send it."
                )
            elif line.strip() or self._state.attachments:
                await self._send(line)
        except HotslotError as error:
            self._console.notice(str(error))

    async def _obey(self, command: SlashCommand) -> None:
        handler = self._handlers.get(command.action.name)
        if handler is None:
            self._console.notice(f"/{command.action.command} is for the screen only; /help lists what works here.")
        else:
            await handler(command.argument)

    async def _send(self, text: str) -> None:
        files, self._state.attachments[:] = tuple(self._state.attachments), []
        await self.answer(self._session.send(text, files, self._state.reading), has_documents=bool(files))

    async def _regenerate(self, argument: str) -> None:
        await self.answer(self._session.regenerate())

    async def _edit(self, words: str) -> None:
        """Say the last message, or message #n, in other words."""
        number, text = split_number(words)
        group = group_numbered(self._session.messages, number)
        if not number and group[0].role != "user":
            group = (next(message for message in reversed(self._session.messages) if message.role == "user"),)
        if not text:
            raise UsageError("What shall it say? /edit and the new text, or /edit #1 and the new text.")
        await self.answer(self._session.edit(group[0].id, text, reading=self._state.reading))

    async def _quit(self, argument: str) -> None:
        self._has_quit = True
        await self._session.cancel()

    async def answer(self, turn: TurnEvents, has_documents: bool = False) -> None:
        """Print a turn to its end; `has_documents`: new ones come with it."""
        self._state.toolset.note_documents(has_documents or bool(self._session.documents))
        printer = TurnPrinter(self._console)
        asking: list[asyncio.Task[None]] = []
        self._is_answering = True
        try:
            with self._input.watched(self._take_live):
                async with aclosing(turn) as events:
                    async for event in events:
                        printer.show(event)
                        if isinstance(event, PermissionAsked):
                            # Beside the turn, which may be stopped while the user thinks.
                            asking.append(asyncio.create_task(self._tools.ask_permission(event)))
        finally:
            self._is_answering = False
            for question in asking:
                question.cancel()
            await asyncio.gather(*asking, *self._live, return_exceptions=True)

    # ---- what comes while an answer runs

    def _take_live(self, line: str) -> bool:
        """Obey a command at once, if it can be; anything else waits for its turn."""
        command = parse_slash(line)
        if not isinstance(command, SlashCommand) or command.action.name in NOT_WHILE_ANSWERING:
            if line.strip():
                self._console.remark(f"Waits for the answer: {clean_line(line)[:60]}")
            return not line.strip()
        self._start(self._take(line))
        return True

    def _start(self, job: Coroutine[Any, Any, None]) -> None:
        """Beside the answer, which does not end before it."""
        task = asyncio.create_task(job)
        self._live.add(task)
        task.add_done_callback(self._live.discard)

    @contextmanager
    def _interrupts(self) -> Iterator[None]:
        loop = asyncio.get_running_loop()
        # Where the loop can't handle signals, Ctrl+C ends the program at once.
        with suppress(NotImplementedError):
            loop.add_signal_handler(signal.SIGINT, self._interrupt)
        try:
            yield
        finally:
            with suppress(NotImplementedError):
                loop.remove_signal_handler(signal.SIGINT)

    def _interrupt(self) -> None:
        """Ctrl+C: the first one stops the answer; a second, without a line typed between them, ends the program."""
        self._num_interrupts += 1
        if self._num_interrupts > 1:
            self._interrupted.set()
        elif self._is_answering:
            self._start(self._session.cancel())
        else:
            self._console.remark("Ctrl+C again leaves; so do /quit and Ctrl+D.")
