"""Norms, rotary embedding and hyper-connections equal their twins; a row's bits are its own."""

import pytest
import torch
from torch import Tensor

from runtime.kernels.torch_ops import attention_rows
from runtime.kernels.torch_ops import hyper_connection as hyper_twin
from runtime.kernels.torch_ops import norms as norms_twin
from runtime.kernels.torch_ops import rotary as rotary_twin
from runtime.kernels.triton_ops import heads, hyper_connection, norms
from runtime.kernels.triton_ops.hyper_connection import MixTiling
from tests.support.row_independence import assert_rows_stand_alone, poison_new_memory

EPS = 1e-6


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    poison_new_memory(monkeypatch)


@pytest.mark.parametrize("width", [48, 2560])
def test_rms_norm(width: int, device: torch.device) -> None:
    x, scale = torch.randn(4, width, device=device) * 3, torch.rand(width, device=device)
    torch.testing.assert_close(norms.rms_norm(x, scale, EPS), norms_twin.rms_norm(x, scale, EPS))
    assert_rows_stand_alone(lambda rows: norms.rms_norm(x[rows], scale, EPS), 4)


def test_rms_norm_by_groups_of_a_wider_row(device: torch.device) -> None:
    wide, scale = torch.randn(3, 5 * 48 + 16, device=device), torch.rand(5, 48, device=device)
    x = wide[:, : 5 * 48].unflatten(1, (5, 48))
    torch.testing.assert_close(norms.rms_norm(x, scale, EPS), norms_twin.rms_norm(x, scale, EPS))
    assert_rows_stand_alone(lambda rows: norms.rms_norm(x[rows], scale, EPS), 3)


@pytest.mark.parametrize("is_sigmoid", [True, False])
@pytest.mark.parametrize("width", [48, 128])
def test_gated_rms_norm(width: int, is_sigmoid: bool, device: torch.device) -> None:
    x, gate = torch.randn(6, width, device=device), torch.randn(6, width, device=device)
    weight = torch.rand(width, device=device)
    result = norms.gated_rms_norm(x, gate, weight, EPS, is_sigmoid)
    torch.testing.assert_close(result, norms_twin.gated_rms_norm(x, gate, weight, EPS, is_sigmoid))
    assert_rows_stand_alone(lambda rows: norms.gated_rms_norm(x[rows], gate[rows], weight, EPS, is_sigmoid), 6)


@pytest.mark.parametrize(("num_heads", "head_dim", "half"), [(1, 16, 8), (5, 80, 12), (3, 48, 8)])
def test_turn_heads(num_heads: int, head_dim: int, half: int, device: torch.device) -> None:
    x = torch.randn(4, num_heads * head_dim + 16, device=device)[:, : num_heads * head_dim].view(4, num_heads, -1)
    positions = torch.tensor([0, 63, 70_000, 262_143], device=device)
    table = rotary_twin.rotary_table(positions, torch.logspace(-6, 0, half, device=device))
    for scale in (torch.rand(num_heads, head_dim, device=device), torch.rand(head_dim, device=device)):
        torch.testing.assert_close(
            heads.turn_heads(x, scale, EPS, table), attention_rows.turn_heads(x, scale, EPS, table)
        )
    assert_rows_stand_alone(
        lambda rows, scale=scale: heads.turn_heads(x[rows], scale, EPS, (table[0][rows], table[1][rows])), 4
    )


def make_hyper_connection(
    num_streams: int, width: int, rank: int, dtype: torch.dtype, has_inject: bool, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """residual, scale, down, up."""
    residual = torch.randn(4, num_streams * width, device=device)
    down = torch.randn(rank + num_streams * has_inject, num_streams * width, device=device) / width
    up = torch.randn(num_streams * width, rank, device=device)
    return residual, torch.rand(num_streams, width, device=device), down.to(dtype), up.to(dtype)


@pytest.mark.parametrize(
    ("num_streams", "width", "rank", "has_inject", "dtype"),
    [
        (4, 32, 16, True, torch.bfloat16),
        (2, 40, 48, False, torch.float32),
        (3, 16, 32, True, torch.float32),
        (4, 16, 80, False, torch.bfloat16),
        (2, 272, 112, True, torch.bfloat16),
        (1, 528, 16, True, torch.bfloat16),
    ],
)
def test_mix_streams(
    num_streams: int, width: int, rank: int, has_inject: bool, dtype: torch.dtype, device: torch.device
) -> None:
    residual, scale, down, up = make_hyper_connection(num_streams, width, rank, dtype, has_inject, device)
    mixed, inject = hyper_connection.mix_streams(residual, scale, down, up, num_streams, EPS)
    expected = hyper_twin.mix_streams(residual, scale, down, up, num_streams, EPS)
    torch.testing.assert_close(mixed, expected[0], rtol=2e-5, atol=1e-5)
    torch.testing.assert_close(inject, expected[1], rtol=2e-5, atol=1e-5)
    assert_rows_stand_alone(
        lambda rows: hyper_connection.mix_streams(residual[rows], scale, down, up, num_streams, EPS), 4
    )


@pytest.mark.parametrize("tiling", [MixTiling(4, 8, 16, 16, 1, 4), MixTiling(16, 16, 2, 8, 2, 1)])
def test_every_cut_gives_the_same_but_for_rounding(tiling: MixTiling, device: torch.device) -> None:
    inputs = make_hyper_connection(3, 80, 48, torch.bfloat16, True, device)
    output, inject = torch.randn(4, 80, device=device), torch.rand(4, 3, device=device)
    residuals = inputs[0].clone(), inputs[0].clone()
    results = [
        hyper_connection.inject_and_mix(residual, output, inject, *inputs[1:], 3, EPS, own)
        for residual, own in zip(residuals, (tiling, None), strict=True)
    ]
    assert torch.equal(*residuals)
    for result, wanted in zip(*results, strict=True):
        torch.testing.assert_close(result, wanted, rtol=2e-5, atol=1e-5)


@pytest.mark.parametrize(("num_streams", "width"), [(4, 48), (3, 1040)])
def test_inject_output(num_streams: int, width: int, device: torch.device) -> None:
    residual = torch.randn(4, num_streams * width, device=device)
    output, inject = torch.randn(4, width, device=device), torch.rand(4, num_streams, device=device)

    def injected(rows: slice) -> Tensor:
        result = residual[rows].clone()
        hyper_connection.inject_output(result, output[rows], inject[rows])
        return result

    expected = residual.clone()
    hyper_twin.inject_output(expected, output, inject)
    torch.testing.assert_close(injected(slice(0, 4)), expected)
    assert_rows_stand_alone(injected, 4)


def test_inject_and_mix_has_the_bits_of_the_two(device: torch.device) -> None:
    residual, scale, down, up = make_hyper_connection(4, 32, 16, torch.bfloat16, True, device)
    output, inject = torch.randn(4, 32, device=device), torch.rand(4, 4, device=device)
    fused = residual.clone()
    results = hyper_connection.inject_and_mix(fused, output, inject, scale, down, up, 4, EPS)
    hyper_connection.inject_output(residual, output, inject)
    expected = hyper_connection.mix_streams(residual, scale, down, up, 4, EPS)
    assert torch.equal(fused, residual)
    assert all(torch.equal(*pair) for pair in zip(results, expected, strict=True))
