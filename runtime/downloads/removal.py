"""Removes a model: the finished folder and everything unfinished."""

import shutil

from filelock import Timeout

from runtime.downloads.places import ModelPlaces
from runtime.errors import DownloadError


def remove_model(places: ModelPlaces) -> int:
    """Bytes that were freed; 0 if there was nothing. Raises DownloadError while another process downloads the model."""
    lock = places.lock()
    try:
        lock.acquire(blocking=False)
    except Timeout:
        raise DownloadError(f"{places.repo_id} is being downloaded by another process; stop that first") from None
    try:
        num_bytes = places.present_bytes()
        for folder in (places.folder, places.staging, places.replaced):
            # A link that someone put there is taken away; what it points to is theirs.
            if folder.is_symlink():
                folder.unlink()
            elif folder.exists():
                shutil.rmtree(folder)
        places.progress_file.unlink(missing_ok=True)
        return num_bytes
    except OSError as error:
        raise DownloadError(f"{error.filename or places.folder}: can't be removed ({error.strerror})") from None
    finally:
        lock.release()
