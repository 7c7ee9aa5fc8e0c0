"""NVFP4 numbers: every code and scale, exact products, rounding of the quantiser."""

import pytest
import torch

from runtime.kernels.torch_ops import nvfp4

VALUES = [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6]


def reference(codes: torch.Tensor, scales: torch.Tensor, width: int) -> torch.Tensor:
    values = torch.tensor(VALUES, dtype=torch.float64)
    unpacked = values[torch.stack([codes & 15, codes >> 4], -1).flatten(-2).long()]
    factors = scales.view(torch.float8_e4m3fn).double().repeat_interleave(16, -1)[..., :width]
    return unpacked * factors


def test_low_nibble_is_the_even_input() -> None:
    one = torch.tensor([[0x38]], dtype=torch.uint8)
    assert nvfp4.dequantise(torch.tensor([[0x72]], dtype=torch.uint8), one, 1.0).tolist() == [[1.0, 6.0]]


@pytest.mark.parametrize("width", [16, 48, 24, 2, 2050])
def test_products_are_exact(width: int) -> None:
    generator = torch.Generator().manual_seed(width)
    codes = torch.randint(0, 256, (9, width // 2), generator=generator, dtype=torch.uint8)
    scales = torch.randint(0, 0x7F, (9, -(-width // 16)), generator=generator, dtype=torch.uint8)
    result = nvfp4.unscaled_values(codes, scales)
    assert result.dtype == torch.float32
    assert torch.equal(result.double(), reference(codes, scales, width))
    assert torch.equal(result.bfloat16().double(), reference(codes, scales, width))


def test_all_bytes_with_all_scales() -> None:
    codes = torch.arange(256, dtype=torch.uint8).repeat_interleave(8).repeat(127, 1)
    scales = torch.arange(127, dtype=torch.uint8).view(127, 1).repeat(1, 256)
    assert torch.equal(nvfp4.unscaled_values(codes, scales).double(), reference(codes, scales, 4096))


def test_nearest_code_and_ties_to_even() -> None:
    magnitudes = torch.tensor([0, 0.25, 0.26, 0.75, 1.25, 1.75, 1.76, 2.5, 3.5, 5.0, 5.01, 9.0])
    assert nvfp4.nearest_codes(magnitudes).tolist() == [0, 0, 1, 2, 2, 4, 4, 4, 6, 6, 7, 7]


@pytest.mark.parametrize("width", [16, 24, 160])
def test_quantise_keeps_what_it_can_hold_and_is_near_otherwise(width: int) -> None:
    generator = torch.Generator().manual_seed(1)
    weight = torch.randn(11, width, generator=generator)
    codes, scales, scale = nvfp4.quantise(weight)
    assert codes.shape == (11, width // 2)
    assert scales.shape == (11, -(-width // 16))
    result = nvfp4.dequantise(codes, scales, scale)
    assert (result - weight).abs().max() <= weight.abs().max() / 6 * 1.1
    again = nvfp4.dequantise(*nvfp4.quantise(result, scale))
    assert torch.equal(again, result)


def test_zero_and_tiny_weights_give_finite_numbers() -> None:
    for weight in (torch.zeros(2, 32), torch.full((2, 32), 1e-30)):
        assert torch.isfinite(nvfp4.dequantise(*nvfp4.quantise(weight))).all()
