"""Names what a model folder holds, in a few reads: what is remembered of a model is kept under it. No torch."""

import hashlib
from pathlib import Path

from runtime.checkpoint.files import CheckpointFiles

_SAMPLE_BYTES = 64 << 10


def fingerprint(files: CheckpointFiles) -> str:
    """32 hex digits of the config, every weight file's name and size, and a piece of its head, middle and end.

    Weights that were trained on differ in the pieces; a moved or copied folder keeps its name.
    """
    digest = hashlib.blake2b((files.folder / "config.json").read_bytes(), digest_size=16)
    for file in sorted(files.weight_files):
        _add_file(digest, file)
    return digest.hexdigest()


def _add_file(digest: "hashlib.blake2b", file: Path) -> None:
    num_bytes = file.stat().st_size
    digest.update(f"\0{file.name}\0{num_bytes}\0".encode())
    with file.open("rb") as stream:
        for start in (0, num_bytes // 2, max(0, num_bytes - _SAMPLE_BYTES)):
            stream.seek(start)
            digest.update(stream.read(_SAMPLE_BYTES))
