"""The file of resident experts: whole and of this model, or ignored with one line."""

import logging
import os
from pathlib import Path

import numpy as np
import pytest

from runtime.memory.residents import ResidentFile, ResidentSet

LAYERS, EXPERTS = 3, 8


def file_of(folder: Path, fingerprint: str = "0123", num_experts: int = EXPERTS) -> ResidentFile:
    return ResidentFile(folder, fingerprint, LAYERS, num_experts)


def some_residents() -> ResidentSet:
    history = {"clock": np.array([77]), "stamps": np.arange(LAYERS * EXPERTS) * 3}
    return ResidentSet("lru", np.array([5, 23, 0, 11]), history, 4, 0.625)


@pytest.fixture
def written(tmp_path: Path) -> ResidentFile:
    file = file_of(tmp_path / "not yet there")
    file.write(some_residents())
    return file


def ignored_because(file: ResidentFile, caplog: pytest.LogCaptureFixture) -> str:
    """Reads a file that can't be used; returns the one line about it."""
    caplog.clear()
    with caplog.at_level(logging.DEBUG, "hotslot.engine"):
        assert file.read() is None
    [record] = caplog.records
    assert "\n" not in record.getMessage()
    return record.getMessage()


def test_what_was_written_is_read(written: ResidentFile) -> None:
    found, expected = written.read(), some_residents()
    assert found is not None
    assert (found.policy, found.num_slots, found.hit_rate) == ("lru", 4, 0.625)
    assert found.owners.tolist() == expected.owners.tolist()
    assert {name: values.tolist() for name, values in found.history.items()} == {
        name: values.tolist() for name, values in expected.history.items()
    }
    assert [path.name for path in written.path.parent.iterdir()] == ["0123.residents"]


def test_no_file_is_not_worth_a_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert file_of(tmp_path).read() is None
    assert not caplog.records


def test_every_damage_is_noticed(written: ResidentFile, caplog: pytest.LogCaptureFixture) -> None:
    """Cut anywhere, or one bit turned in any byte: never taken for whole, unless it only changes what is shown."""
    whole = written.path.read_bytes()
    for length in (0, 3, 8, 60, len(whole) // 2, len(whole) - 1):
        written.path.write_bytes(whole[:length])
        assert "the slots start empty" in ignored_because(written, caplog)
    expected = some_residents()
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 4
        written.path.write_bytes(damaged)
        found = written.read()
        assert found is None or found.owners.tolist() == expected.owners.tolist()
    written.path.write_bytes(b"\xff" * 4096)
    ignored_because(written, caplog)


def test_what_is_not_of_this_model_is_ignored(written: ResidentFile, caplog: pytest.LogCaptureFixture) -> None:
    folder = written.path.parent
    foreign = file_of(folder, "4567")
    os.replace(written.path, foreign.path)
    assert "another model" in ignored_because(foreign, caplog)
    fewer = file_of(folder, "89ab", num_experts=7)
    fewer.write(some_residents())
    assert "experts that do not exist" in ignored_because(fewer, caplog)
    more = file_of(folder, "cdef", num_experts=9)
    more.write(some_residents())
    assert "another model" in ignored_because(more, caplog)


def test_another_version_is_ignored(written: ResidentFile, caplog: pytest.LogCaptureFixture) -> None:
    content = written.path.read_bytes()
    written.path.write_bytes(content.replace(b"hotslot-residents-1", b"hotslot-residents-2"))
    assert "another version" in ignored_because(written, caplog)


def test_what_is_no_file_is_ignored(written: ResidentFile, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    outside = tmp_path / "outside"
    os.replace(written.path, outside)
    written.path.symlink_to(outside)
    assert "no ordinary file" in ignored_because(written, caplog)
    written.path.unlink()
    written.path.mkdir()
    assert "no ordinary file" in ignored_because(written, caplog)
