"""How far a download is, as the process that runs it tells the others: a small file beside the staging folder.

Tells only: whether a model may be changed is the lock's business.
"""

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, replace

from runtime.downloads.events import DownloadProgressed
from runtime.downloads.places import ModelPlaces

STALE_S = 5.0
"""A download tells four times a second; a file this old was left by a process that was killed."""


def tell_progress(places: ModelPlaces, event: DownloadProgressed) -> None:
    """Replace what was told before. A full disk must not stop a download for that."""
    path = places.progress_file
    new = path.with_name(path.name + ".new")
    with suppress(OSError):
        new.write_text(json.dumps(asdict(event)), encoding="ascii")
        os.replace(new, path)


def end_progress(places: ModelPlaces) -> None:
    """The download has ended."""
    with suppress(OSError):
        places.progress_file.unlink(missing_ok=True)


def progress_elsewhere(places: ModelPlaces) -> DownloadProgressed | None:
    """How far the process that downloads this model is; None where none does, or nothing can be known."""
    try:
        age_s = time.time() - places.progress_file.stat().st_mtime
        told = DownloadProgressed(**json.loads(places.progress_file.read_bytes()))
        if not all(value is None or isinstance(value, int | float) for value in asdict(told).values()):
            return None
    except (OSError, ValueError, TypeError):
        return None
    return replace(told, is_elsewhere=True) if abs(age_s) < STALE_S else None
