"""What the file tools do when nobody tries to trick them."""

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from app.tools.file_text import MAX_BYTES
from app.tools.folders import AllowedFolders
from app.tools.read_tools import MAX_ENTRIES, MAX_MATCHES
from app.tools.registry import ToolError
from tests.app.tools.conftest import Workshop


@pytest.mark.parametrize("path", ["notes.txt", "./notes.txt", "sub/deep.txt", "ABSOLUTE"])
async def test_read(workshop: Workshop, path: str) -> None:
    path = str(workshop.root / "notes.txt") if path == "ABSOLUTE" else path
    assert await workshop.attempt("read_file", path=path) == (workshop.root / path).read_text()


async def test_read_what_is_odd(workshop: Workshop) -> None:
    for name, data, wanted in (
        ("empty", b"", "(empty file)"),
        ("latin", "Grüße an alle im Haus".encode("cp1252"), "Grüße an alle im Haus"),
        ("utf16", "Grüße".encode("utf-16"), "Grüße"),
        ("bom", b"\xef\xbb\xbfhi", "hi"),
        ("binary", bytes(range(256)), "Error: binary is not a text file"),
        ("noise", b"\x01\x02\x80\x81" * 50, "Error: noise is not a text file"),
    ):
        (workshop.root / name).write_bytes(data)
        assert await workshop.attempt("read_file", path=name) == wanted
    assert await workshop.attempt("read_file", path="nope.txt") == "Error: nope.txt does not exist"
    assert await workshop.attempt("read_file", path="no/pe.txt") == "Error: no such folder: no/pe.txt"
    assert await workshop.attempt("read_file", path="sub") == "Error: sub is a folder"


async def test_long_file_is_cut_visibly(workshop: Workshop) -> None:
    (workshop.root / "long").write_text("é" * MAX_BYTES)
    text = await workshop.attempt("read_file", path="long")
    assert text.endswith(f"\n[cut: the first {MAX_BYTES} of {2 * MAX_BYTES} bytes]")
    assert text.count("é") == MAX_BYTES // 2


async def test_list(workshop: Workshop) -> None:
    (workshop.root / "link").symlink_to(workshop.outside)
    (workshop.root / "sub" / "void").mkdir()
    assert await workshop.attempt("list_files", folder=".") == "link@\nnotes.txt\nsub/"
    assert await workshop.attempt("list_files", folder="sub/void") == "(empty)"
    assert await workshop.attempt("list_files", folder="nope") == "Error: no such folder: nope"
    for number in range(MAX_ENTRIES + 3):
        (workshop.root / "sub" / "void" / f"{number:04}").touch()
    assert (await workshop.attempt("list_files", folder="sub/void")).endswith(
        f"[cut: {MAX_ENTRIES} of {MAX_ENTRIES + 3} entries]"
    )


async def test_search(workshop: Workshop) -> None:
    found = await workshop.attempt("search_files", query="needle", folder=".")
    assert found == "notes.txt:2: needle here\nsub/deep.txt:1: a Needle too"
    assert await workshop.attempt("search_files", query="needle", folder="sub") == "sub/deep.txt:1: a Needle too"
    assert await workshop.attempt("search_files", query="absent", folder=".") == "No matches."
    assert await workshop.attempt("search_files", query=" ", folder=".") == "Error: the query is empty"
    (workshop.root / "binary").write_bytes(b"needle\0")
    (workshop.root / "many").write_text("needle\n" * 100)
    lines = (await workshop.attempt("search_files", query="needle", folder=".")).splitlines()
    assert len(lines) == MAX_MATCHES + 2
    assert lines[-2:] == [
        f"[stopped: {MAX_MATCHES} matches]",
        "[1 skipped: links, folders too deep, files that are no text or too large]",
    ]


async def test_write_shows_its_change_and_keeps_the_mode(workshop: Workshop) -> None:
    tool = workshop.registry.get("write_file")
    assert tool is not None
    assert tool.examine is not None
    (workshop.root / "notes.txt").chmod(0o640)
    scope = await tool.examine({"path": "notes.txt", "content": "first line\nhay\n"})
    assert scope.diff.splitlines()[-3:] == [" first line", "-needle here", "+hay"]
    assert (scope.permission, scope.folder) == ("write_file", str(workshop.root))
    assert await workshop.attempt("write_file", path="notes.txt", content="ä") == "Wrote 2 bytes to notes.txt."
    assert (workshop.root / "notes.txt").read_text() == "ä"
    assert (workshop.root / "notes.txt").stat().st_mode & 0o777 == 0o640
    assert await workshop.attempt("write_file", path="sub/new.txt", content="x") == "Wrote 1 bytes to sub/new.txt."
    assert await workshop.attempt("write_file", path="no/new.txt", content="x") == "Error: no such folder: no/new.txt"
    assert sorted(entry.name for entry in workshop.root.rglob("*")) == ["deep.txt", "new.txt", "notes.txt", "sub"]


async def test_diff_of_large_texts_is_quick_and_whole(workshop: Workshop) -> None:
    tool = workshop.registry.get("write_file")
    assert tool is not None
    assert tool.examine is not None
    (workshop.root / "big").write_text("\n".join(f"a{number}" for number in range(20_000)))
    scope = await tool.examine({"path": "big", "content": "\n".join(f"b{number}" for number in range(20_000))})
    lines = scope.diff.splitlines()
    assert len(lines) == 40_002
    assert (lines[2], lines[-1]) == ("-a0", "+b19999")
    (workshop.root / "image").write_bytes(b"\0\1")
    assert "no text and is replaced whole" in (await tool.examine({"path": "image", "content": "x"})).diff


@given(
    st.sampled_from(["read_file", "list_files", "search_files", "write_file", "calculator"]),
    st.text(max_size=40) | st.text("./~-\\ a\0", max_size=12),
    st.text(max_size=20),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=300)
def test_any_text_gives_a_result_or_a_reason(workshop: Workshop, name: str, first: str, second: str) -> None:
    """Never another error."""
    parameters = {
        "read_file": {"path": first},
        "list_files": {"folder": first},
        "search_files": {"folder": first, "query": second},
        "write_file": {"path": first, "content": second},
        "calculator": {"expression": first},
    }
    assert isinstance(asyncio.run(workshop.attempt(name, **parameters[name])), str)
    workshop.check_outside()


def test_several_roots(tmp_path: Path) -> None:
    (tmp_path / "a" / "inner").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "way").symlink_to(tmp_path / "b")
    folders = AllowedFolders([tmp_path / "a", tmp_path / "way", tmp_path / "a" / "inner"])
    assert folders.paths == tuple(str(tmp_path / name) for name in ("a", "b", "a/inner"))
    assert folders.place("x").path == str(tmp_path / "a" / "x")
    # The user's own words for a root may go through a link; below it none is followed.
    assert folders.place(str(tmp_path / "way" / "x")).path == str(tmp_path / "b" / "x")
    assert folders.place(str(tmp_path / "a" / "inner" / "x")).root == 2
    folders.close()
    folders.close()


@pytest.mark.parametrize("folder", ["nope", "file", "/proc", "/sys", "/proc/self/fd"])
def test_what_can_be_no_root(tmp_path: Path, folder: str) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ToolError, match="can't be a root"):
        AllowedFolders([tmp_path / folder])
