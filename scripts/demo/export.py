"""Owns the quantise stage: the largest expert inputs, the NVFP4 folder, the losses before and after rounding."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional

from demo.architecture import Architecture
from demo.bpe import save_tokenizer, special_ids
from demo.checkpoint import read_folder, write_folder
from demo.model.experts import Experts
from demo.model.student import Student
from demo.packing import ID_MASK, LOSS_WEIGHTS
from demo.training import language_loss

BATCH_TOKENS = 8192


def architecture_for(tokenizer) -> Architecture:
    end_of_text = tokenizer.token_to_id("<|endoftext|>")
    return Architecture(eos_token_id=end_of_text, bos_token_id=end_of_text)


def read_trained(path: Path, arch: Architecture) -> Student:
    """What the train stage left; the file says which layers have attention."""
    with safe_open(path, "pt") as file:
        kinds = tuple(file.metadata()["layer_types"].split())
    model = Student(replace(arch, layer_types=kinds))
    missing, unexpected = model.load_state_dict(load_file(path), strict=False)
    if unexpected or set(missing) > {"lm_head.weight"}:
        raise SystemExit(f"{path} does not fit the architecture: {[*missing, *unexpected][:3]}")
    return model.eval()


@torch.no_grad()
def expert_peaks(model: Student, tokens: Tensor) -> dict[int, tuple[float, float]]:
    """Per layer: the largest input of the gate and up projections, and of the down projection."""
    peaks: dict[int, tuple[float, float]] = {}

    def watch(layer: int):
        def hook(experts: Experts, inputs: tuple[Tensor, Tensor, Tensor]) -> None:
            x, chosen, _ = inputs
            inner = 0.0
            for expert in range(experts.gate_up_proj.shape[0]):
                gate, up = (x[(chosen == expert).any(-1)].float() @ experts.gate_up_proj[expert].T).chunk(2, -1)
                inner = max(inner, (functional.silu(gate) * up).abs().amax().item() if len(gate) else 0.0)
            peaks[layer] = (x.abs().amax().item(), inner)

        return hook

    handles = [
        layer.mlp.experts.register_forward_pre_hook(watch(index)) for index, layer in enumerate(model.model.layers)
    ]
    with torch.autocast(tokens.device.type, torch.bfloat16, enabled=tokens.is_cuda):
        model.hidden(tokens)
    for handle in handles:
        handle.remove()
    return peaks


@torch.no_grad()
def answer_losses(
    model: Student, validation: dict[str, np.ndarray], device: str, max_rows: int = 64
) -> dict[str, float]:
    """Mean loss on the assistant's tokens per kind of conversation."""
    model.to(device)
    weights = torch.tensor(LOSS_WEIGHTS, device=device)
    losses = {}
    for kind, rows in validation.items():
        total = []
        batch = max(1, BATCH_TOKENS // rows.shape[1])
        for first in range(0, min(len(rows), max_rows), batch):
            tokens = torch.from_numpy(rows[first : first + batch].astype(np.int64)).to(device)
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                logits = model.lm_head(model.hidden(tokens & ID_MASK).states[:, :-1])
            total.append(language_loss(logits, tokens, weights)[1].item())
        losses[kind] = round(sum(total) / len(total), 4)
    return losses


def run_quantise(trained: Path, tokenizer, template: Path, validation: Path, folder: Path, device: str) -> dict:
    arch = architecture_for(tokenizer)
    model = read_trained(trained, arch)
    rows = dict(np.load(validation))
    before = answer_losses(model, rows, device)
    sample = torch.from_numpy(np.concatenate([r[:4] for r in rows.values()]).astype(np.int64) & ID_MASK).to(device)
    peaks = expert_peaks(model, sample)
    write_folder(model, folder, special_ids(tokenizer), peaks)
    save_tokenizer(tokenizer, folder, arch.max_position_embeddings)
    if template.resolve() != (folder / "chat_template.jinja").resolve():
        shutil.copyfile(template, folder / "chat_template.jinja")
    after = answer_losses(read_folder(folder), rows, device)
    figures = {"loss_before_nvfp4": before, "loss_after_nvfp4": after}
    print(json.dumps(figures), flush=True)
    return figures
