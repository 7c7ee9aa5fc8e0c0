"""Owns the gated delta net: its chunked rule in plain torch, with hand-written backward passes, and the layer."""

import torch
from torch import Tensor, nn
from torch.nn import functional

from demo.architecture import Architecture
from demo.model.glue import causal_conv

CHUNK = 64
RESET_LOG_DECAY = -30.0


class UnitLowerInverse(torch.autograd.Function):
    """(I + A)^-1 for strictly lower triangular A.

    Exact Neumann series in blocks of 8, then block merges: a series over the whole chunk blows up on correlated keys.
    """

    @staticmethod
    def forward(ctx, lower: Tensor) -> Tensor:
        width, size = lower.shape[-1], 8
        diagonal = -torch.stack([lower[..., i : i + size, i : i + size] for i in range(0, width, size)], -3)
        eye = torch.eye(size, device=lower.device, dtype=lower.dtype)
        square = diagonal @ diagonal
        inverse = (eye + diagonal) @ (eye + square) @ (eye + square @ square)
        while size < width:
            starts = range(0, width, 2 * size)
            off = torch.stack([lower[..., i + size : i + 2 * size, i : i + size] for i in starts], -3)
            upper, under = inverse[..., 0::2, :, :], inverse[..., 1::2, :, :]
            corner = -(under @ off @ upper)
            inverse = torch.cat([torch.cat([upper, torch.zeros_like(upper)], -1), torch.cat([corner, under], -1)], -2)
            size *= 2
        inverse = inverse.squeeze(-3)
        ctx.save_for_backward(inverse)
        return inverse

    @staticmethod
    def backward(ctx, grad: Tensor) -> Tensor:
        (inverse,) = ctx.saved_tensors
        return -(inverse.mT @ grad @ inverse.mT).tril(-1)


class ChunkScan(torch.autograd.Function):
    """State before each chunk: S_0 = 0, S_{n+1} = M_n S_n + B_n, for M, B [X, N, D, D]."""

    @staticmethod
    def forward(ctx, transition: Tensor, update: Tensor) -> Tensor:
        states = [torch.zeros_like(update[:, 0])]
        for n in range(transition.shape[1] - 1):
            states.append(torch.baddbmm(update[:, n], transition[:, n], states[-1]))
        stacked = torch.stack(states, 1)
        ctx.save_for_backward(transition, stacked)
        return stacked

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor]:
        transition, states = ctx.saved_tensors
        grad_updates = [torch.zeros_like(grad[:, 0])]
        carried = grad[:, -1]
        for n in range(transition.shape[1] - 2, -1, -1):
            grad_updates.append(carried)
            carried = torch.baddbmm(grad[:, n], transition[:, n].mT, carried)
        grad_update = torch.stack(grad_updates[::-1], 1)
        return grad_update @ states.mT, grad_update


def delta_rule(q: Tensor, k: Tensor, v: Tensor, log_decay: Tensor, beta: Tensor) -> Tensor:
    """Chunked gated delta rule in fp32.

    q, k [B, T, key heads, D] normalised (q scaled); v [B, T, H, D]; log_decay, beta [B, T, H]; T a multiple of CHUNK.
    """
    batch, length, key_heads, width = q.shape
    heads, chunks = v.shape[2], length // CHUNK
    repeats = heads // key_heads

    def split(x: Tensor) -> Tensor:
        return x.transpose(1, 2).unflatten(2, (chunks, CHUNK))

    def per_head(x: Tensor) -> Tensor:
        return x.repeat_interleave(repeats, 1)

    q, k, v, log_decay, beta = split(q), split(k), split(v), split(log_decay), split(beta)
    total = log_decay.cumsum(-1)
    lower = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril()
    decay = (total[..., :, None] - total[..., None, :]).masked_fill(~lower, float("-inf")).exp()
    solve = UnitLowerInverse.apply((per_head(k @ k.mT) * decay * beta[..., None]).tril(-1))
    keys = per_head(k)
    values = solve @ (v * beta[..., None])
    erased = solve @ (keys * (beta * total.exp())[..., None])
    kept = keys * (total[..., -1:] - total).exp()[..., None]
    eye = torch.eye(width, device=q.device, dtype=q.dtype)
    transition = total.exp()[..., -1, None, None] * eye - kept.mT @ erased
    update = kept.mT @ values
    state = ChunkScan.apply(transition.flatten(0, 1), update.flatten(0, 1)).unflatten(0, (batch, heads))
    output = (per_head(q) * total.exp()[..., None]) @ state + (per_head(q @ k.mT) * decay) @ (values - erased @ state)
    return output.flatten(2, 3).transpose(1, 2)


class DeltaNet(nn.Module):
    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.key_heads, self.heads = arch.linear_num_key_heads, arch.linear_num_value_heads
        self.key_dim, self.value_dim = arch.linear_key_head_dim, arch.linear_value_head_dim
        key_width, value_width = self.key_heads * self.key_dim, self.heads * self.value_dim
        self.widths = [key_width, key_width, value_width]
        channels = sum(self.widths)
        self.conv1d = nn.Conv1d(channels, channels, arch.linear_conv_kernel_dim, groups=channels, bias=False)
        self.dt_bias = nn.Parameter(torch.ones(self.heads))
        self.A_log = nn.Parameter(torch.zeros(self.heads))
        self.norm = nn.Module()
        self.norm.weight = nn.Parameter(torch.ones(self.value_dim))
        self.in_proj_qkv = nn.Linear(arch.hidden_size, channels, bias=False)
        self.in_proj_z = nn.Linear(arch.hidden_size, value_width, bias=False)
        self.in_proj_b = nn.Linear(arch.hidden_size, self.heads, bias=False)
        self.in_proj_a = nn.Linear(arch.hidden_size, self.heads, bias=False)
        self.out_proj = nn.Linear(value_width, arch.hidden_size, bias=False)

    def forward(self, x: Tensor, position: Tensor) -> Tensor:
        qkv = causal_conv(self.in_proj_qkv(x).float(), self.conv1d.weight[:, 0].float(), 1, position)
        q, k, v = functional.silu(qkv).split(self.widths, -1)
        q = q.unflatten(-1, (self.key_heads, self.key_dim))
        k = k.unflatten(-1, (self.key_heads, self.key_dim))
        v = v.unflatten(-1, (self.heads, self.value_dim))
        q = q * torch.rsqrt(q.pow(2).sum(-1, keepdim=True) + 1e-6) * self.key_dim**-0.5
        k = k * torch.rsqrt(k.pow(2).sum(-1, keepdim=True) + 1e-6)
        beta = self.in_proj_b(x).float().sigmoid()
        log_decay = -self.A_log.float().exp() * functional.softplus(self.in_proj_a(x).float() + self.dt_bias.float())
        log_decay = log_decay + (position == 0)[..., None] * RESET_LOG_DECAY
        with torch.autocast(x.device.type, enabled=False):
            read = delta_rule(q, k, v, log_decay, beta)
        return self.out_proj(self.gated_norm(read, self.in_proj_z(x)).to(x.dtype))

    def gated_norm(self, read: Tensor, gate: Tensor) -> Tensor:
        normed = read * torch.rsqrt(read.pow(2).mean(-1, keepdim=True) + 1e-6) * self.norm.weight.float()
        return normed.flatten(-2) * torch.sigmoid(gate.float())
