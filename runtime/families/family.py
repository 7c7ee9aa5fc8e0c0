"""What a family brings: a name, its model_type names, and how its config.json becomes a `ModelSpec`."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runtime.spec import ModelSpec


@dataclass(frozen=True)
class Family:
    """`read_spec(config, source)` gives a spec without weight facts; raises ConfigError naming the value."""

    name: str
    model_types: tuple[str, ...]
    read_spec: Callable[[Mapping[str, Any], str], ModelSpec]
    example: str
    """A published checkpoint that runs, for whoever brought one that doesn't."""
