"""When logits of the runtime count as those of transformers: per position max|delta| / max|reference| <= 1e-4 and
equal argmax. Where a router or an indexer chooses by less than 1e-5 both choices are right, so texts are drawn until
transformers' own fp64 run has no such near-tie in them."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.support.tiny_models import random_tokens, reference_logits

BOUND = 1e-4
TIE_MARGIN = 1e-5
MAX_DRAWS = 8


def clear_text(model: Any, num_tokens: int) -> list[int]:
    """The first of a few random texts without near-tie."""
    texts = (random_tokens(model.config, num_tokens, seed) for seed in range(MAX_DRAWS))
    return next(text for text in texts if first_near_tie(model, text) == num_tokens)


def first_near_tie(model: Any, tokens: list[int]) -> int:
    """First position where an fp64 run chooses experts or blocks by less than the margin; len(tokens) if none."""
    positions = [len(tokens)]
    block_tokens = getattr(model.config, "indexer_compress_ratio", 1)
    num_queries = len(tokens) - block_tokens + 1
    num_selections = 0
    function, method = torch.topk, torch.Tensor.topk

    def topk(values: Tensor, k: int, *arguments: Any, **options: Any) -> Any:
        nonlocal num_selections
        if k < values.shape[-1]:
            best = function(values, k + 1, -1).values
            # A tie among zeros (relu) isn't near: it is exact in any precision, and settled by topk itself.
            is_near = (best[..., -2] - best[..., -1] < TIE_MARGIN) & (best[..., -2] > 0)
            if values.ndim == 2:
                positions.extend(is_near.nonzero().flatten().tolist())
            elif bool(is_near):
                positions.append(block_tokens - 1 + num_selections % num_queries)
        num_selections += values.ndim == 1
        return function(values, k, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch, "topk", topk)
        patch.setattr(torch.Tensor, "topk", topk)
        reference_logits(copy.deepcopy(model).double(), tokens)
    assert torch.Tensor.topk is method
    return min(positions)


def assert_agrees(logits: Tensor, reference: Tensor) -> None:
    error = (logits - reference).abs().amax(-1) / reference.abs().amax(-1)
    assert error.max() <= BOUND
    best = reference.topk(2).values
    is_clear = (best[:, 0] - best[:, 1]) / reference.abs().amax(-1) >= BOUND
    assert torch.equal(logits.argmax(-1)[is_clear], reference.argmax(-1)[is_clear])
