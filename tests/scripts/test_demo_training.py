"""Training in pieces: the next piece goes on where the last one stopped, with its optimiser and its schedule."""

import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from demo.architecture import Architecture
from demo.model.student import Student
from demo.training import Trainer, TrainingPlan

TINY = replace(
    Architecture(),
    vocab_size=300,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    head_dim=32,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    moe_intermediate_size=16,
    shared_expert_intermediate_size=16,
    num_experts=4,
    hc_lowrank=8,
    ple_embed_dim=32,
    ngram_vocab_size_base=300,
    indexer_n_heads=2,
    indexer_head_dim=16,
    layer_types=("linear_attention", "full_attention"),
    rope_parameters={**Architecture().rope_parameters, "mrope_section": [3, 3, 2]},
)


@pytest.fixture
def rows() -> np.ndarray:
    return (np.random.default_rng(0).integers(1, 300, (8, 64)) | 2 << 14).astype(np.uint16)


def piece(seconds: float, rows: np.ndarray, state: Path) -> tuple[Trainer, dict]:
    torch.manual_seed(1)
    plan = TrainingPlan(seconds, span=60.0, tokens_per_step=256, indexer_rows=2)
    trainer = Trainer(Student(TINY).train(), plan, "cpu")
    trainer.train(rows, time.time(), state)
    return trainer, torch.load(state, weights_only=True)


def test_a_second_piece_goes_on_from_the_first(tmp_path: Path, rows: np.ndarray) -> None:
    state = tmp_path / "state.pt"
    _, first = piece(8.0, rows, state)
    assert first["progress"]["step"] > 0
    nothing_more, unchanged = piece(0.0, rows, state)
    for name, parameter in nothing_more.model.state_dict().items():
        assert torch.equal(parameter, first["model"][name])
    assert unchanged["progress"]["step"] == first["progress"]["step"]
    _, second = piece(8.0, rows, state)
    assert second["progress"]["step"] > first["progress"]["step"]
    assert second["progress"]["trained_s"] > first["progress"]["trained_s"]
    momentum = zip(first["optimizer"]["momentum"], unchanged["optimizer"]["momentum"], strict=True)
    assert all(torch.equal(before, after) and before.any() for before, after in momentum)
