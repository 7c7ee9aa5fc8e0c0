"""Every knob of the engine and of one request, typed, each with its why. Complete when built; nothing writes later."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from runtime.errors import UsageError

PolicyName = Literal["lru", "rule"]
DeviceName = Literal["auto", "cpu", "cuda"]
DtypeName = Literal["auto", "fp32"]
DenseName = Literal["auto", "bf16", "fp8"]

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_UNITS |= {"k": 2**10, "m": 2**20, "g": 2**30}


def parse_size(text: str) -> int:
    """Bytes of '16GiB', '800 MB', '4096'. Raises UsageError naming the text."""
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([a-zA-Z]*)\s*", text)
    if match is None or match[2].lower() not in _UNITS:
        raise UsageError(f"'{text}' is not a size; write it like 16GiB, 800MiB or 4096")
    return int(float(match[1]) * _UNITS[match[2].lower()])


@dataclass(frozen=True)
class EngineOptions:
    """How one model is loaded. None means: let the budget plan decide."""

    model_path: Path
    """Folder of the checkpoint."""
    device: DeviceName = "auto"
    dtype: DtypeName = "auto"
    """fp32 asks for the check mode, slow and exact: on a CPU, which computes in fp32 anyway, it means fp64 for residual
    streams, hyper-connections and delta nets."""
    dense: DenseName = "auto"
    policy: PolicyName = "rule"
    overlap: bool = True
    steps_ahead: bool = True
    """On a GPU a decode step is launched before the last one's tokens are handled; off, one follows the other."""
    vram_bytes: int | None = None
    """Limit of what the engine may hold on the device; on CPU it stands in for VRAM so that slots are scarce."""
    ram_bytes: int | None = None
    """Plan as if the machine had this much main memory; None: what is free."""
    cache_dir: Path | None = None
    """Where what can be made again may be kept: a record file, which experts had slots. None: nothing is kept."""
    starts_warm: bool = True
    """Bring back the experts that had slots at the last start, and keep those that have them now; needs `cache_dir`."""
    num_slots: int | None = None
    """Exact number of expert slots, instead of what fits."""
    context_tokens: int | None = None
    """Longest sequence; default is the model's maximum or what fits."""
    chunk_tokens: int = 256
    """Tokens of one prefill step: cancelling waits for at most one."""
    num_threads: int | None = None
    """CPU threads of torch; default is the number of physical cores this process may use."""
    kv: Literal["device", "host"] = "device"
    side_call_share: float = 0.30
    """Most of the step time that side calls may take while a chat runs; without a chat they have all of it."""

    def __post_init__(self) -> None:
        if not 0.0 < self.side_call_share < 1.0:
            raise UsageError(f"side-call-share must be between 0 and 1, not {self.side_call_share}")


@dataclass(frozen=True)
class SamplingOptions:
    """How tokens are chosen. Temperature 0 is greedy; the same seed gives the same text."""

    temperature: float = 0.0
    top_k: int = 0
    """0 keeps all."""
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    repetition_penalty: float = 1.0
    """Both penalties look at generated tokens only."""
    seed: int | None = None
    max_tokens: int | None = None
    """None: up to the end of the context."""
    stop: tuple[str, ...] = ()
    """Texts that end the answer; they are not part of it."""

    def __post_init__(self) -> None:
        limits = {
            "temperature": (0.0 <= self.temperature <= 10.0, "between 0 and 10"),
            "top-k": (self.top_k >= 0, "0 or more"),
            "top-p": (0.0 < self.top_p <= 1.0, "above 0 and at most 1"),
            "min-p": (0.0 <= self.min_p <= 1.0, "between 0 and 1"),
            "presence-penalty": (-2.0 <= self.presence_penalty <= 2.0, "between -2 and 2"),
            "repetition-penalty": (0.0 < self.repetition_penalty <= 10.0, "above 0 and at most 10"),
            "max-tokens": (self.max_tokens is None or self.max_tokens >= 1, "1 or more"),
        }
        for name, (is_legal, range_text) in limits.items():
            if not is_legal:
                raise UsageError(f"{name} must be {range_text}")
