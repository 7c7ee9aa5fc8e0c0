"""Owns training on several GPUs: one process for each, the same weights everywhere, gradients averaged.

`torchrun --nproc-per-node N -- scripts/train_demo.py ... train ...` starts them; without it there is one. Without
`--` torchrun takes the script's `--start` for its own.
"""

import os
from dataclasses import dataclass

import numpy as np
import torch
from torch import distributed, nn


@dataclass(frozen=True)
class Replicas:
    rank: int = 0
    count: int = 1

    @classmethod
    def start(cls, device: str) -> "Replicas":
        count = int(os.environ.get("WORLD_SIZE", "1"))
        if count == 1:
            return cls()
        rank = int(os.environ["RANK"])
        if device == "cuda":
            torch.cuda.set_device(rank)
        # What the host agrees on must not wait for the GPU.
        distributed.init_process_group("cpu:gloo,cuda:nccl" if device == "cuda" else "gloo")
        return cls(rank, count)

    @property
    def is_first(self) -> bool:
        return self.rank == 0

    def share(self, chosen: np.ndarray) -> np.ndarray:
        """This process's part of what was chosen for a step: as many as every other's."""
        return chosen[self.rank :: self.count]

    def agreed(self, value: float) -> float:
        """The first process's value: clocks differ, and all must stop after the same step."""
        if self.count == 1:
            return value
        told = torch.tensor([value], dtype=torch.float64)
        distributed.broadcast(told, 0)
        return told.item()

    def average_gradients(self, model: nn.Module) -> None:
        if self.count == 1:
            return
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        distributed.all_reduce(flat)
        flat /= self.count
        parts = flat.split([gradient.numel() for gradient in gradients])
        torch._foreach_copy_(gradients, [part.view_as(to) for part, to in zip(parts, gradients, strict=True)])

    def end(self) -> None:
        if self.count > 1:
            distributed.destroy_process_group()
