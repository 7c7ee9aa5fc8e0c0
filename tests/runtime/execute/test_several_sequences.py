"""Several sequences in one engine: each says what it says alone, and none leaves anything behind."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch

from runtime.execute.answer import Answer
from runtime.options import EngineOptions
from runtime.protocol import (
    Cancel,
    Cancelled,
    Event,
    Finished,
    PrefillProgressed,
    PromptAccepted,
)
from runtime.schedule.time_share import TimeShare
from tests.support.engine_driver import EngineDriver
from tests.support.random_engine import Size, random_engine
from tests.support.sequences import (
    PROMPTS,
    check_joins_and_leaves,
    check_random_operations,
    finished,
    forget,
    generate,
    most_rows,
    settled_plans,
)

LONG_PROMPT = " ".join(f"item {number}" for number in range(90))
Logits = dict[str, list[torch.Tensor]]


@pytest.fixture
def logits(driver: EngineDriver, monkeypatch: pytest.MonkeyPatch) -> Logits:
    """Of every drawn token, by request. No request of the test finds what an earlier one saved."""
    recorded: Logits = {}
    draw = Answer._draw

    def recording(self: Answer, rows: torch.Tensor, now_s: float) -> list[Event]:
        recorded.setdefault(self.sequence.sequence_id, []).append(rows[-1].clone())
        return draw(self, rows, now_s)

    monkeypatch.setattr(Answer, "_draw", recording)
    forget(driver)
    return recorded


def test_texts_of_concurrent_chats_are_those_of_each_alone(driver: EngineDriver, logits: Logits) -> None:
    for number, prompt in enumerate(PROMPTS):
        driver.run(generate(f"alone-{number}", prompt))
        forget(driver)
    for num_rows in (2, 3, 4):
        for number in range(num_rows):
            driver.send(generate(f"{num_rows}-{number}", PROMPTS[number]))
        assert most_rows(driver) == num_rows
        forget(driver)
        for number in range(num_rows):
            alone, together = f"alone-{number}", f"{num_rows}-{number}"
            assert finished(driver, together).generated_ids == finished(driver, alone).generated_ids
            for expected, row in zip(logits[alone], logits[together], strict=True):
                assert (row - expected).abs().max() <= 1e-4 * expected.abs().max()


def test_side_calls_do_not_change_a_bit_of_a_chat(
    driver: EngineDriver, logits: Logits, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They join in its prefill, in its decode, and leave again."""
    driver.run(generate("quiet", PROMPTS[3], max_tokens=24))
    forget(driver)
    monkeypatch.setattr(TimeShare, "has_time", True)
    driver.send(generate("early", PROMPTS[0], "side_call", max_tokens=12))
    driver.step(2)
    driver.send(generate("disturbed", PROMPTS[3], max_tokens=24))
    driver.step(3)
    driver.send(generate("late", PROMPTS[1], "side_call", max_tokens=12))
    assert most_rows(driver) >= 2
    assert finished(driver, "disturbed").generated_ids == finished(driver, "quiet").generated_ids
    for expected, row in zip(logits["quiet"], logits["disturbed"], strict=True):
        assert torch.equal(row, expected)


def test_a_chat_goes_on_while_a_long_prompt_is_read(driver: EngineDriver) -> None:
    driver.send(generate("stream", PROMPTS[0], max_tokens=30))
    driver.step(3)
    driver.send(generate("reader", LONG_PROMPT, max_tokens=1))
    names = [{segment.sequence_id for segment in plan.segments} for plan in settled_plans(driver)]
    assert finished(driver, "stream").usage.completion_tokens > 8
    assert names[:8].count({"reader"}) == names[:8].count({"stream"}) == 4
    assert all(first != second for first, second in pairwise(names[:8]))


def test_a_fifth_request_waits_and_can_be_cancelled_before_it_starts(driver: EngineDriver) -> None:
    names = [f"five{number}" for number in range(5)]
    for name in names:
        driver.send(generate(name, "Hello", max_tokens=6))
    driver.step(2)
    assert not driver.events_of(names[4])
    driver.send(Cancel(names[4]))
    driver.settle()
    assert [type(event) for event in driver.events_of(names[4])] == [Cancelled]
    assert all(isinstance(driver.events_of(name)[-1], Finished) for name in names[:4])


def test_a_paused_side_call_ends_with_the_text_it_would_have_had(demo_folder: Path) -> None:
    """With the fewest slots one sequence runs at a time; after the chat, prompt and answer so far are read again."""
    options = EngineOptions(demo_folder, num_slots=4, num_threads=1, context_tokens=256, chunk_tokens=64)
    driver = EngineDriver(options)
    alone = driver.run(generate("alone", PROMPTS[0], "side_call", max_tokens=30))
    assert isinstance(alone, Finished)
    driver.send(generate("side", PROMPTS[0], "side_call", max_tokens=30))
    driver.step(12)
    driver.send(generate("chat", PROMPTS[3], max_tokens=4))
    driver.settle()
    ended = [event.request_id for event in driver.events if isinstance(event, Finished)]
    assert ended == ["alone", "chat", "side"]
    side_call = finished(driver, "side")
    assert side_call.generated_ids == alone.generated_ids
    progress = [event for event in driver.events_of("side") if isinstance(event, PrefillProgressed)]
    assert sum(event.done_tokens == event.total_tokens for event in progress) == 2
    assert all(event.done_tokens <= event.total_tokens for event in progress)
    assert [type(event) for event in driver.events_of("side")].count(PromptAccepted) == 1


@pytest.fixture(scope="module")
def tiny_driver(tiny_folder: Path) -> EngineDriver:
    """With little room: 10 pages beyond a full context."""
    return EngineDriver(EngineOptions(tiny_folder, num_threads=1, context_tokens=512, chunk_tokens=64))


@pytest.mark.parametrize(
    "num_operations", [100, pytest.param(2000, marks=[pytest.mark.long, pytest.mark.timeout(600)])]
)
def test_random_operations_leave_no_page_slot_state_or_row_behind(
    tiny_driver: EngineDriver, num_operations: int
) -> None:
    check_random_operations(tiny_driver, num_operations)


def test_a_cards_path_keeps_texts_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixed inputs, slots in tensors: with torch's ops on a CPU."""
    driver = random_engine("as on cuda", Size(num_experts=128, num_slots=250, context_tokens=512), num_threads=1)
    check_joins_and_leaves(driver, monkeypatch)
    check_random_operations(driver, 40)
