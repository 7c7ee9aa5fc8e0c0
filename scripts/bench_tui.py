"""Measures the screen while an answer streams: key latency, CPU share of the TUI process, tokens per second; as JSON.

Drives the real app in a pseudo-terminal. `--engine scripted` plays a text at `--rate` tokens per second, so that the
screen alone is measured; `--engine local` runs the engine on `--model`. A key's latency is the time from writing it
into the terminal until the bytes with its character come back. `first_answer_s` counts from the command,
`first_token_s` from sending the message.
"""

import argparse
import codecs
import fcntl
import json
import os
import pty
import re
import select
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import psutil
import pyte

REPOSITORY = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPOSITORY))

# The repository's own packages, wherever the script is started from.
from scripts.bench_decode import PROSE as PROSE_QUESTION  # noqa: E402
from scripts.bench_decode import code_fence  # noqa: E402

QUESTIONS = {"prose": PROSE_QUESTION, "fence": code_fence(200)}

KEYS = [chr(code) for code in range(0x100, 0x17F) if chr(code).isalpha()]
"""Letters no answer contains; each is typed once."""
KEY_PAUSE_S = 0.15
PROSE = (
    "The screen and the model share this machine, so drawing must stay cheap while words arrive one by one. "
    "Each paragraph here is **plain prose** with a little `markup`, long enough to wrap several times on any terminal, "
    "and the next one begins before the reader has finished it.\n\n"
)
LONG_ANSWER = ("--no-think", "--temperature=2.5", "--min-p=0", "--top-k=0", "--top-p=1", "--seed=1")
"""Sampling that keeps a model talking for as long as is measured."""


def play_text(kind: str, num_tokens: int) -> list[str]:
    """Pieces of about one token."""
    if kind == "fence":
        lines = [f"    total_{index} = add(total_{index - 1}, {index})  # line {index}\n" for index in range(1, 201)]
        text = "Here it is:\n\n```python\ndef main():\n" + "".join(lines) + "```\n\nThat was it.\n"
    else:
        text = PROSE * (num_tokens // 60 + 1)
    pieces = re.findall(r"\s*\S{1,6}|\s+$", text)
    return pieces if kind == "fence" else pieces[:num_tokens]


def run_child(kind: str, rate: float, num_tokens: int) -> int:
    """The app with a scripted engine, in this process."""
    from app.environment import Environment
    from app.locations import Locations
    from app.settings import Settings
    from app.tui.app import run_tui
    from tests.support.scripted_engine import Say, ScriptedEngine, Step

    script: tuple[Step, ...] = tuple(Say(piece, pause_s=1 / rate) for piece in play_text(kind, num_tokens))
    return run_tui(Locations.resolve(Environment.read()), Settings(), engine=ScriptedEngine(script))


class Terminal:
    """A child process behind a pseudo-terminal, with an emulator that knows what is on its screen."""

    def __init__(self, command: list[str], environment: dict[str, str], columns: int, rows: int) -> None:
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.Stream(self.screen)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self.num_bytes = 0
        self.fd, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True, cwd=REPOSITORY
        )
        os.close(slave)

    def read(self, timeout_s: float) -> str:
        """What was written within the time, at most one chunk; feeds the emulator."""
        if not select.select([self.fd], [], [], timeout_s)[0]:
            return ""
        try:
            data = os.read(self.fd, 65536)
        except OSError:
            return ""
        self.num_bytes += len(data)
        return self._decoder.decode(data)

    def feed(self, text: str) -> None:
        self._stream.feed(re.sub(r"\x1b\[[<>=?][\d;]*[a-zA-Z$]*[a-zA-Z]", "", text))

    def write(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def paste(self, text: str) -> None:
        """As a terminal pastes, then Enter. Reads on, since a long text fills the pipe both ways."""
        data = f"\x1b[200~{text}\x1b[201~".encode()
        for start in range(0, len(data), 1024):
            os.write(self.fd, data[start : start + 1024])
            self.feed(self.read(0.0))
        self.write("\r")

    def wait_for(self, pattern: str, timeout_s: float) -> str:
        """The screen once it matches. Raises TimeoutError with the screen."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end:
            self.feed(self.read(0.1))
            text = "\n".join(self.screen.display)
            if re.search(pattern, text):
                return text
        raise TimeoutError(f"no {pattern!r} on the screen:\n" + "\n".join(self.screen.display))


def measure(kind: str, arguments: argparse.Namespace) -> dict[str, object]:
    """One run from start to the end of one answer."""
    with tempfile.TemporaryDirectory() as home:
        environment = dict(os.environ, TERM="xterm-256color", COLORTERM="truecolor", HOTSLOT_HOME=home)
        if arguments.engine == "scripted":
            rest = ["--child", kind, "--rate", str(arguments.rate), "--tokens", str(arguments.tokens)]
            command = [sys.executable, __file__, *rest]
        else:
            command = [sys.executable, "-m", "app", "--model", arguments.model, *LONG_ANSWER, *arguments.option]
        started = time.monotonic()
        terminal = Terminal(command, environment, arguments.columns, arguments.rows)
        try:
            terminal.wait_for("Write a message", 30)
            painted_s = time.monotonic() - started
            if arguments.idle:
                terminal.wait_for("tok/s", 120)
                wait_idle(terminal, arguments.idle)
            sent = time.monotonic()
            terminal.paste(QUESTIONS[kind])
            terminal.wait_for("answering|reasoning", 120)
            answering_s, first_token_s = time.monotonic() - started, time.monotonic() - sent
            figures = stream(terminal, arguments.seconds)
            starts = {
                "first_paint_s": round(painted_s, 2),
                "first_answer_s": round(answering_s, 2),
                "first_token_s": round(first_token_s, 2),
            }
            return {"kind": kind, **starts, **figures}
        finally:
            terminal.process.kill()
            terminal.process.wait()
            os.close(terminal.fd)


def wait_idle(terminal: Terminal, seconds: float) -> None:
    """Type nothing, as a user who thinks what to say."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        terminal.feed(terminal.read(0.1))


def stream(terminal: Terminal, seconds: float) -> dict[str, object]:
    """Type while the answer streams and watch what comes back."""
    process = psutil.Process(terminal.process.pid)
    before, started, first_bytes = process.cpu_times(), time.monotonic(), terminal.num_bytes
    waiting: dict[str, float] = {}
    latencies: list[float] = []
    keys = iter(KEYS)
    next_key_at = started + 0.5
    held: list[str] = []
    text = ""
    while time.monotonic() < started + seconds:
        now = time.monotonic()
        if next_key_at <= now < started + seconds - 1 and (key := next(keys, None)):
            waiting[key] = time.monotonic()
            terminal.write(key)
            next_key_at = now + KEY_PAUSE_S
        text = terminal.read(0.005)
        held.append(text)
        if text:
            arrived = time.monotonic()
            for key in [key for key in waiting if key in text]:
                latencies.append((arrived - waiting.pop(key)) * 1000)
        if is_over(held):
            break
    wall, after = time.monotonic() - started, process.cpu_times()
    terminal.feed("".join(held))
    ordered = sorted(latencies)
    busy = after.user + after.system - before.user - before.system
    rates = [float(rate) for rate in re.findall(r"([\d.]+) tok/s", "\n".join(terminal.screen.display))]
    return {
        "seconds": round(wall, 1),
        "num_keys": len(ordered),
        "num_keys_lost": len(waiting),
        "key_ms_p50": round(statistics.median(ordered), 1) if ordered else None,
        "key_ms_p95": round(ordered[int(len(ordered) * 0.95)], 1) if ordered else None,
        "key_ms_max": round(ordered[-1], 1) if ordered else None,
        "tui_cpu_share": round(busy / wall, 3),
        "decode_tok_s": rates[-1] if rates else None,
        "screen_bytes_per_s": round((terminal.num_bytes - first_bytes) / wall),
    }


def is_over(held: list[str]) -> bool:
    """Whether the line that ends an answer has been drawn."""
    return any("first after" in text for text in held[-2:])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", choices=("scripted", "local"), default="scripted")
    parser.add_argument("--model", default="demo")
    parser.add_argument(
        "--option", action="append", default=[], help="a further option of hotslot, like --option=--slots=192"
    )
    parser.add_argument("--rate", type=float, default=40.0, help="tokens per second of the scripted engine")
    parser.add_argument("--tokens", type=int, default=800, help="length of the scripted prose")
    parser.add_argument("--seconds", type=float, default=15.0, help="longest time to measure")
    parser.add_argument("--idle", type=float, default=0.0, help="seconds between the loaded model and the message")
    parser.add_argument("--columns", type=int, default=120)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--kind", choices=tuple(QUESTIONS), action="append")
    parser.add_argument("--child", choices=tuple(QUESTIONS), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        return run_child(arguments.child, arguments.rate, arguments.tokens)
    results = [measure(kind, arguments) for kind in arguments.kind or QUESTIONS]
    print(json.dumps({"engine": arguments.engine, "cores": os.cpu_count(), "results": results}, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
