"""The slots of a real engine get what the warm-up left, and the engine keeps within its limit."""

import pytest

from runtime.options import EngineOptions
from runtime.protocol import ChatMessage, Score
from tests.support.engine_driver import DEMO_FOLDER, EngineDriver

MIB = 2**20


@pytest.mark.parametrize("overlap", [False, True])
def test_the_limit_holds(overlap: bool) -> None:
    """Beside other processes, whose memory counts as this one's: then there are fewer slots, never too many."""
    limit = 2048 * MIB
    options = EngineOptions(DEMO_FOLDER, device="cuda", vram_bytes=limit, context_tokens=4096, overlap=overlap)
    driver = EngineDriver(options)
    model = driver.engine._model
    assert model is not None
    driver.ask("story", (ChatMessage("user", "Tell me a short story about a lighthouse."),), max_tokens=24)
    driver.run(Score("long", token_ids=tuple(100 + (11 * i) % 5000 for i in range(3000))))
    stats = model.stats()
    print({"slots": stats.num_slots, "used": stats.vram_used_bytes / MIB, "level": stats.overlap_level})
    assert stats.vram_used_bytes <= limit
    assert stats.num_slots >= 4 * model.spec.moe.num_experts_per_token
    model.experts.check_integrity()


def test_a_limit_too_small_is_refused() -> None:
    options = EngineOptions(DEMO_FOLDER, device="cuda", vram_bytes=300 * MIB)
    driver = EngineDriver(options)
    assert driver.engine._model is None
