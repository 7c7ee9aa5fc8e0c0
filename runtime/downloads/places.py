"""Where one model of the Hub lies: the finished folder, and the staging folder where it grows.

A finished folder comes into being by one rename, so that nothing partial is ever taken for complete.
"""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from runtime.downloads.file_names import is_repo_id
from runtime.downloads.manifest import MANIFEST_NAME, Manifest
from runtime.errors import DownloadError, UsageError

if TYPE_CHECKING:
    from filelock import FileLock

STAGING_NAME = ".partial"
ModelState = Literal["absent", "partial", "complete"]


@dataclass(frozen=True)
class ModelPlaces:
    """Every path of one repository's model. Build with `of`, which refuses names that are none."""

    models_dir: Path
    repo_id: str

    @classmethod
    def of(cls, models_dir: Path, repo_id: str) -> "ModelPlaces":
        """Raises UsageError where `repo_id` is not owner/name."""
        if not is_repo_id(repo_id):
            raise UsageError(f"{repo_id[:80]!a} is not the name of a repository; write it like owner/name")
        return cls(models_dir, repo_id)

    @property
    def folder(self) -> Path:
        """The Hub allows no '--' in names, so no two repositories share a folder."""
        return self.models_dir / self.repo_id.replace("/", "--")

    @property
    def staging(self) -> Path:
        return self.models_dir / STAGING_NAME / self.folder.name

    @property
    def replaced(self) -> Path:
        """The finished folder of another commit, while it is replaced."""
        return self.models_dir / STAGING_NAME / (self.folder.name + ".replaced")

    @property
    def progress_file(self) -> Path:
        """What the process that downloads says to the others."""
        return self.models_dir / STAGING_NAME / (self.folder.name + ".progress")

    def lock(self) -> "FileLock":
        """Held by the one process that may change this model. The system frees it when the process dies."""
        try:
            self.staging.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DownloadError(
                f"{self.models_dir}: can't be written ({error.strerror}); check its permissions"
            ) from None
        # Brings asyncio, which those who only ask where a model lies need not wait for.
        from filelock import FileLock

        return FileLock(self.models_dir / STAGING_NAME / (self.folder.name + ".lock"), thread_local=False)

    def refuse_links(self) -> None:
        """Raises DownloadError where a link stands for the unfinished folder: bytes must not land where that leads."""
        for folder in (self.staging.parent, self.staging):
            if folder.is_symlink():
                raise DownloadError(f"{folder}: is a link and would lead the download elsewhere; delete it")

    def state(self) -> ModelState:
        """What is on the disk, by names and sizes; hashes are the verifier's. A damaged manifest proves nothing."""
        with suppress(DownloadError):
            if self.finished_manifest() is not None and not self.misfits():
                return "complete"
        return "partial" if self.folder.is_dir() or self.staging.is_dir() else "absent"

    @property
    def is_downloaded(self) -> bool:
        """Whether the finished folder, if there is one, was made by a download."""
        return (self.folder / MANIFEST_NAME).exists()

    def finished_manifest(self) -> Manifest | None:
        return Manifest.read(self.folder)

    def misfits(self) -> list[str]:
        """Names in the finished folder that are missing, no ordinary file or of the wrong size."""
        manifest = self.finished_manifest()
        files = manifest.files if manifest is not None else ()
        return [file.name for file in files if size_on_disk(self.folder / file.name) != file.num_bytes]

    def present_bytes(self) -> int:
        """What has been fetched, finished or not."""
        total = 0
        for folder in (self.folder, self.staging):
            if folder.is_dir() and not folder.is_symlink():
                total += sum(max(0, size_on_disk(path)) for path in folder.iterdir())
        return total


def size_on_disk(path: Path) -> int:
    """Bytes of an ordinary file, -1 for anything else: a link is not followed."""
    try:
        return -1 if path.is_symlink() or not path.is_file() else path.stat().st_size
    except OSError:
        return -1
