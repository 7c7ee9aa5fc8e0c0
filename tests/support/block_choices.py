"""Which blocks of keys an engine's sparse attention chooses as it reads a prompt, and the same choices for another.

Scores of two devices differ by their round-off, so where two blocks are nearly as good either may be taken, and what
follows differs by far more than round-off. With the same choices nothing of that is left.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor

from runtime.kernels.ops import Ops
from runtime.layers.attention import Attention
from tests.support.engine_driver import EngineDriver

NEAR_TIE = 1e-4
"""Of a row's best score: how much worse the blocks that the other engine chose may be than those left out for them."""


class BlockChoices:
    """The selections of one prompt, in the order they were made."""

    def __init__(self) -> None:
        self._selections: list[Tensor] = []
        self._num_followed = 0
        self.num_near_ties = 0
        """Rows in which the follower would have chosen otherwise."""
        self.largest_gap = 0.0
        """Of those, over the row's best score."""

    def recorded(self, driver: EngineDriver) -> AbstractContextManager[None]:
        """Keep what this engine chooses."""

        def select(ops: Ops, scores: Tensor, num_complete: Tensor, budget: int) -> Tensor:
            blocks: Tensor = ops.select_blocks(scores, num_complete, budget)
            self._selections.append(blocks.cpu())
            return blocks

        return _selecting(driver, select)

    def followed(self, driver: EngineDriver) -> AbstractContextManager[None]:
        """Have this engine choose what was recorded. It raises AssertionError where that is no near-tie for it."""

        def select(ops: Ops, scores: Tensor, num_complete: Tensor, budget: int) -> Tensor:
            wanted = self._selections[self._num_followed].to(scores.device)
            self._num_followed += 1
            self._compare(scores, ops.select_blocks(scores, num_complete, budget), wanted)
            return wanted

        return _selecting(driver, select)

    def check_integrity(self) -> None:
        """Raises AssertionError if the engines made different numbers of selections."""
        assert self._num_followed == len(self._selections), (self._num_followed, len(self._selections))

    def _compare(self, scores: Tensor, own: Tensor, wanted: Tensor) -> None:
        assert torch.equal(own.sum(-1), wanted.sum(-1))
        differs = (own != wanted).any(-1)
        if not differs.any():
            return
        scores, own, wanted = scores[differs], own[differs], wanted[differs]
        left_out = scores.masked_fill(~(own & ~wanted), float("-inf")).amax(-1)
        taken = scores.masked_fill(~(wanted & ~own), float("inf")).amin(-1)
        gap = float(((left_out - taken) / scores.amax(-1)).max())
        assert gap <= NEAR_TIE, f"a block was chosen that scores {gap} of the best score less than one left out"
        self.num_near_ties += int(differs.sum())
        self.largest_gap = max(self.largest_gap, gap)


@contextmanager
def _selecting(driver: EngineDriver, select: Callable[..., Tensor]) -> Iterator[None]:
    """`select` chooses for every indexer, given its ops first."""
    layers = driver.engine.model.forward._decoder.layers
    indexers = [layer.mixer._indexer for layer in layers if isinstance(layer.mixer, Attention)]
    with pytest.MonkeyPatch.context() as patch:
        for indexer in indexers:
            assert indexer is not None
            patch.setattr(indexer, "_ops", replace(indexer._ops, select_blocks=partial(select, indexer._ops)))
        yield
