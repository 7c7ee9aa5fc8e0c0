"""Which families there are: picks one by config.json's model_type. Data only, no torch."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.errors import ConfigError
from runtime.families import qwen4_exp, qwen4_exp_tensors
from runtime.families.names import NameMap, detect_names
from runtime.spec import ModelSpec


@dataclass(frozen=True)
class Family:
    """What a family brings: its model_type names, its config reading, its dense tensors and their shapes."""

    name: str
    model_types: tuple[str, ...]
    read_spec: Callable[[Mapping[str, Any], str], ModelSpec]
    dense_tensors: Callable[[ModelSpec, NameMap], dict[str, tuple[int, ...]]]


FAMILIES = (Family("qwen4_exp", qwen4_exp.MODEL_TYPES, qwen4_exp.read_spec, qwen4_exp_tensors.dense_tensors),)


def read_spec(config: Mapping[str, Any], source: str) -> ModelSpec:
    """The model a parsed config.json describes; `source` is its folder. Raises ConfigError naming the value.

    Weight facts are computed from shapes; `checkpoint.facts` replaces them by measured ones.
    """
    model_type = config.get("model_type")
    for family in FAMILIES:
        if model_type in family.model_types:
            return family.read_spec(config, source)
    known = ", ".join(name for family in FAMILIES for name in family.model_types)
    raise ConfigError(f"{source}: config.json has model_type {model_type!r}; this version runs {known}")


def names_of(spec: ModelSpec, tensor_names: Iterable[str] | None = None) -> NameMap:
    """Names of `spec`'s tensors; give the names a checkpoint has (`CheckpointFiles.entries`) to detect its prefix."""
    family_of(spec)
    return detect_names(tensor_names)


def dense_tensors(spec: ModelSpec, names: NameMap) -> dict[str, tuple[int, ...]]:
    """Name and shape of every dense tensor of `spec`: all but routed experts and n-gram tables."""
    return family_of(spec).dense_tensors(spec, names)


def family_of(spec: ModelSpec) -> Family:
    """The family a spec came from."""
    return next(family for family in FAMILIES if family.name == spec.family)
