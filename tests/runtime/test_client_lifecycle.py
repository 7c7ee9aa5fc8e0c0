"""Promises about the engine process that need no model: it starts anywhere, dies with its app, is missed loudly."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from runtime.client import EngineClient
from runtime.errors import CheckpointError, EngineError, HotslotError
from runtime.options import EngineOptions
from runtime.protocol import ChatMessage, Generate

REPO = Path(__file__).resolve().parents[2]


@pytest.fixture
def client(tmp_path: Path) -> Iterator[EngineClient]:
    engine = EngineClient(EngineOptions(tmp_path / "no-such-model"), log_path=tmp_path / "log" / "engine.log")
    yield engine
    engine.close()


def wait_until_gone(process_id: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not psutil.pid_exists(process_id) or psutil.Process(process_id).status() == psutil.STATUS_ZOMBIE:
            return True
        time.sleep(0.02)
    return False


def environment_of(process_id: int, seconds: float) -> dict[str, str]:
    """What a process was started with; for a moment of its start the system shows nothing."""
    deadline = time.monotonic() + seconds
    while not (variables := psutil.Process(process_id).environ()) and time.monotonic() < deadline:
        time.sleep(0.01)
    return variables


def test_a_load_that_fails_raises_its_error_and_ends_the_process(client: EngineClient) -> None:
    client.start()
    with pytest.raises(CheckpointError, match="no-such-model"):
        client.load()
    assert client.process_id is not None
    assert wait_until_gone(client.process_id, 2)
    deadline = time.monotonic() + 2
    while client.is_alive and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not client.is_alive


def test_engine_process_knows_no_secret(client: EngineClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other processes of the user, commands of a model among them, may read its environment."""
    for name in ("HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "SOME_API_KEY"):
        monkeypatch.setenv(name, "5ecret")
    monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
    client.start()
    assert client.process_id is not None
    variables = environment_of(client.process_id, 30)
    assert "5ecret" not in variables.values()
    assert variables["TOKENIZERS_PARALLELISM"] == "false"


def test_closing_while_the_process_is_being_made_ends_it(client: EngineClient) -> None:
    spawn, is_spawning = client._spawn, threading.Event()

    def slow_spawn() -> None:
        is_spawning.set()
        time.sleep(0.2)
        spawn()

    client._spawn = slow_spawn  # type: ignore[method-assign]
    starting = threading.Thread(target=client.start)
    starting.start()
    assert is_spawning.wait(5)
    client.close()
    starting.join(5)
    assert client.process_id is not None
    assert wait_until_gone(client.process_id, 2)


def test_a_closed_engine_starts_no_process(client: EngineClient) -> None:
    client.close()
    with pytest.raises(EngineError, match="closed first"):
        client.start()
    assert client.process_id is None


def test_killed_process_ends_every_call_with_one_line(client: EngineClient) -> None:
    client.start()
    assert client.process_id is not None
    os.kill(client.process_id, signal.SIGKILL)
    with pytest.raises(EngineError, match=r"ended unexpectedly \(signal 9\); send the message again"):
        client.load()
    with pytest.raises(EngineError, match="signal 9"):
        client.generate(Generate("r", (ChatMessage("user", "hello"),)))
    client.cancel("r")
    assert not client.is_alive


def test_a_callback_that_raises_ends_the_engine_rather_than_everything_hanging(client: EngineClient) -> None:
    client.start()

    def broken(_: object) -> None:
        raise ValueError("broken callback")

    client._dispatch = broken  # type: ignore[assignment]
    with pytest.raises(EngineError, match="broken callback"):
        client.load()
    assert not client.is_alive


def test_close_is_quick_and_twice_is_fine(client: EngineClient) -> None:
    client.start()
    started = time.monotonic()
    client.close()
    client.close()
    assert time.monotonic() - started < 2.5
    with pytest.raises(EngineError):
        client.stats()


def test_work_before_loading_is_refused(client: EngineClient) -> None:
    client.start()
    events = list(client.generate(Generate("r", (ChatMessage("user", "hello"),))))
    assert [type(event).__name__ for event in events] == ["Failed"]
    with pytest.raises(HotslotError, match="load"):
        client.stats()


def test_starts_from_any_folder_and_ignores_what_lies_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("runtime", "torch", "pickle"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('wrong module')")
    monkeypatch.chdir(tmp_path)
    engine = EngineClient(EngineOptions(Path("missing")))
    engine.start()
    with pytest.raises(CheckpointError, match="missing"):
        engine.load()
    engine.close()


@pytest.mark.parametrize("delay_s", [0.0, 2.5])
def test_engine_ends_when_its_app_is_killed(tmp_path: Path, delay_s: float) -> None:
    """Killed while the engine still imports, and once it waits for commands."""
    program = textwrap.dedent(
        """
        import threading, time
        from pathlib import Path
        from runtime.client import EngineClient
        from runtime.options import EngineOptions
        client = EngineClient(EngineOptions(Path("x")))
        starter = threading.Thread(target=client.start)
        starter.start(); starter.join()
        print(client.process_id, flush=True)
        time.sleep(60)
        """
    )
    app = subprocess.Popen([sys.executable, "-c", program], cwd=REPO, stdout=subprocess.PIPE, text=True)
    assert app.stdout is not None
    engine_id = int(app.stdout.readline())
    time.sleep(delay_s)
    assert psutil.pid_exists(engine_id)
    app.kill()
    app.wait()
    assert wait_until_gone(engine_id, 2)


def test_terminal_interrupt_leaves_the_engine_alone(client: EngineClient) -> None:
    client.start()
    assert client.process_id is not None
    assert os.getsid(client.process_id) != os.getsid(0)


def test_client_imports_no_torch() -> None:
    code = "import runtime.client, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], cwd=REPO, check=True)


def test_a_grown_log_is_kept_once_and_an_unwritable_one_is_no_obstacle(tmp_path: Path) -> None:
    log_path = tmp_path / "log" / "engine.log"
    log_path.parent.mkdir()
    log_path.write_bytes(b"x" * (2 << 20))
    for path in (log_path, tmp_path / "log" / "engine.log" / "not-a-folder" / "engine.log"):
        engine = EngineClient(EngineOptions(tmp_path / "missing"), path)
        engine.start()
        with pytest.raises(CheckpointError):
            engine.load()
        engine.close()
    assert log_path.stat().st_size < 1 << 20
    assert log_path.with_name("engine.log.1").stat().st_size == 2 << 20
