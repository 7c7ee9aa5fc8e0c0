"""A model of random weights that the engine loads as it loads a folder: no file is written or read.

Its tokenizer has one token per byte and a made-up word for every other id, so that any prompt and any answer has text.
"""

from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import torch

from runtime.benches.synthetic import NAMES, RandomTensors, random_store, synthetic_spec
from runtime.checkpoint.tensors import TensorSource
from runtime.errors import BudgetError
from runtime.execute.opened_model import OpenModel
from runtime.experts.record_reader import RecordReader
from runtime.experts.store import PinnedStore, ProgressCallback
from runtime.families.dense_tensors import dense_tensors
from runtime.layers.decoder import Decoder
from runtime.options import SamplingOptions
from runtime.spec import ModelSpec
from runtime.text.byte_level import BYTE_OF_CHARACTER
from runtime.text.chat_template import ChatTemplate
from runtime.text.tokenizer import Tokenizer

TEMPLATE = "{% for message in messages %}{{ message.content }}{% endfor %}{% if add_generation_prompt %}:{% endif %}"


class RandomModel:
    """Implements `OpenedModel` over weights drawn on `device`; with fewer `num_banks` than layers, banks are shared."""

    notice: str | None = None
    tokenizer: Tokenizer | None
    template: ChatTemplate | None

    def __init__(
        self, spec: ModelSpec, device: torch.device, num_banks: int, decoder_type: type[Decoder] = Decoder
    ) -> None:
        self.spec, self.names, self.decoder_type = spec, NAMES, decoder_type
        self._num_banks = num_banks
        self._tensors: Any = RandomTensors(spec, device)
        self.tokenizer = tokenizer = byte_tokenizer(spec.vocab_size)
        self.template = ChatTemplate(TEMPLATE, "a template of the benches", tokenizer, {})
        self.default_sampling = SamplingOptions()
        self.fingerprint = ""

    @property
    def tensors(self) -> TensorSource:
        tensors: TensorSource = self._tensors
        return tensors

    def fill_store(self, on_progress: ProgressCallback) -> PinnedStore:
        return random_store(self.spec, self._num_banks)

    def open_records(self, cache_dir: Path | None, on_progress: ProgressCallback) -> tuple[RecordReader, str]:
        raise BudgetError("Random weights are on no disk, so all of them must fit in memory: ask for fewer layers.")

    def opened(self) -> OpenModel:
        """What the engine opens, whatever the path."""
        return lambda path: self


def random_spec(config: dict[str, Any], num_layers: int) -> ModelSpec:
    """`synthetic_spec` with the sizes that a budget is planned from."""
    spec = synthetic_spec(config, num_layers)
    num_params = sum(prod(shape) for shape in dense_tensors(spec, NAMES).values())
    weights = replace(spec.weights, dense_params=num_params)
    return replace(spec, weights=weights)


def byte_tokenizer(vocab_size: int) -> Tokenizer:
    """Ids 0 to 255 are bytes, the others ' t256', ' t257', …; no merges, so text becomes bytes."""
    vocab = {character: byte for character, byte in BYTE_OF_CHARACTER.items() if byte < vocab_size}
    vocab |= {f"\u0120t{token_id}": token_id for token_id in range(len(vocab), vocab_size)}
    document: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "added_tokens": [],
        "model": {"type": "BPE", "vocab": vocab, "merges": []},
    }
    return Tokenizer(document, "random", str(Path("random weights")))
