"""Opens a model folder as far as planning needs it: spec with measured weight facts, and tensor names. No torch."""

from dataclasses import dataclass, replace
from pathlib import Path

from runtime.checkpoint.claims import contradiction
from runtime.checkpoint.files import CheckpointFiles, read_json
from runtime.checkpoint.foreign import refuse_foreign, refuse_gguf
from runtime.checkpoint.inventory import Inventory, take_inventory
from runtime.families.names import NameMap
from runtime.families.registry import names_of, read_spec
from runtime.record import RecordLayout
from runtime.spec import ModelSpec, WeightFacts


@dataclass(frozen=True)
class Checkpoint:
    """A folder whose every tensor was found, with the shape and format the model needs."""

    files: CheckpointFiles
    spec: ModelSpec
    names: NameMap
    notice: str | None = None
    """One line where config and tensors disagree on the format."""


def open_checkpoint(folder: Path) -> Checkpoint:
    """Open and check a model folder; nothing is allocated. Raises CheckpointError naming file, tensor and next step.

    Reads headers only: weights, and with them scales, are checked when they are read, so that each is read once.
    """
    refuse_gguf(Path(folder))
    files = CheckpointFiles.open(Path(folder))
    refuse_foreign(files.folder, files.config, files.entries.values())
    spec = read_spec(files.config, str(files.folder))
    names = names_of(spec, files.entries)
    # Where config and tensors disagree on tying, the tensors win: a head of its own is used.
    head = names.lm_head.removesuffix(".weight")
    if any(f"{head}.{part}" in files.entries for part in ("weight", "weight_packed")):
        spec = replace(spec, ties_embeddings=False)
    inventory = take_inventory(files, spec, names)
    spec = replace(spec, weights=_measure(files, spec, inventory), eos_token_ids=_stop_ids(files, spec))
    return Checkpoint(files, spec, names, contradiction(files, inventory.expert_formats))


def read_facts(folder: Path) -> ModelSpec:
    """The model in `folder`, with weight facts measured from its headers. Raises CheckpointError."""
    return open_checkpoint(folder).spec


def _measure(files: CheckpointFiles, spec: ModelSpec, inventory: Inventory) -> WeightFacts:
    formats = inventory.expert_formats
    layouts = {name: RecordLayout.build(spec.hidden_size, spec.moe.intermediate, name) for name in set(formats)}
    return WeightFacts(
        expert_format=max(formats, key=formats.count),
        record_bytes=max(layout.record_bytes for layout in layouts.values()),
        dense_params=inventory.dense_params,
        ngram_table_bytes=inventory.ngram_table_bytes,
        checkpoint_bytes=files.total_bytes,
        layer_formats=formats if len(layouts) > 1 else (),
    )


def _stop_ids(files: CheckpointFiles, spec: ModelSpec) -> tuple[int, ...]:
    """Stop ids of config.json, then those that only generation_config.json names (chat's end of turn)."""
    path = files.folder / "generation_config.json"
    extra = read_json(path).get("eos_token_id") if path.is_file() else None
    candidates = extra if isinstance(extra, list) else [extra]
    added = [item for item in candidates if type(item) is int and item not in spec.eos_token_ids]
    return (*spec.eos_token_ids, *added)
