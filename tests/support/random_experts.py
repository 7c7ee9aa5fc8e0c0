"""Random experts in every record format, as the checkpoint reader would hand them out, and their exact outputs."""

from dataclasses import dataclass

import torch
from torch import Tensor

from runtime.checkpoint.expert_source import ExpertTensors
from runtime.checkpoint.matrices import Fp8Matrix, Matrix, Nvfp4Matrix, PlainMatrix
from runtime.experts.routed import SlotExperts
from runtime.experts.store import PinnedStore
from runtime.kernels.torch_ops import fp8, nvfp4
from runtime.kernels.torch_ops.experts import ExpertCompute
from runtime.record import RecordLayout
from runtime.spec import (
    AttentionSpec,
    ExpertFormat,
    ModelSpec,
    MoeSpec,
    WeightFacts,
)

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32}


@dataclass
class RandomExperts:
    """An expert source: gate, up, down of (layer, expert) as fp32 weights and as stored tensors."""

    weights: dict[tuple[int, int], tuple[Tensor, Tensor, Tensor]]
    tensors: dict[tuple[int, int], ExpertTensors]

    def expert(self, layer: int, expert: int) -> ExpertTensors:
        return self.tensors[layer, expert]

    def announce(self, layer: int, expert: int) -> None:
        """Nothing is read from a disk."""

    def release_pages(self) -> None:
        """Nothing is mapped."""


@dataclass
class Experts:
    """A model's routed experts and how to put them into slots."""

    spec: ModelSpec
    layout: RecordLayout
    source: RandomExperts
    store: PinnedStore

    def in_slots(self, num_slots: int, policy: str = "rule", max_rows: int = 1, num_ring_slots: int = 3) -> SlotExperts:
        return SlotExperts.build(
            self.store,
            [ExpertCompute(self.layout)] * self.spec.num_layers,
            num_slots=num_slots,
            num_choices=self.spec.moe.num_experts_per_token,
            policy=policy,
            max_rows=max_rows,
            num_ring_slots=num_ring_slots,
        )

    def all_resident(self) -> SlotExperts:
        return self.in_slots(self.spec.num_layers * self.spec.moe.num_experts, max_rows=4)


def moe_spec(
    num_layers: int, num_experts: int, num_choices: int, hidden: int, intermediate: int, fmt: ExpertFormat
) -> ModelSpec:
    """A model of which only the routed experts matter."""
    layout = RecordLayout.build(hidden, intermediate, fmt)
    return ModelSpec(
        family="test",
        name="experts",
        vocab_size=32,
        hidden_size=hidden,
        num_layers=num_layers,
        layer_kinds=("full_attention",) * num_layers,
        rms_norm_eps=1e-6,
        attention=AttentionSpec(2, 1, 8, 4, 1e4, has_output_gate=True),
        indexer=None,
        delta_net=None,
        moe=MoeSpec(num_experts, num_choices, intermediate, intermediate, renormalises=True),
        hyper_connection=None,
        ngram=None,
        ties_embeddings=True,
        norm_adds_one=True,
        max_context_tokens=1024,
        eos_token_ids=(0,),
        weights=WeightFacts(fmt, layout.record_bytes, 1000, 0, 0),
    )


def _store_matrix(weight: Tensor, fmt: ExpertFormat, global_scale: Tensor | None) -> tuple[Matrix, Tensor]:
    if fmt == "fp8":
        bits, multipliers = fp8.quantise(weight)
        return Fp8Matrix(bits, multipliers), fp8.dequantise(bits, multipliers)
    if fmt != "nvfp4":
        values = weight.to(DTYPES[fmt])
        return PlainMatrix(values), values.float()
    codes, scales, scale = nvfp4.quantise(weight, global_scale)
    return Nvfp4Matrix(codes, scales, float(scale)), nvfp4.dequantise(codes, scales, scale)


def make_experts(
    fmt: ExpertFormat = "nvfp4",
    num_layers: int = 3,
    num_experts: int = 8,
    num_choices: int = 2,
    hidden: int = 48,
    intermediate: int = 16,
    seed: int = 0,
) -> Experts:
    """Gate and up have different global scales, as compressed-tensors checkpoints may."""
    generator = torch.Generator().manual_seed(seed)
    spec = moe_spec(num_layers, num_experts, num_choices, hidden, intermediate, fmt)
    weights, tensors = {}, {}
    for layer in range(num_layers):
        for expert in range(num_experts):
            shapes = ((intermediate, hidden), (intermediate, hidden), (hidden, intermediate))
            stored = [_store_matrix(torch.randn(shape, generator=generator) / 4, fmt, None) for shape in shapes]
            tensors[layer, expert] = ExpertTensors(*(matrix for matrix, _ in stored))
            weights[layer, expert] = tuple(weight for _, weight in stored)
    layout = RecordLayout.build(hidden, intermediate, fmt)
    source = RandomExperts(weights, tensors)
    return Experts(spec, layout, source, PinnedStore.fill(source, (layout,) * num_layers, num_experts))
