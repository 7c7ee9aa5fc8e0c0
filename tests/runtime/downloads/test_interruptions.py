"""Interruptions of every kind cost next to nothing, and what they leave is never taken for complete."""

import os
import random
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Timer

from runtime.downloads.events import DownloadFinished, DownloadPaused
from runtime.downloads.preview import preview_repository
from runtime.errors import DownloadError
from tests.runtime.downloads.conftest import Pulling
from tests.support.command_line import REPO
from tests.support.hub_server import Fault
from tests.support.small_repository import small_model

NUM_KILLS, NUM_PAUSES, NUM_CUTS = 6, 6, 8


def kill_at(pulling: Pulling, sent_bytes: int) -> None:
    """Run a download in another process, and kill it once the server has sent so much in all."""
    arguments = [pulling.hub.endpoint, str(pulling.places.models_dir), pulling.places.repo_id]
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.support.killed_download", *arguments],
        cwd=REPO,
        env={**os.environ, "HF_HUB_OFFLINE": "0"},
    )
    deadline = time.monotonic() + 60
    while pulling.hub.sent_bytes < sent_bytes and child.poll() is None and time.monotonic() < deadline:
        time.sleep(0.001)
    child.send_signal(signal.SIGKILL)
    assert child.wait(10) == -signal.SIGKILL, "it should have been running still"


def pause_at(pulling: Pulling, sent_bytes: int) -> None:
    stop = Event()

    def slowly() -> None:
        if pulling.hub.sent_bytes >= sent_bytes:
            stop.set()
        time.sleep(0.002)

    pulling.hub.on_bytes = slowly
    assert isinstance(list(pulling.download().run(stop))[-1], DownloadPaused)


def test_a_listing_that_hangs_is_not_waited_for(pulling: Pulling) -> None:
    """The request itself can't be told to stop, and its library would wait for 20 s."""
    answer = pulling.repository.listing_wait = Event()
    stop, waits = Event(), {}
    try:
        for name, run in (
            ("pull", lambda: list(pulling.download().run(stop))),
            ("preview", lambda: preview_repository(pulling.access, pulling.places.repo_id, "", stop)),
        ):
            stop.clear()
            Timer(0.3, stop.set).start()
            started_s = time.monotonic()
            with suppress(DownloadError):
                assert isinstance(run()[-1], DownloadPaused)
            waits[name] = time.monotonic() - started_s
    finally:
        answer.set()
    assert max(waits.values()) < 2, waits
    pulling.repository.listing_wait = None
    pulling.pull()
    pulling.assert_complete()


def test_twenty_random_interruptions(pulling: Pulling) -> None:
    chance = random.Random(11)
    pulling.repository.files = small_model(20_000_000)
    total = sum(len(data) for name, data in pulling.repository.files.items() if name in pulling_names(pulling))
    pulling.hub.piece_bytes = 8 * 1024
    kinds = ["kill"] * NUM_KILLS + ["pause"] * NUM_PAUSES
    chance.shuffle(kinds)
    # Cuts happen to whichever answer is long enough, besides.
    pulling.hub.faults["*"] = Fault(cut_every=30_000_000 // NUM_CUTS)
    for kind in kinds:
        pulling.hub.on_bytes = lambda: time.sleep(0.002)
        sent_bytes = pulling.hub.sent_bytes + chance.randrange(1_500_000)
        (kill_at if kind == "kill" else pause_at)(pulling, sent_bytes)
        assert pulling.places.state() == "partial"
        assert not pulling.places.folder.exists()
    pulling.hub.on_bytes = lambda: None
    assert isinstance(pulling.pull()[-1], DownloadFinished)
    assert pulling.assert_complete().total_bytes == total
    assert len(pulling.hub.file_requests()) >= NUM_KILLS + NUM_PAUSES + NUM_CUTS
    assert pulling.hub.sent_bytes <= 1.02 * total, pulling.hub.sent_bytes / total


def pulling_names(pulling: Pulling) -> set[str]:
    """What is fetched of the small model."""
    return {name for name in pulling.repository.files if "/" not in name} - {"mtp.safetensors", "figure.png"}


def test_killed_while_it_replaces_a_commit(pulling: Pulling) -> None:
    """The old commit's folder had been moved away; nothing is lost."""
    pulling.pull()
    before = pulling.hub.sent_bytes
    pulling.places.staging.parent.mkdir(exist_ok=True)
    os.replace(pulling.places.folder, pulling.places.replaced)
    pulling.pull()
    pulling.assert_complete()
    assert pulling.hub.sent_bytes == before


def test_staged_manifest_of_zeros_is_listed_again(pulling: Pulling, tmp_path: Path) -> None:
    pulling.places.staging.mkdir(parents=True)
    (pulling.places.staging / "hotslot-download.json").write_bytes(b"\0" * 500)
    pulling.pull()
    pulling.assert_complete()
