"""A download ends in a complete, verified model or in one readable line, whatever the server does."""

import email.utils
import hashlib
import os
import socket
import threading
import time
from dataclasses import replace
from pathlib import Path
from threading import Event

import pytest

from runtime.downloads.download import Download
from runtime.downloads.events import (
    DownloadFinished,
    DownloadPaused,
    DownloadProgressed,
    FileFetched,
    FileRetried,
    RepositoryListed,
)
from runtime.downloads.file_names import INDEX_NAME
from runtime.errors import DownloadError
from tests.runtime.downloads.conftest import RULES, Pulling
from tests.support.hub_server import COMMIT, Fault, running_hub
from tests.support.small_repository import SHARDS

SHARD = SHARDS[0]


def test_fetches_what_the_runtime_needs_and_no_more(pulling: Pulling) -> None:
    events = pulling.pull()
    manifest = pulling.assert_complete()
    assert {path.name for path in pulling.places.folder.iterdir()} == {
        "config.json", "tokenizer.json", "README.md", INDEX_NAME, *SHARDS, "hotslot-download.json",
    }  # fmt: skip
    assert (manifest.commit, manifest.licence, manifest.skipped) == (COMMIT, "apache-2.0", ("mtp.safetensors",))
    assert events[-1] == DownloadFinished(pulling.places.folder, COMMIT, manifest.total_bytes)
    assert pulling.hub.sent_bytes == manifest.total_bytes
    listed = next(event for event in events if isinstance(event, RepositoryListed))
    assert (listed.num_files, listed.total_bytes, listed.present_bytes) == (
        6, manifest.total_bytes, len(pulling.repository.files[INDEX_NAME]),
    )  # fmt: skip
    fetched = {event.name for event in events if isinstance(event, FileFetched)}
    assert fetched == {file.name for file in manifest.files}
    progress = [event for event in events if isinstance(event, DownloadProgressed)]
    assert progress[-1].done_bytes == progress[-1].total_bytes == manifest.total_bytes


def test_second_pull_fetches_nothing(pulling: Pulling) -> None:
    pulling.pull()
    before = pulling.hub.sent_bytes
    assert pulling.pull()[-1] == DownloadFinished(pulling.places.folder, COMMIT, 0)
    assert pulling.hub.sent_bytes == before


@pytest.mark.parametrize(
    "fault",
    [
        Fault(cut_every=70_000),
        Fault(statuses=(429, 503), retry_after="0"),
        Fault(statuses=(500, 502, 408)),
        Fault(changes_etag=True),
        Fault(wrong_length=1000),
        Fault(serves=bytes(600_000), serves_times=1),
        Fault(serves=b"short", serves_times=1),
    ],
    ids=lambda fault: str(fault).removeprefix("Fault("),
)
def test_faults_that_pass_end_complete(pulling: Pulling, fault: Fault) -> None:
    pulling.hub.faults[SHARD] = fault
    pulling.pull()
    pulling.assert_complete()


def test_cuts_cost_no_bytes(pulling: Pulling) -> None:
    pulling.hub.faults["*"] = Fault(cut_every=20_000)
    pulling.pull()
    assert pulling.hub.sent_bytes <= 1.02 * pulling.assert_complete().total_bytes
    resumed = [request for request in pulling.hub.file_requests() if request.range]
    assert len(resumed) > 20
    assert all(request.if_range for request in resumed)


@pytest.mark.parametrize(
    ("fault", "pattern"),
    [
        (Fault(cut_every=50_000, ignores_range=True), "gave up after 4 attempts.*kept"),
        (Fault(cut_every=50_000, changes_etag=True), "gave up after 4 attempts"),
        (Fault(cut_every=50_000, range_status=416), "gave up after 4 attempts"),
        (Fault(serves=bytes(600_000)), "another hash than its listing"),
        (Fault(statuses=(503,) * 50), "gave up after 4 attempts: 127.0.0.1 answers 503"),
        (Fault(statuses=(429,), retry_after="3600"), "answers 429 and asks to wait 3600 s"),
        (Fault(statuses=(403,) * 9), "refuses access .403.; it needs a token: set HF_TOKEN"),
        (Fault(statuses=(403,) * 9, error_code="GatedRepo"), "is gated: accept its terms at http"),
        (Fault(statuses=(404,) * 9), "is not there any more .404."),
        (Fault(statuses=(418,) * 9), "answers 418"),
        (Fault(wrong_length=-1000), "gave up after 4 attempts: the answer ended 1000 bytes early"),
        (Fault(drip_s=0.02), "gave up after 4 attempts: only .* bytes came"),
    ],
    ids=lambda value: str(value).removeprefix("Fault(")[:40],
)
def test_faults_that_stay_end_in_one_line(pulling: Pulling, fault: Fault, pattern: str) -> None:
    pulling.hub.faults[SHARD] = fault
    with pytest.raises(DownloadError, match=pattern) as caught:
        pulling.pull()
    assert "\n" not in str(caught.value)
    assert pulling.places.state() == "partial"
    assert not pulling.places.folder.exists()
    pulling.hub.faults.clear()
    pulling.pull()
    pulling.assert_complete()


def test_wrong_bytes_of_the_right_size_never_get_the_name(pulling: Pulling) -> None:
    pulling.hub.faults[SHARD] = Fault(serves=bytes(600_000))
    with pytest.raises(DownloadError):
        pulling.pull()
    assert not (pulling.places.staging / SHARD).exists()


def test_complete_part_is_checked_without_asking_for_more(pulling: Pulling) -> None:
    """A server answers 416 to a Range that begins at the end."""
    pulling.places.staging.mkdir(parents=True)
    (pulling.places.staging / "config.json").write_bytes(b"of an unknown listing")
    pulling.hub.faults[SHARDS[1]] = Fault(statuses=(404,))
    with pytest.raises(DownloadError):
        pulling.pull()
    (pulling.places.staging / (SHARD + ".part")).write_bytes(pulling.repository.files[SHARD])
    (pulling.places.staging / SHARD).unlink(missing_ok=True)
    pulling.hub.requests.clear()
    pulling.pull()
    pulling.assert_complete()
    assert not [request for request in pulling.hub.file_requests() if SHARD in request.path]


@pytest.mark.parametrize("size", [599_999, 600_001, 900_000])
def test_damaged_part_is_fetched_again(pulling: Pulling, size: int) -> None:
    pulling.hub.faults[SHARD] = Fault(statuses=(404,))
    with pytest.raises(DownloadError):
        pulling.pull()
    (pulling.places.staging / (SHARD + ".part")).write_bytes(b"\0" * size)
    pulling.pull()
    pulling.assert_complete()


def test_token_goes_to_the_endpoint_alone(pulling: Pulling) -> None:
    with running_hub() as other:
        other.repositories = dict(pulling.hub.repositories)
        other.faults[SHARD] = Fault(statuses=(403,), cut_every=200_000)
        pulling.hub.faults["*"] = Fault(redirect_to=other.endpoint)
        pulling.access = replace(pulling.access, token="hf_secret")
        pulling.repository.needs_token = ""
        pulling.pull()
        pulling.assert_complete()
        assert {request.authorization for request in pulling.hub.requests} == {"Bearer hf_secret"}
        assert len(other.requests) >= 6
        assert {request.authorization for request in other.requests} == {None}


def test_redirects_in_circles_end(pulling: Pulling) -> None:
    pulling.hub.faults["*"] = Fault(redirect_to=pulling.hub.endpoint)
    with pytest.raises(DownloadError, match="redirects in circles"):
        pulling.pull()


@pytest.mark.parametrize(
    ("status", "code", "token", "pattern"),
    [
        (403, "GatedRepo", "hf_x", "is gated: accept its terms .* with the account of your token"),
        (401, "RepoNotFound", None, "no repository someone/Small-Model, or it is private"),
        (404, "RepoNotFound", None, "no repository someone/Small-Model"),
        (401, "", None, "no repository|refuses access"),
        (403, "", "hf_x", "refuses access .403.; the token may not read it"),
    ],
)
def test_refused_listing_is_one_line(pulling: Pulling, status: int, code: str, token: str | None, pattern: str) -> None:
    pulling.repository.listing_statuses, pulling.repository.listing_error_code = [status] * 3, code
    pulling.access = replace(pulling.access, token=token)
    with pytest.raises(DownloadError, match=pattern) as caught:
        pulling.pull()
    assert "\n" not in str(caught.value)


def test_busy_listing_is_waited_for(pulling: Pulling) -> None:
    pulling.repository.listing_statuses, pulling.repository.listing_retry_after = [429, 503], "0"
    pulling.pull()
    pulling.assert_complete()


def test_unknown_revision_and_gated_files(pulling: Pulling) -> None:
    with pytest.raises(DownloadError, match="has no revision 'nope'"):
        pulling.pull("nope")
    pulling.repository.needs_token = "hf_right"
    with pytest.raises(DownloadError, match="is gated"):
        pulling.pull()
    pulling.access = replace(pulling.access, token="hf_right")
    pulling.pull(COMMIT)
    pulling.assert_complete()


def test_unreachable_endpoint_is_one_line(pulling: Pulling) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        pulling.access = replace(pulling.access, endpoint=f"http://127.0.0.1:{unused.getsockname()[1]}")
    with pytest.raises(DownloadError, match="can't be reached"):
        pulling.pull()


def test_offline_asks_nobody(pulling: Pulling, monkeypatch: pytest.MonkeyPatch) -> None:
    online = pulling.access
    pulling.access = replace(online, is_offline=True)
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("the network was asked"))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: pytest.fail("a name was looked up"))
    with pytest.raises(DownloadError, match="HF_HUB_OFFLINE"):
        pulling.pull()
    monkeypatch.undo()
    import huggingface_hub.constants  # Undone with the guard.

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    pulling.access = online
    pulling.pull()
    pulling.access = replace(online, is_offline=True)
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("the network was asked"))
    assert pulling.pull()[-1] == DownloadFinished(pulling.places.folder, COMMIT, 0)


def test_pause_is_quick_and_keeps_everything(pulling: Pulling) -> None:
    stop, gate = Event(), Event()
    pulling.hub.faults[SHARD] = Fault(block=gate)
    events = []
    for event in pulling.download().run(stop):
        events.append(event)
        if isinstance(event, DownloadProgressed) and event.done_bytes > 550_000:
            stop.set()
            asked = time.monotonic()
    assert time.monotonic() - asked < 1.5
    assert isinstance(events[-1], DownloadPaused)
    assert events[-1].done_bytes > 550_000
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("download-")]
    gate.set()
    pulling.hub.faults.clear()
    pulling.pull()
    assert pulling.hub.sent_bytes <= 1.02 * pulling.assert_complete().total_bytes + 128 * 1024


def test_closing_the_iterator_stops_and_frees_the_lock(pulling: Pulling) -> None:
    gate = Event()
    pulling.hub.faults[SHARD] = Fault(block=gate)
    running = pulling.download().run(Event())
    for event in running:
        if isinstance(event, DownloadProgressed) and event.done_bytes > 200_000:
            break
    running.close()
    gate.set()
    pulling.hub.faults.clear()
    pulling.pull()
    pulling.assert_complete()


def test_second_instance_shows_the_progress_of_the_first(pulling: Pulling) -> None:
    gate = Event()
    pulling.hub.faults[SHARD] = Fault(block=gate)
    first: list[object] = []
    thread = threading.Thread(target=lambda: first.extend(pulling.pull()))
    thread.start()
    while pulling.hub.sent_bytes < 300_000:
        time.sleep(0.01)
    second = []
    for event in pulling.download().run(Event()):
        second.append(event)
        if isinstance(event, DownloadProgressed) and event.is_elsewhere and event.done_bytes > 300_000:
            gate.set()
    thread.join(20)
    assert isinstance(first[-1], DownloadFinished)
    assert second[-1] == DownloadFinished(pulling.places.folder, COMMIT, 0)
    assert any(isinstance(event, DownloadProgressed) and event.is_elsewhere for event in second)
    assert pulling.hub.sent_bytes == pulling.assert_complete().total_bytes


def test_new_commit_fetches_only_what_changed(pulling: Pulling) -> None:
    pulling.pull()
    before = pulling.hub.sent_bytes
    pulling.repository.commit = "f" * 40
    pulling.repository.files["config.json"] += b" "
    pulling.pull()
    assert pulling.assert_complete().commit == "f" * 40
    assert pulling.hub.sent_bytes - before == len(pulling.repository.files["config.json"])
    assert not pulling.places.replaced.exists()


def test_damaged_file_is_mended_beside_a_newer_commit_that_was_begun(pulling: Pulling) -> None:
    pulling.pull()
    old_config = pulling.repository.files["config.json"]
    pulling.repository.commit, pulling.repository.files["config.json"] = "f" * 40, old_config + b" "
    pulling.hub.faults["config.json"] = Fault(statuses=(404,) * 9)
    with pytest.raises(DownloadError):
        pulling.pull()
    assert pulling.places.state() == "complete", "the old one still is"
    (pulling.places.folder / SHARD).unlink()
    assert pulling.places.state() == "partial"
    pulling.hub.faults.clear()
    pulling.repository.commit, pulling.repository.files["config.json"] = COMMIT, old_config
    pulling.hub.requests.clear()
    pulling.pull()
    assert pulling.places.state() == "complete"
    assert (pulling.places.folder / SHARD).read_bytes() == pulling.repository.files[SHARD]
    assert {request.path.rsplit("/", 1)[1] for request in pulling.hub.requests} <= {SHARD}
    assert pulling.places.staging.exists()


def test_begun_commit_is_finished_first(pulling: Pulling) -> None:
    pulling.hub.faults[SHARD] = Fault(statuses=(404,))
    with pytest.raises(DownloadError):
        pulling.pull()
    listings = [request for request in pulling.hub.requests if request.path.startswith("/api")]
    pulling.pull()
    assert [request for request in pulling.hub.requests if request.path.startswith("/api")] == listings
    pulling.assert_complete()


def test_folder_of_someone_else_is_left_alone(pulling: Pulling) -> None:
    pulling.places.folder.mkdir(parents=True)
    (pulling.places.folder / "config.json").write_text("mine")
    with pytest.raises(DownloadError, match="was not downloaded by Hotslot"):
        pulling.pull()
    assert (pulling.places.folder / "config.json").read_text() == "mine"


def test_hub_cache_is_used(pulling: Pulling) -> None:
    cache = pulling.access.cache_dir
    assert cache is not None
    root = cache / "models--someone--Small-Model"
    (root / "snapshots" / COMMIT).mkdir(parents=True)
    (root / "blobs").mkdir()
    for name, data in pulling.repository.files.items():
        if "/" not in name:
            blob = root / "blobs" / hashlib.sha256(data).hexdigest()
            blob.write_bytes(data if name != SHARDS[1] else bytes(len(data)))
            os.symlink(blob, root / "snapshots" / COMMIT / name)
    pulling.pull()
    pulling.assert_complete()
    assert pulling.hub.sent_bytes == len(pulling.repository.files[SHARDS[1]])


def test_retries_are_told(pulling: Pulling) -> None:
    pulling.hub.faults[SHARD] = Fault(statuses=(503, 503))
    retried = [event for event in pulling.pull() if isinstance(event, FileRetried)]
    assert [(event.name, event.reason) for event in retried] == [(SHARD, "127.0.0.1 answers 503")] * 2


def test_link_in_the_way_is_not_followed(pulling: Pulling, tmp_path: Path) -> None:
    pulling.hub.faults[SHARD] = Fault(statuses=(404,))
    with pytest.raises(DownloadError):
        pulling.pull()
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    part = pulling.places.staging / (SHARD + ".part")
    part.unlink()
    os.symlink(outside, part)
    with pytest.raises(DownloadError, match="can't be written"):
        pulling.pull()
    assert outside.read_bytes() == b"precious"


def test_defaults_are_patient() -> None:
    rules = Download.__dataclass_fields__["rules"].default_factory()  # type: ignore[misc]
    assert rules.retry.most_failures >= RULES.retry.most_failures
    assert rules.read_timeout_s >= 10


@pytest.mark.parametrize(("status", "form"), [(429, "seconds"), (503, "date")])
def test_a_server_is_not_asked_again_before_the_time_it_names(pulling: Pulling, status: int, form: str) -> None:
    times: list[float] = []
    pulling.hub.on_bytes = lambda: times.append(time.monotonic())
    # A date has whole seconds, so it names up to one second less.
    wait_s = 1 if form == "seconds" else 3
    named = "1" if form == "seconds" else email.utils.formatdate(time.time() + wait_s, usegmt=True)
    pulling.hub.faults[SHARD] = Fault(statuses=(status,), retry_after=named)
    started_s = time.monotonic()
    retried = [event for event in pulling.pull() if isinstance(event, FileRetried)]
    pulling.assert_complete()
    [event] = retried
    assert 0.5 < event.seconds <= wait_s
    assert max(times) - started_s >= event.seconds


@pytest.mark.parametrize("name", [SHARD, "tokenizer.json"])
def test_whole_part_beside_a_server_that_answers_416(pulling: Pulling, name: str) -> None:
    """All bytes came and the process died before it gave the file its name."""
    pulling.hub.faults["config.json"] = Fault(statuses=(404,))
    with pytest.raises(DownloadError):
        pulling.pull()
    staged = pulling.places.staging
    (staged / name).unlink(missing_ok=True)
    (staged / f"{name}.part").write_bytes(pulling.repository.files[name])
    pulling.hub.faults = {"*": Fault(range_status=416)}
    pulling.pull()
    pulling.assert_complete()


def test_416_to_a_part_that_the_server_no_longer_has(pulling: Pulling) -> None:
    """Its file got shorter: the bytes that are here are dropped, and the right ones never come, which is said."""
    pulling.hub.faults[SHARD] = Fault(serves=pulling.repository.files[SHARD][:300_000], cut_every=400_000)
    with pytest.raises(DownloadError, match="gave up after 4 attempts"):
        pulling.pull()
    assert pulling.places.state() == "partial"
    assert not (pulling.places.staging / SHARD).exists()
    pulling.hub.faults.clear()
    pulling.pull()
    pulling.assert_complete()
