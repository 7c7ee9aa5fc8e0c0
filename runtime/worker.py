"""The engine process: `python -m runtime.worker DESCRIPTOR`. Owns the process's life, refuses to know the model.

One thread reads commands; the main thread runs the engine, one step at a time, and looks at new commands between
steps. A Shutdown ends the process after the step that runs, or half a second later. When the app's end of the pipe
closes, whatever the main thread does, it ends at once.
"""

import ctypes
import logging
import os
import queue
import signal
import sys
import threading
import time

from runtime.protocol import Cancel, Command, Event, LoadModel, Shutdown
from runtime.wire import Wire

_PR_SET_PDEATHSIG = 1
_SHUTDOWN_GRACE_S = 0.5
_logger = logging.getLogger("hotslot.engine")


def main() -> None:
    """Run until the app closes the pipe or sends Shutdown."""
    _outlive_nobody()
    logging.basicConfig(
        stream=sys.stderr, level=logging.INFO, format="%(asctime)s %(process)d %(levelname)s %(message)s"
    )
    wire = Wire(int(sys.argv[1]))
    commands: queue.SimpleQueue[Command] = queue.SimpleQueue()
    cancelled: set[str] = set()
    threading.Thread(target=_read, args=(wire, commands, cancelled), name="command-reader", daemon=True).start()
    try:
        _run(_Sender(wire), commands, cancelled)
    except BaseException:
        # The app learns of it by the closed pipe, so the process must not linger.
        _logger.exception("the engine ended")
        os._exit(1)
    # What is to be kept was saved: skip the interpreter's teardown, which takes torch most of a second.
    os._exit(0)


class _Sender:
    """Sends events, from any thread; a closed pipe ends the process."""

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._lock = threading.Lock()

    def __call__(self, event: Event) -> None:
        try:
            with self._lock:
                self._wire.send(event)
        except OSError:
            os._exit(0)


def _run(send: _Sender, commands: "queue.SimpleQueue[Command]", cancelled: set[str]) -> None:
    # Torch comes with the engine and takes more than a second to import: the pipe is watched by then.
    from runtime.execute.engine import Engine

    engine = Engine(send, cancelled=cancelled)
    while True:
        for command in _next_commands(commands, must_wait=engine.is_idle):
            if isinstance(command, Shutdown):
                engine.close()
                return
            engine.handle(command)
            if isinstance(command, LoadModel) and not engine.is_loaded:
                return
        engine.step()


def _next_commands(commands: "queue.SimpleQueue[Command]", must_wait: bool) -> list[Command]:
    """All commands that arrived; waits for one if there is nothing else to do."""
    arrived = [commands.get()] if must_wait else []
    while not commands.empty():
        arrived.append(commands.get())
    return arrived


def _read(wire: Wire, commands: "queue.SimpleQueue[Command]", cancelled: set[str]) -> None:
    try:
        while True:
            command = wire.receive()
            if isinstance(command, Cancel):
                # First, so that whoever handles the command finds it there and takes it out.
                cancelled.add(command.request_id)
            commands.put(command)  # type: ignore[arg-type]
            if isinstance(command, Shutdown):
                # The main thread ends the process between two steps, or is in the middle of something long.
                time.sleep(_SHUTDOWN_GRACE_S)
                os._exit(0)
    except (EOFError, OSError):
        os._exit(0)
    except BaseException:
        _logger.exception("the pipe carried something that is not a command")
        os._exit(1)


def _outlive_nobody() -> None:
    """Ask Linux to end this process with the thread that started it, and leave Ctrl-C to the app."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
