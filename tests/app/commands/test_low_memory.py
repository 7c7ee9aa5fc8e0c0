"""A machine with less memory than experts, through the command line: planned, answered, seen, and removed again."""

import json
import shutil
from pathlib import Path

import pytest

from app.library import remove_download
from app.locations import DEMO_MODEL, Locations, asset_path
from runtime.downloads.places import ModelPlaces
from runtime.memory.budget import RAM_MARGIN_BYTES
from tests.support.command_line import run_hotslot

SPARE_BYTES = 10 << 20
"""For slots and host cache: less than the demo's experts take."""


@pytest.fixture
def ram() -> str:
    """Just not enough for all of the demo's experts."""
    least = json.loads(
        run_hotslot("plan", "demo", "--device", "cpu", "--context", "512", "--ram", "1MiB", "--json").out
    )
    assert not least["fits"]
    slots_bytes = least["slots_bytes"]
    return str(least["total_bytes"] - slots_bytes + RAM_MARGIN_BYTES + SPARE_BYTES)


def test_an_answer_with_experts_on_the_disk(ram: str, own_home: Path) -> None:
    limits = ("--device", "cpu", "--context", "512", "--ram", ram)
    planned = json.loads(run_hotslot("plan", "demo", *limits, "--json").out)
    assert (planned["fits"], planned["is_store_mapped"]) == (True, True)
    table = run_hotslot("plan", "demo", *limits).out
    assert f"{planned['cached_records']} of 384 routed experts" in table
    limits = ("--slots", "40", *limits)
    asked = run_hotslot("ask", *limits, "--model", "demo", "--no-think", "--temperature", "0", "--json", "Who are you?")
    roomy = run_hotslot(
        "ask", *limits[:-2], "--model", "demo", "--no-think", "--temperature", "0", "--json", "Who are you?"
    )
    assert (asked.status, roomy.status) == (0, 0), asked.err + roomy.err
    answer, expected = json.loads(asked.out), json.loads(roomy.out)
    assert answer["text"] == expected["text"] != ""
    stats = answer["stats"]
    assert stats["slot_hit_rate"] + stats["ram_hit_rate"] + stats["disk_rate"] == pytest.approx(1)
    assert stats["disk_rate"] > 0
    assert stats["disk_bytes"] > 0
    assert (expected["stats"]["disk_rate"], expected["stats"]["disk_bytes"]) == (0, 0)
    [file] = (own_home / "cache" / "records").glob("*.records")
    made = file.stat().st_mtime_ns
    assert run_hotslot("ask", *limits, "--model", "demo", "--max-tokens", "1", "Hi").status == 0
    assert file.stat().st_mtime_ns == made


def test_a_model_that_is_removed_takes_its_record_file_along(own_home: Path, ram: str) -> None:
    places, locations = ModelPlaces.of(own_home / "models", "someone/Demo"), Locations.resolve()
    assert locations.cache_dir == own_home / "cache"
    shutil.copytree(asset_path(DEMO_MODEL), places.folder)
    limits = ("--device", "cpu", "--dtype", "auto", "--context", "512", "--slots", "40", "--ram", ram)
    (own_home / "ids.json").write_text("[1, 2, 3]")
    scored = run_hotslot("score", "--model", str(places.folder), "--ids", str(own_home / "ids.json"), *limits)
    assert scored.status == 0, scored.err
    [file] = (own_home / "cache" / "records").glob("*.records")
    held_bytes = places.present_bytes() + file.stat().st_size
    assert remove_download(places, locations) == held_bytes
    assert list((own_home / "cache" / "records").iterdir()) == []
