"""Lines from the user: from a pipe one by one, from a terminal with its editing keys, and those typed during an answer.

Reads nothing ahead from a pipe, so that a script's lines wait for the answers before them.
"""

import asyncio
import os
import sys
import termios
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, BinaryIO

from app.chat.attachments import decode_text
from app.errors import HotslotError
from app.threads import in_thread

PROMPT, MORE_PROMPT = "> ", ". "


class LineInput:
    """`read` gives the next message or command, None at the end of the input.

    A backslash at the end of a line joins the next one to it with a line break. `notice` takes one line about a line
    that is no UTF-8.
    """

    def __init__(self, notice: Callable[[str], None], stdin: BinaryIO | None = None) -> None:
        self._notice = notice
        self._stdin = stdin or (sys.stdin.buffer if sys.stdin is not None else None)
        self.is_terminal = self._stdin is not None and self._stdin.isatty()
        self._is_editing = self.is_terminal and sys.stdout is not None and sys.stdout.isatty()
        self._typed_ahead: deque[str] = deque()
        self._is_ended = self._stdin is None
        self._partial = b""
        self._has_readline = False
        self._question: asyncio.Future[str] | None = None
        """Waits for a line typed after a question was put."""

    async def read(self) -> str | None:
        """The next line, or several joined by backslashes; one typed during the last answer comes first."""
        if self._typed_ahead:
            return self._typed_ahead.popleft()
        lines: list[str] = []
        while not self._is_ended:
            line = await in_thread(lambda _: self._read_line(MORE_PROMPT if lines else PROMPT))
            if line is None:
                self._is_ended = True
                break
            lines.append(line)
            if not line.endswith("\\"):
                break
            lines[-1] = line[:-1]
        return "\n".join(lines) if lines else None

    def _read_line(self, prompt: str) -> str | None:
        if self._is_editing:
            return self._edit_line(prompt)
        if self.is_terminal and sys.stderr is not None:
            print(prompt, end="", file=sys.stderr, flush=True)
        assert self._stdin is not None
        data = self._stdin.readline()
        return self._decode(data) if data else None

    def _edit_line(self, prompt: str) -> str | None:
        if not self._has_readline:
            # Gives input() the arrow keys and a history; missing in some builds of Python.
            with suppress(ImportError):
                import readline  # noqa: F401
            self._has_readline = True
        try:
            return input(prompt)
        except EOFError:
            return None
        except UnicodeDecodeError:
            self._notice("That line was not readable text; it was left out.")
            return ""

    def _decode(self, data: bytes) -> str:
        try:
            return data.decode("utf-8").rstrip("\r\n")
        except UnicodeDecodeError:
            pass
        try:
            text, notice = decode_text(data, "A line")
        except HotslotError as error:
            self._notice(str(error))
            return ""
        if notice:
            self._notice(notice)
        return text.rstrip("\r\n")

    # ---- while an answer runs

    @contextmanager
    def watched(self, take: Callable[[str], bool]) -> Iterator[None]:
        """Hand lines typed meanwhile to `take`; those it does not want come with the next `read`. Terminals only."""
        if not self.is_terminal or self._is_ended:
            yield
            return
        assert self._stdin is not None
        loop, descriptor = asyncio.get_running_loop(), self._stdin.fileno()
        loop.add_reader(descriptor, lambda: self._take_typed(take))
        try:
            yield
        finally:
            loop.remove_reader(descriptor)

    def _take_typed(self, take: Callable[[str], bool]) -> None:
        assert self._stdin is not None
        data = os.read(self._stdin.fileno(), 65536)
        if not data:
            self._is_ended = True
            asyncio.get_running_loop().remove_reader(self._stdin.fileno())
            if self._question is not None and not self._question.done():
                self._question.set_result("")
        *lines, self._partial = (self._partial + data).split(b"\n")
        for line in lines:
            text = self._decode(line)
            if self._question is not None and not self._question.done():
                self._question.set_result(text)
            elif not take(text):
                self._typed_ahead.append(text)

    def unqueue(self) -> str | None:
        """Take back the last line typed ahead, or None."""
        return self._typed_ahead.pop() if self._typed_ahead else None

    async def answer(self) -> str:
        """The next line typed from now on, inside `watched`; what was typed before is no answer to a new question."""
        if self._is_ended or not self.is_terminal or self._stdin is None:
            return ""
        self._partial = b""
        with suppress(termios.error):
            termios.tcflush(self._stdin.fileno(), termios.TCIFLUSH)
        self._question = asyncio.get_running_loop().create_future()
        try:
            return await self._question
        finally:
            self._question = None

    @contextmanager
    def terminal_kept(self) -> Iterator[None]:
        """Leave the terminal as it was: a line may be half edited when the program ends."""
        if not self.is_terminal or self._stdin is None:
            yield
            return
        mode: Any = None
        with suppress(termios.error):
            mode = termios.tcgetattr(self._stdin.fileno())
        try:
            yield
        finally:
            if mode is not None:
                with suppress(termios.error):
                    termios.tcsetattr(self._stdin.fileno(), termios.TCSADRAIN, mode)
