"""Delta net, convolution and n-gram kernels equal their twins and move the same state on; a row's bits are its own."""

import pytest
import torch
from torch import Tensor

from runtime.kernels.torch_ops import conv as conv_twin
from runtime.kernels.torch_ops import delta_rule as delta_twin
from runtime.kernels.torch_ops import ngram as ngram_twin
from runtime.kernels.triton_ops import conv, delta_rule, ngram
from tests.support.row_independence import assert_rows_stand_alone, poison_new_memory

NUM_STATES = 7


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    poison_new_memory(monkeypatch)


@pytest.fixture
def state_rows(device: torch.device) -> Tensor:
    """Distinct rows of a pool, in no order."""
    return torch.tensor([5, 0, 6, 2], device=device)


@pytest.mark.parametrize(("width", "num_taps", "dilation"), [(16, 4, 1), (80, 4, 3), (272, 2, 1), (48, 3, 2)])
def test_conv_rows(width: int, num_taps: int, dilation: int, state_rows: Tensor, device: torch.device) -> None:
    wide = torch.randn(4, width + 16, device=device)
    x, weight = wide[:, :width], torch.randn(num_taps, width, device=device)
    pool = torch.randn(NUM_STATES, (num_taps - 1) * dilation, width, device=device)

    def run(rows: slice) -> tuple[Tensor, Tensor]:
        moved = pool.clone()
        return conv.conv_rows(x[rows], moved, state_rows[rows], weight, dilation), moved[state_rows[rows]]

    expected_pool, moved = pool.clone(), pool.clone()
    expected = conv_twin.conv_rows(x, expected_pool, state_rows, weight, dilation)
    torch.testing.assert_close(conv.conv_rows(x, moved, state_rows, weight, dilation), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(moved, expected_pool)
    assert_rows_stand_alone(run, 4)


def make_delta(
    num_key_heads: int, num_value_heads: int, key_dim: int, value_dim: int, device: torch.device
) -> tuple[Tensor, Tensor]:
    """What the convolution hands over, and a pool of states."""
    mixed = torch.randn(4, 2 * num_key_heads * key_dim + num_value_heads * value_dim, device=device)
    return mixed, torch.randn(NUM_STATES, num_value_heads, key_dim, value_dim, device=device)


@pytest.mark.parametrize(
    ("num_key_heads", "num_value_heads", "key_dim", "value_dim", "is_sigmoid"),
    [(1, 1, 16, 16, True), (1, 3, 16, 48, False), (2, 2, 48, 80, True)],
)
def test_delta_net_rows(
    num_key_heads: int,
    num_value_heads: int,
    key_dim: int,
    value_dim: int,
    is_sigmoid: bool,
    state_rows: Tensor,
    device: torch.device,
) -> None:
    mixed, pool = make_delta(num_key_heads, num_value_heads, key_dim, value_dim, device)
    write, decay = torch.randn(2, 4, num_value_heads, device=device).unbind(0)
    # From gates that hardly open to some past softplus' threshold.
    gates = torch.randn(4, num_value_heads * value_dim, device=device), write, decay * 15
    decay_rate, dt_bias = (-torch.rand(2, num_value_heads, device=device)).unbind(0)
    norm = torch.rand(value_dim, device=device)
    constants = delta_twin.DeltaNetConstants(decay_rate, dt_bias, norm, 1e-6, is_sigmoid, num_key_heads)

    def run(rows: slice) -> tuple[Tensor, Tensor]:
        moved, own = pool.clone(), (gates[0][rows], gates[1][rows], gates[2][rows])
        # The launch before is none that wrote the states.
        result = delta_rule.delta_net_rows(mixed[rows].clone(), own, constants, moved, state_rows[rows])
        return result, moved

    expected_pool = pool.clone()
    expected = delta_twin.delta_net_rows(mixed, gates, constants, expected_pool, state_rows)
    result, moved = run(slice(0, 4))
    torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(moved, expected_pool, rtol=1e-5, atol=1e-5)

    def run_own(rows: slice) -> tuple[Tensor, Tensor]:
        result, moved = run(rows)
        return result, moved[state_rows[rows]]

    assert_rows_stand_alone(run_own, 4)


@pytest.mark.parametrize("num_before", [1, 2, 4])
def test_context_rows(num_before: int, state_rows: Tensor, device: torch.device) -> None:
    pool = torch.randint(0, 3, (NUM_STATES, num_before), device=device)
    tokens = torch.tensor([1, 0, 2, 1], device=device)
    expected_pool, moved = pool.clone(), pool.clone()
    expected = ngram_twin.context_rows(expected_pool, tokens, state_rows, 1)
    assert torch.equal(ngram.context_rows(moved, tokens, state_rows, 1), expected)
    assert torch.equal(moved, expected_pool)


def test_ngram_ids(device: torch.device) -> None:
    contexts = torch.randint(0, 248_000, (3, 4), device=device)
    multipliers = torch.tensor([23703573157769, 20109073645365, 8052911324071], device=device)
    sizes = torch.tensor([20000003, 20000023, 20000033, 20000047, 20000059, 20000063], device=device)
    offsets = sizes.cumsum(0) - sizes
    expected = ngram_twin.ngram_ids(contexts, multipliers, sizes, offsets)
    assert torch.equal(ngram.ngram_ids(contexts, multipliers, sizes, offsets), expected)


@pytest.mark.parametrize("width", [16, 80, 2560])
def test_ngram_gate(width: int, device: torch.device) -> None:
    keys, queries = torch.randn(2, 4, 3, width, device=device).unbind(0)
    keys[0, 0] = 0.0
    torch.testing.assert_close(ngram.ngram_gate(keys, queries), ngram_twin.ngram_gate(keys, queries))
    assert_rows_stand_alone(lambda rows: ngram.ngram_gate(keys[rows], queries[rows]), 4)
