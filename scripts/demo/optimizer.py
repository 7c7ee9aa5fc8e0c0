"""Owns the optimiser: Muon for matrices and experts, AdamW for the rest."""

from typing import Any

import torch
from torch import Tensor, nn

MUON, ADAM, EMBEDDING, INDEXER = "muon", "adam", "embedding", "indexer"
LEARNING_RATES = {MUON: 0.02, ADAM: 3e-3, EMBEDDING: 4e-3, INDEXER: 2e-3}
MOMENTUM = 0.95
NOT_MUON = (".gate.weight", "shared_expert_gate", "block_inject", "in_proj_a", "in_proj_b", "conv1d")


def group_of(name: str, parameter: Tensor) -> str:
    if "indexer" in name:
        return INDEXER
    if "embed" in name or "lm_head" in name:
        return EMBEDDING
    is_matrix = parameter.ndim == 2 or (parameter.ndim == 3 and ".experts." in name)
    return MUON if is_matrix and not any(part in name for part in NOT_MUON) else ADAM


def orthogonalised(gradient: Tensor, steps: int = 5) -> Tensor:
    """Newton-Schulz iteration towards the nearest orthogonal matrix, batched over the first dimension."""
    is_tall = gradient.shape[-2] > gradient.shape[-1]
    x = gradient.bfloat16().mT if is_tall else gradient.bfloat16()
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        square = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(square, square, square, beta=-4.7750, alpha=2.0315), x, beta=3.4445)
    return x.mT if is_tall else x


class Muon:
    """Momentum, then an orthogonalised step; matrices of one shape are stacked."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.by_shape: dict[tuple[int, int], list[nn.Parameter]] = {}
        for parameter in parameters:
            self.by_shape.setdefault(tuple(parameter.shape[-2:]), []).append(parameter)
        self.momentum = {parameter: torch.zeros_like(parameter) for parameter in parameters}

    @torch.no_grad()
    def step(self, learning_rate: float) -> None:
        for (rows, columns), parameters in self.by_shape.items():
            gradients = [parameter.grad for parameter in parameters]
            buffers = [self.momentum[parameter] for parameter in parameters]
            torch._foreach_lerp_(buffers, gradients, 1 - MOMENTUM)
            ahead = torch._foreach_lerp(gradients, buffers, MOMENTUM)
            updates = orthogonalised(torch.cat([update.reshape(-1, rows, columns) for update in ahead]))
            scale = learning_rate * max(1.0, rows / columns) ** 0.5
            sizes = [parameter.numel() // (rows * columns) for parameter in parameters]
            for parameter, update in zip(parameters, updates.split(sizes), strict=True):
                parameter.add_(update.reshape(parameter.shape).to(parameter.dtype), alpha=-scale)
                parameter.grad = None


class Optimizer:
    def __init__(self, model: nn.Module) -> None:
        groups: dict[str, list[nn.Parameter]] = {name: [] for name in LEARNING_RATES}
        for name, parameter in model.named_parameters():
            groups[group_of(name, parameter)].append(parameter)
        self.muon = Muon(groups.pop(MUON))
        self.adam = torch.optim.AdamW(
            [{"params": parameters, "name": name} for name, parameters in groups.items()],
            betas=(0.9, 0.95),
            eps=1e-10,
            weight_decay=0.0,
            fused=True,
        )

    def state_dict(self) -> dict[str, Any]:
        return {"adam": self.adam.state_dict(), "momentum": list(self.muon.momentum.values())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.adam.load_state_dict(state["adam"])
        for buffer, saved in zip(self.muon.momentum.values(), state["momentum"], strict=True):
            buffer.copy_(saved)

    def step(self, factor: float) -> None:
        for group in self.adam.param_groups:
            group["lr"] = LEARNING_RATES[group["name"]] * factor
        self.adam.step()
        self.muon.step(LEARNING_RATES[MUON] * factor)
        self.adam.zero_grad(set_to_none=True)
