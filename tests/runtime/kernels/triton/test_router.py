"""Routing equals its twin; equal logits go to the lowest expert."""

import pytest
import torch

from runtime.kernels.torch_ops import router as twin
from runtime.kernels.triton_ops import router


@pytest.mark.parametrize(("num_rows", "num_experts", "num_routed"), [(1, 5, 5), (2, 64, 8), (3, 512, 10), (4, 48, 1)])
@pytest.mark.parametrize("renormalises", [True, False])
def test_route_equals_its_twin(
    num_rows: int, num_experts: int, num_routed: int, renormalises: bool, device: torch.device
) -> None:
    logits = torch.randn(num_rows, num_experts, device=device) * 5
    ids, weights = router.route(logits, num_routed, renormalises)
    expected_ids, expected_weights = twin.route(logits, num_routed, renormalises)
    assert ids.dtype == torch.int64
    assert torch.equal(ids, expected_ids)
    assert weights.dtype == torch.float32
    torch.testing.assert_close(weights, expected_weights, rtol=1e-5, atol=1e-7)


def test_equal_logits_go_to_the_lowest_expert(device: torch.device) -> None:
    logits = torch.tensor([[0.0, 1.0, -0.0, 1.0, -2.0, 0.0], [-1.0] * 6], device=device)
    ids, weights = router.route(logits, 5, True)
    assert ids.tolist() == [[1, 3, 0, 2, 5], [0, 1, 2, 3, 4]]
    assert torch.allclose(weights[1], torch.full((5,), 0.2, device=device))


@pytest.mark.parametrize(("num_rows", "num_routed", "hidden"), [(1, 10, 48), (4, 3, 144), (2, 1, 130)])
@pytest.mark.parametrize("has_shared", [True, False])
def test_combined_routes_equal_their_twin(
    num_rows: int, num_routed: int, hidden: int, has_shared: bool, device: torch.device
) -> None:
    rows = torch.randn(num_rows, num_routed, hidden, device=device)
    weights = torch.rand(num_rows, num_routed, device=device)
    shared = torch.randn(num_rows, hidden, device=device) if has_shared else None
    result = router.combine_routes(rows, weights, shared)
    torch.testing.assert_close(result, twin.combine_routes(rows, weights, shared), rtol=1e-5, atol=1e-5)
    alone = router.combine_routes(rows[:1], weights[:1], None if shared is None else shared[:1])
    assert torch.equal(alone, result[:1])
