"""Whether a kernel gives a row the same bits alone and in a batch."""

from collections.abc import Callable

import torch
from torch import Tensor

Results = Tensor | tuple[Tensor, ...]


def assert_rows_stand_alone(run: Callable[[slice], Results], num_rows: int) -> None:
    """`run(rows)` computes the op on those rows of fixed inputs, from the same state each time.

    Every row must be the same, bit for bit, in the whole batch, alone, and behind the first row.
    """
    whole = _results(run(slice(0, num_rows)))
    for begin, end in [*((row, row + 1) for row in range(num_rows)), (1, num_rows)]:
        for together, apart in zip(whole, _results(run(slice(begin, end))), strict=True):
            assert torch.equal(_bits(together[begin:end]), _bits(apart)), f"rows {begin} to {end - 1}"


def poison_new_memory(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """Fresh memory holds numbers that no result has, so that a place nobody writes shows."""
    empty, empty_like = torch.empty, torch.empty_like

    def poisoned(tensor: Tensor) -> Tensor:
        return tensor.fill_(float("nan") if tensor.is_floating_point() else 77)

    monkeypatch.setattr(torch, "empty", lambda *args, **kwargs: poisoned(empty(*args, **kwargs)))
    monkeypatch.setattr(torch, "empty_like", lambda *args, **kwargs: poisoned(empty_like(*args, **kwargs)))


def _results(results: Results) -> tuple[Tensor, ...]:
    return results if isinstance(results, tuple) else (results,)


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)
