"""Where the record file of a model folder lies, and which weights it holds. Names and removes files only."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from runtime.checkpoint.files import CheckpointFiles

FOLDER_NAME = "records"


@dataclass(frozen=True)
class RecordPlace:
    """One model's record file. Its name begins with the folder's own part, so that a folder's files can be found."""

    path: Path
    key: str
    """Of the weights: another file, size or time of change gives another key."""

    @classmethod
    def of(cls, cache_dir: Path, files: CheckpointFiles) -> "RecordPlace":
        """The place for the weights that lie in the folder now."""
        weights = [(file.name, (stat := file.stat()).st_size, stat.st_mtime_ns) for file in files.weight_files]
        described = json.dumps([files.config, weights], sort_keys=True)
        key = hashlib.sha256(described.encode()).hexdigest()
        return cls(cache_dir / FOLDER_NAME / f"{_folder_part(files.folder)}-{key[:16]}.records", key)

    @property
    def partial(self) -> Path:
        """Where the file grows until it is whole."""
        return self.path.with_name(self.path.name + ".partial")

    @property
    def lock(self) -> Path:
        """Held by the one process that writes the file."""
        return self.path.with_name(self.path.name + ".lock")

    def remove_others(self) -> None:
        """Remove what was made of the folder's earlier weights."""
        for path in self.path.parent.glob(self.path.name.split("-")[0] + "-*"):
            if not path.name.startswith(self.path.name):
                path.unlink(missing_ok=True)


def remove_record_files(cache_dir: Path, folder: Path) -> int:
    """Remove all that was made of a model folder, whole or not; bytes that were freed. Raises OSError."""
    freed_bytes = 0
    for path in (cache_dir / FOLDER_NAME).glob(_folder_part(folder) + "-*"):
        freed_bytes += path.stat().st_size
        path.unlink()
    return freed_bytes


def _folder_part(folder: Path) -> str:
    return hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
