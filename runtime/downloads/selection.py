"""Which files of a listing make up the model: the index decides, once it is here.

A shard with nothing but the vision tower or multi-token prediction in it is skipped, and so are weights that the index
does not name. Without an index all weights at the top are taken.
"""

from pathlib import Path

from runtime.checkpoint.files import read_json
from runtime.checkpoint.skipped_parts import skipped_files
from runtime.downloads.file_names import INDEX_NAME, SIDE_FILES, needed_names
from runtime.downloads.hub import Listing
from runtime.downloads.manifest import Manifest, RemoteFile
from runtime.errors import CheckpointError, DownloadError


def needed_files(repo_id: str, listing: Listing) -> tuple[RemoteFile, ...]:
    """Everything that may be needed, judged by names alone. Raises DownloadError where there is no model."""
    by_name = {file.name: file for file in listing.files}
    names = needed_names(repo_id, by_name)
    if "config.json" not in names or all(name in SIDE_FILES for name in names):
        raise DownloadError(f"{repo_id} has no config.json with *.safetensors beside it; choose another repository")
    return tuple(by_name[name] for name in names)


def select_by_index(manifest: Manifest, folder: Path) -> Manifest:
    """The manifest without the weights that the index in `folder` leaves out. Raises DownloadError."""
    try:
        weight_map = read_json(folder / INDEX_NAME).get("weight_map")
    except CheckpointError as error:
        raise DownloadError(f"{manifest.repo_id}: {error}") from None
    if not isinstance(weight_map, dict) or not all(isinstance(file, str) for file in weight_map.values()):
        raise DownloadError(f"{manifest.repo_id}: {INDEX_NAME} has no weight_map; choose another repository")
    wanted = set(weight_map.values()) - skipped_files(weight_map)
    missing = sorted(wanted - {file.name for file in manifest.files})
    if missing:
        raise DownloadError(
            f"{manifest.repo_id}: its index names {missing[0][:80]!a}, which is not there; choose another repository"
        )
    files = tuple(file for file in manifest.files if file.name in SIDE_FILES or file.name in wanted)
    skipped = tuple(file.name for file in manifest.files if file not in files)
    return Manifest(manifest.repo_id, manifest.revision, manifest.commit, manifest.licence, files, skipped)
