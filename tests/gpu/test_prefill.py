"""Prefill on a GPU against the CPU: 1 to 8,192 tokens with 1,650 slots, decode slots kept, cancelled in one chunk."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from runtime.experts.device_routed import DeviceExperts
from runtime.kernels.torch_ops import attention, linear
from tests.support import prefill_checks
from tests.support.demo_scores import logits_of
from tests.support.engine_driver import EngineDriver
from tests.support.random_engine import FULL, random_engine


@pytest.fixture(scope="module")
def on_cuda() -> EngineDriver:
    return random_engine("cuda", FULL)


@pytest.fixture(scope="module")
def on_cpu() -> Iterator[EngineDriver]:
    """Blocks of equal scores, which random weights make by the dozen, are chosen as on a GPU."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "best_blocks", attention.first_of_equals)
        yield random_engine("cpu", FULL)


@pytest.mark.parametrize("num_tokens", [1, 2, 63, 64, 65, 127, 1000, 4097, 8192])
def test_every_length_is_the_cpus(on_cuda: EngineDriver, on_cpu: EngineDriver, num_tokens: int, tmp_path: Path) -> None:
    print(json.dumps(prefill_checks.check_length(on_cuda, on_cpu, num_tokens, tmp_path)))


def test_equal_scores_go_to_the_lower_block(device: torch.device) -> None:
    """As in decode, whose kernel has a test of its own."""
    scores = torch.randint(0, 4, (50, 700)).float()
    num_complete = torch.arange(651, 701)
    chosen = attention.select_blocks(scores.to(device), num_complete.to(device), 128).cpu()
    for row, count in enumerate(num_complete.tolist()):
        expected = attention.first_of_equals(scores[row : row + 1, :count], 128)[0].sort().values
        assert torch.equal(chosen[row].nonzero().squeeze(1), expected)


def test_products_of_long_chunks_keep_the_bits_of_their_rows(device: torch.device) -> None:
    """All 24 with small weights, 16 with large ones."""
    x = torch.rand(70, 16, device=device) + 0.5
    weight = torch.zeros(512, 16, dtype=torch.bfloat16, device=device)
    weight[:, 3] = 1.0
    assert torch.equal(linear.linear(x, weight), x[:, 3:4].expand(-1, 512))
    wide = weight.new_zeros(512, 1 << 14)
    wide[:, 3] = 1.0
    found = linear.linear(torch.nn.functional.pad(x, (0, (1 << 14) - 16)), wide)
    torch.testing.assert_close(found, x[:, 3:4].expand(-1, 512), rtol=2**-16, atol=0)


def test_copies_beside_the_products_change_no_bit(on_cuda: EngineDriver, tmp_path: Path) -> None:
    """2,500 tokens three times with them and once without; most experts go through the ring."""
    experts = on_cuda.engine.model.experts
    assert isinstance(experts, DeviceExperts)
    lane, found = experts._lane, []
    assert lane is not None
    ids = prefill_checks.token_ids(2500, on_cuda.engine.model.spec.vocab_size)
    for number, present in enumerate((lane, None, lane, lane)):
        experts.copy_beside(present)
        found.append(logits_of(on_cuda, ids, tmp_path / f"{number}.safetensors", by_decode=False))
    assert all(torch.equal(logits, found[1]) for logits in found)


@pytest.mark.parametrize("num_tokens", [1000, 8192])
def test_decode_slots_are_kept(on_cuda: EngineDriver, num_tokens: int) -> None:
    prefill_checks.check_decode_slots_are_kept(on_cuda, num_tokens)


def test_cancelling_takes_one_chunk(on_cuda: EngineDriver) -> None:
    prefill_checks.check_cancelling_takes_one_chunk(on_cuda, 8000)
