"""Owns the n-gram (PLE) embedding: hash constants, ids, gate and convolution."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from demo.architecture import Architecture
from demo.model.glue import RMSNorm, causal_conv

MASK64 = (1 << 64) - 1
GAMMA = 0x9E3779B97F4A7C15


def splitmix64(value: int) -> int:
    value = (value + GAMMA) & MASK64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & MASK64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & MASK64
    return value ^ (value >> 31)


def primes_from(start: int, count: int) -> list[int]:
    primes: list[int] = []
    candidate = max(2, start)
    while len(primes) < count:
        if all(candidate % divisor for divisor in range(2, math.isqrt(candidate) + 1)):
            primes.append(candidate)
        candidate += 1
    return primes


def hash_constants(arch: Architecture, module_index: int) -> tuple[list[int], list[int]]:
    """-> (token multipliers [ngram_size], rows per hash head)."""
    num_heads = (arch.ngram_size - 1) * arch.heads_per_ngram
    rows = primes_from(arch.ngram_vocab_size_base, num_heads * (module_index + 1))[-num_heads:]
    half = max(1, (((1 << 63) - 1) // arch.vocab_size) // 2)
    base = arch.seed + 10007 * module_index
    seeds = [splitmix64((base + GAMMA * (j + 1)) & MASK64) for j in range(arch.ngram_size)]
    return [2 * (seed % half) + 1 for seed in seeds], rows


class NgramTable(nn.Module):
    def __init__(self, arch: Architecture, module_index: int) -> None:
        super().__init__()
        self.eos, self.ngram_size, self.heads_per_ngram = arch.eos_token_id, arch.ngram_size, arch.heads_per_ngram
        multipliers, rows = hash_constants(arch, module_index)
        offsets = [sum(rows[:head]) for head in range(len(rows))]
        unit = arch.make_ngram_vocab_size_divisible_by
        self.ngram_embedding = nn.Embedding(-(-sum(rows) // unit) * unit, arch.ple_embed_dim // len(rows))
        self.register_buffer("layer_multipliers", torch.tensor(multipliers))
        self.register_buffer("ngram_heads_vocab_sizes", torch.tensor(rows))
        self.register_buffer("ngram_heads_offsets", torch.tensor(offsets))

    def ids(self, tokens: Tensor) -> Tensor:
        """tokens [B, T] -> table rows [B, T, heads]; a token after EOS sees only EOS before it."""
        context, blocked = [tokens], torch.zeros_like(tokens, dtype=torch.bool)
        for distance in range(1, self.ngram_size):
            earlier = functional.pad(tokens, (distance, 0), value=self.eos)[:, : tokens.shape[1]]
            blocked = blocked | (earlier == self.eos)
            context.append(torch.where(blocked, self.eos, earlier))
        mixed, rows = context[0] * self.layer_multipliers[0], []
        for order in range(1, self.ngram_size):
            mixed = mixed ^ (context[order] * self.layer_multipliers[order])
            heads = slice((order - 1) * self.heads_per_ngram, order * self.heads_per_ngram)
            rows.append(mixed[..., None] % self.ngram_heads_vocab_sizes[heads] + self.ngram_heads_offsets[heads])
        return torch.cat(rows, -1)


class NgramEmbedding(nn.Module):
    def __init__(self, arch: Architecture, module_index: int) -> None:
        super().__init__()
        self.streams, self.hidden, self.dilation = arch.hc_count, arch.hidden_size, arch.ngram_size
        width = self.streams * self.hidden
        self.ple_embedding = NgramTable(arch, module_index)
        self.key_proj = nn.Linear(arch.ple_embed_dim, width, bias=False)
        self.value_proj = nn.Linear(arch.ple_embed_dim, self.hidden, bias=False)
        self.norm_key = RMSNorm(width, self.hidden)
        self.norm_query = RMSNorm(width, self.hidden)
        self.norm_conv = RMSNorm(width, self.hidden)
        self.conv1d = nn.Conv1d(
            width, width, arch.ple_conv_kernel_size, groups=width, dilation=arch.ngram_size, bias=False
        )

    def forward(self, residual: Tensor, ids: Tensor, position: Tensor) -> Tensor:
        embedded = functional.embedding(ids, self.ple_embedding.ngram_embedding.weight).flatten(-2).to(residual.dtype)
        key = self.norm_key(self.key_proj(embedded)).unflatten(-1, (self.streams, self.hidden))
        query = self.norm_query(residual).unflatten(-1, (self.streams, self.hidden))
        gate = (key.float() * query.float()).sum(-1, keepdim=True) / math.sqrt(self.hidden)
        gate = torch.sigmoid(gate.abs().clamp_min(1e-6).sqrt() * gate.sign())
        gated = (gate.to(residual.dtype) * self.value_proj(embedded).unsqueeze(-2)).flatten(-2)
        normed = self.norm_conv(gated).float()
        convolved = causal_conv(normed, self.conv1d.weight[:, 0].float(), self.dilation, position)
        return gated + functional.silu(convolved).to(residual.dtype)
