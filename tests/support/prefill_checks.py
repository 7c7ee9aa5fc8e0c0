"""What a prefill of any length must leave behind, on any device: the CPU's logits, its residents, the decode slots."""

from pathlib import Path

import torch

from runtime.options import SamplingOptions
from runtime.protocol import Cancel, Cancelled, ChatMessage, Generate, PrefillProgressed, Score
from tests.support.block_choices import BlockChoices
from tests.support.demo_scores import logits_of
from tests.support.engine_driver import EngineDriver


def token_ids(num_tokens: int, vocab_size: int) -> tuple[int, ...]:
    generator = torch.Generator().manual_seed(num_tokens)
    return tuple(torch.randint(0, vocab_size, (num_tokens,), generator=generator).tolist())


def residents(driver: EngineDriver) -> list[tuple[int, int, int]]:
    """(layer, expert, slot), each with the right bytes in its slot."""
    experts = driver.engine.model.experts
    experts.check_integrity()
    return sorted(experts.cache.residents())


def check_length(
    ours: EngineDriver, theirs: EngineDriver, num_tokens: int, folder: Path, has_same_chunks: bool = True
) -> dict[str, float]:
    """From empty slots: logits of every position, and which expert lies in which slot. Returns the errors seen.

    A near-tie between blocks of keys may fall either way: one position in fifty may differ by more than a thousandth of
    its largest logit. Where the engine is made to choose the other one's blocks, none may.
    """
    choices = BlockChoices()
    with choices.recorded(theirs):
        their_logits, their_residents = _read(theirs, num_tokens, folder / "theirs.safetensors")
    our_logits, our_residents = _read(ours, num_tokens, folder / "ours.safetensors")
    assert our_logits.shape[0] == num_tokens
    assert our_residents == their_residents or not has_same_chunks
    assert our_residents, "prefill fills empty slots"
    errors = (our_logits - their_logits).abs().amax(-1) / their_logits.abs().amax(-1)
    far = float((errors > 1e-3).float().mean())
    assert errors.median() <= 1e-4, f"median {errors.median()}, far {far}"
    assert far <= 0.02, (
        f"{far} of positions are far, {errors.max()} at most; the first is {int((errors > 1e-3).nonzero()[0])}"
    )
    report = {"median": float(errors.median()), "largest": float(errors.max()), "far": far}
    if not has_same_chunks:
        return report
    with choices.followed(ours):
        our_logits, _ = _read(ours, num_tokens, folder / "followed.safetensors")
    choices.check_integrity()
    largest = float(((our_logits - their_logits).abs().amax(-1) / their_logits.abs().amax(-1)).max())
    report |= {"same_blocks": largest, "near_ties": choices.num_near_ties, "gap": choices.largest_gap}
    assert largest <= 1e-3, report
    return report


def _read(driver: EngineDriver, num_tokens: int, path: Path) -> tuple[torch.Tensor, list[tuple[int, int, int]]]:
    """Logits of a prompt read from empty slots, and the residents it leaves."""
    driver.engine.model.experts.clear()
    ids = token_ids(num_tokens, driver.engine.model.spec.vocab_size)
    return logits_of(driver, ids, path, by_decode=False), residents(driver)


def check_decode_slots_are_kept(driver: EngineDriver, num_tokens: int) -> None:
    """Slots that decode filled hold the same experts after a long prompt; empty ones may be filled."""
    driver.engine.model.experts.clear()
    vocab_size = driver.engine.model.spec.vocab_size
    driver.run(Score("fill", token_ids=token_ids(40, vocab_size), by_decode=True))
    before = residents(driver)
    assert before
    driver.run(Score("long", token_ids=token_ids(num_tokens, vocab_size)))
    after = {slot: (layer, expert) for layer, expert, slot in residents(driver)}
    assert all(after[slot] == (layer, expert) for layer, expert, slot in before)


def check_cancelling_takes_one_chunk(driver: EngineDriver, num_tokens: int) -> None:
    """A prompt of so many tokens, at least three chunks, cancelled after the first."""
    text = "a" * (num_tokens - 1)
    driver.send(Generate("long", (ChatMessage("user", text),), SamplingOptions(max_tokens=5)))
    driver.step()
    assert any(isinstance(event, PrefillProgressed) for event in driver.events_of("long"))
    driver.send(Cancel("long"))
    assert isinstance(driver.events_of("long")[-1], Cancelled)
    driver.step()
    assert driver.engine.is_idle
    assert driver.ask("after", (ChatMessage("user", "hello"),), max_tokens=3).generated_ids
