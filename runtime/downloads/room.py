"""How much room a disk has, and the error that says how much more a download needs."""

import shutil
from pathlib import Path

from runtime.errors import DiskFullError, DownloadError


def free_bytes(folder: Path) -> int:
    """Of the disk that a folder lies on. Raises DownloadError where it can't be asked."""
    try:
        return shutil.disk_usage(folder).free
    except OSError as error:
        raise DownloadError(f"{folder}: can't be read ({error.strerror}); check the disk") from None


def lack_of_room(repo_id: str, models_dir: Path, needed_bytes: int) -> DiskFullError:
    """To be raised where so many bytes are still to come and the disk takes no more."""
    free = free_bytes(models_dir)
    missing = max(1, needed_bytes - free)
    return DiskFullError(
        f"{repo_id}: the disk of {models_dir} lacks {missing} bytes ({needed_bytes} to fetch, {free} free); "
        "free them and pull again, what was fetched is kept",
        missing,
    )
