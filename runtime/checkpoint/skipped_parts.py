"""Parts of a checkpoint that are not run: the vision tower and multi-token prediction. Names only."""

import re
from collections.abc import Mapping

_SKIPPED = re.compile(r"(^|\.)(visual|vision_tower|mtp)\.")


def is_skipped(name: str) -> bool:
    """Whether a tensor belongs to a part that is not run."""
    return _SKIPPED.search(name) is not None


def skipped_files(weight_map: Mapping[str, str]) -> set[str]:
    """Files of an index (tensor to file) that hold nothing that is run: the model is complete without them."""
    needed = {file for name, file in weight_map.items() if not is_skipped(name)}
    return set(weight_map.values()) - needed
