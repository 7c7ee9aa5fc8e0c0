"""`hotslot chat` as a user runs it: options, a document for the first message, a model that is not there."""

from pathlib import Path

import pytest

from app.cli import main
from tests.support.command_line import run_hotslot


def test_wrong_options_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["chat", "--model", str(tmp_path / "gone")]) == 1
    assert main(["chat", "--temperature", "hot"]) == 2
    assert main(["chat", "--allow", "nothing"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 3


def test_a_script_reads_documents_and_lists_without_a_model_loaded(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("inside")
    ended = run_hotslot(
        "chat", "--file", str(tmp_path / "notes.txt"), "--root", str(tmp_path), "--allow", "calculator",
        stdin=b"/documents\n/tools\n/list\n/quit\nnever said\n", env={"HOTSLOT_HOME": str(tmp_path / "home")},
    )  # fmt: skip
    assert (ended.status, ended.is_clean) == (0, True)
    assert "notes.txt: 6 characters, for the next message" in ended.out
    assert "calculator: risk none\n  allowed everywhere" in ended.out
    assert "Loading" not in ended.err


def test_a_missing_document_ends_it_before_anything_is_loaded(tmp_path: Path) -> None:
    ended = run_hotslot("chat", "--file", "/no/such", env={"HOTSLOT_HOME": str(tmp_path / "home")})
    assert ended.status == 1
    assert "There is no file /no/such" in ended.err
