"""Promises of the engine process on the demo model, over the real pipe: streams, cancels, dies loudly and in time."""

import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from runtime.client import EngineClient
from runtime.errors import EngineError, RequestError
from runtime.options import EngineOptions, SamplingOptions
from runtime.protocol import (
    Cancelled,
    ChatMessage,
    CountTokens,
    EngineStats,
    Failed,
    Finished,
    Generate,
    Loaded,
    LoadProgressed,
    PrefillProgressed,
    Score,
    TextProduced,
)
from tests.support.engine_driver import DEMO_FOLDER

REPO = Path(__file__).resolve().parents[2]
LONG_PROMPT = (ChatMessage("user", " ".join(f"word{number}" for number in range(1200))),)


class Running:
    """A loaded engine process and what it reported."""

    def __init__(self, log_path: Path) -> None:
        self.log_path = log_path
        self.stats: list[EngineStats] = []
        self.progress: list[LoadProgressed] = []
        options = EngineOptions(DEMO_FOLDER, num_slots=96, num_threads=1)
        self.client = EngineClient(options, log_path, on_stats=self.stats.append)
        self.client.start()
        self.loaded: Loaded = self.client.load(self.progress.append)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    engine = Running(tmp_path_factory.mktemp("log") / "engine.log")
    yield engine
    engine.client.close()


def hello(name: str, max_tokens: int = 8, seed: int = 1) -> Generate:
    sampling = SamplingOptions(temperature=2.0, seed=seed, max_tokens=max_tokens)
    return Generate(name, (ChatMessage("user", "Hello there, friend."),), sampling)


def test_streams_an_answer_and_live_figures(running: Running) -> None:
    events = list(running.client.generate(hello("stream", max_tokens=40)))
    assert isinstance(events[-1], Finished)
    assert any(isinstance(event, TextProduced) for event in events)
    assert running.stats
    assert running.stats[-1].decode_tok_s
    assert running.progress[-1].phase == "warmup"


def test_cancel_from_another_thread(running: Running) -> None:
    received = []
    for event in running.client.generate(hello("cancelled", max_tokens=4000)):
        received.append(event)
        if isinstance(event, TextProduced) and len(received) < 12:
            threading.Thread(target=running.client.cancel, args=("cancelled",)).start()
    assert isinstance(received[-1], Cancelled)
    assert len(received) < 60
    assert isinstance(list(running.client.generate(hello("after-cancel")))[-1], Finished)


def test_leaving_the_iterator_cancels(running: Running) -> None:
    events = running.client.generate(hello("left", max_tokens=4000))
    next(events)
    events.close()
    started = time.monotonic()
    assert isinstance(list(running.client.generate(hello("after-left")))[-1], Finished)
    assert time.monotonic() - started < 20


def test_cancel_in_prefill_waits_for_one_chunk(running: Running) -> None:
    events = running.client.generate(Generate("long", LONG_PROMPT))
    first = next(event for event in events if isinstance(event, PrefillProgressed))
    running.client.cancel("long")
    rest = list(events)
    assert isinstance(rest[-1], Cancelled)
    assert first.done_tokens < first.total_tokens
    assert len(rest) <= 3


def test_counts_scores_and_refusals(running: Running) -> None:
    client = running.client
    assert client.count_tokens(CountTokens("c", LONG_PROMPT)) > 1200
    scored = client.score(Score("s", text="Hello there, friend."))
    assert len(scored.logprobs) == len(scored.token_ids) - 1
    with pytest.raises(RequestError, match="no tokens"):
        client.score(Score("e", token_ids=()))
    (failed,) = client.generate(Generate("empty", ()))
    assert isinstance(failed, Failed)
    assert client.stats().model_name == running.loaded.model_name


def test_two_requests_at_once_both_end(running: Running) -> None:
    first = running.client.generate(hello("p1", max_tokens=10))
    second = running.client.generate(hello("p2", max_tokens=10))
    with pytest.raises(EngineError, match="p1"):
        running.client.generate(hello("p1"))
    assert isinstance(list(second)[-1], Finished)
    assert isinstance(list(first)[-1], Finished)


def test_one_of_four_streams_is_left_and_the_others_go_on(running: Running) -> None:
    """In its decode and in its prefill; another is cancelled while it waits. Nothing runs or waits at the end."""
    client = running.client
    streams = [client.generate(hello(f"four{number}", max_tokens=40, seed=number)) for number in range(3)]
    reader = client.generate(Generate("four-reader", LONG_PROMPT, kind="side_call"))
    waiting = client.generate(replace(hello("four-waiting"), kind="side_call"))
    next(event for event in streams[0] if isinstance(event, TextProduced))
    next(event for event in reader if isinstance(event, PrefillProgressed))
    client.cancel("four-waiting")
    streams[0].close()  # type: ignore[attr-defined]
    reader.close()  # type: ignore[attr-defined]
    assert isinstance(list(waiting)[-1], Cancelled)
    assert all(isinstance(list(stream)[-1], Finished) for stream in streams[1:])
    assert isinstance(list(client.generate(hello("four-next")))[-1], Finished)
    stats = client.stats()
    assert stats.num_queued == 0
    assert stats.num_running <= 1, "at most the last one closes"


def test_log_has_no_chat_text(running: Running) -> None:
    assert running.client.is_alive
    text = running.log_path.read_text()
    assert "loaded" in text
    assert "friend" not in text


def test_killed_in_the_middle_of_an_answer(tmp_path: Path) -> None:
    engine = Running(tmp_path / "engine.log")
    assert engine.client.process_id is not None
    events = engine.client.generate(hello("killed", max_tokens=4000))
    next(event for event in events if isinstance(event, TextProduced))
    os.kill(engine.client.process_id, signal.SIGKILL)
    with pytest.raises(EngineError, match=r"ended unexpectedly \(signal 9\)"):
        list(events)
    assert not engine.client.is_alive
    with pytest.raises(EngineError, match="signal 9"):
        engine.client.stats()


@pytest.mark.parametrize("moment", ["load", "prefill", "decode"])
def test_engine_ends_within_two_seconds_of_its_app(moment: str) -> None:
    program = textwrap.dedent(
        f"""
        import sys, threading, time
        from pathlib import Path
        from runtime.client import EngineClient
        from runtime.options import EngineOptions, SamplingOptions
        from runtime.protocol import ChatMessage, Generate, PrefillProgressed, TextProduced
        client = EngineClient(EngineOptions(Path({str(DEMO_FOLDER)!r}), num_threads=1, chunk_tokens=2048))
        client.start()
        def ready():
            print(client.process_id, flush=True)
            time.sleep(60)
        if {moment!r} == "load":
            client.load(lambda progress: progress.phase == "experts" and ready())
        client.load()
        long = " ".join(f"word{{number}}" for number in range(1500))
        words = long if {moment!r} == "prefill" else "hello"
        request = Generate("r", (ChatMessage("user", words),), SamplingOptions(temperature=2.0))
        for event in client.generate(request):
            if {moment!r} == "prefill" or isinstance(event, TextProduced):
                ready()
        """
    )
    app = subprocess.Popen([sys.executable, "-c", program], cwd=REPO, stdout=subprocess.PIPE, text=True)
    assert app.stdout is not None
    engine_id = int(app.stdout.readline())
    engine = psutil.Process(engine_id)
    app.kill()
    app.wait()
    _, alive = psutil.wait_procs([engine], timeout=2)
    assert not [process for process in alive if process.status() != psutil.STATUS_ZOMBIE]
