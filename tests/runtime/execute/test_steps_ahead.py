"""Steps that are launched before the last one's tokens are read, with torch's ops on a CPU: what is said, kept and
counted is what it is without."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runtime.execute.flight import Flight
from runtime.execute.placement import Placement
from runtime.options import EngineOptions, SamplingOptions
from runtime.protocol import (
    Cancel,
    Cancelled,
    ChatMessage,
    Failed,
    Finished,
    Generate,
    GetStats,
    RequestKind,
    Score,
    Scored,
    StartTrace,
    StopTrace,
)
from runtime.schedule.request import UNKNOWN_ID
from tests.support.engine_driver import EngineDriver

pytestmark = pytest.mark.usefixtures("one_thread")

PROMPTS = ("Tell me a short story about a boat.", "Count from one to five.", "Who are you?", "Write about the sea.")
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"temperature": 1.0, "top_k": 40, "top_p": 0.95, "seed": 3},
    "penalised": {"temperature": 0.8, "presence_penalty": 1.5, "repetition_penalty": 1.3, "seed": 4},
}
Pair = tuple[EngineDriver, EngineDriver]


def engines(options: EngineOptions) -> Pair:
    """One step ahead, and in turn."""
    device = Placement.on_cpu_as_on_cuda()
    return EngineDriver(options, device), EngineDriver(replace(options, steps_ahead=False), device)


@pytest.fixture(scope="module")
def loaded(tiny_folder: Path) -> Pair:
    return engines(EngineOptions(tiny_folder, num_threads=1, context_tokens=512, chunk_tokens=64))


@pytest.fixture
def pair(loaded: Pair) -> Pair:
    for driver in loaded:
        forget(driver)
    return loaded


@pytest.fixture
def ahead(pair: Pair) -> EngineDriver:
    return pair[0]


def forget(driver: EngineDriver) -> None:
    driver.engine.model.scheduler._cache.forget_saved()


def flight_of(driver: EngineDriver) -> Flight | None:
    return driver.engine._flight


def generate(name: str, prompt: str = PROMPTS[0], kind: RequestKind = "chat", **sampling: Any) -> Generate:
    options = SamplingOptions(**{"max_tokens": 16, **sampling})
    return Generate(name, (ChatMessage("user", prompt),), options, thinking=False, kind=kind)


def ask(driver: EngineDriver, name: str, **sampling: Any) -> Finished:
    finished = driver.run(generate(name, **sampling))
    assert isinstance(finished, Finished), finished
    return finished


def last(driver: EngineDriver, name: str) -> Any:
    return driver.events_of(name)[-1]


@pytest.mark.parametrize("way", WAYS)
def test_an_answer_is_the_same(way: str, pair: Pair) -> None:
    found, expected = (ask(driver, way, max_tokens=120, **WAYS[way]) for driver in pair)
    assert found.generated_ids == expected.generated_ids
    assert UNKNOWN_ID not in found.generated_ids
    assert (found.text, found.usage, found.finish_reason) == (expected.text, expected.usage, expected.finish_reason)


def test_log_probabilities_are_those_that_a_score_finds(pair: Pair) -> None:
    request = generate("drawn", max_tokens=24, **WAYS["penalised"])
    for driver in pair:
        finished = driver.run(request)
        assert isinstance(finished, Finished)
        assert len(finished.logprobs) == len(finished.generated_ids) == 24
        prompt_ids = driver.engine.model.admission.answer(request, 0.0).sequence.prompt_ids
        scored = driver.run(Score("scored", token_ids=(*prompt_ids, *finished.generated_ids)))
        assert isinstance(scored, Scored)
        assert finished.logprobs == pytest.approx(scored.logprobs[len(prompt_ids) - 1 :], abs=1e-4)


def test_the_shipped_models_answer_is_the_same(demo_folder: Path) -> None:
    texts = [
        ask(driver, "story", max_tokens=10, **WAYS["penalised"]).generated_ids
        for driver in engines(EngineOptions(demo_folder, device="cpu", num_slots=96))
    ]
    assert texts[0] == texts[1]


def test_one_step_is_in_flight_and_is_read_after_the_next_was_launched(ahead: EngineDriver) -> None:
    ahead.send(generate("flight"))
    ahead.step(2)
    before = flight_of(ahead)
    assert before is not None
    num_events = len(ahead.events)
    ahead.step()
    after = flight_of(ahead)
    assert after is not None
    assert after is not before
    assert after.plan.segments[0].token_ids == (UNKNOWN_ID,)
    assert len(ahead.events) > num_events
    ahead.settle()
    assert flight_of(ahead) is None


@pytest.mark.parametrize("num_rows", [2, 3, 4])
def test_rows_that_join_and_leave_say_what_they_say_in_turn(num_rows: int, pair: Pair) -> None:
    texts = []
    for driver in pair:
        for row in range(num_rows):
            sampling = list(WAYS.values())[row % 3]
            driver.send(generate(f"{num_rows}-{row}", PROMPTS[row], max_tokens=4 + 9 * row, **sampling))
            driver.step(3)
        driver.settle()
        texts.append([last(driver, f"{num_rows}-{row}").generated_ids for row in range(num_rows)])
    assert texts[0] == texts[1]


def assert_follow_ups_agree(pair: Pair, name: str, **sampling: Any) -> Finished:
    """An answer and the next turn's, which reads what the first one left: its last token is computed once."""
    answers = []
    for driver in pair:
        forget(driver)
        first = ask(driver, name, **sampling)
        history = (*driver.reply_to(generate(name).messages, first), ChatMessage("user", "Why?"))
        answers.append((first, driver.ask(f"{name}-then", history, 6)))
    for found, expected in zip(*answers, strict=True):
        assert found.generated_ids == expected.generated_ids
        assert found.usage == expected.usage
        assert (found.finish_reason, found.stopped_by) == (expected.finish_reason, expected.stopped_by)
    return answers[0][0]


def test_a_stop_text_ends_it_at_every_position(pair: Pair) -> None:
    whole = ask(pair[1], "whole", max_tokens=12, **WAYS["sampled"])
    lengths = set()
    for end in range(1, len(whole.text), 2):
        found = assert_follow_ups_agree(pair, f"stop-{end}", stop=(whole.text[:end],), **WAYS["sampled"])
        assert found.stopped_by
        lengths.add(len(found.generated_ids))
    assert len(lengths) >= 5


def test_a_stop_id_ends_it_at_every_position(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ask(pair[1], "every", max_tokens=12, **WAYS["sampled"]).generated_ids
    for token_id in dict.fromkeys(whole):
        for driver in pair:
            monkeypatch.setattr(driver.engine.model.admission, "_stop_ids", frozenset({token_id}))
        found = assert_follow_ups_agree(pair, f"id-{token_id}", **WAYS["sampled"])
        assert found.generated_ids == whole[: whole.index(token_id) + 1]


@pytest.mark.parametrize("num_tokens", [1, 2, 3, 64, 65])
def test_a_length_ends_it(num_tokens: int, pair: Pair) -> None:
    found = assert_follow_ups_agree(pair, f"length-{num_tokens}", max_tokens=num_tokens, **WAYS["sampled"])
    assert len(found.generated_ids) == num_tokens


@pytest.mark.parametrize("num_steps", range(1, 9))
def test_cancelled_at_any_step_leaves_what_in_turn_leaves(num_steps: int, pair: Pair) -> None:
    followers = []
    for driver in pair:
        driver.send(generate("cancelled"))
        driver.step(num_steps)
        driver.send(Cancel("cancelled"))
        cancelled = last(driver, "cancelled")
        assert isinstance(cancelled, Cancelled)
        assert UNKNOWN_ID not in cancelled.generated_ids
        driver.settle()
        prefixes = {prefix.num_tokens for prefix in driver.engine.model.scheduler._cache._prefixes}
        followers.append((ask(driver, "after", max_tokens=6).generated_ids, max(prefixes, default=0), cancelled))
    (found, found_saved, ahead_said), (expected, expected_saved, in_turn_said) = followers
    assert found == expected
    # A token that was drawn and not read yet is neither said nor saved.
    num_said = len(ahead_said.generated_ids)
    assert ahead_said.generated_ids == in_turn_said.generated_ids[:num_said]
    assert expected_saved - found_saved == len(in_turn_said.generated_ids) - num_said == (num_steps > 1)


def test_side_calls_that_come_and_go_change_nothing(pair: Pair) -> None:
    names = ("chat", "side-0", "side-1", "side-2")
    texts = []
    for driver in pair:
        driver.send(generate("chat", max_tokens=60))
        driver.step(3)
        for number in range(3):
            driver.send(generate(f"side-{number}", PROMPTS[1 + number], "side_call", max_tokens=9))
        driver.settle()
        texts.append([last(driver, name).generated_ids for name in names])
    assert texts[0] == texts[1]


def test_a_paused_side_call_reads_tokens_that_are_all_known(tiny_folder: Path) -> None:
    """With the fewest slots one sequence runs at a time."""
    options = EngineOptions(tiny_folder, num_threads=1, context_tokens=256, chunk_tokens=64, num_slots=3)
    texts = []
    for driver in engines(options):
        driver.send(generate("aside", PROMPTS[1], "side_call", max_tokens=30))
        driver.step(12)
        paused = driver.engine._work["aside"].sequence
        driver.send(generate("chat", max_tokens=8))
        driver.settle()
        assert paused.was_paused
        texts.append([last(driver, name).generated_ids for name in ("chat", "aside")])
    assert texts[0] == texts[1]


def test_what_is_scored_or_traced_runs_in_turn(ahead: EngineDriver, tmp_path: Path) -> None:
    ahead.send(generate("beside", max_tokens=24))
    ahead.step(3)
    assert flight_of(ahead) is not None
    ahead.send(Score("score", token_ids=tuple(range(50, 70)), by_decode=True))
    ahead.step()
    assert flight_of(ahead) is None
    ahead.settle()
    assert isinstance(last(ahead, "score"), Scored)
    ahead.send(generate("traced", max_tokens=12))
    ahead.step(3)
    ahead.send(StartTrace("start", str(tmp_path / "routing.trace")))
    assert flight_of(ahead) is None
    assert "trace" in ahead.engine.model.forward.reason_to_wait
    ahead.step()
    assert flight_of(ahead) is None
    ahead.send(StopTrace("stop"))
    ahead.step()
    assert flight_of(ahead) is not None
    ahead.settle()
    assert isinstance(last(ahead, "traced"), Finished)


def test_counters_are_those_of_steps_that_were_read(pair: Pair) -> None:
    """An answer that ends by its length takes no step more than in turn."""
    figures = []
    for driver in pair:
        driver.engine.model.experts.cache.reset()  # type: ignore[union-attr]
        ask(driver, "counted", max_tokens=12)
        driver.send(GetStats("stats"))
        stats = last(driver, "stats").stats
        figures.append((stats.num_routed, stats.num_missed, stats.slot_hit_rate, stats.num_slots_used))
    assert figures[0] == figures[1]


def test_a_launch_that_fails_ends_what_was_in_flight(ahead: EngineDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead.send(generate("failing"))
    ahead.step(3)
    with monkeypatch.context() as patch:
        patch.setattr(type(ahead.engine.model.forward), "launch", lambda *arguments: 1 // 0)
        ahead.step()
    assert isinstance(last(ahead, "failing"), Failed)
    assert flight_of(ahead) is None
    assert ahead.engine.model.scheduler.is_idle
    assert ask(ahead, "after-failure", max_tokens=6).generated_ids
