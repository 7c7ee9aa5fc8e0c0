"""A GPU over experts that stay on the disk: the tokens of one that has them all in host memory."""

from dataclasses import replace
from pathlib import Path

import pytest

from runtime.experts.mapped_store import MappedStore
from runtime.options import EngineOptions
from runtime.protocol import ChatMessage
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver
from tests.support.low_memory import fix_base, limit_ram

QUESTION = (ChatMessage("user", "Who are you, and what can you do for me?"),)
OPTIONS = EngineOptions(DEMO_FOLDER, device="cuda", num_slots=60, context_tokens=512)


@pytest.mark.parametrize("has_record_file", [True, False])
@pytest.mark.parametrize("overlap", [True, False])
def test_experts_from_the_disk_change_no_token(
    has_record_file: bool, overlap: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fix_base(monkeypatch)
    # No step ahead: one that is launched before the end of an answer is known has misses, too.
    options = replace(OPTIONS, overlap=overlap, steps_ahead=False)
    pinned = EngineDriver(options)
    limited = limit_ram(options, 6 << 20)
    mapped = EngineDriver(replace(limited, cache_dir=tmp_path if has_record_file else None))
    model = mapped.engine._model
    assert model is not None
    store = model.experts.store
    assert isinstance(store, MappedStore)
    assert store.cache.num_records < 384
    for number, temperature in enumerate((0.0, 1.0)):
        expected, finished = (
            driver.ask(f"ask{number}", QUESTION, 40, temperature=temperature, seed=3) for driver in (pinned, mapped)
        )
        assert finished.generated_ids == expected.generated_ids
        assert finished.stats.engine.num_missed == expected.stats.engine.num_missed
        assert 0 < finished.stats.engine.num_from_disk < finished.stats.engine.num_missed
        print(
            f"overlap {overlap}, record file {has_record_file}: {finished.stats.decode_tok_s:.1f} tok/s of "
            f"{expected.stats.decode_tok_s:.1f}, disk rate {finished.stats.engine.disk_rate}"
        )
    model.experts.check_integrity()
    store.check_integrity()
