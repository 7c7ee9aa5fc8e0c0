"""Tiny random qwen4_exp models made with transformers, saved as the checkpoint folders the runtime reads.

`save_plain` is transformers' own save_pretrained (text-only folder); `save_nvfp4` is a full-model folder as ModelOpt
writes it, and returns the transformers model that has the dequantised weights.
"""

import copy
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoModelForCausalLM, Qwen4ExpTextConfig
from transformers.models.qwen4_exp.modeling_qwen4_exp import Qwen4ExpForCausalLM

BREAK_ID = 7
"""config.json's eos: ends an n-gram's context."""

CONFIGS: dict[str, dict[str, Any]] = {
    # Two n-gram layers; sparse from the 17th token on.
    "two_ngram_layers": {},
    # Nothing divides anything: page 64, chunk 64, block 3, groups of 16.
    "odd_sizes": {
        "vocab_size": 131, "hidden_size": 40, "num_hidden_layers": 5, "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 20, "linear_num_key_heads": 3, "linear_num_value_heads": 3, "linear_key_head_dim": 12,
        "linear_value_head_dim": 20, "moe_intermediate_size": 18, "shared_expert_intermediate_size": 22,
        "num_experts": 7, "num_experts_per_tok": 2, "hc_count": 3, "hc_lowrank": 5, "ple_layer_ids": [2],
        "ple_embed_dim": 30, "heads_per_ngram": 5, "ngram_vocab_size_base": 31, "split_ngram_parts": 4,
        "indexer_n_heads": 3, "indexer_head_dim": 14, "indexer_budget": 21, "indexer_compress_ratio": 3,
        "layer_types": ["linear_attention", "linear_attention", "indexed_attention", "linear_attention",
                        "indexed_attention"],
        "output_gate_type": None, "tie_word_embeddings": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e5, "partial_rotary_factor": 0.5},
    },
    # A block of 5 tokens straddles pages; 4-grams; wide groups of value heads; router weights not renormalised.
    "straddling_blocks": {
        "hidden_size": 48, "num_hidden_layers": 4, "head_dim": 24, "num_attention_heads": 2, "num_key_value_heads": 1,
        "linear_num_key_heads": 1, "linear_num_value_heads": 4, "linear_conv_kernel_dim": 3, "norm_topk_prob": False,
        "ple_layer_ids": [1], "ple_embed_dim": 48, "ngram_size": 4, "heads_per_ngram": 4, "ple_conv_kernel_size": 3,
        "indexer_budget": 40, "indexer_compress_ratio": 5, "split_ngram_parts": 1, "hc_count": 2,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
    },
    # Sparse attention first and last, a single routed expert, no n-grams.
    "attention_heavy": {
        "head_dim": 20,
        "num_hidden_layers": 4, "ple_layer_ids": None, "num_experts": 5, "num_experts_per_tok": 1,
        "layer_types": ["indexed_attention", "linear_attention", "indexed_attention", "indexed_attention"],
        "indexer_budget": 64, "indexer_compress_ratio": 16, "num_attention_heads": 8, "num_key_value_heads": 2,
    },
}  # fmt: skip

_E2M1 = torch.tensor([0.0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def tiny_config(**overrides: Any) -> Qwen4ExpTextConfig:
    """A config of a few hundred thousand parameters with every part of the architecture."""
    values: dict[str, Any] = {
        "vocab_size": 97, "hidden_size": 64, "num_hidden_layers": 8, "num_attention_heads": 4, "num_key_value_heads": 2,
        "head_dim": 32, "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 16,
        "linear_value_head_dim": 16, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 40,
        "num_experts": 12, "num_experts_per_tok": 3, "hc_count": 4, "hc_lowrank": 12, "ple_layer_ids": [2, 5],
        "ple_embed_dim": 64, "ngram_vocab_size_base": 50, "split_ngram_parts": 3, "indexer_n_heads": 4,
        "indexer_kv_heads": 1, "indexer_head_dim": 16, "indexer_budget": 16, "indexer_compress_ratio": 4,
        "output_gate_type": "sigmoid", "eos_token_id": BREAK_ID, "bos_token_id": BREAK_ID,
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25,
                            "mrope_interleaved": True, "mrope_section": [2, 1, 1]},
        "max_position_embeddings": 4096,
    }  # fmt: skip
    return Qwen4ExpTextConfig(**(values | overrides))


def random_model(config: Any, seed: int = 0) -> Any:
    """An fp32 model on transformers' eager path with weights large enough that every part matters."""
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    generator = torch.Generator().manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            spread = 0.25 if parameter.ndim > 1 else 0.3
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * spread)
    return model


def strengthen_decay(model: Qwen4ExpForCausalLM, key_spread: float = 0.02, key_offset: float = 0.2) -> None:
    """Log-decay of about -20 per token in every other head, and keys that all point the same way."""
    for layer in model.model.layers:
        if hasattr(layer, "linear_attn"):
            with torch.no_grad():
                net = layer.linear_attn
                net.A_log[::2] = 3.0
                net.dt_bias.fill_(1.0)
                net.in_proj_qkv.weight[net.key_dim : 2 * net.key_dim] *= key_spread
                net.in_proj_qkv.weight[net.key_dim : 2 * net.key_dim] += key_offset


def scale_weights(model: Qwen4ExpForCausalLM, factor: float) -> None:
    """Multiply every matrix: a larger spread makes routers, gates and attention sharper."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.mul_(factor)


def random_tokens(config: Any, num_tokens: int, seed: int = 0) -> list[int]:
    """Random ids with the break id inside, twice in a row too."""
    generator = torch.Generator().manual_seed(1000 + seed)
    tokens = torch.randint(0, config.vocab_size, (num_tokens,), generator=generator)
    for position in (9, 10, 30, 131):
        if position < num_tokens:
            tokens[position] = BREAK_ID
    return tokens.tolist()


@torch.no_grad()
def reference_logits(model: Any, tokens: list[int]) -> Tensor:
    """transformers' full pass without cache: [T, vocab]."""
    return model(input_ids=torch.tensor([tokens]), use_cache=False).logits[0].float()


def save_plain(model: Qwen4ExpForCausalLM, folder: Path) -> Path:
    """A text-only folder as transformers saves it."""
    model.save_pretrained(folder)
    return folder


def save_fused(model: Qwen4ExpForCausalLM, folder: Path, dtype: torch.dtype = torch.float32) -> Path:
    """A full-model folder with fused experts and an unsharded n-gram table, as the unquantised releases have."""
    tensors = {}
    for name, value in model.state_dict().items():
        tensors[_full_name(name)] = value.to(dtype) if value.is_floating_point() else value
    if model.config.tie_word_embeddings:
        tensors.pop("lm_head.weight", None)
    _write_folder(model.config, tensors, folder)
    return folder


def save_nvfp4(model: Qwen4ExpForCausalLM, folder: Path) -> Qwen4ExpForCausalLM:
    """A full-model folder with ModelOpt NVFP4 experts and fp32 dense tensors; returns the dequantised model."""
    dequantised = copy.deepcopy(model)
    tensors: dict[str, Tensor] = {}
    state = dequantised.state_dict()
    for name, value in state.items():
        if name.endswith("experts.gate_up_proj"):
            for expert, bank in enumerate(value):
                gate_up = _put_nvfp4(tensors, _full_name(name), expert, ("gate_proj", "up_proj"), bank)
                bank.copy_(gate_up)
        elif name.endswith("experts.down_proj"):
            for expert, bank in enumerate(value):
                bank.copy_(_put_nvfp4(tensors, _full_name(name), expert, ("down_proj",), bank))
        elif not (name == "lm_head.weight" and model.config.tie_word_embeddings):
            tensors[_full_name(name)] = value
    _write_folder(model.config, tensors, folder)
    return dequantised


def quantise_nvfp4(matrix: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """codes uint8 [N, K/2], scales e4m3 [N, ceil(K/16)], global scale fp32 [] of a matrix [N, K], K even."""
    rows, columns = matrix.shape
    global_scale = matrix.abs().max() / 2688
    padded = torch.nn.functional.pad(matrix, (0, -columns % 16)).view(rows, -1, 16)
    scales = (padded.abs().amax(-1) / 6 / global_scale).clamp(2**-9, 448).to(torch.float8_e4m3fn)
    wanted = padded / (scales.float() * global_scale).unsqueeze(-1)
    codes = (wanted.unsqueeze(-1) - _E2M1).abs().argmin(-1).view(rows, -1)[:, :columns].to(torch.uint8)
    return codes[:, 0::2] | codes[:, 1::2] << 4, scales, global_scale


def dequantise_nvfp4(codes: Tensor, scales: Tensor, global_scale: Tensor | float) -> Tensor:
    """W[n, k] = e2m1 * e4m3 * global, the low nibble first; fp32 [N, K]."""
    values = _E2M1[torch.stack((codes & 15, codes >> 4), -1).flatten(-2).long()]
    spread = scales.float().repeat_interleave(16, dim=-1)[:, : values.shape[1]]
    return values * spread * global_scale


def _put_nvfp4(
    tensors: dict[str, Tensor], bank_name: str, expert: int, projections: tuple[str, ...], bank: Tensor
) -> Tensor:
    codes, scales, global_scale = quantise_nvfp4(bank)
    stem = bank_name.rsplit(".", 1)[0]
    rows = bank.shape[0] // len(projections)
    for index, projection in enumerate(projections):
        part = slice(index * rows, (index + 1) * rows)
        name = f"{stem}.{expert}.{projection}"
        tensors[f"{name}.weight"] = codes[part].contiguous()
        tensors[f"{name}.weight_scale"] = scales[part].contiguous()
        tensors[f"{name}.weight_scale_2"] = global_scale.clone()
        tensors[f"{name}.input_scale"] = torch.tensor(0.01)
    return dequantise_nvfp4(codes, scales, global_scale)


def _full_name(name: str) -> str:
    return name.replace("model.", "model.language_model.", 1) if name.startswith("model.") else name


def _write_folder(config: Qwen4ExpTextConfig, tensors: dict[str, Tensor], folder: Path) -> None:
    text_config = config.to_dict()
    outer = {
        "architectures": ["Qwen4ExpForConditionalGeneration"],
        "model_type": "qwen4_exp",
        "tie_word_embeddings": config.tie_word_embeddings,
        "text_config": text_config,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(outer))
    save_file({name: value.contiguous().clone() for name, value in tensors.items()}, folder / "model.safetensors")
