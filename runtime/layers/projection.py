"""A dense weight as a product takes it: plain, or e4m3 with a scale per output and some outputs left exact."""

from typing import NamedTuple

from torch import Tensor


class Projection(NamedTuple):
    """What comes after x in `ops.linear`, in its order: `ops.linear(x, *projection)`."""

    weight: Tensor
    """[O, K] plain, or e4m3 bytes uint8."""
    scale: Tensor | None = None
    """fp32 [O] of e4m3 bytes."""
    exact: Tensor | None = None
    """[P, K] plain: outputs after the others, of weights that are never quantised."""

    @property
    def width(self) -> int:
        """Inputs K."""
        return self.weight.shape[1]
