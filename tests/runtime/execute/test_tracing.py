"""A trace of the real engine over the demo model, replayed, counts exactly what the engine counted."""

from pathlib import Path

import pytest

from runtime.experts.replay import REPLAY_POLICIES, replay
from runtime.experts.trace import RoutingTrace, read_trace
from runtime.options import EngineOptions, PolicyName, SamplingOptions
from runtime.protocol import Cancel, ChatMessage, Failed, Generate, StartTrace, StopTrace, TraceSaved, TraceStarted
from tests.support.engine_driver import EngineDriver

QUESTIONS = ("What should I have for breakfast?", "Tell me a joke about animals.", "Why is the sky blue?")


def make_driver(folder: Path, policy: PolicyName, num_slots: int) -> EngineDriver:
    options = EngineOptions(
        folder, num_slots=num_slots, policy=policy, num_threads=1, context_tokens=1024, chunk_tokens=64
    )
    return EngineDriver(options)


def start(driver: EngineDriver, path: Path) -> None:
    driver.send(StartTrace("start", str(path)))
    assert driver.events[-1] == TraceStarted("start")


def stop(driver: EngineDriver, path: Path) -> RoutingTrace:
    driver.send(StopTrace("stop"))
    saved = driver.events[-1]
    assert isinstance(saved, TraceSaved), saved
    trace = read_trace(path)
    assert saved.num_steps == trace.num_steps
    return trace


def refusal(driver: EngineDriver) -> str:
    failed = driver.events[-1]
    assert isinstance(failed, Failed)
    return failed.message


@pytest.mark.parametrize(("policy", "num_slots"), [("lru", 60), ("rule", 150), ("rule", 384)])
def test_a_replay_counts_what_the_engine_counted(
    demo_folder: Path, tmp_path: Path, policy: PolicyName, num_slots: int
) -> None:
    """Several turns and chats, one cancelled, prefill filling slots in between."""
    driver = make_driver(demo_folder, policy, num_slots)
    start(driver, tmp_path / "a.trace")
    history: tuple[ChatMessage, ...] = ()
    for number, question in enumerate(QUESTIONS):
        history = (*history, ChatMessage("user", question))
        history = driver.reply_to(history, driver.ask(f"turn{number}", history, 20, temperature=1.0, seed=number))
    driver.send(Generate("stopped", history[:1], SamplingOptions(max_tokens=20)))
    driver.step(4)
    driver.send(Cancel("stopped"))
    driver.settle()
    driver.ask("last", (ChatMessage("user", " ".join(QUESTIONS * 6)),), 12)
    trace = stop(driver, tmp_path / "a.trace")
    model = driver.engine._model
    assert model is not None
    counters = model.experts.cache.counters
    replayed = replay([trace], policy, num_slots)
    assert counters.num_routed > 40 * 8 * 4
    assert (replayed.num_routed, replayed.num_missed) == (counters.num_routed, counters.num_missed)
    assert replayed.hit_rate == counters.hit_rate
    missed = [replay([trace], name, num_slots).num_missed for name in REPLAY_POLICIES]
    assert min(missed) == missed[REPLAY_POLICIES.index("belady")]


def test_a_trace_changes_no_answer_and_nothing_is_recorded_unasked(demo_folder: Path, tmp_path: Path) -> None:
    driver = make_driver(demo_folder, "rule", 96)
    model = driver.engine._model
    assert model is not None
    asked = (ChatMessage("user", QUESTIONS[0]),)
    plain = driver.ask("plain", asked)
    assert model.experts.recorder is None
    start(driver, tmp_path / "a.trace")
    assert driver.ask("traced", asked).generated_ids == plain.generated_ids
    stop(driver, tmp_path / "a.trace")
    assert model.experts.recorder is None
    driver.ask("after", asked)
    start(driver, tmp_path / "b.trace")
    assert stop(driver, tmp_path / "b.trace").num_steps == 0


def test_traces_are_one_at_a_time_and_in_a_place_that_can_be_written(demo_folder: Path, tmp_path: Path) -> None:
    driver = make_driver(demo_folder, "lru", 96)
    driver.send(StopTrace("early"))
    assert "No trace is being recorded" in refusal(driver)
    driver.send(StartTrace("nowhere", str(tmp_path / "nowhere" / "a.trace")))
    assert "a.trace can't be written (No such file or directory)" in refusal(driver)
    start(driver, tmp_path / "a.trace")
    driver.send(StartTrace("second", str(tmp_path / "b.trace")))
    assert "recorded already" in refusal(driver)
    (tmp_path / "a.trace").mkdir()
    driver.send(StopTrace("late"))
    assert "a.trace can't be written (Is a directory)" in refusal(driver)
    assert [path.name for path in tmp_path.iterdir()] == ["a.trace"]
    start(driver, tmp_path / "b.trace")
    stop(driver, tmp_path / "b.trace")
