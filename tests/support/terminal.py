"""A real terminal for tests: a program on a pseudo-terminal, its raw output, and the screen an emulator makes of it."""

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pexpect
import psutil
import pyte

HOTSLOT = [sys.executable, "-m", "app"]
REPO = Path(__file__).resolve().parents[2]


class Terminal:
    """Runs one program; `screen` is what a person would see now, `raw` every byte it wrote."""

    def __init__(self, arguments: list[str], columns: int = 100, rows: int = 30, env: Mapping[str, str] | None = None):
        variables = {**os.environ, "TERM": "xterm-256color", "PYTHONPATH": str(REPO), **(env or {})}
        # As in a terminal of a person's, also where the tests run under nohup.
        hears_hangup = partial(signal.signal, signal.SIGHUP, signal.SIG_DFL)
        self._child = pexpect.spawn(
            arguments[0], arguments[1:], dimensions=(rows, columns), env=variables, timeout=1, cwd=str(REPO),
            preexec_fn=hears_hangup,
        )  # fmt: skip
        self._child.delaybeforesend = None
        self._emulator = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self._emulator)
        self.raw = b""

    @property
    def process(self) -> psutil.Process:
        return psutil.Process(self._child.pid)

    @property
    def is_running(self) -> bool:
        return bool(self._child.isalive())

    @property
    def screen(self) -> str:
        self.read(0.0)
        return "\n".join(self._emulator.display)

    def read(self, seconds: float) -> None:
        """Take what the program writes for at most `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                chunk = self._child.read_nonblocking(65536, timeout=max(0.0, min(0.05, deadline - time.monotonic())))
            except pexpect.TIMEOUT:
                chunk = b""
            except pexpect.EOF:
                return
            self.raw += chunk
            self._stream.feed(chunk)
            if time.monotonic() >= deadline and not chunk:
                return

    def send(self, keys: str | bytes) -> None:
        self._child.send(keys)

    def wait_for(self, wanted: str | Callable[[str], Any], seconds: float = 60.0) -> str:
        """Wait until the screen shows a text (or satisfies a test); fails with the screen it saw last."""
        is_there = wanted if callable(wanted) else lambda screen: wanted in screen
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.read(0.05)
            if is_there(self.screen):
                return self.screen
        raise AssertionError(f"{wanted!r} did not appear in {seconds} s; the screen was:\n{self.screen}")

    def wait_for_exit(self, seconds: float = 10.0) -> int:
        """Exit status, negative for a signal."""
        deadline = time.monotonic() + seconds
        while self._child.isalive() and time.monotonic() < deadline:
            self.read(0.05)
        assert not self._child.isalive(), f"still running after {seconds} s; the screen was:\n{self.screen}"
        return self._child.exitstatus if self._child.exitstatus is not None else -self._child.signalstatus

    def close(self) -> None:
        self._child.close(force=True)


def engine_of(process: psutil.Process, seconds: float = 60.0) -> psutil.Process:
    """The engine process that an app process started; waits for it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        for child in process.children(recursive=True):
            try:
                if any("runtime.worker" in part for part in child.cmdline()):
                    return child
            except psutil.Error:
                continue
        time.sleep(0.02)
    raise AssertionError(f"no engine process under {process} in {seconds} s")


def wait_until_gone(process: psutil.Process, seconds: float) -> float:
    """Seconds until a process ended (a zombie counts as ended)."""
    started = time.monotonic()
    while time.monotonic() - started < seconds:
        if not process.is_running() or process.status() == psutil.STATUS_ZOMBIE:
            return time.monotonic() - started
        time.sleep(0.02)
    raise AssertionError(f"{process} still runs after {seconds} s")
