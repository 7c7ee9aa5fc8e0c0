"""Decode steps launched one ahead on a GPU: texts of steps in turn, no wait in a launch, host work beside the GPU's."""

import json
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch

from runtime.execute.forward import Forward
from runtime.options import EngineOptions, SamplingOptions
from runtime.protocol import Cancel, Cancelled, ChatMessage, Finished, Generate, RequestKind
from runtime.schedule.request import UNKNOWN_ID
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver
from tests.support.random_engine import Size, random_engine

OPTIONS = EngineOptions(DEMO_FOLDER, device="cuda", num_slots=96, context_tokens=2048)
PROMPTS = (
    "Tell me a long story about a lighthouse.", "Count from one to fifty.", "Write ten sentences about the sea.",
    "List thirty animals.",
)  # fmt: skip
WAYS: tuple[dict[str, Any], ...] = (
    {},
    {"temperature": 1.0, "top_k": 40, "top_p": 0.95, "seed": 3},
    {"temperature": 0.9, "presence_penalty": 1.5, "repetition_penalty": 1.2, "seed": 4},
    {"temperature": 1.2, "top_p": 0.9, "min_p": 0.02, "seed": 5},
)
NUM_TOKENS = 200
Pair = tuple[EngineDriver, EngineDriver]


@pytest.fixture(scope="module")
def pair() -> Pair:
    """One step ahead, and in turn."""
    drivers = EngineDriver(OPTIONS), EngineDriver(replace(OPTIONS, steps_ahead=False))
    for driver in drivers:
        # Answers of the length that is asked for, whatever the model would say.
        driver.engine.model.admission._stop_ids = frozenset()
    return drivers


@pytest.fixture(autouse=True)
def _forget(pair: Pair) -> None:
    for driver in pair:
        driver.engine.model.scheduler._cache.forget_saved()


def generate(name: str, prompt: str = PROMPTS[0], kind: RequestKind = "chat", **sampling: Any) -> Generate:
    options = SamplingOptions(**{"max_tokens": NUM_TOKENS, **sampling})
    return Generate(name, (ChatMessage("user", prompt),), options, thinking=False, kind=kind)


def settle(driver: EngineDriver) -> None:
    """Without the checks after every step, which wait for the device."""
    while not driver.engine.is_idle:
        driver.engine.step()
    driver.step()


def finished(driver: EngineDriver, name: str) -> Finished:
    last = driver.events_of(name)[-1]
    assert isinstance(last, Finished), last
    return last


@pytest.mark.parametrize("num_rows", [1, 2, 3, 4])
def test_texts_are_those_in_turn(num_rows: int, pair: Pair) -> None:
    texts = []
    for driver in pair:
        for row in range(num_rows):
            driver.send(generate(f"{num_rows}-{row}", PROMPTS[row], **WAYS[(row + num_rows) % 4]))
        settle(driver)
        answers = [finished(driver, f"{num_rows}-{row}") for row in range(num_rows)]
        texts.append([answer.generated_ids for answer in answers])
        print(json.dumps({"rows": num_rows, "ahead": driver is pair[0], "tok_s": answers[0].stats.decode_tok_s}))
    assert texts[0] == texts[1]
    assert all(len(ids) == NUM_TOKENS and UNKNOWN_ID not in ids for ids in texts[0])


def test_rows_that_join_and_leave(pair: Pair) -> None:
    texts = []
    for driver in pair:
        for row in range(8):
            kind: RequestKind = "chat" if row % 2 else "side_call"
            driver.send(
                generate(f"join-{row}", PROMPTS[row % 4], kind, **{**WAYS[row % 4], "max_tokens": 20 + 13 * row})
            )
            for _ in range(9):
                driver.engine.step()
        settle(driver)
        texts.append([finished(driver, f"join-{row}").generated_ids for row in range(8)])
    assert texts[0] == texts[1]


def test_stopped_at_every_position(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the next turn reads the state that the stopped one left."""
    messages = (ChatMessage("user", PROMPTS[0]),)
    whole = pair[1].ask("whole", messages, 40, **WAYS[1]).generated_ids
    for number, token_id in enumerate(dict.fromkeys(whole)):
        answers = []
        for driver in pair:
            driver.engine.model.scheduler._cache.forget_saved()
            monkeypatch.setattr(driver.engine.model.admission, "_stop_ids", frozenset({token_id}))
            first = driver.ask(f"stop-{number}", messages, 40, **WAYS[1])
            history = (*driver.reply_to(messages, first), ChatMessage("user", "Why?"))
            answers.append((first, driver.ask(f"then-{number}", history, 4)))
        for found, expected in zip(*answers, strict=True):
            assert found.generated_ids == expected.generated_ids
            assert found.usage == expected.usage
        assert answers[0][0].generated_ids == whole[: whole.index(token_id) + 1]


def test_cancelled_midway(pair: Pair) -> None:
    for num_steps in (2, 3, 10, 70):
        said = []
        for driver in pair:
            driver.send(generate("cancelled", **WAYS[2]))
            driver.send(generate("beside", PROMPTS[1], **WAYS[1]))
            for _ in range(num_steps):
                driver.engine.step()
            driver.send(Cancel("cancelled"))
            cancelled = driver.events_of("cancelled")[-1]
            assert isinstance(cancelled, Cancelled)
            settle(driver)
            said.append((cancelled.generated_ids, finished(driver, "beside").generated_ids))
        shortest = min(len(said[0][0]), len(said[1][0]))
        assert said[0][0][:shortest] == said[1][0][:shortest]
        assert said[0][1] == said[1][1]


@contextmanager
def waits_are_errors() -> Iterator[None]:
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_a_launch_never_waits(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, launch, num_launched = pair[0], Forward.launch, 0

    def guarded(*arguments: Any) -> Any:
        nonlocal num_launched
        num_launched += 1
        with waits_are_errors():
            return launch(*arguments)

    monkeypatch.setattr(Forward, "launch", guarded)
    for row in range(4):
        driver.send(generate(f"guarded-{row}", PROMPTS[row], **{**WAYS[row], "max_tokens": 30}))
    settle(driver)
    assert all(len(finished(driver, f"guarded-{row}").generated_ids) == 30 for row in range(4))
    assert num_launched >= 30


def test_the_host_works_while_the_device_does(tmp_path: Path) -> None:
    """By a profile: the next step is launched before the last kernel of the one that runs has ended."""
    # As many layers as the flagship has, so that a step takes the device longer than the host.
    driver = random_engine("cuda", Size(num_layers=48, num_experts=64, num_slots=1200))
    model, found = driver.engine.model, {}
    model.admission._stop_ids = frozenset()
    for name in ("ahead", "in turn"):
        options = replace(model.options, steps_ahead=name == "ahead")
        driver.engine._model = replace(model, options=options)
        driver.send(generate(f"profiled-{name}", **{**WAYS[1], "max_tokens": 80}))
        for _ in range(20):
            driver.engine.step()
        # What the CPU does is not recorded: that would slow it down.
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            for _ in range(30):
                driver.engine.step()
            torch.cuda.synchronize()
        path = tmp_path / "trace.json"
        profile.export_chrome_trace(str(path))
        settle(driver)
        found[name] = launched_before_the_end(json.loads(path.read_text())["traceEvents"])
    print(json.dumps(found))
    assert found["ahead"]["share"] >= 0.9
    assert found["in turn"]["share"] == 0.0


def launched_before_the_end(events: list[dict[str, Any]]) -> dict[str, float]:
    """Of graph launches, the share that the former one's kernels outlast; the device's idle time per step, in us."""
    launches = sorted((e for e in events if e.get("name") == "cudaGraphLaunch"), key=lambda event: event["ts"])
    spans: dict[int, list[float]] = defaultdict(list)
    for event in events:
        if event.get("cat") == "kernel":
            spans[event["args"]["correlation"]] += [event["ts"], event["ts"] + event["dur"]]
    steps = [(launch["ts"], spans[launch["args"]["correlation"]]) for launch in launches]
    pairs = list(pairwise(steps))
    assert len(pairs) >= 20
    early = sum(second[0] < max(first[1]) for first, second in pairs)
    idle = sorted(min(second[1]) - max(first[1]) for first, second in pairs)
    busy = sorted(max(span) - min(span) for _, span in steps)
    return {"share": early / len(pairs), "idle_us": idle[len(idle) // 2], "step_us": busy[len(busy) // 2]}
