"""Training in pieces: the next piece goes on where the last one stopped, with its optimiser and its schedule."""

import os
import socket
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from demo.export import read_trained
from demo.growth import with_attention
from demo.model.student import Student
from demo.packing import CLASS_SHIFT, HELD_OUT_CHATS, split_teacher
from demo.replicas import Replicas
from demo.training import Rows, Trainer, TrainingFiles, TrainingPlan
from safetensors.torch import save_file

from tests.support.tiny_student import TINY


@pytest.fixture
def rows() -> np.ndarray:
    return (np.random.default_rng(0).integers(1, 300, (8, 64)) | 2 << CLASS_SHIFT).astype(np.uint16)


def piece(seconds: float, rows: np.ndarray, state: Path) -> tuple[Trainer, dict]:
    torch.manual_seed(1)
    plan = TrainingPlan(seconds, span=60.0, tokens_per_step=256, indexer_rows=2)
    trainer = Trainer(Student(TINY).train(), plan, "cpu")
    np.save(state.with_suffix(".npy"), rows)
    source = Rows(state.with_suffix(".npy"))
    source.renew()
    trainer.train(source, time.time(), TrainingFiles(state, state, state.with_suffix(".safetensors")))
    return trainer, torch.load(state, weights_only=True)


@pytest.mark.long
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


def test_training_ends_by_the_clock_whatever_time_its_piece_has(tmp_path: Path, rows: np.ndarray) -> None:
    torch.manual_seed(1)
    ends = time.time() + 2.0
    plan = TrainingPlan(600.0, ends=ends, tokens_per_step=256, budget=64, budget_after=0.2)
    trainer = Trainer(Student(TINY).train(), plan, "cpu")
    np.save(tmp_path / "rows.npy", rows)
    source = Rows(tmp_path / "rows.npy")
    source.renew()
    files = TrainingFiles(tmp_path / "none.pt", tmp_path / "state.pt", tmp_path / "weights.safetensors")
    trainer.train(source, time.time(), files)
    assert ends <= time.time() < ends + 60
    assert all(attention.budget == 64 for attention in trainer.model.attentions)
    trained = torch.load(tmp_path / "state.pt", weights_only=True)["progress"]["trained_s"]
    assert trained <= 60


@pytest.mark.parametrize(("budget_after", "first"), [(0.0, 64), (0.5, None)])
def test_a_budget_holds_from_its_share_of_the_span_on(budget_after: float, first: int | None) -> None:
    plan = TrainingPlan(60.0, tokens_per_step=256, budget=64, budget_after=budget_after)
    trainer = Trainer(Student(TINY).train(), plan, "cpu")
    for progress, budget in ((0.0, first), (0.49, first), (0.5, 64), (1.0, 64)):
        trainer.choose_budget(progress)
        assert [attention.budget for attention in trainer.model.attentions] == [budget] * len(trainer.model.attentions)


@torch.no_grad()
def test_a_grown_model_keeps_all_but_the_exchanged_layer() -> None:
    torch.manual_seed(2)
    model = Student(TINY)
    grown = with_attention(model, (2,))
    assert grown.arch.layer_types == ("linear_attention", "linear_attention", "full_attention", "full_attention")
    exchanged = "model.layers.2.linear_attn."
    kept = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(exchanged)}
    assert all(torch.equal(tensor, grown.state_dict()[name]) for name, tensor in kept.items())
    model.model.layers[2].linear_attn.out_proj.weight.zero_()
    tokens = torch.randint(4, 300, (1, 48))
    torch.testing.assert_close(grown.logits(tokens), model.logits(tokens))


def test_what_was_trained_is_read_with_its_own_layers(tmp_path: Path) -> None:
    grown = with_attention(Student(TINY), (0,))
    state = {name: tensor for name, tensor in grown.state_dict().items() if name != "lm_head.weight"}
    path = tmp_path / "trained.safetensors"
    save_file(state, path, metadata={"layer_types": " ".join(grown.arch.layer_types)})
    assert read_trained(path, TINY).arch == grown.arch
    del state["model.layers.0.self_attn.q_proj.weight"]
    save_file(state, path, metadata={"layer_types": " ".join(grown.arch.layer_types)})
    with pytest.raises(SystemExit, match=r"self_attn\.q_proj"):
        read_trained(path, TINY)


def test_the_layer_with_the_ngram_embedding_stays_a_delta_net() -> None:
    with pytest.raises(SystemExit, match="n-gram"):
        with_attention(Student(TINY), (1,))


def test_rows_that_are_exchanged_are_read_again(tmp_path: Path, rows: np.ndarray) -> None:
    source = Rows(tmp_path / "rows.npy")
    np.save(source.path, rows[:2])
    source.renew()
    assert len(source.rows) == 2
    np.save(tmp_path / "more.npy", rows)
    (tmp_path / "more.npy").rename(source.path)
    os.utime(source.path, (1, 1))  # at another time than the first, however coarse the file system's clock
    source.renew()
    assert len(source.rows) == len(rows)


def test_a_snapshot_is_read_like_what_was_trained(tmp_path: Path) -> None:
    files = TrainingFiles(tmp_path / "a.pt", tmp_path / "a.pt", tmp_path / "trained.safetensors")
    model = with_attention(Student(TINY), (2,))
    files.snapshot(model)
    read = read_trained(files.weights, TINY)
    assert read.arch == model.arch
    assert all(torch.equal(tensor, read.state_dict()[name]) for name, tensor in model.state_dict().items())
    assert [path.name for path in tmp_path.iterdir()] == ["trained.safetensors"]


def one_replica(rank: int, folder: Path, port: int) -> None:
    """A process of two; its own clock gives the second five minutes more. Keeps its weights."""
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    replicas = Replicas.start("cpu")
    torch.set_num_threads(1)
    torch.manual_seed(1)
    plan = TrainingPlan(15.0 + 300 * rank, tokens_per_step=256, indexer_rows=2)
    trainer = Trainer(Student(TINY).train(), plan, "cpu", replicas)
    source = Rows(folder / "rows.npy")
    source.renew()
    files = TrainingFiles(folder / "none.pt", folder / f"{rank}.pt", folder / f"{rank}.safetensors")
    trainer.train(source, time.time(), files)
    torch.save(trainer.model.state_dict(), folder / f"weights-{rank}.pt")
    replicas.end()


@pytest.mark.long
def test_two_processes_train_one_model(tmp_path: Path, rows: np.ndarray) -> None:
    np.save(tmp_path / "rows.npy", rows)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    torch.multiprocessing.spawn(one_replica, (tmp_path, port), nprocs=2)
    first, second = (torch.load(tmp_path / f"weights-{rank}.pt", weights_only=True) for rank in (0, 1))
    torch.manual_seed(1)
    untrained = Student(TINY).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert any(not torch.equal(first[name], untrained[name]) for name in first)
    assert torch.load(tmp_path / "0.pt", weights_only=True)["progress"]["step"] > 0
    assert not (tmp_path / "1.pt").exists(), "the first process alone keeps the state"


def test_a_steps_rows_are_shared_out() -> None:
    chosen = np.arange(8)
    assert np.array_equal(Replicas().share(chosen), chosen)
    shares = [Replicas(rank, 2).share(chosen) for rank in (0, 1)]
    assert sorted(np.concatenate(shares)) == list(chosen)
    assert len(shares[0]) == len(shares[1])


def test_a_share_of_the_mix_has_other_chats_of_the_teacher_with_every_seed() -> None:
    chats = [[(str(number), "")] for number in range(HELD_OUT_CHATS + 1000)]
    held_out, training = split_teacher(chats, 1)
    again, other = split_teacher(chats, 2)
    assert held_out == again == chats[:HELD_OUT_CHATS]
    assert sorted(training) == sorted(other) == sorted(chats[HELD_OUT_CHATS:])
    assert training[:100] != other[:100]
    assert split_teacher(chats, 1)[1] == training
