"""Owns the whole trainable model: layers, packed-document masks, initial weights."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from demo.architecture import Architecture
from demo.model.attention import SparseAttention
from demo.model.delta_net import CHUNK, DeltaNet
from demo.model.experts import MixtureOfExperts
from demo.model.glue import HyperConnection, inject
from demo.model.ngram import NgramEmbedding


@dataclass(frozen=True)
class Packing:
    """Where the documents of each row lie; <|endoftext|> ends a document."""

    position: Tensor  # [B, T] counted from the document's first token
    document: Tensor  # [B, T] counted from the row's first document


@dataclass(frozen=True)
class HiddenStates:
    """What one forward pass gives: final hidden states and the losses and figures gathered on the way."""

    states: Tensor
    balance_loss: Tensor
    indexer_losses: list[Tensor]
    expert_load: Tensor  # [layers, experts], 1 when even


def find_documents(tokens: Tensor, eos: int) -> Packing:
    length = tokens.shape[1]
    index = torch.arange(length, device=tokens.device)
    starts = functional.pad(tokens, (1, 0), value=-1)[:, :length] == eos
    document = starts.cumsum(1)
    position = index - torch.where(starts, index, 0).cummax(1).values
    return Packing(position, document)


class Layer(nn.Module):
    def __init__(self, arch: Architecture, index: int) -> None:
        super().__init__()
        self.is_linear = arch.layer_types[index] == "linear_attention"
        if self.is_linear:
            self.linear_attn = DeltaNet(arch)
        else:
            self.self_attn = SparseAttention(arch)
        self.mlp = MixtureOfExperts(arch)
        has_ngrams = index + 1 in arch.ple_layer_ids
        self.ple = NgramEmbedding(arch, sorted(arch.ple_layer_ids).index(index + 1)) if has_ngrams else None
        self.attn_hyper_connection = HyperConnection(arch)
        self.mlp_hyper_connection = HyperConnection(arch)

    def forward(self, residual, ngram_ids, cos, sin, document, position, num_indexer_rows: int):
        """-> residual, balance loss, expert load, indexer loss (None unless sparse attention and rows asked for)."""
        if self.ple is not None:
            residual = residual + self.ple(residual, ngram_ids, position)
        mixed, strength = self.attn_hyper_connection(residual)
        indexer_loss = None
        if self.is_linear:
            output = self.linear_attn(mixed, position)
        else:
            output = self.self_attn(mixed, cos, sin, document)
            if num_indexer_rows:
                rows = slice(num_indexer_rows)
                indexer_loss = self.self_attn.indexer_loss(mixed[rows], cos, sin, document[rows])
        residual = inject(residual, output, strength)
        mixed, strength = self.mlp_hyper_connection(residual)
        output, balance_loss, load = self.mlp(mixed)
        return inject(residual, output, strength), balance_loss, load, indexer_loss


class Student(nn.Module):
    def __init__(self, arch: Architecture) -> None:
        super().__init__()
        self.arch = arch
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(arch.vocab_size, arch.hidden_size)
        self.model.layers = nn.ModuleList([Layer(arch, index) for index in range(arch.num_hidden_layers)])
        self.model.hyper_connection_mixer = HyperConnection(arch, inject=False)
        self.lm_head = nn.Linear(arch.hidden_size, arch.vocab_size, bias=False)
        if arch.tie_word_embeddings:
            self.lm_head.weight = self.model.embed_tokens.weight
        initialise(self)

    def hidden(self, tokens: Tensor, num_indexer_rows: int = 0) -> HiddenStates:
        """tokens [B, T], T a multiple of 64, packed documents that each start at a multiple of 4."""
        dtype = torch.bfloat16 if tokens.is_cuda else self.lm_head.weight.dtype
        packing = find_documents(tokens, self.arch.eos_token_id)
        cos, sin = self.rotary(tokens.shape[1], tokens.device, dtype)
        embedded = functional.embedding(tokens, self.model.embed_tokens.weight).to(dtype)
        residual = embedded.repeat(1, 1, self.arch.hc_count)
        places = packing.document, packing.position
        balance_losses, loads, indexer_losses = [], [], []
        for layer in self.model.layers:
            ids = layer.ple.ple_embedding.ids(tokens) if layer.ple is not None else None
            rows = 0 if layer.is_linear else num_indexer_rows
            residual, balance, load, indexer = layer(residual, ids, cos, sin, *places, rows)
            balance_losses.append(balance)
            loads.append(load)
            indexer_losses += [] if indexer is None else [indexer]
        states, _ = self.model.hyper_connection_mixer(residual)
        return HiddenStates(states, torch.stack(balance_losses).mean(), indexer_losses, torch.stack(loads))

    def logits(self, tokens: Tensor) -> Tensor:
        """Logits of every position; rows are padded on the right to the chunk length with EOS."""
        length = tokens.shape[1]
        padded = functional.pad(tokens, (0, -length % CHUNK), value=self.arch.eos_token_id)
        return self.lm_head(self.hidden(padded).states[:, :length])

    def ngram_ids(self, tokens: Tensor) -> Tensor:
        return next(layer.ple for layer in self.model.layers if layer.ple is not None).ple_embedding.ids(tokens)

    def rotary(self, length: int, device: torch.device, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        width, theta = self.arch.rotary_dim, self.arch.rope_parameters["rope_theta"]
        frequency = 1.0 / theta ** (torch.arange(0, width, 2, device=device).float() / width)
        angle = torch.arange(length, device=device).float()[:, None] * frequency
        angle = torch.cat([angle, angle], -1)[:, None]
        return angle.cos().to(dtype), angle.sin().to(dtype)

    @property
    def attentions(self) -> list[SparseAttention]:
        return [layer.self_attn for layer in self.model.layers if not layer.is_linear]

    def set_blockwise(self) -> None:
        """Attention by blocks of rows whose length is a multiple of their size, for compiled layers."""
        for attention in self.attentions:
            attention.is_blockwise = True

    def set_budget(self, budget: int | None) -> None:
        """Sparse selection with this budget in every attention layer; None is dense."""
        for attention in self.attentions:
            attention.budget = budget


OUTPUT_PROJECTIONS = ("down_proj", "down_proj.weight", "o_proj.weight", "out_proj.weight")
SMALL_WEIGHTS = ("embed", "input_mix", "block_inject", ".gate.weight", "shared_expert_gate")


@torch.no_grad()
def initialise(model: Student) -> None:
    """Fan-in scaled matrices, small residual outputs, Mamba's decay spread (transformers' own forgets at once)."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 1:
            continue
        if "conv1d" in name:
            nn.init.zeros_(parameter) if "ple" in name else nn.init.uniform_(parameter, -0.5, 0.5)
        elif name.endswith(OUTPUT_PROJECTIONS):
            nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * model.arch.num_hidden_layers))
        elif any(part in name for part in SMALL_WEIGHTS):
            nn.init.normal_(parameter, std=0.02)
        else:
            nn.init.normal_(parameter, std=parameter.shape[-1] ** -0.5)
    for module in model.modules():
        if isinstance(module, DeltaNet):
            step = torch.exp(torch.rand(module.heads) * math.log(100.0) + math.log(0.001))
            module.dt_bias.copy_(step + torch.log(-torch.expm1(-step)))
            module.A_log.copy_(torch.empty(module.heads).uniform_(1, 16).log())
