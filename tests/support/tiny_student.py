"""The demo's architecture, small enough to train and to compare in a test."""

import sys
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

import torch
from demo.architecture import Architecture
from torch import Tensor

TINY = replace(
    Architecture(),
    vocab_size=300,
    hidden_size=64,
    num_hidden_layers=4,
    num_attention_heads=4,
    head_dim=32,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    moe_intermediate_size=32,
    shared_expert_intermediate_size=32,
    num_experts=8,
    hc_lowrank=16,
    ple_embed_dim=64,
    ngram_vocab_size_base=300,
    indexer_n_heads=16,  # with few heads many scores are exactly zero, and ties may be cut either way
    indexer_head_dim=16,
    indexer_budget=32,
    eos_token_id=3,
    bos_token_id=3,
    layer_types=("linear_attention", "linear_attention", "linear_attention", "full_attention"),
    rope_parameters={**Architecture().rope_parameters, "mrope_section": [3, 3, 2]},
)


def some_documents(rows: int, length: int, longest: int) -> Tensor:
    """[rows, length], each token's document: of 4 tokens up to `longest`, a multiple of the compress ratio."""
    generator = torch.Generator().manual_seed(7)
    starts = torch.zeros(rows, length, dtype=torch.bool)
    for row in starts:
        ends = (torch.randint(1, longest // 4 + 1, (length // 4,), generator=generator) * 4).cumsum(0)
        row[ends[ends < length]] = True
    return starts.cumsum(1)
