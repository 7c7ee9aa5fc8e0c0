"""Removes a model: the finished folder and everything unfinished, or the unfinished alone."""

import shutil
from collections.abc import Iterable
from pathlib import Path

from filelock import Timeout

from runtime.downloads.places import ModelPlaces, size_on_disk
from runtime.errors import DownloadError


def remove_model(places: ModelPlaces) -> int:
    """Bytes that were freed; 0 if there was nothing. Raises DownloadError while another process downloads the model."""
    return _remove(places, (places.folder, places.staging, places.replaced))


def discard_unfinished(places: ModelPlaces) -> int:
    """Give up a download that was begun; a finished folder stays. Returns and raises as `remove_model`."""
    return _remove(places, (places.staging,))


def _remove(places: ModelPlaces, folders: Iterable[Path]) -> int:
    lock = places.lock()
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise DownloadError(f"{places.repo_id} is being downloaded by another process; stop that first") from None
    try:
        num_bytes = 0
        for folder in folders:
            # A link that someone put there is taken away; what it points to is theirs.
            if folder.is_symlink():
                folder.unlink()
            elif folder.exists():
                num_bytes += sum(max(0, size_on_disk(path)) for path in folder.iterdir())
                shutil.rmtree(folder)
        places.progress_file.unlink(missing_ok=True)
        return num_bytes
    except OSError as error:
        raise DownloadError(f"{error.filename or places.folder}: can't be removed ({error.strerror})") from None
    finally:
        lock.release()
