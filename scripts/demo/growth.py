"""Owns the growth of a trained model: delta nets of some layers give way to sparse attention, all else is kept."""

from dataclasses import replace

import torch

from demo.model.student import Student


@torch.no_grad()
def with_attention(model: Student, layers: tuple[int, ...]) -> Student:
    """A model with attention in these layers. What is new there starts as zero output; every other weight is taken."""
    if taken := [layer for layer in layers if layer + 1 in model.arch.ple_layer_ids]:
        raise SystemExit(f"layer {taken[0]} adds the n-gram embedding and must stay a delta net")
    kinds = tuple("full_attention" if i in layers else kind for i, kind in enumerate(model.arch.layer_types))
    grown = Student(replace(model.arch, layer_types=kinds))
    fresh = grown.state_dict()
    kept = {name: tensor for name, tensor in model.state_dict().items() if name in fresh}
    grown.load_state_dict({**fresh, **kept})
    for layer in layers:
        if model.arch.layer_types[layer] != "full_attention":
            grown.model.layers[layer].self_attn.o_proj.weight.zero_()
    return grown
