"""Owns the train stage: a schedule by the clock, packed rows, the indexer's own loss."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from demo.model.student import Student
from demo.optimizer import Optimizer
from demo.packing import CLASS_SHIFT, ID_MASK, LOSS_WEIGHTS
from demo.replicas import Replicas

BALANCE_WEIGHT = 0.01
WARM_UP_STEPS = 60
FLAT_SHARE = 0.4
LAST_FACTOR = 0.02
LOOKED_AT = 50  # steps between two looks at the rows' file and the snapshot's clock


@dataclass(frozen=True)
class TrainingPlan:
    seconds: float  # of this piece, from the start of the stage, set-up included
    span: float | None = None  # seconds of training over all pieces; None: this piece is the whole
    ends: float | None = None  # or the time when the last piece ends, whenever the first one begins
    tokens_per_step: int = 65536  # of all GPUs together
    peak: float = 1.0  # factor on all learning rates
    budget: int | None = None  # sparse selection while training; None is dense
    budget_after: float = 0.0  # share of the span that is trained dense before the budget holds
    indexer_rows: int = 4  # of all GPUs together
    seed: int = 1
    snapshot_s: float = 300.0  # seconds of training between two snapshots


@dataclass
class Progress:
    """What has been done in this piece and those before it."""

    step: int = 0
    trained_s: float = 0.0


def language_loss(logits: Tensor, tokens: Tensor, weights: Tensor) -> tuple[Tensor, Tensor]:
    target, loss_class = (tokens & ID_MASK)[:, 1:].reshape(-1), (tokens >> CLASS_SHIFT)[:, 1:].reshape(-1)
    each = functional.cross_entropy(logits.float().flatten(0, 1), target, reduction="none")
    weight, answer = weights[loss_class], (loss_class >= 2).float()
    return (each * weight).sum() / weight.sum().clamp_min(1), (each * answer).sum() / answer.sum().clamp_min(1)


class Trainer:
    def __init__(self, model: Student, plan: TrainingPlan, device: str, replicas: Replicas | None = None) -> None:
        self.model, self.plan, self.device = model.to(device), plan, device
        self.replicas = replicas or Replicas()
        self.weights = torch.tensor(LOSS_WEIGHTS, device=device)
        self.loss = language_loss
        if device == "cuda":
            torch.set_float32_matmul_precision("high")
            torch._dynamo.config.recompile_limit = 64
            self.model.set_blockwise()
            for layer in self.model.model.layers:
                layer.compile(fullgraph=True, dynamic=False)
            self.loss = torch.compile(language_loss, dynamic=False)

    def forward(self, tokens: Tensor):
        """-> loss to minimise, answer loss, indexer losses, expert load."""
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            hidden = self.model.hidden(tokens & ID_MASK, self.plan.indexer_rows // self.replicas.count)
            logits = self.model.lm_head(hidden.states[:, :-1])
        learned, answers = self.loss(logits, tokens, self.weights)
        total = learned + BALANCE_WEIGHT * hidden.balance_loss + sum(hidden.indexer_losses)
        return total, answers, hidden.indexer_losses, hidden.expert_load

    def to_device(self, rows: np.ndarray) -> Tensor:
        return torch.from_numpy(rows.astype(np.int64)).to(self.device, non_blocking=True)

    def rows_per_step(self, length: int) -> int:
        """Of all GPUs together."""
        return self.plan.tokens_per_step // length

    def warm_up(self, length: int) -> None:
        """Compiles forward and backward on rows of zeros, with the budget and, where it comes late, without."""
        rows = np.zeros((self.rows_per_step(length) // self.replicas.count, length), dtype=np.uint16)
        rows[:, 1:] = 3 << CLASS_SHIFT | 17
        for progress in {0.0, self.plan.budget_after}:
            self.choose_budget(progress)
            self.forward(self.to_device(rows))[0].backward()
            self.model.zero_grad(set_to_none=True)
        if self.device == "cuda":
            torch.cuda.empty_cache()  # a piece may have to wait long for the one before it

    def choose_budget(self, progress: float) -> None:
        self.model.set_budget(self.plan.budget if progress >= self.plan.budget_after else None)

    def factor(self, step: int, progress: float) -> float:
        decay = 1.0 if progress < FLAT_SHARE else max(LAST_FACTOR, (1 - progress) / (1 - FLAT_SHARE))
        return self.plan.peak * min(1.0, (step + 1) / WARM_UP_STEPS) * decay

    def train(self, source: "Rows", began: float, files: "TrainingFiles") -> list[dict[str, float]]:
        """Goes on from the state where there is one, and leaves it there."""
        optimizer, history = Optimizer(self.model), []
        done = self.resume(files.resumed, optimizer)
        batch = self.rows_per_step(source.rows.shape[1])
        snapshot_at = done.trained_s + self.plan.snapshot_s
        started = self.replicas.agreed(time.time() - done.trained_s)
        left = self.replicas.agreed(self.plan.seconds - (time.time() - began))
        span = self.plan.span or done.trained_s + left
        if self.plan.ends:
            span = self.plan.ends - started
        until = min(span, done.trained_s + left)
        while (trained := self.replicas.agreed(time.time() - started)) < until:
            if done.step % LOOKED_AT == 0:
                source.renew()
                if trained > snapshot_at and self.replicas.is_first:
                    files.snapshot(self.model)
                    snapshot_at = trained + self.plan.snapshot_s
            rows = source.rows
            chosen = batch_indices(len(rows), batch, done.step, self.plan.seed)
            self.choose_budget(trained / span)
            loss, answers, indexer, load = self.forward(self.to_device(rows[self.replicas.share(chosen)]))
            loss.backward()
            self.replicas.average_gradients(self.model)
            optimizer.step(self.factor(done.step, trained / span))
            done.step += 1
            if self.replicas.is_first and (done.step % 100 == 0 or done.step in (10, 30)):
                seconds = time.time() - started
                history.append(self.log(done.step, done.step * batch / len(rows), answers, indexer, load, seconds))
        done.trained_s = time.time() - started
        if not self.replicas.is_first:
            return history
        saved = {"progress": vars(done), "model": self.model.state_dict(), "optimizer": optimizer.state_dict()}
        files.keep(saved)
        return history

    def resume(self, state: Path, optimizer: Optimizer) -> Progress:
        if not state.exists():
            return Progress()
        saved = torch.load(state, map_location=self.device, weights_only=True)
        self.model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        return Progress(**saved["progress"])

    def log(self, step: int, epoch: float, answers: Tensor, indexer: list[Tensor], load: Tensor, seconds: float):
        entry = {
            "step": step,
            "epoch": round(epoch, 2),
            "seconds": round(seconds, 1),
            "answer_loss": round(answers.item(), 4),
            "indexer_loss": [round(loss.item(), 3) for loss in indexer],
            "busiest": round(load.max().item(), 2),
            "tokens_per_second": round(step * self.plan.tokens_per_step / seconds),
        }
        print(json.dumps(entry), flush=True)
        return entry

    @torch.no_grad()
    def validate(self, validation: dict[str, np.ndarray]) -> dict[str, float]:
        results = {}
        for kind, rows in validation.items():
            num_rows = self.rows_per_step(rows.shape[1]) // self.replicas.count
            full = np.resize(rows, (num_rows, rows.shape[1]))
            with torch.enable_grad():  # the compiled layers were traced with gradients on
                results[kind] = round(self.forward(self.to_device(full))[1].item(), 4)
        return results


@dataclass
class Rows:
    """The packed rows in a file, which a later pack stage may exchange for more."""

    path: Path
    written: float = 0.0
    rows: np.ndarray = field(default_factory=lambda: np.zeros((0, 0), np.uint16))

    def renew(self) -> None:
        written = self.path.stat().st_mtime
        if written != self.written:
            self.rows, self.written = np.load(self.path), written
            print(f"{len(self.rows)} rows", flush=True)


@dataclass(frozen=True)
class TrainingFiles:
    """`resumed` is the state to go on from, `state` where this piece leaves its own, `weights` its snapshots."""

    resumed: Path
    state: Path
    weights: Path

    def snapshot(self, model: Student) -> None:
        state = {name: tensor.detach().cpu().contiguous() for name, tensor in model.state_dict().items()}
        state.pop("lm_head.weight")
        kinds = {"layer_types": " ".join(model.arch.layer_types)}
        save_file(state, self.weights.with_suffix(".part"), metadata=kinds)
        self.weights.with_suffix(".part").rename(self.weights)

    def keep(self, saved: dict[str, Any]) -> None:
        torch.save(saved, self.state.with_suffix(".part"))
        self.state.with_suffix(".part").rename(self.state)


def batch_indices(num_rows: int, batch: int, step: int, seed: int) -> np.ndarray:
    per_epoch = max(1, num_rows // batch)
    order = np.random.default_rng(seed + step // per_epoch).permutation(num_rows)
    first = step % per_epoch * batch
    return np.sort(order[first : first + batch])


def wait_for(path: Path) -> None:
    while not path.exists():
        time.sleep(0.5)


def run_train(
    model: Student, plan: TrainingPlan, packed: Path, length: int, device: str, files: TrainingFiles, began: float,
    replicas: Replicas,
) -> dict[str, Any] | None:  # fmt: skip
    """Compiles while the stages before it may still be writing, trains a piece, validates -> figures, of the first
    process alone.

    The plan's seconds count from `began`.
    """
    trainer = Trainer(model, plan, device, replicas)
    trainer.warm_up(length)
    print(f"compiled after {time.time() - began:.0f} s", flush=True)
    wait_for(packed / "rows.npy")
    if files.resumed != files.state:
        wait_for(files.resumed)
    rows, validation = Rows(packed / "rows.npy"), dict(np.load(packed / "validation.npz"))
    rows.renew()
    print(f"begins after {time.time() - began:.0f} s", flush=True)
    history = trainer.train(rows, began, files)
    if not replicas.is_first:
        return None
    files.snapshot(model)
    losses = trainer.validate(validation)
    print("validation", json.dumps(losses), flush=True)
    return {"history": history, "validation": losses}
