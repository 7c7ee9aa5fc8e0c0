"""Takes files that are on this machine already: from the Hub's own cache, or from another commit of the model.

A file is taken only if its hash is right. It becomes a link to the same bytes where the disk allows, else a copy.
"""

import os
import shutil
from contextlib import suppress
from pathlib import Path
from threading import Event

from runtime.downloads.hub import HubAccess
from runtime.downloads.manifest import RemoteFile
from runtime.downloads.places import ModelPlaces, size_on_disk
from runtime.downloads.retry import StoppedError

_READ_BYTES = 1 << 20


def adopt(access: HubAccess, places: ModelPlaces, commit: str, file: RemoteFile, stop: Event) -> bool:
    """Put `file` into the staging folder if its bytes lie elsewhere. False: they must be fetched.

    Reading takes its time: raises StoppedError when `stop` is set meanwhile.
    """
    for found in _candidates(access, places, commit, file):
        if size_on_disk(found) != file.num_bytes or _digest_of(found, file, stop) != file.expected_digest:
            continue
        target = places.staging / file.name
        target.unlink(missing_ok=True)
        try:
            os.link(found, target)
        except OSError:
            # Another disk, or one without links. A copy that breaks off must not have the file's name.
            copy = target.with_name(target.name + ".part")
            try:
                shutil.copyfile(found, copy)
            except OSError:
                with suppress(OSError):
                    copy.unlink()
                return False
            os.replace(copy, target)
        return True
    return False


def _digest_of(path: Path, file: RemoteFile, stop: Event) -> str:
    """The digest of what lies at `path`, of the kind that is known of `file`. Raises OSError."""
    content = file.new_hash()
    with path.open("rb") as stream:
        while data := stream.read(_READ_BYTES):
            if stop.is_set():
                raise StoppedError
            content.update(data)
    return content.hexdigest()


def _candidates(access: HubAccess, places: ModelPlaces, commit: str, file: RemoteFile) -> list[Path]:
    found = [places.folder / file.name, places.replaced / file.name]
    if access.cache_dir is not None:
        # The layout that huggingface_hub documents; the snapshot's entry is a link to the blob.
        cached = access.cache_dir / ("models--" + places.repo_id.replace("/", "--")) / "snapshots" / commit / file.name
        with suppress(OSError):
            found.append(cached.resolve())
    return found
