"""Warm start on a GPU: slots are filled on decode's stream, with the policy's history, and the figures of a restart."""

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.options import EngineOptions
from runtime.protocol import ChatMessage
from scripts.bench_policy import everyday_chats
from scripts.bench_warm_start import measure
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver

OPTIONS = EngineOptions(DEMO_FOLDER, device="cuda", num_slots=48)
STORY = (ChatMessage("user", "Tell me a short story about a lighthouse."),)


@pytest.mark.parametrize("policy", ["lru", "rule"])
def test_a_start_goes_on_where_the_last_one_ended(tmp_path: Path, policy: str) -> None:
    """Victims too: what the kernel keeps by slot is read anew."""
    options = replace(OPTIONS, cache_dir=tmp_path, policy=policy)  # type: ignore[arg-type]
    first = EngineDriver(options)
    answer = first.ask("story", STORY, max_tokens=40)
    then = (*first.reply_to(STORY, answer), ChatMessage("user", "And what then?"))
    second = EngineDriver(options)
    second.settle()
    parts = [driver.engine._model.experts for driver in (first, second) if driver.engine._model is not None]
    assert len(parts) == 2
    for experts in parts:
        experts.check_integrity()
    histories = [{name: values.tolist() for name, values in experts.cache.history().items()} for experts in parts]
    assert histories[0] == histories[1]
    residents = [{(layer, expert) for layer, expert, _ in experts.cache.residents()} for experts in parts]
    assert len(residents[0]) == 48
    assert residents[0] == residents[1]
    answers = [driver.ask("then", then, max_tokens=16) for driver in (first, second)]
    assert answers[0].generated_ids == answers[1].generated_ids
    residents = [{(layer, expert) for layer, expert, _ in experts.cache.residents()} for experts in parts]
    assert residents[0] == residents[1]
    parts[1].check_integrity()


def test_hit_rate_after_a_restart(tmp_path: Path) -> None:
    """At least 0.8 of that before it, and more than from empty slots."""
    figures = measure(replace(OPTIONS, num_slots=96, cache_dir=tmp_path), everyday_chats()[0], seed=1)
    print(figures)
    assert figures.warm >= 0.8 * figures.before
    assert figures.warm > figures.cold
