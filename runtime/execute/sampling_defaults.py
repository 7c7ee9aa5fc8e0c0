"""The sampling that a checkpoint recommends, from its generation_config.json. Refuses values it can't use."""

import math
from pathlib import Path
from typing import Any

from runtime.checkpoint.files import read_json
from runtime.errors import CheckpointError, UsageError
from runtime.options import SamplingOptions

FILE_NAME = "generation_config.json"
_FIELDS: dict[str, type] = {
    "temperature": float,
    "top_k": int,
    "top_p": float,
    "min_p": float,
    "repetition_penalty": float,
}


def read_sampling_defaults(folder: Path) -> SamplingOptions:
    """Greedy where `do_sample` is not true or nothing is recommended. Raises CheckpointError naming the value."""
    path = folder / FILE_NAME
    config = read_json(path) if path.is_file() else {}
    if not config.get("do_sample", False):
        return SamplingOptions()
    # transformers' own default where sampling is on and no temperature is given.
    values: dict[str, Any] = {"temperature": 1.0}
    for name, kind in _FIELDS.items():
        value = config.get(name)
        if value is None:
            continue
        if not _is_number(value, kind):
            raise CheckpointError(f"{path}: {name} is {value!r}, which is not a number it can be; correct or remove it")
        values[name] = kind(value)
    try:
        return SamplingOptions(**values)
    except UsageError as error:
        raise CheckpointError(f"{path}: {error}; correct or remove the value") from None


def _is_number(value: Any, kind: type) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return False
    return kind is float or value == int(value)
