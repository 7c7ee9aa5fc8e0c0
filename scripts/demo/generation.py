"""Owns text generation with the trainable model: batches of prompts, greedy or sampled, the whole row anew each step.

Plain and slow per token, but it needs no second implementation of the model; evaluation is its only user.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from demo.model.delta_net import CHUNK
from demo.model.student import Student


@dataclass(frozen=True)
class Sampling:
    """temperature 0 is greedy."""

    temperature: float = 0.0
    top_k: int = 20
    top_p: float = 0.95
    min_p: float = 0.1
    seed: int = 0


GREEDY = Sampling()
DEFAULT_SAMPLING = Sampling(temperature=0.5)


def pick(logits: Tensor, sampling: Sampling, generator: torch.Generator) -> Tensor:
    """logits [B, vocab] -> token ids [B]."""
    if sampling.temperature == 0:
        return logits.argmax(-1)
    probabilities, order = (logits / sampling.temperature).softmax(-1).topk(sampling.top_k, -1)
    before = probabilities.cumsum(-1) - probabilities
    allowed = (before < sampling.top_p) & (probabilities >= sampling.min_p * probabilities[:, :1])
    chosen = torch.multinomial((probabilities * allowed).cpu(), 1, generator=generator).to(logits.device)
    return order.gather(1, chosen)[:, 0]


@torch.no_grad()
def generate(model: Student, tokenizer, prompts: list[str], max_tokens: int, sampling: Sampling = GREEDY) -> list[str]:
    """The answers without their end mark."""
    device = model.lm_head.weight.device
    eos, end = tokenizer.token_to_id("<|endoftext|>"), tokenizer.token_to_id("<|im_end|>")
    rows = [tokenizer.encode(prompt).ids for prompt in prompts]
    lengths = torch.tensor([len(row) for row in rows], device=device)
    width = -(-(max(map(len, rows)) + max_tokens) // CHUNK) * CHUNK
    tokens = torch.full((len(rows), width), eos, device=device)
    for index, row in enumerate(rows):
        tokens[index, : len(row)] = torch.tensor(row, device=device)
    starts, done = lengths.clone(), torch.zeros_like(lengths, dtype=torch.bool)
    generator = torch.Generator().manual_seed(sampling.seed)
    line = torch.arange(len(rows), device=device)
    for _ in range(max_tokens):
        seen = min(width, -(-int(lengths.max()) // CHUNK) * CHUNK)
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            states = model.hidden(tokens[:, :seen]).states[line, lengths - 1]
            logits = model.lm_head(states).float()
        following = pick(logits, sampling, generator)
        done |= (following == end) | (following == eos)
        if bool(done.all()):
            break
        tokens[line, lengths.clamp_max(width - 1)] = torch.where(done, eos, following)
        lengths = torch.where(done, lengths, lengths + 1).clamp_max(width - 1)
    ids = [tokens[i, starts[i] : lengths[i]].tolist() for i in range(len(rows))]
    return [tokenizer.decode(answer, skip_special_tokens=False) for answer in ids]
