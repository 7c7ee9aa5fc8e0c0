"""An engine over random weights of the flagship's structure at a small width, on a CPU or a GPU, the same for the same
size. Tokens are routed by a trace, by their position alone, so that no rounding changes which experts they have.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch

from runtime.benches.random_model import RandomModel, random_spec
from runtime.benches.reuse_routing import ReuseRouting, reuse_trace, routed_decoder
from runtime.benches.synthetic import TINY
from runtime.execute.placement import Placement
from runtime.options import EngineOptions
from tests.support.engine_driver import EngineDriver

Where = Literal["cpu", "cuda", "as on cuda"]
STRUCTURE = TINY | {
    "num_experts_per_tok": 10, "ple_layer_ids": [2], "max_position_embeddings": 16_384, "indexer_budget": 512,
    "vocab_size": 480, "eos_token_id": 479,
}  # fmt: skip
"""Three delta nets and a sparse attention in turn, hyper-connections, an n-gram layer, top-10 of many experts."""
_EXPONENT = 1.2


@dataclass(frozen=True)
class Size:
    """Of one engine; equal sizes have equal weights and routing."""

    num_layers: int = 4
    num_experts: int = 64
    num_slots: int = 120
    chunk_tokens: int = 64
    context_tokens: int = 1024


FULL = Size(num_layers=8, num_experts=512, num_slots=1650, chunk_tokens=1024, context_tokens=9000)
"""Slots for 4 experts in 10, as many as a 16 GB card has of the flagship's."""


def random_engine(where: Where, size: Size, **options: Any) -> EngineDriver:
    """In fp32 throughout."""
    spec = random_spec(STRUCTURE | {"num_experts": size.num_experts}, size.num_layers)
    device = torch.device("cuda" if where == "cuda" else "cpu")
    routing = ReuseRouting(reuse_trace(spec, 1000, _EXPONENT), 64, device, stride=0)
    # Drawn on the CPU, where the same seed gives the same numbers.
    model = RandomModel(spec, torch.device("cpu"), spec.num_layers, routed_decoder(routing))
    engine_options = EngineOptions(
        Path("random weights"),
        device="cuda" if where == "cuda" else "cpu",
        dtype="fp32" if where == "cuda" else "auto",
        num_slots=size.num_slots,
        chunk_tokens=size.chunk_tokens,
        context_tokens=size.context_tokens,
        **options,
    )
    placement = Placement.on_cpu_as_on_cuda("fp32") if where == "as on cuda" else None
    return EngineDriver(engine_options, placement, model.opened())
