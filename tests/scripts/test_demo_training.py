"""Training in pieces: the next piece goes on where the last one stopped, with its optimiser and its schedule."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from demo.model.student import Student
from demo.training import Trainer, TrainingPlan

from tests.support.tiny_student import TINY


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
