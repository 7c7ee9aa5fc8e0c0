"""Promises of the engine on the demo model: one last event each, reuse that changes nothing, limits that are said."""

import threading
from array import array
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from runtime.execute.scoring import LogitsFile
from runtime.options import EngineOptions, SamplingOptions
from runtime.protocol import (
    Cancel,
    Cancelled,
    ChatMessage,
    CountTokens,
    Failed,
    Finished,
    Generate,
    GetStats,
    Loaded,
    LoadFailed,
    LoadProgressed,
    PrefillProgressed,
    PromptAccepted,
    Score,
    Scored,
    StatsReported,
    TextProduced,
    TokensCounted,
)
from runtime.schedule.request import Sequence
from runtime.schedule.step_plan import StepPlan
from tests.support.engine_driver import EngineDriver
from tests.support.tiny_models import random_model, random_tokens, save_plain, tiny_config

NUM_GENERATION_PROMPT_TOKENS = 10
HELLO = (ChatMessage("user", "Hello, how are you today?"),)


def long_message(num_words: int) -> tuple[ChatMessage, ...]:
    return (ChatMessage("user", " ".join(f"word{number}" for number in range(num_words))),)


def test_loading_reports_every_phase_and_the_model(driver: EngineDriver) -> None:
    phases = [event.phase for event in driver.events if isinstance(event, LoadProgressed)]
    assert list(dict.fromkeys(phases)) == ["opening", "dense", "experts", "slots", "warmup"]
    loaded = driver.loaded
    assert (loaded.num_slots, loaded.context_limit_tokens) == (96, 2048)
    assert loaded.has_chat_template
    assert loaded.can_think
    assert loaded.stats.num_slots_used == 0
    assert loaded.stats.overlap_level == "off"
    assert "CUDA" in loaded.stats.overlap_reason


def test_events_of_an_answer_in_order(driver: EngineDriver) -> None:
    finished = driver.ask("order", HELLO, max_tokens=20, temperature=1.0, seed=1)
    events = driver.events_of("order")
    assert isinstance(events[0], PromptAccepted)
    assert isinstance(events[1], PrefillProgressed)
    assert isinstance(events[-1], Finished)
    for channel, whole in (("text", finished.text), ("reasoning", finished.reasoning)):
        pieces = [event.text for event in events if isinstance(event, TextProduced) and event.channel == channel]
        assert "".join(pieces) == whole
    assert finished.usage.completion_tokens == len(finished.generated_ids) <= 20
    assert finished.stats.ttft_s > 0


def test_same_seed_same_text_other_seed_other_text(driver: EngineDriver) -> None:
    def text(name: str, seed: int) -> tuple[int, ...]:
        return driver.ask(name, HELLO, max_tokens=16, temperature=1.5, seed=seed).generated_ids

    assert text("s1", 5) == text("s2", 5)
    assert text("s3", 6) != text("s4", 8)


def test_a_conversation_computes_only_what_is_new(driver: EngineDriver) -> None:
    """Ten turns: all before a turn's own tokens is cached, and greedy answers are those of a fresh engine.

    Where the template trims an answer its tokens differ from the generated ones, and the last answer is read again.
    """
    messages = (ChatMessage("user", "Let us talk about boats."),)
    num_known = 0
    for turn in range(10):
        finished = driver.ask(f"turn{turn}", messages, max_tokens=8)
        usage = finished.usage
        assert usage.cached_tokens >= num_known, turn
        num_known = usage.prompt_tokens + usage.completion_tokens
        if finished.text != finished.text.strip():
            num_known = usage.prompt_tokens - NUM_GENERATION_PROMPT_TOKENS
        answered = driver.reply_to(messages, finished)
        messages = (*answered, ChatMessage("user", f"And number {turn}?"))
    model = driver.engine._model
    assert model is not None
    fresh = EngineDriver(model.options)
    again = fresh.ask("whole", messages[:-2], max_tokens=8)
    assert again.usage.cached_tokens == 0
    assert again.generated_ids == finished.generated_ids


@pytest.mark.parametrize("num_steps", [None, 2], ids=["read whole", "cancelled on the way"])
def test_an_opening_is_read_ahead_and_changes_no_answer(driver: EngineDriver, num_steps: int | None) -> None:
    """The first message finds what was read: all that two chats have in common, or as far as it came."""
    model = driver.engine._model
    assert model is not None
    system = (ChatMessage("system", " ".join(f"rule{number}" for number in range(100))),)
    chats = [(*system, ChatMessage("user", text)) for text in ("Good morning", "What is a boat?")]
    model.scheduler._cache.forget_saved()
    fresh = [driver.ask(f"fresh{index}", chat) for index, chat in enumerate(chats)]
    model.scheduler._cache.forget_saved()
    driver.send(Generate("opening", system, SamplingOptions(max_tokens=1), thinking=False, kind="opening"))
    if num_steps is not None:
        driver.step(num_steps)
        driver.send(Cancel("opening"))
    driver.settle()
    assert isinstance(driver.events_of("opening")[-1], Finished if num_steps is None else Cancelled)
    for index, chat in enumerate(chats):
        answer = driver.ask(f"opened{index}", chat)
        assert answer.generated_ids == fresh[index].generated_ids
        if num_steps is None:
            assert 3 < answer.usage.prompt_tokens - answer.usage.cached_tokens < 30
        else:
            assert answer.usage.cached_tokens == num_steps * 64


def test_an_opening_of_nothing_is_refused_or_short(driver: EngineDriver) -> None:
    last = driver.run(Generate("nothing", (), SamplingOptions(max_tokens=1), kind="opening"))
    assert isinstance(last, Finished | Failed)


def test_asking_again_prefills_the_generation_prompt_only(driver: EngineDriver) -> None:
    first = driver.ask("again1", long_message(120))
    second = driver.ask("again2", long_message(120))
    assert second.usage.prompt_tokens - second.usage.cached_tokens < 16
    assert second.generated_ids == first.generated_ids


def test_state_saved_inside_a_chunk_is_that_of_a_sequence_that_ends_there(driver: EngineDriver) -> None:
    model = driver.engine._model
    assert model is not None
    cache, states = model.scheduler._cache, model.forward._states
    cache.forget_saved()
    driver.ask("inside", long_message(30), max_tokens=1)
    whole = next(iter(cache._prefixes))
    ids = array("i", whole.packed).tolist()
    assert whole.num_tokens % 64
    saved = [tensor[:, whole.state_row].clone() for tensor in states._layered()]
    cache.forget_saved()
    model.scheduler.submit(Sequence("exact", tuple(ids)))
    model.scheduler.admit()
    while (plan := model.scheduler.plan()) is not None and not plan.is_decode:
        model.forward.run(plan)
        model.scheduler.complete(plan)
        row = plan.segments[0].state_row
        if plan.segments[-1].logit_offsets:
            break
    for tensor, expected in zip(states._layered(), saved, strict=True):
        assert torch.allclose(tensor[:, row], expected, rtol=1e-4, atol=1e-5)
    assert torch.equal(states.last_ids[row], torch.tensor(ids[-2:]))
    model.scheduler.drop("exact")


def test_an_edit_reuses_what_is_before_it(driver: EngineDriver) -> None:
    messages = (ChatMessage("user", "One."),)
    answers = (driver.ask(f"edit1-{seed}", messages, temperature=1.0, seed=seed) for seed in range(50))
    first = next(answer for answer in answers if answer.text and answer.text == answer.text.strip())
    history = driver.reply_to(messages, first)
    driver.ask("edit2", (*history, ChatMessage("user", "Two.")))
    edited = driver.ask("edit3", (*history, ChatMessage("user", "Three instead.")))
    assert edited.usage.cached_tokens == first.usage.prompt_tokens + first.usage.completion_tokens


def variation(number: int) -> tuple[ChatMessage, ...]:
    (words,) = long_message(60)
    return (ChatMessage("system", f"Variation {number}"), replace(words, content=words.content + ". Tell me a story."))


@pytest.mark.parametrize("steps_before", [0, 1, 2, 6, 9])
def test_cancel_takes_effect_at_once_and_the_next_answer_is_right(driver: EngineDriver, steps_before: int) -> None:
    """Waiting, in prefill, and while tokens flow."""
    name = f"cancel{steps_before}"
    expected = driver.ask(f"{name}-expected", long_message(60)).generated_ids
    messages, whole = next(
        (messages, answer)
        for number in range(50)
        if len((answer := driver.ask(f"{name}-{number}", messages := variation(number))).generated_ids) == 12
    )
    driver.engine._model.scheduler._cache.forget_saved()  # type: ignore[union-attr]
    driver.send(Generate(name, messages, SamplingOptions(max_tokens=12), thinking=False))
    driver.step(steps_before)
    driver.send(Cancel(name))
    last = driver.events_of(name)[-1]
    assert isinstance(last, Cancelled)
    assert last.generated_ids == whole.generated_ids[: len(last.generated_ids)]
    num_events = len(driver.events_of(name))
    driver.send(Cancel(name))
    driver.settle()
    assert len(driver.events_of(name)) == num_events
    assert driver.ask(f"{name}-next", messages).generated_ids == whole.generated_ids
    assert driver.ask(f"{name}-other", long_message(60)).generated_ids == expected


def test_queued_requests_are_answered_in_order(driver: EngineDriver) -> None:
    for name in ("q1", "q2", "q3"):
        driver.send(Generate(name, HELLO, SamplingOptions(max_tokens=4), thinking=False))
    driver.send(Cancel("q2"))
    driver.settle()
    ended = [event for event in driver.events if isinstance(event, Finished | Cancelled)][-3:]
    assert [(type(event), event.request_id) for event in ended] == [
        (Cancelled, "q2"),
        (Finished, "q1"),
        (Finished, "q3"),
    ]


def test_the_queue_and_what_runs_are_in_the_stats(driver: EngineDriver) -> None:
    for name in ("n1", "n2", "n3", "n4", "n5", "n6"):
        driver.send(Generate(name, HELLO, SamplingOptions(max_tokens=4), thinking=False))
    driver.step()
    driver.send(GetStats("counts"))
    (reported,) = driver.events_of("counts")
    assert isinstance(reported, StatsReported)
    assert reported.stats.num_running >= 1
    assert reported.stats.num_running + reported.stats.num_queued == 6
    driver.settle()
    driver.send(GetStats("counts after"))
    (reported,) = driver.events_of("counts after")
    assert isinstance(reported, StatsReported)
    assert (reported.stats.num_running, reported.stats.num_queued) == (0, 0)


def test_stop_text_and_length(driver: EngineDriver) -> None:
    whole = driver.ask("stop1", HELLO, max_tokens=24)
    assert whole.finish_reason in ("length", "stop")
    stop = whole.text[4:7]
    assert stop.strip()
    stopped = driver.ask("stop2", HELLO, max_tokens=24, stop=(stop,))
    assert (stopped.finish_reason, stopped.stopped_by) == ("stop", stop)
    assert stopped.text == whole.text[: whole.text.index(stop)]


def test_the_end_of_the_context_ends_the_answer(driver: EngineDriver, demo_folder: Path) -> None:
    counted = driver.engine._model.admission.count_tokens(CountTokens("n", long_message(100)))  # type: ignore[union-attr]
    small = EngineDriver(EngineOptions(demo_folder, num_threads=1, context_tokens=counted + 20))
    finished = small.run(Generate("end", long_message(100), SamplingOptions(temperature=2.0, seed=3)))
    assert isinstance(finished, Finished)
    usage = finished.usage
    assert finished.finish_reason == "stop" or usage.prompt_tokens + usage.completion_tokens == counted + 20


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (Generate("bad-empty", ()), ("no message",)),
        (Generate("bad-long", long_message(4000)), ("2,048",)),
        (CountTokens("bad-count", ()), ("no message",)),
        (Score("bad-both", (1,), "text"), ("either",)),
        (Score("bad-none"), ("either",)),
        (Score("bad-nothing", ()), ("no tokens",)),
        (Score("bad-id", (1, 10**9)), ("1000000000", "vocabulary")),
        (Score("bad-score-long", (1,) * 3000), ("3,000", "2,048")),
        (Score("bad-chunk", (1, 2), chunk_tokens=0), ("chunk",)),
        (Score("bad-path", (1, 2), logits_path="/no/such/folder/x.safetensors"), ("/no/such/folder",)),
    ],
)
def test_impossible_requests_are_refused_in_one_line(
    driver: EngineDriver, command: Any, words: tuple[str, ...]
) -> None:
    driver.send(command)
    (failed,) = driver.events_of(command.request_id)
    assert isinstance(failed, Failed)
    assert failed.kind == "RequestError"
    assert "\n" not in failed.message
    assert all(word in failed.message for word in words), failed.message
    assert driver.engine.is_idle


def test_counting_equals_what_is_prefilled(driver: EngineDriver) -> None:
    driver.send(CountTokens("count", HELLO, thinking=False))
    counted = driver.events[-1]
    assert isinstance(counted, TokensCounted)
    assert driver.ask("counted", HELLO).usage.prompt_tokens == counted.num_tokens


def test_counting_a_long_text_holds_up_no_stream(driver: EngineDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted between two steps, it would wait for ever for the first of them."""
    admission = driver.engine._model.admission  # type: ignore[union-attr]
    count, has_stepped = admission.count_tokens, threading.Event()

    def count_late(command: CountTokens) -> int:
        assert has_stepped.wait(30)
        return count(command)

    monkeypatch.setattr(admission, "count_tokens", count_late)
    driver.send(Generate("streaming", HELLO, SamplingOptions(max_tokens=8), thinking=False))
    driver.step()
    driver.send(CountTokens("beside", HELLO, thinking=False))
    driver.send(CountTokens("bad", ()))
    driver.step()
    has_stepped.set()
    driver.engine._counting._thread.submit(lambda: None).result(30)
    (counted,) = driver.events_of("beside")
    assert isinstance(counted, TokensCounted)
    (failed,) = driver.events_of("bad")
    assert isinstance(failed, Failed)
    assert failed.kind == "RequestError"
    driver.settle()


def test_scores_agree_however_the_tokens_are_fed(driver: EngineDriver, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(0)
    ids = tuple(torch.randint(0, 8000, (150,), generator=generator).tolist())
    logits = {}
    for name, options in {"whole": {}, "3": {"chunk_tokens": 3}, "decode": {"by_decode": True}}.items():
        path = tmp_path / f"{name}.safetensors"
        scored = driver.run(Score(f"score-{name}", ids, logits_path=str(path), **options))  # type: ignore[arg-type]
        assert isinstance(scored, Scored)
        logits[name] = load_file(path)["logits"]
        assert logits[name].shape[0] == len(ids)
        assert scored.argmax == tuple(logits[name].argmax(-1).tolist())
        expected = torch.log_softmax(logits[name][:-1].double(), -1).gather(-1, torch.tensor(ids[1:])[:, None])
        assert torch.allclose(torch.tensor(scored.logprobs).double(), expected[:, 0], atol=1e-9)
        assert scored.mean_nll == pytest.approx(-sum(scored.logprobs) / 149)
    scale = logits["whole"].abs().amax(-1)
    for name in ("3", "decode"):
        assert ((logits[name] - logits["whole"]).abs().amax(-1) / scale).max() < 1e-4
    assert len(list(tmp_path.iterdir())) == len(logits)


def test_slots_and_policy_never_change_a_bit(driver: EngineDriver, demo_folder: Path, tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(1)
    ids = tuple(torch.randint(0, 8000, (40,), generator=generator).tolist())
    logits = []
    for number, knobs in enumerate(({"num_slots": 384}, {"num_slots": 4}, {"num_slots": 37, "policy": "lru"})):
        path = tmp_path / f"{number}.safetensors"
        options = EngineOptions(demo_folder, num_threads=1, context_tokens=512, **knobs)  # type: ignore[arg-type]
        other = EngineDriver(options)
        other.run(Score("bits", ids, by_decode=True, logits_path=str(path)))
        assert other.engine._model is not None
        other.engine._model.experts.check_integrity()
        logits.append(load_file(path)["logits"])
    assert torch.equal(logits[0], logits[1])
    assert torch.equal(logits[0], logits[2])


def test_scoring_between_chats_touches_neither(driver: EngineDriver, tmp_path: Path) -> None:
    first = driver.ask("mix1", HELLO)
    driver.send(Score("mix-score", tuple(range(100)), logits_path=str(tmp_path / "x.safetensors")))
    driver.step()
    driver.send(Cancel("mix-score"))
    assert list(tmp_path.iterdir()) == []
    second = driver.ask("mix2", HELLO)
    assert second.generated_ids == first.generated_ids
    assert second.usage.cached_tokens > 0


def test_one_token_has_a_score(driver: EngineDriver) -> None:
    scored = driver.run(Score("one", (5,)))
    assert isinstance(scored, Scored)
    assert (scored.logprobs, len(scored.argmax), scored.perplexity) == ((), 1, 1.0)


def test_text_is_scored_as_plain_text(driver: EngineDriver) -> None:
    scored = driver.run(Score("text", text="a <|im_end|> b"))
    assert isinstance(scored, Scored)
    special = set(driver.engine._model.tokenizer.special_ids.values())  # type: ignore[union-attr]
    assert not special & set(scored.token_ids)


def test_stats_are_the_live_ones(driver: EngineDriver) -> None:
    driver.ask("stats", HELLO, max_tokens=4)
    driver.send(GetStats("now"))
    reported = driver.events[-1]
    assert isinstance(reported, StatsReported)
    stats = reported.stats
    assert stats.decode_tok_s
    assert stats.prefill_tok_s
    assert 0 < stats.num_slots_used <= stats.num_slots == 96
    assert stats.slot_hit_rate is not None
    assert 0 <= stats.slot_hit_rate <= 1
    assert stats.num_missed_bytes == stats.num_missed * driver.engine._model.experts.store.layouts[0].record_bytes  # type: ignore[union-attr]
    assert stats.context_used_tokens > 0
    assert stats.engine_rss_bytes > stats.vram_used_bytes > 0


def test_a_step_that_breaks_fails_one_request_and_the_engine_goes_on(
    driver: EngineDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = driver.ask("break0", HELLO).generated_ids
    model = driver.engine._model
    assert model is not None
    driver.send(Generate("break1", HELLO, SamplingOptions(max_tokens=12), thinking=False))
    driver.send(Generate("break2", HELLO, SamplingOptions(max_tokens=12), thinking=False))

    def broken(*_: object) -> None:
        raise RuntimeError("two\nlines")

    with monkeypatch.context() as patch:
        patch.setattr(model.forward, "run", broken)
        driver.step()
    failed = driver.events_of("break1")[-1]
    assert isinstance(failed, Failed)
    assert "two lines" in failed.message
    assert "\n" not in failed.message
    driver.settle()
    finished = driver.events_of("break2")[-1]
    assert isinstance(finished, Finished)
    assert finished.generated_ids == expected
    assert [type(event) for event in driver.events_of("break2")].count(PromptAccepted) == 1


def test_a_shared_step_that_breaks_fails_those_in_it_and_nobody_else(
    driver: EngineDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = driver.ask("shared0", long_message(120)).generated_ids
    model = driver.engine._model
    assert model is not None
    model.scheduler._cache.forget_saved()
    for name in ("shared1", "shared2"):
        driver.send(Generate(name, HELLO, SamplingOptions(max_tokens=60, temperature=1.0, seed=1), thinking=False))
    driver.step(6)
    driver.send(Generate("shared3", long_message(120), SamplingOptions(max_tokens=12), thinking=False))
    driver.step(2)
    run = model.forward.run

    def broken(plan: StepPlan, is_wanted: Callable[[], bool]) -> torch.Tensor:
        if len(plan.segments) > 1 and plan.is_decode:
            raise RuntimeError("broken")
        return run(plan, is_wanted)

    with monkeypatch.context() as patch:
        patch.setattr(model.forward, "run", broken)
        driver.step(3)
    assert isinstance(driver.events_of("shared1")[-1], Failed)
    assert isinstance(driver.events_of("shared2")[-1], Failed)
    driver.settle()
    finished = driver.events_of("shared3")[-1]
    assert isinstance(finished, Finished)
    assert finished.generated_ids == expected


def test_a_failure_outside_the_model_costs_nobody_else_anything(
    driver: EngineDriver, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    expected = driver.ask("outside0", HELLO)

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(LogitsFile, "append", full)
        failed = driver.run(Score("outside1", (1, 2, 3), logits_path=str(tmp_path / "x.safetensors")))
    assert isinstance(failed, Failed)
    assert "No space left" in failed.message
    assert list(tmp_path.iterdir()) == []
    again = driver.ask("outside2", HELLO)
    assert again.generated_ids == expected.generated_ids
    assert again.usage.cached_tokens > 0


def test_an_id_may_be_used_again_at_once(driver: EngineDriver) -> None:
    for number in (1, 2):
        driver.send(Generate("same", HELLO, SamplingOptions(max_tokens=2), thinking=False))
        while sum(isinstance(event, Finished) for event in driver.events_of("same")) < number:
            driver.step()
    driver.settle()


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"num_slots": 0}, "BudgetError"),
        ({"vram_bytes": 1024}, "BudgetError"),
        ({"context_tokens": 10**9}, "BudgetError"),
        ({"device": "cuda"}, "UsageError"),
        ({"chunk_tokens": 0}, "UsageError"),
        ({"num_threads": 0}, "UsageError"),
        ({"model_path": Path("/no/such/model")}, "CheckpointError"),
    ],
)
def test_loads_that_cannot_be_are_refused_in_one_line(demo_folder: Path, options: Any, kind: str) -> None:
    driver = EngineDriver(EngineOptions(**({"model_path": demo_folder} | options)))
    failed = driver.events[-1]
    assert isinstance(failed, LoadFailed)
    assert failed.kind == kind, failed
    assert "\n" not in failed.message
    assert not any(isinstance(event, Loaded) for event in driver.events)
    assert not driver.engine.is_loaded


def test_a_folder_without_tokenizer_scores_ids_and_says_why_it_cannot_chat(tmp_path: Path) -> None:
    config = tiny_config()
    save_plain(random_model(config), tmp_path)
    driver = EngineDriver(EngineOptions(tmp_path, num_threads=1))
    assert not driver.loaded.has_chat_template
    scored = driver.run(Score("ids", tuple(random_tokens(config, 30))))
    assert isinstance(scored, Scored)
    for command in (Generate("chat", HELLO), Score("text", text="hello"), CountTokens("count", HELLO)):
        driver.send(command)
        (failed,) = driver.events_of(command.request_id)
        assert isinstance(failed, Failed)
        assert "tokenizer.json" in failed.message


def test_limit_and_headroom(demo_folder: Path) -> None:
    limit = 128 << 20
    driver = EngineDriver(EngineOptions(demo_folder, vram_bytes=limit, context_tokens=512, num_threads=1))
    stats = driver.loaded.stats
    assert stats.vram_limit_bytes == limit
    assert stats.vram_headroom_bytes == limit - stats.vram_used_bytes
    assert 0 <= stats.vram_headroom_bytes < limit // 10
