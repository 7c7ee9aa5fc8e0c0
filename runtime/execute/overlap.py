"""Whether the overlap decode path runs, or why it declines. A pure decision: no device is touched here."""

from dataclasses import dataclass
from typing import Literal

OverlapLevel = Literal["off", "shared", "resident"]
LEVELS: tuple[OverlapLevel, ...] = ("off", "shared", "resident")
"""`off` is the serial sequence; `shared` has the shared expert on a stream of its own; `resident` computes the routed
experts while missing ones are copied as well, in the copy's launch: it needs no second branch, and no wait after it."""


@dataclass(frozen=True)
class OverlapDecision:
    """`level` is what runs; `reason` says in words for a person why it is off, and is empty when it runs."""

    level: OverlapLevel
    reason: str = ""


def applies(
    is_requested: bool,
    device: str,
    is_decode: bool,
    num_gpus: int,
    experts_on_gpu: bool,
    experts_in_memory: bool = True,
) -> OverlapDecision:
    """Overlap runs the shared expert beside the routed ones: decode, on one CUDA GPU that holds the expert slots."""
    if not is_requested:
        return OverlapDecision("off", "switched off in the settings")
    if device != "cuda":
        return OverlapDecision("off", "the overlap path needs a CUDA GPU; decode runs serially on the CPU")
    if not is_decode:
        return OverlapDecision("off", "the overlap path is for decode; prefill runs serially")
    if num_gpus != 1:
        return OverlapDecision("off", f"the overlap path needs exactly one GPU; this engine uses {num_gpus}")
    if not experts_on_gpu:
        return OverlapDecision("off", "the overlap path needs the expert slots on the GPU")
    if not experts_in_memory:
        return OverlapDecision("off", "experts are read from the disk, for which the host waits in every layer")
    return OverlapDecision("shared")
