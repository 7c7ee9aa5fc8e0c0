"""What this machine moves and computes per second: measured by a process of its own, and kept with a date.

Where nobody measured, typical rates stand in, and say so. Imports no torch.
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from runtime.errors import EngineError
from runtime.spec import ModelSpec

TIMEOUT_S = 60
FOLDER = "rates"
LAYER_BYTES_PER_THREAD = 8 << 20


@dataclass(frozen=True)
class MachineRates:
    """Bytes per second of what a decode step does, and the seconds of one unit of small work (`speed.UnitCosts`)."""

    dense_bytes_s: float
    """Matrix-vector products over dense weights."""
    expert_bytes_s: float
    """Expert records that are computed with."""
    copy_bytes_s: float
    """Records that are copied from main memory into slots."""
    unit_s: float
    origin: str
    """'measured here on ...' or what they are typical of."""
    disk_bytes_s: float = 2e9
    """Of records read from the disk; typical of a disk on PCIe."""


DENSE_SHARE, EXPERT_SHARE, COPY_SHARE = 0.95, 0.90, 0.90
"""Of a card's bandwidths, what decode's kernels reach beside the time of their launches, which is small work: of the
rate of a sum over its memory, of the same, and of a large copy to it."""
CARD_UNIT_S, UNIT_IN_ORDER_S = 1e-6, 2e-6
"""Where launches begin while the one before still runs (compute capability 9.0 and later), and where they don't."""


def card_rates(
    device_read_bytes_s: float, host_to_device_bytes_s: float, origin: str, begins_early: bool
) -> MachineRates:
    """The rates of a card with these bandwidths."""
    return MachineRates(
        dense_bytes_s=DENSE_SHARE * device_read_bytes_s,
        expert_bytes_s=EXPERT_SHARE * device_read_bytes_s,
        copy_bytes_s=COPY_SHARE * host_to_device_bytes_s,
        unit_s=CARD_UNIT_S if begins_early else UNIT_IN_ORDER_S,
        origin=origin,
    )


TYPICAL = {
    "cpu": MachineRates(9e9, 0.5e9, 8e9, 2.1e-6, "typical of one core, not measured here"),
    "cuda": card_rates(6e11, 2.5e10, "typical of a card with 600 GB/s on PCIe 4.0 x16, not measured here", False),
}
"""By device."""
_MOST_CPU_BYTES_S = 25e9
"""More cores read main memory no faster."""


def decode_threads(spec: ModelSpec, num_cores: int) -> int:
    """CPU threads of a decode step: small matrices are read faster than sleeping threads wake."""
    layer_bytes = 4 * spec.weights.dense_params // spec.num_layers
    return max(1, min(num_cores, layer_bytes // LAYER_BYTES_PER_THREAD))


@dataclass(frozen=True)
class RatesQuestion:
    """What is to be measured: rates depend on the width of the model and on the size of a record."""

    device: str
    hidden_size: int
    intermediate: int
    num_choices: int
    expert_format: str
    num_threads: int

    @classmethod
    def of(cls, spec: ModelSpec, device: str, num_cores: int) -> "RatesQuestion":
        """A card's bandwidths are the same for every model."""
        if device == "cuda":
            return cls(device, 0, 0, 0, "", 0)
        moe, num_threads = spec.moe, decode_threads(spec, num_cores)
        num_choices, expert_format = moe.num_experts_per_token, spec.weights.expert_format
        return cls(device, spec.hidden_size, moe.intermediate, num_choices, expert_format, num_threads)

    @property
    def file_name(self) -> str:
        return "-".join(str(value) for value in asdict(self).values()) + ".json"


def typical_rates(question: RatesQuestion) -> MachineRates:
    """Where nothing was measured; a CPU's for so many threads."""
    rates = TYPICAL[question.device]
    num_threads = question.num_threads
    if num_threads <= 1:
        return rates
    return replace(
        rates,
        dense_bytes_s=min(_MOST_CPU_BYTES_S, num_threads * rates.dense_bytes_s),
        expert_bytes_s=num_threads * rates.expert_bytes_s,
        origin=f"typical of {num_threads} cores, not measured here",
    )


def measure_rates(question: RatesQuestion, environment: Mapping[str, str]) -> MachineRates:
    """Start a process that measures; takes two seconds or so. Raises EngineError where it can't."""
    command = [sys.executable, "-P", "-m", "runtime.benches.machine_rates", json.dumps(asdict(question))]
    try:
        ended = subprocess.run(
            command, env=dict(environment), capture_output=True, text=True, timeout=TIMEOUT_S, check=True
        )
        return MachineRates(**json.loads(ended.stdout))
    except (OSError, subprocess.SubprocessError, ValueError, TypeError) as error:
        raise EngineError("This machine's speed can't be measured: see `hotslot doctor`.") from error


def known_rates(question: RatesQuestion, cache_dir: Path) -> MachineRates | None:
    """What was measured before; None where nothing usable was."""
    with suppress(OSError, ValueError, TypeError):
        rates = MachineRates(**json.loads((cache_dir / FOLDER / question.file_name).read_bytes()))
        if min(rates.dense_bytes_s, rates.expert_bytes_s, rates.copy_bytes_s, rates.unit_s) > 0:
            return rates
    return None


def keep_rates(question: RatesQuestion, rates: MachineRates, cache_dir: Path) -> None:
    """For the next time; a disk that refuses only means measuring again."""
    path = cache_dir / FOLDER / question.file_name
    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_suffix(".new")
        new.write_text(json.dumps(asdict(rates)), encoding="utf-8")
        os.replace(new, path)
