"""The published checkpoints this version knows, from a TOML file: where they are, and what a plan needs of them.

Says only what is known: a size or a geometry that nobody stated is None.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from runtime.checkpoint.claims import claimed_format
from runtime.downloads.file_names import is_repo_id
from runtime.errors import DownloadError
from runtime.families.registry import read_spec
from runtime.record import RecordLayout
from runtime.spec import ExpertFormat, ModelSpec

_TABLE_SHARES = {"bf16": 1.0, "fp8": 1 / 2, "nvfp4": 9 / 32}
"""Of the n-gram table's bf16 bytes; NVFP4 has half a byte per value and one scale for 16."""

_CLAIMS: dict[str, ExpertFormat] = {"nvfp4": "nvfp4", "fp8": "fp8"}
"""What a config may say of its experts, where that is one format."""


@dataclass(frozen=True)
class CatalogModel:
    """One entry. `spec` is computed from the family's published shapes, with NVFP4 experts and bf16 dense weights."""

    name: str
    repo_id: str
    revision: str
    """A full commit, or '' for the newest."""
    licence: str
    download_bytes: int | None
    """As its publisher or others state it, with what is skipped."""
    spec: ModelSpec | None


def read_catalog(path: Path) -> tuple[CatalogModel, ...]:
    """All entries in the file's order. Raises DownloadError where the file can't be used."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
        models = tuple(_read_model(entry, document["geometries"]) for entry in document["models"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise DownloadError(f"{path}: can't be used ({type(error).__name__}: {error}); install Hotslot again") from None
    names = [name for model in models for name in (model.name, model.repo_id)]
    if len(set(names)) != len(names) or not all(is_repo_id(model.repo_id) for model in models):
        raise DownloadError(f"{path}: names a model twice or a repository that can't be one; install Hotslot again")
    return models


def _read_model(entry: dict[str, Any], geometries: dict[str, dict[str, Any]]) -> CatalogModel:
    geometry = entry.get("geometry")
    return CatalogModel(
        name=entry["name"],
        repo_id=entry["repo_id"],
        revision=entry.get("revision", ""),
        licence=entry.get("licence", "unknown"),
        download_bytes=entry.get("download_bytes"),
        spec=None if geometry is None else _spec(entry, geometries[geometry]),
    )


def _spec(entry: dict[str, Any], config: dict[str, Any]) -> ModelSpec:
    spec = read_spec({**config, **entry.get("config", {})}, entry["name"])
    table_bytes = int(spec.weights.ngram_table_bytes * _TABLE_SHARES[entry.get("table_format", "bf16")])
    return _stored_as(spec, "nvfp4", table_bytes, entry.get("download_bytes"))


def spec_of_config(config: Mapping[str, Any], name: str, total_bytes: int) -> ModelSpec | None:
    """What a config.json alone tells of a model whose files have `total_bytes`; None where that is not its format.

    Raises CheckpointError where no such model can be run here.
    """
    spec = read_spec(config, name)
    section = config.get("quantization_config")
    claimed = claimed_format(section) if isinstance(section, Mapping) else None
    expert_format = _CLAIMS.get(claimed or "")
    if expert_format is None:
        return None
    return _stored_as(spec, expert_format, spec.weights.ngram_table_bytes, total_bytes)


def _stored_as(spec: ModelSpec, expert_format: ExpertFormat, table_bytes: int, total_bytes: int | None) -> ModelSpec:
    record_bytes = RecordLayout.build(spec.hidden_size, spec.moe.intermediate, expert_format).record_bytes
    expert_bytes = spec.num_layers * spec.moe.num_experts * record_bytes
    weights = replace(
        spec.weights,
        expert_format=expert_format,
        record_bytes=record_bytes,
        ngram_table_bytes=table_bytes,
        checkpoint_bytes=total_bytes or 2 * spec.weights.dense_params + table_bytes + expert_bytes,
    )
    return replace(spec, weights=weights)
