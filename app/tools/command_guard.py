"""The process between the app and one command: confines it, limits it, and ends everything it has started.

Runs by itself (`python -I -S command_guard.py STATUS_FD`) and imports nothing of the app. Standard input is the app's
hold on it: one line of JSON (`CommandOrder.to_json`), then silence; when it closes, everything ends. Standard output is
the command's output. On STATUS_FD one line of JSON says how it ended.

Processes that leave the command's session or lose their parent become children of this one, which adopts orphans, so
none gets away.

A confined command (the kernel has Landlock, and the machine is one whose system calls are known here) opens only what
lies in the folders it was given and, to read, in the system's. It reads no other process, reaches no service of the
user's through a socket or a keyring, and where Landlock has scopes its signals reach its own processes only. It can
still change modes and times of the user's files, and use the network.
"""

import ctypes
import json
import os
import resource
import select
import signal
import struct
import sys
import time
from contextlib import suppress

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS, _PR_SET_CHILD_SUBREAPER = 1, 4, 24, 38, 36
_LANDLOCK_CREATE_RULESET, _LANDLOCK_ADD_RULE, _LANDLOCK_RESTRICT_SELF = 444, 445, 446
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK, _REFER, _TRUNCATE, _IOCTL_DEV = 1 << 6, 1 << 11, 1 << 13, 1 << 14, 1 << 15
_ALL_OF_FIRST_ABI = (1 << 13) - 1
_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_SECCOMP_ALLOW, _SECCOMP_ERRNO = 0x7FFF0000, 0x00050000
_LOAD_WORD, _JUMP_EQUAL, _JUMP_AT_LEAST, _RETURN = 0x20, 0x15, 0x35, 0x06
_AF_UNIX = 1
_SYSTEM_CALLS = {
    # machine: (its number for filters, socket, the calls that are refused: io_uring_setup, which makes sockets of its
    # own, and the three of keyrings)
    "x86_64": (0xC000003E, 41, (425, 248, 249, 250)),
    "aarch64": (0xC00000B7, 198, (425, 217, 218, 219)),
}
_FIRST_X32_CALL = 0x40000000
_SCOPES = 0b11
"""Abstract sockets and signals."""
_READING = _EXECUTE | _READ_FILE | _READ_DIR
_ON_FILES = _EXECUTE | _READ_FILE | _WRITE_FILE | _TRUNCATE | _IOCTL_DEV
_KEPT_CAPABILITIES = frozenset({0, 1, 3, 4, 5, 6, 7, 10})
"""Of root's: what concerns owners and modes of files, its own users and ports."""
_NUM_CAPABILITIES = 41
_POLL_S = 0.05
_TERM_GRACE_S = 1.0
_KILL_S = 5.0

_libc = ctypes.CDLL(None, use_errno=True)


def landlock_abi() -> int:
    """The kernel's version of Landlock; 0 where it has none."""
    return max(0, _libc.syscall(_LANDLOCK_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint(1)))


def can_confine() -> bool:
    """Whether commands can be kept inside the folders they are given."""
    return landlock_abi() > 0 and os.uname().machine in _SYSTEM_CALLS


def main() -> None:
    """Run one command to its end."""
    status_fd = int(sys.argv[1])
    os.set_inheritable(status_fd, False)
    ended: dict[str, object]
    exit_code = 0
    try:
        order = json.loads(_read_line())
        ended = _supervise(order)
    except Exception as error:
        ended, exit_code = {"error": f"{type(error).__name__}: {error}"}, 1
    os.write(status_fd, json.dumps(ended).encode() + b"\n")
    os._exit(exit_code)


def _read_line() -> bytes:
    line = b""
    while not line.endswith(b"\n"):
        piece = os.read(0, 1 << 16)
        if not piece:
            raise EOFError("the app has gone")
        line += piece
    return line


def _supervise(order: dict) -> dict[str, object]:
    # What the command has left behind comes to this process when its own parent ends.
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    _prctl(_PR_SET_DUMPABLE, 0)
    for fd in (order["cwd_fd"], *order["root_fds"]):
        os.set_inheritable(fd, False)
    child = os.fork()
    if child == 0:
        _become_command(order)
    deadline_s = time.monotonic() + order["time_limit_s"]
    reason, status = "", None
    while status is None:
        readable, _, _ = select.select([0], [], [], _POLL_S)
        if readable:
            reason = "stopped"
        elif time.monotonic() > deadline_s:
            reason = "timeout"
        if reason:
            _terminate(child)
        status = _reap(child)
    if not _kill_rest():
        raise OSError("processes of the command are left")
    return {"exit_code": os.waitstatus_to_exitcode(status), "reason": reason}


def _reap(child: int) -> "int | None":
    """The command's status if it has ended; orphans that have ended are buried."""
    found = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return found
        if pid == 0:
            return found
        if pid == child:
            found = status


def _terminate(child: int) -> None:
    """Ask the command's group to end, then make it."""
    _signal_group(child, signal.SIGTERM)
    deadline_s = time.monotonic() + _TERM_GRACE_S
    while time.monotonic() < deadline_s and _is_running(child):
        time.sleep(_POLL_S)
    _signal_group(child, signal.SIGKILL)


def _signal_group(child: int, number: int) -> None:
    for target in (lambda: os.killpg(child, number), lambda: os.kill(child, number)):
        with suppress(ProcessLookupError, PermissionError):
            target()


def _is_running(pid: int) -> bool:
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return ended is None


def _kill_rest() -> bool:
    """End every process below this one, those that fork meanwhile too: all are stopped first. False: some are left."""
    deadline_s = time.monotonic() + _KILL_S
    while time.monotonic() < deadline_s:
        stopped: set[int] = set()
        while new := _descendants() - stopped:
            for pid in new:
                _kill(pid, signal.SIGSTOP)
            stopped |= new
            if time.monotonic() > deadline_s:
                break
        for pid in stopped:
            _kill(pid, signal.SIGKILL)
        if not stopped and not _has_children():
            return True
        time.sleep(0.01)
    return False


def _kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.kill(pid, number)


def _has_children() -> bool:
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True


def _descendants() -> set[int]:
    """All processes below this one that still live."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", "rb") as file:
                    # The name may hold anything, brackets too: the fields begin after the last one.
                    fields = file.read().rpartition(b")")[2].split()
            except OSError:
                continue
            if fields[0] != b"Z":
                children.setdefault(int(fields[1]), []).append(int(entry))
    found: set[int] = set()
    below = [os.getpid()]
    while below:
        for pid in children.get(below.pop(), ()):
            found.add(pid)
            below.append(pid)
    return found


# ---- in the child


def _become_command(order: dict) -> None:
    """Give up every power the command does not need, then be it. Never returns."""
    argv = order["argv"]
    try:
        # Its own /proc/self is closed to a process that hides its memory.
        _prctl(_PR_SET_DUMPABLE, 1)
        os.setsid()
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        os.fchdir(order["cwd_fd"])
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(1, 2)
        program = _find_program(argv[0], order["environment"]["PATH"])
        _limit(order)
        _drop_capabilities()
        _prctl(_PR_SET_NO_NEW_PRIVS, 1)
        if order["confine"]:
            _confine(order)
            _refuse_services()
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execve(program, argv, order["environment"])
    except FileNotFoundError:
        os.write(1, f"{argv[0]} not found\n".encode("utf-8", "replace"))
        os._exit(127)
    except PermissionError:
        os.write(1, f"{argv[0]} can't be run: permission denied\n".encode("utf-8", "replace"))
        os._exit(126)
    except BaseException as error:
        os.write(1, f"the command can't be started: {error}\n".encode("utf-8", "replace"))
        os._exit(125)


def _find_program(name: str, path: str) -> str:
    """Where the program is. Found before anything is confined: Python's own search would import more of itself."""
    if "/" in name:
        return name
    for folder in path.split(":"):
        place = f"{folder}/{name}"
        if os.path.isfile(place) and os.access(place, os.X_OK):
            return place
    raise FileNotFoundError(name)


def _limit(order: dict) -> None:
    os.nice(5)
    # When memory runs out it is the command that goes, not the engine.
    with open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    for kind, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, order["file_limit_bytes"]),
        (resource.RLIMIT_DATA, order["memory_limit_bytes"]),
        (resource.RLIMIT_NPROC, _num_own_threads() + order["process_limit"]),
    ):
        _, most = resource.getrlimit(kind)
        value = value if most == resource.RLIM_INFINITY else min(value, most)
        resource.setrlimit(kind, (value, value))


def _num_own_threads() -> int:
    """Threads this user has: the limit counts them all."""
    count = 0
    for entry in os.listdir("/proc"):
        try:
            if entry.isdigit() and os.stat(f"/proc/{entry}").st_uid == os.getuid():
                count += len(os.listdir(f"/proc/{entry}/task"))
        except OSError:
            continue
    return count


def _drop_capabilities() -> None:
    """Also root's command reads no other process and touches no kernel."""
    if os.geteuid() == 0:
        for number in set(range(_NUM_CAPABILITIES)) - _KEPT_CAPABILITIES:
            # Unknown to an older kernel, or root without the power to give it up.
            _libc.prctl(_PR_CAPBSET_DROP, number, 0, 0, 0)


def _confine(order: dict) -> None:
    abi = landlock_abi()
    if abi == 0:
        raise OSError("this kernel has no Landlock")
    handled = _ALL_OF_FIRST_ABI
    handled |= (_REFER if abi >= 2 else 0) | (_TRUNCATE if abi >= 3 else 0) | (_IOCTL_DEV if abi >= 5 else 0)
    words = (handled, 0, _SCOPES if abi >= 6 else 0)[: 3 if abi >= 6 else 1]
    attributes = (ctypes.c_uint64 * len(words))(*words)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    ruleset = _checked(_libc.syscall(_LANDLOCK_CREATE_RULESET, attributes, size, ctypes.c_uint(0)))
    for path in order["readable"]:
        _allow_path(ruleset, path, _READING & handled)
    for path in order["devices"]:
        _allow_path(ruleset, path, (_READ_FILE | _WRITE_FILE | _TRUNCATE) & handled)
    for path in order["writable"]:
        _allow_path(ruleset, path, handled & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV))
    for fd in order["root_fds"]:
        _allow(ruleset, fd, handled & ~(_MAKE_CHAR | _MAKE_BLOCK | _IOCTL_DEV))
    _checked(_libc.syscall(_LANDLOCK_RESTRICT_SELF, ruleset, ctypes.c_uint(0)))
    os.close(ruleset)


def _refuse_services() -> None:
    """No socket to a service of the user's (a session bus would start programs outside), no keyring."""
    machine, socket_call, refused_calls = _SYSTEM_CALLS[os.uname().machine]
    refuse = _instruction(_RETURN, _SECCOMP_ERRNO | 1)  # EPERM
    allow = _instruction(_RETURN, _SECCOMP_ALLOW)
    program = [
        _instruction(_LOAD_WORD, 4),
        _instruction(_JUMP_EQUAL, machine, 1, 0),
        refuse,
        _instruction(_LOAD_WORD, 0),
        _instruction(_JUMP_AT_LEAST, _FIRST_X32_CALL, 0, 1),
        refuse,
    ]
    for call in refused_calls:
        program += [_instruction(_JUMP_EQUAL, call, 0, 1), refuse]
    program += [
        _instruction(_JUMP_EQUAL, socket_call, 1, 0),
        allow,
        _instruction(_LOAD_WORD, 16),  # The low half of the first argument, on a little-endian machine.
        _instruction(_JUMP_EQUAL, _AF_UNIX, 0, 1),
        refuse,
        allow,
    ]
    code = ctypes.create_string_buffer(b"".join(program))
    header = struct.pack("@HP", len(program), ctypes.addressof(code))
    _checked(_libc.prctl(_PR_SET_SECCOMP, ctypes.c_ulong(_SECCOMP_MODE_FILTER), header, 0, 0))


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("@HBBI", code, if_true, if_false, value)


def _allow_path(ruleset: int, path: str, access: int) -> None:
    try:
        fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        # Not every system has it.
        return
    try:
        _allow(ruleset, fd, access if os.path.isdir(path) else access & _ON_FILES)
    finally:
        os.close(fd)


def _allow(ruleset: int, fd: int, access: int) -> None:
    rule = access.to_bytes(8, sys.byteorder) + fd.to_bytes(4, sys.byteorder, signed=True)
    _checked(_libc.syscall(_LANDLOCK_ADD_RULE, ruleset, ctypes.c_int(1), rule, ctypes.c_uint(0)))


def _checked(result: int) -> int:
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def _prctl(option: int, value: int) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0))


if __name__ == "__main__":
    main()
