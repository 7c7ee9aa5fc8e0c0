"""Owns the tokenizer: byte-level BPE of our own, one token per digit, the special tokens under Qwen's names."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

from demo.listing import listed

SPECIAL_TOKENS = listed(
    "<|endoftext|> <|im_start|> <|im_end|> <|object_ref_start|> <|object_ref_end|> <|box_start|> "
    "<|box_end|> <|quad_start|> <|quad_end|> <|vision_start|> <|vision_end|> <|vision_pad|> <|image_pad|> "
    "<|video_pad|> <tool_call> </tool_call> <|fim_prefix|> <|fim_middle|> <|fim_suffix|> <|fim_pad|> "
    "<|repo_name|> <|file_sep|> <tool_response> </tool_response> <think> </think> <|audio_start|> "
    "<|audio_end|>"
)
NOT_SPECIAL = {"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>"}
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}"
    r"| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Special tokens take the last ids, so the merges see none of them."""
    tokenizer = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(WORDS), "isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size - len(SPECIAL_TOKENS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(without_specials(texts), trainer)
    tokenizer.add_tokens(
        [AddedToken(token, special=token not in NOT_SPECIAL, normalized=False) for token in SPECIAL_TOKENS]
    )
    if tokenizer.get_vocab_size() != vocab_size:
        raise ValueError(f"the corpus gave {tokenizer.get_vocab_size()} tokens, not {vocab_size}: train on more text")
    return tokenizer


def without_specials(texts: Iterable[str]) -> Iterator[str]:
    border = re.compile("|".join(re.escape(token) for token in SPECIAL_TOKENS))
    for text in texts:
        yield from filter(None, border.split(text))


def special_ids(tokenizer: Tokenizer) -> dict[str, int]:
    return {token: tokenizer.token_to_id(token) for token in SPECIAL_TOKENS}


def save_tokenizer(tokenizer: Tokenizer, folder: Path, context: int) -> None:
    """tokenizer.json without spare blanks, and the tokenizer_config.json that transformers reads."""
    folder.mkdir(parents=True, exist_ok=True)
    content = json.loads(tokenizer.to_str())
    (folder / "tokenizer.json").write_text(json.dumps(content, ensure_ascii=False, separators=(",", ":")), "utf-8")
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_bos_token": False,
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "bos_token": None,
        "eos_token": "<|im_end|>",
        "pad_token": "<|endoftext|>",
        "unk_token": None,
        "errors": "replace",
        "model_max_length": context,
        "split_special_tokens": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=2) + "\n", "utf-8")
