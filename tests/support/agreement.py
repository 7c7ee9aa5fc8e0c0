"""When logits of the runtime count as those of transformers: per position max|delta| / max|reference| <= 1e-4 and
equal argmax.

Where a router or an indexer chooses by less than 1e-5 in an fp64 run, a near-tie, both choices are right, and whatever
follows in the text hangs on them. The checks of a `Reference` compare the positions before the first near-tie;
`excluded_positions` compares all, and lists the near-ties and what differs after them. fp32 results of transformers are
themselves off by up to 1e-3 where a delta net's read-out nearly vanishes and its norm blows it up, so what counts is
the fp64 run, which no rounding of either side reaches.
"""

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from tests.support.tiny_models import random_tokens, reference_logits

BOUND = 1e-4
TIE_MARGIN = 1e-5
MAX_DRAWS = 8


class InDouble(TorchFunctionMode):
    """Whatever a model computes in fp32 by name (norms, softmax, the delta rule) is computed in fp64."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        def widened(value: Any) -> Any:
            return torch.float64 if value is torch.float32 else value

        function = torch.Tensor.double if function is torch.Tensor.float else function
        return function(*map(widened, args), **{name: widened(value) for name, value in (kwargs or {}).items()})


@dataclass(frozen=True)
class Reference:
    """transformers' logits [T, vocab] of one text, in fp32 and fp64, and the positions of near-ties, in order."""

    tokens: list[int]
    logits: Tensor
    exact: Tensor
    near_ties: tuple[int, ...]

    @property
    def first_near_tie(self) -> int:
        """len of the text if there is none."""
        return min(self.near_ties, default=len(self.tokens))

    def until(self, num_tokens: int) -> "Reference":
        """Of the text's first tokens."""
        near_ties = tuple(position for position in self.near_ties if position < num_tokens)
        return Reference(self.tokens[:num_tokens], self.logits[:num_tokens], self.exact[:num_tokens], near_ties)


def reference_of(model: Any, tokens: list[int]) -> Reference:
    """Both runs of a model over a text."""
    exact, near_ties = _exact_run(model, tokens)
    return Reference(tokens, reference_logits(model, tokens), exact, near_ties)


def clear_text(model: Any, num_tokens: int) -> list[int]:
    """The first of a few random texts without near-tie."""
    texts = (random_tokens(model.config, num_tokens, seed) for seed in range(MAX_DRAWS))
    return next(text for text in texts if not _exact_run(model, text)[1])


@torch.no_grad()
def _exact_run(model: Any, tokens: list[int]) -> tuple[Tensor, tuple[int, ...]]:
    """fp64 logits, and the positions that choose experts or blocks by less than the margin in some layer."""
    positions: set[int] = set()
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
                positions.update(is_near.nonzero().flatten().tolist())
            elif bool(is_near):
                positions.add(block_tokens - 1 + num_selections % num_queries)
        num_selections += values.ndim == 1
        return function(values, k, *arguments, **options)

    wide_model = copy.deepcopy(model).double()
    with pytest.MonkeyPatch.context() as patch, InDouble():
        patch.setattr(torch, "topk", topk)
        patch.setattr(torch.Tensor, "topk", topk)
        logits = wide_model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0]
    assert torch.Tensor.topk is method
    assert logits.dtype == torch.float64
    return logits, tuple(sorted(positions))


def assert_is_exact(logits: Tensor, reference: Reference) -> None:
    """Within the bound of transformers' fp64 run."""
    compared = slice(reference.first_near_tie)
    assert_agrees(logits[compared], reference.exact[compared])


def assert_agrees_with_fp32(logits: Tensor, reference: Reference) -> None:
    """Within the bound of transformers' fp32 run, wherever that is itself within it."""
    compared = slice(reference.first_near_tie)
    is_sound = relative_error(reference.logits, reference.exact)[compared] <= BOUND
    assert_agrees(logits[compared][is_sound], reference.logits[compared][is_sound])


def excluded_positions(logits: Tensor, reference: Reference) -> list[int]:
    """The near-ties, and what is beyond the bound of the fp64 run after the first of them; before it nothing may be."""
    assert_is_exact(logits, reference)
    differing = (~_is_close(logits, reference.exact)).nonzero().flatten().tolist()
    return sorted({*reference.near_ties, *differing})


def assert_agrees(logits: Tensor, reference: Tensor) -> None:
    """Every position within the bound, and the same argmax unless its margin is below the bound."""
    assert relative_error(logits, reference).max() <= BOUND
    assert torch.all(_is_close(logits, reference))


def _is_close(logits: Tensor, reference: Tensor) -> Tensor:
    """Of every position, whether it agrees."""
    best = reference.topk(2).values
    is_clear = (best[:, 0] - best[:, 1]) / reference.abs().amax(-1) >= BOUND
    is_same = logits.argmax(-1) == reference.argmax(-1)
    return (relative_error(logits, reference) <= BOUND) & (is_same | ~is_clear)


def relative_error(logits: Tensor, reference: Tensor) -> Tensor:
    """max|delta| / max|reference| of every position."""
    return (logits - reference).abs().amax(-1) / reference.abs().amax(-1)
