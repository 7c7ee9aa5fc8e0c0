"""Commands that try to get out, to stay, to read secrets or to flood: each is contained, and nothing of it is left.

Where the kernel has Landlock both ways are tested: confined by it, and with what is left without it.
"""

import asyncio
import contextlib
import os
import shutil
import socket
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from app.environment import command_variables
from app.tools import run_command as module
from app.tools.command_guard import can_confine
from app.tools.folders import AllowedFolders
from app.tools.registry import Tool, ToolError
from app.tools.run_command import CommandLimits, run_command
from tests.app.tools.conftest import SECRET, Workshop
from tests.support.command_line import REPO

OWN_MARK = f"HOTSLOT_COMMAND_{os.getpid()}"
"""Other tests run commands at the same time."""
LIMITS = CommandLimits(time_s=1.5, output_bytes=10_000, file_bytes=1 << 20)
needs_landlock = pytest.mark.skipif(not can_confine(), reason="this kernel has no Landlock")


@pytest.fixture(params=[pytest.param(True, marks=needs_landlock), False], ids=["confined", "unconfined"])
def command(request: pytest.FixtureRequest, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tool]:
    """The tool; after the test, no process it started lives."""
    monkeypatch.setattr(module, "can_confine", lambda: request.param)
    monkeypatch.setattr(module, "_MARK", OWN_MARK)
    monkeypatch.setenv("HF_TOKEN", SECRET)
    before = set(psutil.pids())
    folders = AllowedFolders([workshop.root])
    yield run_command(folders, LIMITS)
    folders.close()
    left = [process for process in psutil.process_iter() if process.pid not in before and is_ours(process)]
    assert not left, left


def is_ours(process: psutil.Process) -> bool:
    try:
        return OWN_MARK in process.environ() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


async def run(tool: Tool, line: str) -> str:
    try:
        return await tool.run({"command": line}, await tool.look_at({"command": line}))
    except ToolError as error:
        return f"Error: {error}"


def script(workshop: Workshop, code: str, name: str = "trick.py") -> str:
    """A command line that runs this Python program."""
    (workshop.root / name).write_text(textwrap.dedent(code))
    # Not the test environment's own: that lies where a confined command may not read.
    return f"{os.path.realpath(sys.executable)} -I {name}"


async def test_output_and_exit_codes(command: Tool, workshop: Workshop) -> None:
    assert await run(command, "cat notes.txt") == "first line\nneedle here"
    assert await run(command, "true") == "(no output)"
    assert await run(command, "sh -c 'echo out; echo err >&2; exit 3'") == "exit code 3\nout\nerr"
    assert await run(command, "no-such-program") == "exit code 127\nno-such-program not found"
    assert await run(command, "./notes.txt") == "exit code 126\n./notes.txt can't be run: permission denied"
    assert await run(command, script(workshop, "import os; os.kill(os.getpid(), 11)")) == "Error: ended by SIGSEGV"
    assert await run(command, "pwd") == str(workshop.root)
    assert await run(command, "cat") == "(no output)"  # Standard input is empty.


# ---- secrets


async def test_environment_has_no_secret(command: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "HOTSLOT_API_KEY", "SSH_AUTH_SOCK", "LD_PRELOAD", "PYTHONPATH", "BASH_ENV"):
        monkeypatch.setenv(name, SECRET)
    for line in ("env", "sh -c 'set'", "sh -c 'cat /proc/self/environ'", "sh -c 'cat /proc/$PPID/environ'"):
        text = await run(command, line)
        assert SECRET not in text
        assert "PYTHONPATH" not in text
        assert str(Path.home()) not in [part.partition("=")[2] for part in text.split("\n")]


@pytest.mark.parametrize("what", ["environ", "mem", "fd/0", "cwd", "root/etc/hostname", "auxv", "stack", "io"])
async def test_the_apps_own_process_is_closed(command: Tool, what: str) -> None:
    text = await run(command, f"cat /proc/{os.getpid()}/{what}")
    assert SECRET not in text
    if os.geteuid() != 0 or "/" not in what:
        assert text.startswith("exit code 1")


def test_environment_of_a_real_app_is_closed_to_its_commands(tmp_path: Path) -> None:
    """The token stands in the environment the process was started with, not one that was set later."""
    code = f"""
        import asyncio, os
        from pathlib import Path
        from app.tools import run_command as module
        from app.tools.folders import AllowedFolders
        for is_confined in {{module.can_confine(), False}}:
            module.can_confine = lambda is_confined=is_confined: is_confined
            tool = module.run_command(AllowedFolders([Path({str(tmp_path)!r})]))
            line = f"cat /proc/{{os.getpid()}}/environ"
            call = {{"command": line}}
            async def main():
                return await tool.run(call, await tool.look_at(call))
            print(is_confined, asyncio.run(main()))
    """
    variables = {**os.environ, "HF_TOKEN": SECRET, "PYTHONPATH": str(REPO)}
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env=variables, capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr
    assert SECRET not in ended.stdout
    assert ended.stdout.count("Permission denied") == ended.stdout.count("exit code 1") > 0


@needs_landlock
@pytest.mark.parametrize("command", [True], indirect=True, ids=["confined"])
async def test_no_process_of_the_user_can_be_read(command: Tool) -> None:
    """Also one that does not hide itself, such as the shell the app was started from."""
    other = subprocess.Popen(["sleep", "30"], env={"HF_TOKEN": SECRET, "PATH": os.environ["PATH"]})
    try:
        text = await run(command, f"sh -c 'cat /proc/{other.pid}/environ; cat /proc/*/environ'")
        assert SECRET not in text
        assert "Permission denied" in text
    finally:
        other.kill()
        other.wait()


def test_passed_variables_are_named() -> None:
    secret = {"HF_TOKEN": "x", "HOME": "/home/x", "LD_PRELOAD": "y"}
    passed = command_variables({"PATH": "/usr/bin:.:relative::/bin", "LANG": "de_DE.UTF-8", **secret})
    assert (passed["PATH"], passed["LANG"]) == ("/usr/bin:/bin", "de_DE.UTF-8")
    assert not set(secret) & set(passed)
    assert command_variables({"PATH": "."})["PATH"].startswith("/")


# ---- files outside


@needs_landlock
@pytest.mark.parametrize("command", [True], indirect=True, ids=["confined"])
@pytest.mark.parametrize(
    "line",
    [
        "cat {outside}/secret.txt",
        "cat ../outside/secret.txt",
        "ls {outside}",
        "sh -c 'cd ..; cat outside/secret.txt'",
        "sh -c 'ln -s {outside} way; cat way/secret.txt'",
        "sh -c 'ln {outside}/secret.txt hard; cat hard'",
        "cp {outside}/secret.txt stolen",
        "sh -c 'mv ../outside here; cat here/secret.txt'",
        "sh -c 'echo pwned > {outside}/secret.txt'",
        "sh -c 'echo pwned > {outside}/new.txt'",
        "rm -f {outside}/secret.txt",
        "truncate -s 0 {outside}/secret.txt",
        "sh -c 'cat /proc/self/root{outside}/secret.txt'",
        "cat /proc/{app}/root{outside}/secret.txt",
        "sh -c 'cat < {outside}/secret.txt'",
        "sh -c 'mount --bind {outside} sub; cat sub/secret.txt'",
        "chroot {outside} /bin/sh",
        "unshare -r -m sh -c 'cat {outside}/secret.txt'",
        "sh -c 'mknod disk b 254 0; cat disk'",
        "sh -c 'cat /dev/mem /dev/kmem /dev/vda | head -c 100'",
    ],
)
async def test_file_outside_is_out_of_reach(command: Tool, workshop: Workshop, line: str) -> None:
    text = await run(command, line.format(outside=workshop.outside, app=os.getpid()))
    assert SECRET not in text
    assert "rror" in text or "exit code" in text or "denied" in text
    workshop.check_outside()
    assert all(SECRET not in entry.read_text() for entry in workshop.root.rglob("*.txt") if entry.is_file())


@needs_landlock
@pytest.mark.parametrize("command", [True], indirect=True, ids=["confined"])
async def test_services_of_the_user_are_out_of_reach(command: Tool, workshop: Workshop) -> None:
    """A session bus or a container service would run anything, outside of all bounds."""
    code = f"""
        import ctypes, os, socket
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            try:
                service = socket.socket(socket.AF_UNIX, kind)
                service.connect({str(workshop.root / "bus")!r})
                print("reached")
            except PermissionError:
                print("refused")
        libc = ctypes.CDLL(None, use_errno=True)
        print(libc.syscall({250 if os.uname().machine == "x86_64" else 219}, 0, -3, 0), os.strerror(ctypes.get_errno()))
        print(libc.syscall(425, 1, 0), os.strerror(ctypes.get_errno()))
        one, other = socket.socketpair()
        one.send(b"pairs work")
        print(other.recv(99).decode())
        server = socket.create_server(("127.0.0.1", 0))
        socket.create_connection(server.getsockname()).close()
        print("network works")
    """
    with socket.socket(socket.AF_UNIX) as bus:
        with contextlib.chdir(workshop.root):
            bus.bind("bus")
        bus.listen()
        text = await run(command, script(workshop, code))
    refused = "-1 Operation not permitted"
    assert text.splitlines() == ["refused", "refused", refused, refused, "pairs work", "network works"]


async def test_commands_work_in_the_root_and_leave_no_home(command: Tool, workshop: Workshop) -> None:
    text = await run(command, "sh -c 'echo made > new.txt; echo t > $TMPDIR/t; echo $HOME; ls -A $HOME'")
    home, listed = text.splitlines()
    assert listed == "t"
    assert not Path(home).exists()
    assert (workshop.root / "new.txt").read_text() == "made\n"


# ---- staying alive


STUBBORN = """
    import os, signal, sys, time
    for number in range(1, 32):
        try:
            signal.signal(number, signal.SIG_IGN)
        except OSError:
            pass
    print("ready", flush=True)
"""


async def test_process_that_ignores_signals(command: Tool, workshop: Workshop) -> None:
    began_s = time.monotonic()
    text = await run(command, script(workshop, STUBBORN + "    time.sleep(600)"))
    assert text == "Error: timed out after 1.5 seconds\nready"
    assert time.monotonic() - began_s < 8


@pytest.mark.parametrize("waits", [True, False], ids=["parent waits", "parent ends"])
async def test_processes_that_fork_away(command: Tool, workshop: Workshop, waits: bool) -> None:
    """Sessions of their own, parents gone, signals ignored, output kept open: still the command's processes."""
    code = (
        STUBBORN
        + """
    for _ in range(20):
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                os.setsid()
                time.sleep(600)
            os._exit(0)
    print("forked", flush=True)
"""
    )
    code += "    time.sleep(600)\n" if waits else ""
    text = await run(command, script(workshop, code))
    assert text == ("Error: timed out after 1.5 seconds\nready\nforked" if waits else "ready\nforked")


async def test_process_that_forks_for_ever(command: Tool, workshop: Workshop) -> None:
    """A chain in which each process starts the next and ends: none lives long enough to be found and killed."""
    code = """
        import os, sys, time
        begun = time.monotonic()
        print("on the run", flush=True)
        while time.monotonic() - begun < 30:
            if os.fork():
                os._exit(0)
            os.setsid()
    """
    assert "on the run" in await run(command, script(workshop, code))


async def test_background_process_ends_with_its_command(command: Tool) -> None:
    began_s = time.monotonic()
    assert await run(command, "sh -c 'nohup setsid sleep 600 > /dev/null 2>&1 & echo away'") == "away"
    assert time.monotonic() - began_s < 5


async def test_guard_that_is_killed(command: Tool, workshop: Workshop) -> None:
    """A command may kill the process that watches it, where signals aren't scoped: it and its own still end."""
    code = """
        import os, signal, time
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                time.sleep(600)
            os._exit(0)
        time.sleep(0.3)
        try:
            os.kill(os.getppid(), signal.SIGKILL)
        except PermissionError:
            print("refused", flush=True)
        time.sleep(600)
    """
    text = await run(command, script(workshop, code))
    assert text in (
        "Error: timed out after 1.5 seconds\nrefused",
        "Error: the command ended the process that watched it, and was killed",
    )


@pytest.mark.parametrize("signal_name", ["KILL", "STOP"])
@needs_landlock
@pytest.mark.parametrize("command", [True], indirect=True, ids=["confined"])
async def test_the_app_can_not_be_signalled(command: Tool, signal_name: str) -> None:
    other = subprocess.Popen(["sleep", "30"])
    try:
        text = await run(command, f"sh -c 'kill -{signal_name} {other.pid} {os.getppid()}'")
        assert "Operation not permitted" in text or "No such process" in text
        assert psutil.Process(other.pid).status() == psutil.STATUS_SLEEPING
    finally:
        other.kill()
        other.wait()


async def test_cancel_ends_it_all(command: Tool, workshop: Workshop) -> None:
    line = script(workshop, STUBBORN + "    open('started', 'w').close()\n    os.fork()\n    time.sleep(600)")
    running = asyncio.create_task(run(command, line))
    while not (workshop.root / "started").exists():
        assert not running.done(), running.result()
        await asyncio.sleep(0.02)
    began_s = time.monotonic()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert time.monotonic() - began_s < 5


@pytest.mark.parametrize("how", ["kill", "exit"])
def test_commands_end_with_the_app(tmp_path: Path, how: str) -> None:
    """Also when it is killed in the middle."""
    code = f"""
        import asyncio, os
        from pathlib import Path
        from app.tools import run_command as module
        from app.tools.folders import AllowedFolders
        async def main():
            module._MARK = {OWN_MARK!r}
            tool = module.run_command(AllowedFolders([Path({str(tmp_path)!r})]))
            call = {{"command": "sh -c 'setsid sleep 600 & touch started; sleep 600'"}}
            running = asyncio.ensure_future(tool.run(call, await tool.look_at(call)))
            while not os.path.exists({str(tmp_path / "started")!r}):
                await asyncio.sleep(0.02)
            os.kill(os.getpid(), 9) if {how!r} == "kill" else os._exit(0)
        asyncio.run(main())
    """
    before = set(psutil.pids())
    subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code)], env={**os.environ, "PYTHONPATH": str(REPO)}, timeout=60
    )
    deadline_s = time.monotonic() + 5
    while left := [p for p in psutil.process_iter() if p.pid not in before and is_ours(p)]:
        assert time.monotonic() < deadline_s, left
        time.sleep(0.05)


# ---- floods


async def test_endless_output(command: Tool) -> None:
    began_s = time.monotonic()
    text = await run(command, "yes")
    assert text.startswith("Error: stopped, it wrote more than 10000 bytes\ny\ny\n")
    assert len(text) < 11_000
    assert time.monotonic() - began_s < 4


async def test_endless_file(command: Tool, workshop: Workshop) -> None:
    text = await run(command, "dd if=/dev/zero of=big bs=64K count=1000")
    assert "rror" in text or "exit code" in text
    assert (workshop.root / "big").stat().st_size <= LIMITS.file_bytes


async def test_endless_memory(command: Tool, workshop: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = AllowedFolders([workshop.root])
    tool = run_command(folders, CommandLimits(time_s=5, memory_bytes=200 << 20))
    text = await run(tool, script(workshop, "x = bytearray(1 << 30)"))
    folders.close()
    assert "MemoryError" in text


async def test_output_that_is_no_text(command: Tool) -> None:
    text = await run(command, r"printf '\033]52;c;aGk=\007\377\000x'")
    assert text.endswith("x")
    assert "\ufffd" in text


# ---- arguments


async def test_arguments_are_never_syntax(command: Tool, workshop: Workshop) -> None:
    for line, wanted in (
        ("echo 'a; touch pwned'", "a; touch pwned"),
        ("echo '$(touch pwned)'", "$(touch pwned)"),
        ("echo '`touch pwned`'", "`touch pwned`"),
        ("echo 'a && touch pwned | x > pwned'", "a && touch pwned | x > pwned"),
        ("echo a\\;touch\\ pwned", "a;touch pwned"),
        ("echo '--help' -n", "--help -n"),
    ):
        scope = await command.look_at({"command": line})
        assert scope.permission == "run_command"
        assert await run(command, line) == wanted
    assert not (workshop.root / "pwned").exists()


async def test_shell_is_a_permission_of_its_own(command: Tool) -> None:
    scope = await command.look_at({"command": "cat notes.txt; id"})
    assert scope.permission == "shell"
    assert scope.note.startswith("Runs in a shell.")
    assert (await command.look_at({"command": "cat notes.txt"})).permission == "run_command"


# ---- without root's powers, where the tests run as root

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
needs_nobody = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("setpriv") or not Path("/usr/bin/python3").exists(),
    reason="needs root, to be somebody else",
)


@needs_nobody
@pytest.mark.parametrize("is_confined", [pytest.param(True, marks=needs_landlock), False])
async def test_guard_of_an_ordinary_user(is_confined: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """No power of root is needed for any of it."""
    monkeypatch.setattr(module, "_PYTHON", (*NOBODY, "/usr/bin/python3", "-I", "-S"))
    monkeypatch.setattr(module, "can_confine", lambda: is_confined)
    folders = AllowedFolders([Path("/usr/share")])
    tool = run_command(folders, LIMITS)
    assert await run(tool, "sh -c 'id -u; sleep 600 & nproc > /dev/null'") == "65534"
    assert (await run(tool, "sleep 600")).startswith("Error: timed out")
    other = subprocess.Popen([*NOBODY, "sleep", "30"], env={"HF_TOKEN": SECRET, "PATH": os.environ["PATH"]})
    try:
        while psutil.Process(other.pid).name() != "sleep":
            await asyncio.sleep(0.01)
        text = await run(tool, f"cat /proc/{other.pid}/environ")
        # Nothing but the kernel can close a process that doesn't close itself.
        assert is_confined == (SECRET not in text)
    finally:
        other.kill()
        other.wait()
        folders.close()


@needs_nobody
@pytest.mark.parametrize("is_hidden", [True, False])
def test_hidden_process_is_closed_to_others_of_its_user(is_hidden: bool) -> None:
    source = (REPO / "app" / "tools" / "own_process.py").read_text()
    code = f"{source}\nimport os, subprocess\n" + ("hide_own_memory()\n" if is_hidden else "")
    code += "subprocess.run(['cat', f'/proc/{os.getpid()}/environ'], env={'PATH': os.environ['PATH']})"
    variables = {"HF_TOKEN": SECRET, "PATH": os.environ["PATH"]}
    command = [*NOBODY, "/usr/bin/python3", "-I", "-c", code]
    ended = subprocess.run(command, env=variables, capture_output=True, timeout=30)
    assert (SECRET.encode() not in ended.stdout) == is_hidden
    assert (b"Permission denied" in ended.stderr) == is_hidden
