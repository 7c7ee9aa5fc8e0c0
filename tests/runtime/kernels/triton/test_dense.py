"""Dense products equal exact ones to fp32 round-off, for every weight type; a row's bits are its own."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from runtime.kernels.torch_ops import linear as twin
from runtime.kernels.triton_ops import dense, workspace
from tests.support.row_independence import assert_rows_stand_alone, poison_new_memory

SHAPES = [(33, 48), (70, 144), (16, 16), (40, 640), (20, 2048)]
"""Outputs, width: tiles that are not full, widths that only 16 divides, and K shared by several blocks."""
WEIGHT_TYPES = [torch.bfloat16, torch.float32, torch.uint8]


@pytest.fixture(autouse=True)
def _poisoned(monkeypatch: pytest.MonkeyPatch) -> None:
    poison_new_memory(monkeypatch)


def make_weight(num_outputs: int, width: int, dtype: torch.dtype, device: torch.device) -> tuple[Tensor, Tensor | None]:
    """A weight as stored, and its scales."""
    values = torch.randn(num_outputs, width, device=device)
    if dtype != torch.uint8:
        return values.to(dtype), None
    return values.to(torch.float8_e4m3fn).view(torch.uint8), torch.rand(num_outputs, device=device) + 0.5


def exact(x: Tensor, weight: Tensor, scale: Tensor | None) -> Tensor:
    stored = weight.view(torch.float8_e4m3fn) if scale is not None else weight
    product = x.double() @ stored.double().t()
    return product if scale is None else product * scale.double()


def on_cpu(*arguments: Tensor | None) -> Tensor:
    """The twin in full fp32: on a GPU it keeps 16 bits of its inputs."""
    return twin.linear(*(None if argument is None else argument.cpu() for argument in arguments))


@pytest.mark.parametrize(("num_outputs", "width"), SHAPES)
@pytest.mark.parametrize("dtype", WEIGHT_TYPES)
@pytest.mark.parametrize("num_rows", [2])
def test_linear_is_exact_to_fp32_round_off(
    num_outputs: int, width: int, dtype: torch.dtype, num_rows: int, device: torch.device
) -> None:
    # Twelve orders of magnitude: what only bf16 activations would lose shows in the small ones.
    x = torch.randn(num_rows, width, device=device) * torch.logspace(-6, 6, width, device=device)
    weight, scale = make_weight(num_outputs, width, dtype, device)
    result = dense.linear(x, weight, scale)
    # Tensor cores cut off where they add, once per 16 products.
    bound = exact(x.abs(), weight.abs() if scale is None else weight & 0x7F, scale) * (width / 16 + 8) * 2.0**-23
    assert result.dtype == torch.float32
    assert ((result - exact(x, weight, scale)).abs() <= bound).all()


@pytest.mark.parametrize(("num_outputs", "width"), SHAPES[1::3])
@pytest.mark.parametrize("dtype", WEIGHT_TYPES)
def test_a_rows_bits_are_its_own(num_outputs: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
    x = torch.randn(4, width, device=device)
    weight, scale = make_weight(num_outputs, width, dtype, device)
    assert_rows_stand_alone(lambda rows: dense.linear(x[rows], weight, scale), 4)


@pytest.mark.parametrize("width", [640, 1280])
@pytest.mark.parametrize("dtype", WEIGHT_TYPES)
def test_weights_read_ahead_change_no_bit(
    width: int, dtype: torch.dtype, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where shares of the inputs are of two and three steps, and all is read ahead."""
    x = torch.randn(4, width, device=device)
    weight, scale = make_weight(20, width, dtype, device)
    expected = dense.linear(x, weight, scale)
    for num_ahead in (0, 1, 9):
        monkeypatch.setattr(dense, "TILES_AHEAD", num_ahead)
        assert torch.equal(dense.linear(x, weight, scale), expected)


def test_every_e4m3_byte_is_read_exactly(device: torch.device) -> None:
    numbers = torch.arange(256, dtype=torch.uint8, device=device)
    numbers = numbers[(numbers & 0x7F) != 0x7F]
    weight = torch.zeros(len(numbers), 16, dtype=torch.uint8, device=device)
    weight[:, 3] = numbers
    x = torch.zeros(1, 16, device=device)
    x[0, 3] = 1.0
    assert torch.equal(dense.linear(x, weight)[0], numbers.view(torch.float8_e4m3fn).float())


def test_kernels_without_room_for_the_rows_or_the_width_say_so(device: torch.device) -> None:
    weight = torch.zeros(16, 32, device=device)
    with pytest.raises(ValueError, match="1 to 4 rows"):
        dense.linear(torch.zeros(5, 32, device=device), weight)
    with pytest.raises(ValueError, match="multiple of 16"):
        dense.linear(torch.zeros(1, 24, device=device), torch.zeros(16, 24, device=device))
    with pytest.raises(ValueError, match="x must start every row at a multiple of 16 bytes"):
        dense.linear(torch.zeros(1, 33, device=device)[:, 1:], weight)


@pytest.mark.parametrize(("num_outputs", "num_exact", "width"), [(33, 5, 48), (64, 33, 80), (20, 1, 2048)])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_outputs_that_are_never_quantised_come_last(
    num_outputs: int, num_exact: int, width: int, dtype: torch.dtype, device: torch.device
) -> None:
    x = torch.randn(4, width, device=device)
    values, scale = make_weight(num_outputs, width, torch.uint8, device)
    others, _ = make_weight(num_exact, width, dtype, device)
    result = dense.linear(x, values, scale, others)
    wanted = torch.cat((exact(x, values, scale), exact(x, others, None)), dim=1)
    torch.testing.assert_close(result.double(), wanted, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(on_cpu(x, values, scale, others), result.cpu(), rtol=1e-4, atol=1e-4)
    assert_rows_stand_alone(lambda rows: dense.linear(x[rows], values, scale, others), 4)


@pytest.mark.parametrize(
    ("num_outputs", "width", "num_channels", "num_taps"), [(70, 144, 48, 4), (40, 2048, 40, 2), (33, 2048, 5, 3)]
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.uint8])
def test_linear_and_convolution(
    num_outputs: int, width: int, num_channels: int, num_taps: int, dtype: torch.dtype, device: torch.device
) -> None:
    x, state_rows = torch.randn(4, width, device=device), torch.tensor([4, 1, 0, 3], device=device)
    weights = *make_weight(num_outputs, width, dtype, device), None
    if dtype == torch.uint8:
        weights = *weights[:2], torch.randn(7, width, device=device)
    pool = torch.randn(6, num_taps - 1, num_channels, device=device)
    taps = torch.randn(num_taps, num_channels, device=device)

    def run(op: Callable[..., Tensor], rows: slice) -> tuple[Tensor, Tensor]:
        moved = pool.clone()
        # The launch before is none that wrote the histories.
        outputs = op(x[rows].clone(), twin.Convolved(moved, state_rows[rows], taps), *weights)
        assert torch.equal(moved[[2, 5]], pool[[2, 5]])
        return outputs, moved[state_rows[rows]]

    for result, expected in zip(run(dense.linear_conv, slice(0, 4)), run(twin.linear_conv, slice(0, 4)), strict=True):
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=5e-4)
    assert_rows_stand_alone(lambda rows: run(dense.linear_conv, rows), 4)


@pytest.mark.parametrize("width", [16, 80, 640, 2048])
@pytest.mark.parametrize("dtype", WEIGHT_TYPES)
@pytest.mark.parametrize("is_gated", [False, True])
def test_silu_linear(width: int, dtype: torch.dtype, is_gated: bool, device: torch.device) -> None:
    gate_up = torch.randn(3, 2 * width + 1, device=device)
    weight, scale = make_weight(33, width, dtype, device)
    product = torch.nn.functional.silu(gate_up[:, :width]) * gate_up[:, width : 2 * width]
    if is_gated:
        product *= torch.sigmoid(gate_up[:, 2 * width :])
    result = dense.silu_linear(gate_up, is_gated, weight, scale)
    torch.testing.assert_close(result.double(), exact(product, weight, scale), rtol=1e-4, atol=2e-4)
    torch.testing.assert_close(twin.silu_linear(gate_up, is_gated, weight, scale), result, rtol=1e-4, atol=2e-4)
    assert_rows_stand_alone(lambda rows: dense.silu_linear(gate_up[rows], is_gated, weight, scale), 3)


def test_counters_are_zero_again(device: torch.device) -> None:
    for num_outputs in (40, 8, 40):
        dense.linear(torch.randn(2, 640, device=device), torch.randn(num_outputs, 640, device=device))
    counters = workspace.ArrivalCounters(device)
    assert counters.of_stream(1) is counters.of_stream(1)
    assert counters.of_stream(1).data_ptr() != counters.of_stream(2).data_ptr()
    for made in (counters, *workspace._counters.values()):
        made.check_integrity()


def test_a_weight_quantised_by_rows(device: torch.device) -> None:
    x = torch.randn(3, 48, device=device)
    weight = torch.randn(20, 48, device=device) * torch.logspace(-3, 3, 20, device=device).unsqueeze(1)
    values, scale = twin.quantise_rows(weight)
    assert (values & 0x7F).amax(1).tolist() == [0x7E] * 20
    quantised = on_cpu(x, values, scale)
    torch.testing.assert_close(dense.linear(x, values, scale).cpu(), quantised, rtol=1e-5, atol=1e-5)
    error = (quantised - on_cpu(x, weight)).abs()
    # Half a step of three mantissa bits, over 48 products.
    assert (error <= (x.abs() @ weight.abs().t() * 2**-4).cpu()).all()
