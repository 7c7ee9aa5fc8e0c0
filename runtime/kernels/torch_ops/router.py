"""Top-k routing (transformers' Qwen4ExpTextTopKRouter)."""

import torch
from torch import Tensor


def route(logits: Tensor, num_routed: int, renormalises: bool) -> tuple[Tensor, Tensor]:
    """Expert ids int64 [N, k] in falling order of logit, and weights fp32 [N, k].

    weights = softmax over all experts, taken at the ids and, with `renormalises`, divided by their sum (which is the
    softmax over the k logits). logits fp32 [N, E].
    """
    best = logits.topk(num_routed, dim=-1)
    if renormalises:
        return best.indices, torch.softmax(best.values, dim=-1)
    return best.indices, torch.softmax(logits, dim=-1).gather(-1, best.indices)


def combine_routes(rows: Tensor, weights: Tensor, shared: Tensor | None = None) -> Tensor:
    """sum_j weights[:, j] * rows[:, j] in router order, then plus `shared`. rows [N, k, H], weights [N, k], shared and
    result [N, H]."""
    total = rows[:, 0] * weights[:, 0:1]
    for route_index in range(1, rows.shape[1]):
        total.addcmul_(rows[:, route_index], weights[:, route_index : route_index + 1])
    return total if shared is None else total.add_(shared)
