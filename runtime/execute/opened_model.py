"""A model that is opened and checked but holds nothing yet: what loading takes spec, text parts and weights from."""

from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import Protocol

from runtime.checkpoint.expert_source import ExpertSource
from runtime.checkpoint.facts import open_checkpoint
from runtime.checkpoint.fingerprint import fingerprint
from runtime.checkpoint.record_place import RecordPlace
from runtime.checkpoint.tensors import TensorSource
from runtime.execute.sampling_defaults import read_sampling_defaults
from runtime.experts.mapped_store import open_records
from runtime.experts.record_reader import RecordReader
from runtime.experts.store import PinnedStore, ProgressCallback
from runtime.families.names import NameMap
from runtime.layers.decoder import Decoder
from runtime.options import SamplingOptions
from runtime.record import RecordLayout
from runtime.spec import ModelSpec
from runtime.text.chat_template import ChatTemplate
from runtime.text.tokenizer import FILE_NAME as TOKENIZER_FILE
from runtime.text.tokenizer import Tokenizer


class OpenedModel(Protocol):
    """No tokenizer, no template: such a model can still score ids. `notice` is a line for a person, or None.

    `fingerprint` names what is remembered of the model from one start to the next; '' where nothing is.
    """

    spec: ModelSpec
    names: NameMap
    notice: str | None
    tokenizer: Tokenizer | None
    template: ChatTemplate | None
    default_sampling: SamplingOptions
    decoder_type: type[Decoder]
    fingerprint: str

    @property
    def tensors(self) -> TensorSource:
        """Dense weights by name."""
        ...

    def fill_store(self, on_progress: ProgressCallback) -> PinnedStore:
        """All experts, in host memory."""
        ...

    def open_records(self, cache_dir: Path | None, on_progress: ProgressCallback) -> tuple[RecordReader, str]:
        """All experts, on the disk, and what is to be said of where; see `runtime.experts.mapped_store`."""
        ...


OpenModel = Callable[[Path], OpenedModel]


class ModelFolder:
    """A checkpoint's folder. Raises CheckpointError for one that can't be used."""

    decoder_type = Decoder

    def __init__(self, path: Path) -> None:
        checkpoint = open_checkpoint(path)
        self.spec, self.names, self.notice = checkpoint.spec, checkpoint.names, checkpoint.notice
        self._files = checkpoint.files
        self.fingerprint = fingerprint(checkpoint.files)
        folder = checkpoint.files.folder
        self.tokenizer = Tokenizer.load(folder) if (folder / TOKENIZER_FILE).exists() else None
        self.template = None if self.tokenizer is None else ChatTemplate.load(folder, self.tokenizer)
        self.default_sampling = read_sampling_defaults(folder)

    @cached_property
    def tensors(self) -> TensorSource:
        return TensorSource(self._files)

    def fill_store(self, on_progress: ProgressCallback) -> PinnedStore:
        layouts, num_experts = RecordLayout.of_layers(self.spec), self.spec.moe.num_experts
        return PinnedStore.fill(self._experts, layouts, num_experts, on_progress)

    def open_records(self, cache_dir: Path | None, on_progress: ProgressCallback) -> tuple[RecordReader, str]:
        layouts, num_experts = RecordLayout.of_layers(self.spec), self.spec.moe.num_experts
        place = None if cache_dir is None else RecordPlace.of(cache_dir, self._files)
        return open_records(place, self._experts, layouts, num_experts, on_progress)

    @property
    def _experts(self) -> ExpertSource:
        return ExpertSource(self.tensors, self.spec, self.names)


def open_folder(path: Path) -> OpenedModel:
    """The folder of a checkpoint."""
    return ModelFolder(path)
