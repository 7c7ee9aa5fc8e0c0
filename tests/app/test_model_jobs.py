"""Downloads and checks beside everything else, with the real downloader against a Hub on the loopback."""

import asyncio
import shutil
import threading
import time
from collections import namedtuple

import pytest

from app.errors import ModelNameError
from app.library import RemoteModel, find_remote
from app.locations import Locations
from app.model_jobs import JobState, ModelJobs
from app.model_shelf import ModelEntry, ShelfKeeper, possible_actions, refuse_impossible
from app.model_words import job_text
from app.settings import Settings
from runtime.checkpoint.files import CheckpointFiles
from runtime.checkpoint.record_place import RecordPlace
from runtime.downloads.hub import HubAccess
from tests.support.hub_server import COMMIT, Fault, HubServer
from tests.support.small_repository import REPO_ID, SHARDS


@pytest.fixture
def remote(locations: Locations) -> RemoteModel:
    found = find_remote(REPO_ID, locations)
    assert found is not None
    return found


def jobs_on(hub: HubServer, locations: Locations, is_offline: bool = False) -> ModelJobs:
    return ModelJobs(locations, lambda: HubAccess(hub.endpoint, None, is_offline))


def entry_of(locations: Locations) -> ModelEntry:
    return ShelfKeeper(locations, Settings()).entry_of(REPO_ID)


async def until(is_so: object, what: str) -> None:
    for _ in range(1000):
        if is_so():  # type: ignore[operator]
            return
        await asyncio.sleep(0.01)
    raise AssertionError(what)


async def test_pause_resume_verify_mend_and_remove(hub: HubServer, locations: Locations, remote: RemoteModel) -> None:
    gate = threading.Event()
    hub.faults[SHARDS[0]] = Fault(block=gate)
    jobs = jobs_on(hub, locations)
    seen: list[JobState] = []
    jobs.on_changed = seen.append
    jobs.pull(remote)
    jobs.pull(remote)
    jobs.check_integrity()
    await until(lambda: jobs.states[REPO_ID].done_bytes > 300_000, "no bytes came")
    assert possible_actions(entry_of(locations), True, False) == ("pause", "cancel")
    jobs.pause(REPO_ID)
    assert jobs.states[REPO_ID].phase == "stopping"
    paused = await jobs.wait(REPO_ID)
    assert (paused.phase, paused.seconds_left) == ("paused", None)
    assert 300_000 < paused.done_bytes < paused.total_bytes
    assert entry_of(locations).state == "partial"
    assert possible_actions(entry_of(locations), False, False) == ("pull", "cancel", "remove")
    gate.set()
    jobs.pull(remote)
    assert (await jobs.wait(REPO_ID)).phase == "done"
    jobs.check_integrity()
    total_bytes = sum(file.num_bytes for file in remote.places.finished_manifest().files)  # type: ignore[union-attr]
    assert hub.sent_bytes <= 1.02 * total_bytes + 256 * 1024, "a pause loses what was on its way, no more"
    assert any(state.bytes_per_second > 0 for state in seen)
    assert entry_of(locations).commit == COMMIT

    with (remote.places.folder / SHARDS[1]).open("r+b") as stream:
        stream.write(b"\0not what was here")
    hub.requests.clear()
    jobs.verify(remote)
    mended = await jobs.wait(REPO_ID)
    assert job_text(mended) == f"mended: {SHARDS[1]} has another hash than the Hub's; every file is right now"
    assert {request.path.rsplit("/", 1)[1] for request in hub.file_requests()} == {SHARDS[1]}
    jobs.verify(remote)
    assert job_text(await jobs.wait(REPO_ID)) == "every file is right"

    made = RecordPlace.of(locations.cache_dir, CheckpointFiles(remote.places.folder, {}, {}, (), 0)).path
    made.parent.mkdir(parents=True)
    made.write_bytes(b"records")
    assert await jobs.remove(remote) > total_bytes - 1
    assert not made.exists()
    assert entry_of(locations).state == "absent"
    assert jobs.states == {}
    await jobs.close()


async def test_giving_up_throws_away_what_came(hub: HubServer, locations: Locations, remote: RemoteModel) -> None:
    hub.faults["*"] = Fault(block=threading.Event())
    jobs = jobs_on(hub, locations)
    jobs.pull(remote)
    await until(lambda: jobs.states[REPO_ID].done_bytes > 300_000, "no bytes came")
    started = time.monotonic()
    assert await jobs.cancel(remote) > 300_000
    assert time.monotonic() - started < 2
    assert entry_of(locations).state == "absent"
    assert await jobs.cancel(remote) == 0


async def test_failures_are_one_line_and_can_be_tried_again(
    hub: HubServer, locations: Locations, remote: RemoteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = jobs_on(hub, locations)
    repository = hub.repositories.pop(REPO_ID)
    jobs.pull(remote)
    failed = await jobs.wait(REPO_ID)
    assert failed.phase == "failed"
    assert f"There is no repository {REPO_ID}" in failed.note
    assert entry_of(locations).state == "absent", "nothing was begun"
    hub.repositories[REPO_ID] = repository
    full = namedtuple("full", "total used free")(10**6, 10**6, 1000)
    repository.listing_statuses = [503]
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda _: full)
        jobs.pull(remote)
        await until(lambda: "answers 503; next try in" in jobs.states[REPO_ID].note, "nobody said why it waits")
        assert "lacks" in (await jobs.wait(REPO_ID)).note
    jobs.pull(remote)
    assert (await jobs.wait(REPO_ID)).phase == "done"


async def test_an_unforeseen_error_is_said_and_logged(
    hub: HubServer, locations: Locations, remote: RemoteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> HubAccess:
        raise ZeroDivisionError("secret")

    jobs = ModelJobs(locations, lambda: fail(None))
    jobs.pull(remote)
    failed = await jobs.wait(REPO_ID)
    assert (failed.phase, "ZeroDivisionError" in failed.note, "secret" in failed.note) == ("failed", True, False)
    assert "ZeroDivisionError" in locations.log_file.read_text()


async def test_offline_nothing_bad_is_thrown_away(hub: HubServer, locations: Locations, remote: RemoteModel) -> None:
    jobs = jobs_on(hub, locations)
    jobs.pull(remote)
    await jobs.wait(REPO_ID)
    with (remote.places.folder / SHARDS[1]).open("r+b") as stream:
        stream.write(b"\0not what was here")
    offline = jobs_on(hub, locations, is_offline=True)
    hub.requests.clear()
    offline.verify(remote)
    failed = await offline.wait(REPO_ID)
    assert (failed.phase, hub.requests) == ("failed", [])
    assert failed.note.startswith(f"{SHARDS[1]} is damaged, and the Hub is switched off")
    assert (remote.places.folder / SHARDS[1]).exists()


async def test_closing_ends_a_download_that_hangs(hub: HubServer, locations: Locations, remote: RemoteModel) -> None:
    hub.faults["*"] = Fault(block=threading.Event())
    jobs = jobs_on(hub, locations)
    jobs.pull(remote)
    await until(lambda: jobs.states[REPO_ID].done_bytes > 300_000, "no bytes came")
    started = time.monotonic()
    await jobs.close()
    assert time.monotonic() - started < 2
    assert jobs.running == []


def test_what_is_impossible_says_why(locations: Locations) -> None:
    keeper = ShelfKeeper(locations, Settings())
    (locations.models_dir / "mine").mkdir(parents=True)
    cases = (
        ("demo", "remove", True, "it answers now; choose another model first"),
        ("demo", "verify", False, "it was not downloaded by Hotslot"),
        (REPO_ID, "use", False, "it is not here"),
        (REPO_ID, "pause", True, ""),
        ("mine", "use", False, "config.json: the file is missing"),
    )
    for name, action, flag, why in cases:
        entry = keeper.entry_of(name)
        is_running, is_in_use = (flag, False) if action == "pause" else (False, flag)
        if why:
            with pytest.raises(ModelNameError, match=why):
                refuse_impossible(entry, action, is_running, is_in_use)  # type: ignore[arg-type]
        else:
            refuse_impossible(entry, action, is_running, is_in_use)  # type: ignore[arg-type]
