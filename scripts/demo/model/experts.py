"""Owns the routed experts, their router and the gated shared expert."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from demo.architecture import Architecture
from demo.model.glue import GatedMLP


class Dispatch(torch.autograd.Function):
    """Copies each token once per chosen expert, sorted by expert, without atomics in the backward pass."""

    @staticmethod
    def forward(ctx, x: Tensor, order: Tensor, inverse: Tensor, top_k: int) -> Tensor:
        ctx.save_for_backward(inverse)
        ctx.top_k = top_k
        return x[order // top_k]

    @staticmethod
    def backward(ctx, grad: Tensor):
        (inverse,) = ctx.saved_tensors
        summed = grad[inverse].view(-1, ctx.top_k, grad.shape[-1]).float().sum(1)
        return summed.to(grad.dtype), None, None, None


class Combine(torch.autograd.Function):
    """Weighted sum of the experts' outputs, back in token order."""

    @staticmethod
    def forward(ctx, y: Tensor, weights: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.save_for_backward(y, weights, order, inverse)
        rows = y[inverse].view(-1, weights.shape[1], y.shape[-1]).float()
        return (rows * weights[..., None]).sum(1).to(y.dtype)

    @staticmethod
    def backward(ctx, grad: Tensor):
        y, weights, order, inverse = ctx.saved_tensors
        top_k = weights.shape[1]
        spread = grad[order // top_k].float()
        grad_y = spread * weights.reshape(-1)[order][:, None]
        grad_weights = (spread * y.float()).sum(-1)[inverse].view(-1, top_k)
        return grad_y.to(y.dtype), grad_weights, None, None


class Experts(nn.Module):
    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.inner = arch.moe_intermediate_size
        self.gate_up_proj = nn.Parameter(torch.empty(arch.num_experts, 2 * self.inner, arch.hidden_size))
        self.down_proj = nn.Parameter(torch.empty(arch.num_experts, arch.hidden_size, self.inner))

    def forward(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        return self.grouped(x, chosen, weights) if x.is_cuda else self.one_by_one(x, chosen, weights)

    def one_by_one(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """The plain form: every expert on the tokens that chose it."""
        total = torch.zeros_like(x)
        for expert in chosen.unique().tolist():
            token, rank = (chosen == expert).nonzero(as_tuple=True)
            gate, up = (x[token] @ self.gate_up_proj[expert].T).chunk(2, -1)
            output = (functional.silu(gate) * up) @ self.down_proj[expert].T
            total = total.index_add(0, token, output * weights[token, rank, None])
        return total

    def grouped(self, x: Tensor, chosen: Tensor, weights: Tensor) -> Tensor:
        """One grouped matmul over all experts; its kernels take bf16 and autocast does not know them."""
        flat, order = torch.sort(chosen.reshape(-1), stable=True)
        inverse = torch.empty_like(order).scatter_(0, order, torch.arange(order.numel(), device=x.device))
        experts = torch.arange(self.gate_up_proj.shape[0], device=x.device)
        ends = torch.searchsorted(flat, experts, right=True).to(torch.int32)
        rows = Dispatch.apply(x.bfloat16(), order, inverse, chosen.shape[1])
        hidden = functional.grouped_mm(rows, self.gate_up_proj.bfloat16().transpose(1, 2), offs=ends)
        hidden = functional.silu(hidden[:, : self.inner]) * hidden[:, self.inner :]
        output = functional.grouped_mm(hidden, self.down_proj.bfloat16().transpose(1, 2), offs=ends)
        return Combine.apply(output, weights, order, inverse)


class MixtureOfExperts(nn.Module):
    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.top_k, self.num_experts = arch.num_experts_per_tok, arch.num_experts
        self.gate = nn.Module()
        self.gate.weight = nn.Parameter(torch.zeros(arch.num_experts, arch.hidden_size))
        self.experts = Experts(arch)
        self.shared_expert = GatedMLP(arch.hidden_size, arch.shared_expert_intermediate_size)
        self.shared_expert_gate = nn.Linear(arch.hidden_size, 1, bias=False)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """-> output, load-balancing loss (1 when even), load per expert (1 when even)."""
        tokens = x.flatten(0, 1)
        probabilities = functional.linear(tokens, self.gate.weight).float().softmax(-1)
        weights, chosen = probabilities.topk(self.top_k, -1)
        weights = weights / weights.sum(-1, keepdim=True)
        shared = torch.sigmoid(self.shared_expert_gate(tokens)) * self.shared_expert(tokens)
        output = self.experts(tokens, chosen, weights) + shared
        counts = torch.zeros(self.num_experts, device=x.device)
        counts = counts.scatter_add(0, chosen.reshape(-1), torch.ones(chosen.numel(), device=x.device))
        load = counts * (self.num_experts / chosen.numel())
        return output.reshape(x.shape), (load * probabilities.mean(0)).sum(), load
