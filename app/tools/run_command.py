"""Running one command of the model's: in the first allowed folder, confined, with limits of time and output.

What does the confining is a process of its own, `command_guard.py`; here it is started, listened to and, whatever
happens, ended. A command that needs a shell needs the permission 'shell'.
"""

import asyncio
import json
import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from app.environment import command_variables
from app.threads import in_thread
from app.tools import command_guard
from app.tools.command_guard import can_confine
from app.tools.command_line import CommandLine, parse_command
from app.tools.folders import AllowedFolders
from app.tools.own_process import hide_own_memory
from app.tools.registry import Arguments, Scope, Tool, ToolError, text_schema

RUN_COMMAND = text_schema("run_command", "Run a shell command and return its output.", command="The command line")
SHELL = "shell"
_SYSTEM_FOLDERS = (
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc",
    "/opt",
    "/nix",
    "/snap",
    "/proc",
    "/sys",
)
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_PYTHON = (sys.executable, "-I", "-S")
"""Without what PYTHON* variables, the current folder and site packages would bring in."""
_MARK = "HOTSLOT_COMMAND"
"""Names the command in the environment of all its processes."""
_GUARD_GRACE_S = 8.0
_OUTPUT_GRACE_S = 1.0
"""After the guard's end, for what is still in the pipe."""


@dataclass(frozen=True)
class CommandLimits:
    """What one command may use. Memory and file size are per process and per file."""

    time_s: float = 30.0
    output_bytes: int = 64 << 10
    memory_bytes: int = 4 << 30
    file_bytes: int = 1 << 30
    num_processes: int = 256
    """More than the user has when it starts; not counted for root."""


@dataclass(frozen=True)
class CommandEnded:
    """`reason` is '' for a command that ended by itself, else timeout, stopped or output."""

    exit_code: int
    reason: str
    output: str


def run_command(folders: AllowedFolders, limits: CommandLimits = CommandLimits()) -> Tool:
    """The built-in tool."""
    is_confined = can_confine()
    hide_own_memory()

    async def examine(arguments: Arguments) -> Scope:
        command = parse_command(arguments["command"])
        if not folders.paths:
            raise ToolError("there is no folder to run commands in")
        how = "Runs in a shell. " if command.needs_shell else ""
        where = "It can write in the allowed folders only." if is_confined else "It can touch all your files."
        permission = SHELL if command.needs_shell else "run_command"
        return Scope(permission, folders.paths[0], seen=command, note=how + where, reaches_below=True)

    async def run(_: Arguments, scope: Scope) -> str:
        assert isinstance(scope.seen, CommandLine)
        return _told(await GuardedCommand(scope.seen.argv, folders, limits, is_confined).run(), limits)

    return Tool(RUN_COMMAND, "run", run, examine)


def _told(ended: CommandEnded, limits: CommandLimits) -> str:
    """As the model reads it."""
    output = ended.output.strip("\n")
    if ended.reason == "timeout":
        head = f"Error: timed out after {limits.time_s:g} seconds"
    elif ended.reason == "output":
        head = f"Error: stopped, it wrote more than {limits.output_bytes} bytes"
    elif ended.exit_code < 0:
        head = f"Error: ended by {_signal_name(-ended.exit_code)}"
    elif ended.exit_code:
        head = f"exit code {ended.exit_code}"
    else:
        return output or "(no output)"
    return f"{head}\n{output}" if output else head


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


class GuardedCommand:
    """One run. However it ends, no process of it is left."""

    def __init__(
        self, argv: tuple[str, ...], folders: AllowedFolders, limits: CommandLimits, is_confined: bool
    ) -> None:
        self._argv = argv
        self._folders = folders
        self._limits = limits
        self._is_confined = is_confined
        self._mark = secrets.token_hex(16)

    async def run(self) -> CommandEnded:
        """Raises ToolError if it can't be started; on cancelling, everything ends first."""
        status_reader, status_writer = os.pipe()
        try:
            guard = self._start(status_writer)
        except OSError as error:
            os.close(status_reader)
            raise ToolError(f"the command can't be started: {error.strerror}") from None
        finally:
            os.close(status_writer)
        following = asyncio.ensure_future(in_thread(lambda _: self._follow(guard, status_reader)))
        try:
            return await asyncio.shield(following)
        except asyncio.CancelledError:
            _let_go(guard)
            await asyncio.wait([following])
            raise

    def _start(self, status_writer: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*_PYTHON, command_guard.__file__, str(status_writer)],
            bufsize=0,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            pass_fds=(status_writer, *self._folders.descriptors),
            env=command_variables(),
            start_new_session=True,
        )

    def _follow(self, guard: subprocess.Popen[bytes], status_reader: int) -> CommandEnded:
        """Give the order and listen until all has ended. Blocks; ends soon after the guard is let go of."""
        assert guard.stdin is not None
        home = tempfile.mkdtemp(prefix="hotslot-command-")
        try:
            with suppress(OSError, ValueError):  # It was let go of at once: its status says so.
                guard.stdin.write(json.dumps(self._order(home)).encode() + b"\n")
            output, is_too_much = self._listen(guard, status_reader)
            status = os.read(status_reader, 1 << 16)
        finally:
            os.close(status_reader)
            self._end(guard)
            shutil.rmtree(home, ignore_errors=True)
        ended = _read_status(status)
        return CommandEnded(ended["exit_code"], "output" if is_too_much else ended["reason"], output)

    def _listen(self, guard: subprocess.Popen[bytes], status_reader: int) -> tuple[str, bool]:
        """The output until the guard has spoken its last word, and whether it was too much."""
        assert guard.stdout is not None
        output, kept, is_too_much = guard.stdout.fileno(), b"", False
        deadline_s = time.monotonic() + self._limits.time_s + _GUARD_GRACE_S
        open_fds = [output, status_reader]
        while output in open_fds and (left_s := deadline_s - time.monotonic()) > 0:
            ready, _, _ = select.select(open_fds, [], [], left_s)
            if output in ready:
                piece = os.read(output, 1 << 16)
                kept = (kept + piece)[: self._limits.output_bytes + 1]
                if not piece:
                    open_fds.remove(output)
            if len(kept) > self._limits.output_bytes and not is_too_much:
                is_too_much = True
                _let_go(guard)
            if status_reader in ready:
                # Its end. Where it was killed, others may still hold the output open.
                open_fds.remove(status_reader)
                deadline_s = min(deadline_s, time.monotonic() + _OUTPUT_GRACE_S)
        return kept[: self._limits.output_bytes].decode("utf-8", "replace"), is_too_much

    def _end(self, guard: subprocess.Popen[bytes]) -> None:
        """The guard ends by itself once it is let go of, after all the others; where it doesn't, it is killed."""
        _let_go(guard)
        try:
            guard.wait(_GUARD_GRACE_S)
        except subprocess.TimeoutExpired:
            guard.kill()
            guard.wait()
        if guard.returncode != 0:
            kill_marked(self._mark)
        assert guard.stdout is not None
        guard.stdout.close()

    def _order(self, home: str) -> dict[str, Any]:
        environment = command_variables() | {"HOME": home, "TMPDIR": home, _MARK: self._mark}
        cwd, *_ = self._folders.descriptors
        return {
            "argv": self._argv,
            "environment": environment,
            "cwd_fd": cwd,
            "root_fds": self._folders.descriptors,
            "readable": [*_SYSTEM_FOLDERS, *_program_folders(environment["PATH"])],
            "devices": _DEVICES,
            "writable": [home],
            "confine": self._is_confined,
            "time_limit_s": self._limits.time_s,
            "memory_limit_bytes": self._limits.memory_bytes,
            "file_limit_bytes": self._limits.file_bytes,
            "process_limit": self._limits.num_processes,
        }


def _let_go(guard: subprocess.Popen[bytes]) -> None:
    """Tell the guard to end everything."""
    assert guard.stdin is not None
    guard.stdin.close()


def _read_status(status: bytes) -> dict[str, Any]:
    """Raises ToolError where the guard could not do its work."""
    if not status:
        raise ToolError("the command ended the process that watched it, and was killed")
    ended: dict[str, Any] = json.loads(status)
    if "error" in ended:
        raise ToolError(f"the command can't be run: {ended['error']}")
    return ended


def _program_folders(path: str) -> list[str]:
    """Where programs are that the user has installed: each entry of PATH, and the libraries beside it."""
    found = []
    for entry in [*map(Path, path.split(":")), Path(sys.base_prefix) / "bin"]:
        found.append(str(entry))
        if entry.name in ("bin", "sbin"):
            found += [str(entry.parent / name) for name in ("lib", "lib64", "libexec", "pyvenv.cfg")]
        elif entry.name == "shims":
            # Version managers such as pyenv: the scripts there start what lies beside them.
            found.append(str(entry.parent))
    return found


def kill_marked(mark: str) -> None:
    """Kill every process of a command whose guard is no more."""
    for _ in range(10):
        found = [process for process in psutil.process_iter() if _has_mark(process, mark)]
        for process in found:
            with suppress(psutil.Error):
                process.kill()
        if not found:
            return


def _has_mark(process: psutil.Process, mark: str) -> bool:
    try:
        return process.environ().get(_MARK) == mark
    except (psutil.Error, OSError):
        # Not ours to read, so not ours to kill.
        return False
