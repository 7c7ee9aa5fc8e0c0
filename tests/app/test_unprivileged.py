"""The command line where file permissions hold: a home that can't be written, files that can't be read, full disks."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.locations import DEMO_MODEL, asset_path
from tests.support.command_line import REPO, Ended
from tests.support.privileges import obey_permissions

DEMO = asset_path(DEMO_MODEL)
pytestmark = pytest.mark.skipif(not (DEMO / "config.json").is_file(), reason="the demo model is not in this checkout")
QUESTION = ("--max-tokens", "6", "--no-think", "Hello!")


def run_unprivileged(home: Path, *arguments: str) -> Ended:
    """`hotslot ARGUMENTS` with all it writes to in `home`, by a user to whom file permissions apply."""
    variables = {**os.environ, "PYTHONPATH": str(REPO), "HOTSLOT_HOME": str(home / "hotslot"), "HOME": str(home)}
    command = [sys.executable, "-B", "-m", "app", *arguments]
    ended = subprocess.run(
        command, capture_output=True, text=True, env=variables, cwd="/", timeout=120, preexec_fn=obey_permissions
    )
    return Ended(ended.returncode, ended.stdout, ended.stderr)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home that nobody may write to."""
    folder = tmp_path / "home"
    folder.mkdir(mode=0o555)
    write = [sys.executable, "-c", f"open({str(folder / 'probe')!r}, 'w')"]
    if subprocess.run(write, capture_output=True, preexec_fn=obey_permissions).returncode == 0:
        pytest.skip("file permissions do not hold here")
    yield folder
    folder.chmod(0o755)


def assert_answered(ended: Ended) -> None:
    assert ended.status == 0, ended.err
    assert ended.out.strip()
    assert ended.is_clean
    assert len(ended.err.splitlines()) <= 1


def test_a_read_only_home_does_not_stop_an_answer(home: Path) -> None:
    assert_answered(run_unprivileged(home, "ask", *QUESTION))
    assert list(home.iterdir()) == []


def test_a_read_only_home_is_named_by_doctor(home: Path) -> None:
    ended = run_unprivileged(home, "doctor")
    assert ended.status == 1
    assert ended.is_clean
    assert len([line for line in ended.err.splitlines() if str(home) in line]) == 5
    assert f"{len(ended.err.splitlines())} to look at" in ended.out


@pytest.mark.parametrize("is_folder_closed", [False, True])
def test_an_unreadable_file_is_one_line(home: Path, is_folder_closed: bool) -> None:
    home.chmod(0o755)
    folder = home / "private"
    folder.mkdir(mode=0o755)
    secret = folder / "secret.txt"
    secret.write_text("secret")
    secret.chmod(0)
    if is_folder_closed:
        folder.chmod(0)
    ended = run_unprivileged(home, "ask", "--file", str(secret), "x")
    folder.chmod(0o755)
    [line] = ended.err.splitlines()
    assert (ended.status, ended.out) == (1, "")
    assert line.startswith("hotslot: ")
    assert "secret.txt" in line
    assert "ermission denied" in line
    assert ended.is_clean


def test_an_unreadable_model_is_one_line(home: Path) -> None:
    home.chmod(0o755)
    model = home / "model"
    model.mkdir()
    (model / "config.json").write_text("{}")
    (model / "config.json").chmod(0)
    ended = run_unprivileged(home, "ask", "--model", str(model), "x")
    [line] = ended.err.splitlines()
    assert ended.status == 1
    assert "config.json" in line
    assert "permission" in line.lower()
    assert ended.is_clean


@pytest.fixture
def full_disk(home: Path) -> Iterator[Path]:
    """A folder on a disk of its own with no byte left."""
    home.chmod(0o755)
    folder = home / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k,mode=777", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("this user can't mount a disk")
    with (folder / "filler").open("wb") as stream:
        for _ in range(16):
            stream.write(b"x" * 4096)
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_full_disk_does_not_stop_an_answer(full_disk: Path) -> None:
    assert_answered(run_unprivileged(full_disk, "ask", *QUESTION))


def test_logits_that_a_full_disk_takes_no_more_of_are_one_line(full_disk: Path, home: Path) -> None:
    ids = home / "ids.json"
    ids.write_text(str(list(range(5, 69))))
    ended = run_unprivileged(home, "score", "--ids", str(ids), "--logits-out", str(full_disk / "logits.safetensors"))
    assert ended.status == 1
    [line] = ended.err.splitlines()
    assert "logits.safetensors" in line
    assert "space" in line
    assert ended.is_clean


def test_a_trace_that_a_full_disk_takes_no_more_of_is_one_line_after_the_answer(full_disk: Path, home: Path) -> None:
    ended = run_unprivileged(home, "ask", "--trace", str(full_disk / "a.trace"), *QUESTION)
    assert ended.status == 1
    assert ended.out.strip()
    cut_off, line = ended.err.splitlines()
    assert "token limit" in cut_off
    assert "a.trace" in line
    assert "space" in line
    assert ended.is_clean
    assert [path.name for path in full_disk.iterdir()] == ["filler"]
