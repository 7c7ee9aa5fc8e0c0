"""Owns the sparse attention layer, its indexer, and the loss that trains the indexer."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.attention.flex_attention import BlockMask, flex_attention

from demo.architecture import Architecture
from demo.model.glue import RMSNorm, rotate

BLOCK = 128  # queries, and keys, that blockwise attention handles together


def seen(document: Tensor) -> Tensor:
    """document [B, T], the number of each token's document -> [B, T, T] bool: which token may see which."""
    index = torch.arange(document.shape[1], device=document.device)
    return (document[:, :, None] == document[:, None, :]) & (index[:, None] >= index[None, :])


def common_blocks(document: Tensor) -> Tensor:
    """document [B, T], never falling, T a multiple of BLOCK -> [B, T / BLOCK, T / BLOCK] bool.

    True where a query of the one block may see a key of the other.
    """
    blocks = document.unflatten(1, (-1, BLOCK))
    index = torch.arange(blocks.shape[1], device=document.device)
    return (blocks[:, :, None, 0] <= blocks[:, None, :, -1]) & (index[:, None] >= index[None, :])


class Indexer(nn.Module):
    """Scores each complete block of `ratio` tokens for each query."""

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.heads, self.width, self.ratio = arch.indexer_n_heads, arch.indexer_head_dim, arch.indexer_compress_ratio
        self.index_qk_proj = nn.Linear(arch.hidden_size, (self.heads + 1) * self.width, bias=False)
        self.q_layernorm = RMSNorm(self.width)
        self.k_layernorm = RMSNorm(self.width)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x [B, T, H] -> scores [B, T, T / ratio] in fp32."""
        queries, keys = self.index_qk_proj(x).split([self.heads * self.width, self.width], -1)
        queries = rotate(self.q_layernorm(queries.unflatten(-1, (self.heads, self.width))), cos, sin)
        blocks = keys.unflatten(1, (-1, self.ratio)).float().mean(2).to(x.dtype)
        blocks = rotate(self.k_layernorm(blocks)[:, :, None], cos[:: self.ratio], sin[:: self.ratio])[:, :, 0]
        scores = torch.einsum("bthd,bnd->bthn", queries.float(), blocks.float())
        return torch.relu(scores).sum(2) / math.sqrt(self.width)


class SparseAttention(nn.Module):
    """Causal attention over the budget's best blocks and the unfinished tail; dense when `budget` is None.

    Blocks are counted from the start of the row, so packed documents begin at multiples of the compress ratio.
    """

    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.width = arch.num_attention_heads, arch.num_key_value_heads, arch.head_dim
        self.q_proj = nn.Linear(arch.hidden_size, self.heads * self.width * 2, bias=False)
        self.k_proj = nn.Linear(arch.hidden_size, self.kv_heads * self.width, bias=False)
        self.v_proj = nn.Linear(arch.hidden_size, self.kv_heads * self.width, bias=False)
        self.o_proj = nn.Linear(self.heads * self.width, arch.hidden_size, bias=False)
        self.q_norm, self.k_norm = RMSNorm(self.width), RMSNorm(self.width)
        self.indexer = Indexer(arch)
        self.budget: int | None = None
        self.is_blockwise = False  # for dense rows of a multiple of BLOCK: skips pairs that see nothing; compiled

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor, document: Tensor) -> Tensor:
        q, k, gate = self.queries_and_keys(x, cos, sin)
        v = self.v_proj(x).unflatten(-1, (self.kv_heads, self.width)).transpose(1, 2)
        if self.budget is None and self.is_blockwise:
            read = self.read_blockwise(q, k, v, document)
        else:
            read = self.read_masked(q, k, v, self.mask(x, cos, sin, document))
        return self.o_proj(read.transpose(1, 2).flatten(2) * torch.sigmoid(gate.flatten(2)))

    @torch.no_grad()
    def mask(self, x: Tensor, cos: Tensor, sin: Tensor, document: Tensor) -> Tensor:
        """-> [B, T, T] bool: which token reads which."""
        mask = seen(document)
        if self.budget is None:
            return mask
        return mask & self.select(self.indexer(x, cos, sin), mask).repeat_interleave(self.indexer.ratio, -1)

    def read_masked(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        k, v = (x.repeat_interleave(self.heads // self.kv_heads, 1) for x in (k, v))
        return functional.scaled_dot_product_attention(q, k, v, attn_mask=mask[:, None])

    def read_blockwise(self, q: Tensor, k: Tensor, v: Tensor, document: Tensor) -> Tensor:
        def is_seen(row: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
            return (document[row, query] == document[row, key]) & (query >= key)

        common = common_blocks(document)[:, None].int()
        indices = common.argsort(dim=-1, descending=True, stable=True).int()
        mask = BlockMask.from_kv_blocks(common.sum(-1).int(), indices, BLOCK_SIZE=BLOCK, mask_mod=is_seen)
        return flex_attention(q, k, v, block_mask=mask, enable_gqa=True)

    def queries_and_keys(self, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        q, gate = self.q_proj(x).unflatten(-1, (self.heads, 2 * self.width)).chunk(2, -1)
        q = rotate(self.q_norm(q), cos, sin).transpose(1, 2).to(x.dtype)
        k = rotate(self.k_norm(self.k_proj(x).unflatten(-1, (self.kv_heads, self.width))), cos, sin)
        return q, k.transpose(1, 2).to(x.dtype), gate

    def visible_blocks(self, mask: Tensor) -> Tensor:
        """[B, T, T / ratio]: the blocks all of whose tokens a query may see."""
        return mask.unflatten(-1, (-1, self.indexer.ratio)).all(-1)

    def select(self, scores: Tensor, mask: Tensor) -> Tensor:
        """-> [B, T, T / ratio] bool: the budget's best blocks, and those that are not complete."""
        complete = self.visible_blocks(mask)
        num_blocks = min(self.budget // self.indexer.ratio, complete.shape[-1])
        best = scores.masked_fill(~complete, float("-inf")).topk(num_blocks, -1, sorted=False).indices
        return torch.zeros_like(complete).scatter(-1, best, True) | ~complete

    def indexer_loss(self, x: Tensor, cos: Tensor, sin: Tensor, document: Tensor) -> Tensor:
        """KL(attention mass per complete block || softmax of the index scores), for x detached.

        With a budget that covers the context the language loss gives the indexer no gradient; this does.
        """
        x, mask = x.detach(), seen(document)
        complete = self.visible_blocks(mask)
        with torch.no_grad():
            q, k, _ = self.queries_and_keys(x, cos, sin)
            k = k.repeat_interleave(self.heads // self.kv_heads, 1)
            weights = (q @ k.mT * self.width**-0.5).float().masked_fill(~mask[:, None], float("-inf")).softmax(-1)
            mass = weights.mean(1).unflatten(-1, (-1, self.indexer.ratio)).sum(-1) * complete
            mass = mass / mass.sum(-1, keepdim=True).clamp_min(1e-6)
        log_scores = self.indexer(x, cos, sin).masked_fill(~complete, -1e4).log_softmax(-1)
        divergence = (mass * (mass.clamp_min(1e-8).log() - log_scores)).sum(-1)
        has_choice = complete.sum(-1) > 1
        return (divergence * has_choice).sum() / has_choice.sum().clamp_min(1)
