"""A full disk stops a download with the number of bytes that are missing, and it goes on once there is room."""

import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest

from runtime.downloads.events import DownloadProgressed
from runtime.downloads.file_names import INDEX_NAME
from runtime.downloads.manifest import RemoteFile
from runtime.downloads.part_file import NoRoomError, PartFile
from runtime.downloads.places import ModelPlaces
from runtime.errors import DiskFullError
from tests.runtime.downloads.conftest import Pulling
from tests.support.hub_server import Fault
from tests.support.small_repository import REPO_ID, SHARDS, small_model

MIB = 2**20
WANTED = ("config.json", "tokenizer.json", "README.md", INDEX_NAME, *SHARDS)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 8 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)], capture_output=True)
    if mounted.returncode != 0:
        pytest.skip("only root can make a small file system here")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture
def on_small_disk(pulling: Pulling, small_disk: Path) -> Pulling:
    """The model takes 6 MiB and a little."""
    pulling.repository.files = small_model(4 * MIB)
    pulling.places = ModelPlaces.of(small_disk / "models", REPO_ID)
    return pulling


def test_too_small_from_the_start(on_small_disk: Pulling, small_disk: Path) -> None:
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(3 * MIB))
    with pytest.raises(DiskFullError, match=r"lacks \d+ bytes \(\d+ to fetch, \d+ free\)") as caught:
        on_small_disk.pull()
    assert MIB // 2 < caught.value.missing_bytes < 2 * MIB
    assert on_small_disk.hub.sent_bytes < MIB, "nothing large was begun"
    ballast.write_bytes(bytes(3 * MIB - caught.value.missing_bytes - 64 * 1024))
    on_small_disk.pull()
    on_small_disk.assert_complete()


def test_fills_up_meanwhile(on_small_disk: Pulling, small_disk: Path) -> None:
    gate, ballast = Event(), small_disk / "ballast"
    on_small_disk.hub.faults[SHARDS[0]] = Fault(block=gate)

    def fill() -> None:
        while on_small_disk.hub.sent_bytes < 3 * MIB:
            time.sleep(0.005)
        with ballast.open("wb", buffering=0) as stream:
            try:
                while True:
                    stream.write(bytes(64 * 1024))
            except OSError:
                gate.set()

    filler = threading.Thread(target=fill)
    filler.start()
    with pytest.raises(DiskFullError, match=r"lacks \d+ bytes") as caught:
        on_small_disk.pull()
    filler.join()
    assert MIB < caught.value.missing_bytes <= 6 * MIB + 8192
    assert on_small_disk.places.state() == "partial"
    ballast.unlink()
    on_small_disk.hub.faults.clear()
    on_small_disk.hub.requests.clear()
    on_small_disk.pull()
    on_small_disk.assert_complete()
    [resumed] = [request for request in on_small_disk.hub.file_requests() if SHARDS[0] in request.path]
    assert resumed.range is not None


def fill_to_the_last_page(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as stream:
        for piece in (64 * 1024, 4096):
            with suppress(OSError):
                while True:
                    stream.write(bytes(piece))


@pytest.mark.parametrize("after_bytes", [0, 1, 3_000, 3_400, 100_000, 1_000_000, 1_500_000, 1_550_000])
def test_full_at_any_point(on_small_disk: Pulling, small_disk: Path, after_bytes: int) -> None:
    """Before the first byte, in the small files, in either shard, near the end: a line with numbers, and it goes on."""
    on_small_disk.repository.files = small_model(MIB)
    total = sum(len(on_small_disk.repository.files[name]) for name in WANTED)
    ballast, lock = small_disk / "ballast", threading.Lock()

    def fill() -> None:
        with lock:
            if on_small_disk.hub.sent_bytes >= after_bytes and not ballast.exists():
                fill_to_the_last_page(ballast)

    on_small_disk.hub.on_bytes = fill
    if after_bytes == 0:
        fill()
    on_small_disk.hub.piece_bytes = 16 * 1024
    with pytest.raises(DiskFullError, match=r"lacks \d+ bytes \(\d+ to fetch, \d+ free\)") as caught:
        on_small_disk.pull()
    assert "\n" not in str(caught.value)
    assert 1 <= caught.value.missing_bytes <= total + 64 * 1024
    assert on_small_disk.places.state() != "complete"
    assert not on_small_disk.places.folder.exists()
    on_small_disk.hub.on_bytes = lambda: None
    ballast.unlink()
    on_small_disk.pull()
    on_small_disk.assert_complete()
    # What was under way to a disk that took no more is fetched again: a piece of each file at most.
    assert on_small_disk.hub.sent_bytes <= 1.02 * total + 6 * 64 * 1024


def test_full_when_all_files_are_here(on_small_disk: Pulling, small_disk: Path) -> None:
    """The last thing that is written is the list of what is here."""
    on_small_disk.repository.files = small_model(MIB)
    ballast = small_disk / "ballast"

    def pull_and_fill() -> None:
        for event in on_small_disk.download().run(Event()):
            if isinstance(event, DownloadProgressed) and event.done_bytes == event.total_bytes > MIB:
                fill_to_the_last_page(ballast)

    with pytest.raises(DiskFullError, match="lacks 1 bytes"):
        pull_and_fill()
    assert not on_small_disk.places.folder.exists()
    sent_bytes = on_small_disk.hub.sent_bytes
    ballast.unlink()
    on_small_disk.pull()
    on_small_disk.assert_complete()
    assert on_small_disk.hub.sent_bytes == sent_bytes


def test_part_counts_what_a_full_disk_took(small_disk: Path) -> None:
    file = RemoteFile("model.safetensors", 16 * MIB, "0" * 64, "")
    part = PartFile(small_disk, file, lambda: None)
    with pytest.raises(NoRoomError):
        part.append(bytes(16 * MIB))
    part.check_integrity()
    assert 7 * MIB < part.num_bytes <= 8 * MIB
    part.close()
