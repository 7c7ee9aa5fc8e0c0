"""Reads a finished model again: sizes and hashes of everything. Changes nothing, and needs no network."""

from collections.abc import Generator, Iterator

from runtime.downloads.events import FileChecked, VerifyEvent, VerifyProgressed
from runtime.downloads.manifest import Hash, Manifest, RemoteFile
from runtime.downloads.places import ModelPlaces, size_on_disk
from runtime.errors import DownloadError

_READ_BYTES = 4 << 20


def verify_model(places: ModelPlaces) -> Iterator[VerifyEvent]:
    """One FileChecked per file of the manifest, and progress between. Raises DownloadError where nothing is known."""
    manifest = places.finished_manifest()
    if manifest is None:
        raise DownloadError(
            f"{places.repo_id}: no finished download in {places.folder}, so no hashes are known; pull it first"
        )
    done_bytes = 0
    for file in manifest.files:
        problem = yield from _check(places, manifest, file, done_bytes)
        done_bytes += file.num_bytes
        yield FileChecked(file.name, file.num_bytes, problem)
    yield VerifyProgressed(done_bytes, manifest.total_bytes)


def discard_bad_file(places: ModelPlaces, name: str) -> None:
    """Take a file with a wrong hash away: the model counts as incomplete from now on, and the next pull fetches it.

    Raises DownloadError where the file is none of its files.
    """
    manifest = places.finished_manifest()
    if manifest is None or name not in {file.name for file in manifest.files}:
        raise DownloadError(f"{places.repo_id} has no file {name[:80]!a}")
    try:
        (places.folder / name).unlink(missing_ok=True)
    except OSError as error:
        raise DownloadError(f"{places.folder / name}: can't be removed ({error.strerror})") from None


def _check(
    places: ModelPlaces, manifest: Manifest, file: RemoteFile, done_bytes: int
) -> Generator[VerifyEvent, None, str]:
    """Returns what is wrong with the file, or ''."""
    path = places.folder / file.name
    size = size_on_disk(path)
    if size < 0:
        return "is missing"
    if size != file.num_bytes:
        return f"has {size} bytes, not {file.num_bytes}"
    content: Hash = file.new_hash()
    try:
        with path.open("rb") as stream:
            while data := stream.read(_READ_BYTES):
                content.update(data)
                done_bytes += len(data)
                yield VerifyProgressed(done_bytes, manifest.total_bytes)
    except OSError as error:
        return f"can't be read ({error.strerror})"
    return "" if content.hexdigest() == file.expected_digest else "has another hash than the Hub's"
