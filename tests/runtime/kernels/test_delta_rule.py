"""The gated delta rule: both forms against the recurrence in fp64, where chunked forms usually break."""

import pytest
import torch
from torch import Tensor

from runtime.kernels.torch_ops.delta_rule import delta_chunks, delta_step, l2_normalise


def recurrence(q: Tensor, k: Tensor, v: Tensor, g: Tensor, beta: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Token by token as the paper writes it, in fp64; one group of value heads per key head."""
    q, k, v, g, beta, state = (x.double() for x in (q, k, v, g, beta, state))
    group = v.shape[1] // k.shape[1]
    q, k = q.repeat_interleave(group, 1), k.repeat_interleave(group, 1)
    outputs = []
    for t in range(v.shape[0]):
        state = state * g[t].exp()[:, None, None]
        delta = beta[t][:, None] * (v[t] - torch.einsum("hkv,hk->hv", state, k[t]))
        state = state + k[t][:, :, None] * delta[:, None, :]
        outputs.append(torch.einsum("hkv,hk->hv", state, q[t]))
    return torch.stack(outputs), state


def inputs(num_tokens: int, decay: str, are_keys_alike: bool) -> tuple[Tensor, ...]:
    generator = torch.Generator().manual_seed(num_tokens)

    def randn(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator)

    keys = randn(1, 2, 12) + 1e-3 * randn(num_tokens, 2, 12) if are_keys_alike else randn(num_tokens, 2, 12)
    q, k = l2_normalise(randn(num_tokens, 2, 12), 12**-0.5), l2_normalise(keys)
    weak, strong = -0.02 * torch.rand((num_tokens, 6), generator=generator), torch.full((num_tokens, 6), -20.0)
    is_strong = torch.rand((num_tokens, 6), generator=generator) < 0.3
    g = {"weak": weak, "strong": strong, "mixed": torch.where(is_strong, strong, weak), "none": 0 * weak}[decay]
    beta = torch.sigmoid(3 + randn(num_tokens, 6))
    return q, k, randn(num_tokens, 6, 20), g, beta, randn(6, 12, 20)


@pytest.mark.parametrize("are_keys_alike", [False, True])
@pytest.mark.parametrize("decay", ["none", "weak", "strong", "mixed"])
@pytest.mark.parametrize("num_tokens", [1, 7, 64, 65, 200])
def test_chunked_form_is_the_recurrence(num_tokens: int, decay: str, are_keys_alike: bool) -> None:
    *tokens, state = inputs(num_tokens, decay, are_keys_alike)
    expected, expected_state = recurrence(*tokens, state)
    output = delta_chunks(*tokens, state)
    assert_close(output, expected)
    assert_close(state, expected_state)


@pytest.mark.parametrize("decay", ["weak", "strong"])
def test_one_step_is_the_recurrence(decay: str) -> None:
    *tokens, state = inputs(40, decay, are_keys_alike=True)
    expected, expected_state = recurrence(*tokens, state)
    rows = [delta_step(*(x[t] for x in tokens), state) for t in range(40)]
    assert_close(torch.stack(rows), expected)
    assert_close(state, expected_state)


def test_extreme_decay_forgets_and_stays_finite() -> None:
    q, k, v, _, beta, state = inputs(130, "weak", are_keys_alike=False)
    output = delta_chunks(q, k, v, torch.full((130, 6), -1e4), beta, state)
    alone = (q * k).sum(-1).repeat_interleave(3, 1).unsqueeze(-1) * beta.unsqueeze(-1) * v
    assert_close(output, alone)


def assert_close(actual: Tensor, expected: Tensor) -> None:
    assert torch.isfinite(actual).all()
    assert (actual - expected).abs().max() <= 2e-5 * expected.abs().max()
