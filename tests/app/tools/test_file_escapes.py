"""Attempts to read or write what lies outside the allowed folders, or what is no file: each refused or contained."""

import contextlib
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.tools.registry import ToolError
from tests.app.tools.conftest import SECRET, Workshop

PATHS = [
    "../outside/secret.txt",
    "sub/../../outside/secret.txt",
    "./../outside/secret.txt",
    "{root}/../outside/secret.txt",
    "{outside}/secret.txt",
    "/{outside}/secret.txt",
    "{root}-twin/secret.txt",
    "/etc/passwd",
    "//etc/passwd",
    "/etc/shadow",
    "~/.ssh/id_rsa",
    "~root/.profile",
    "$HOME/.profile",
    "file:///etc/passwd",
    "..\\outside\\secret.txt",
    "%2e%2e/outside/secret.txt",
    "\u2024\u2024/outside/secret.txt",
    "notes.txt/../../outside/secret.txt",
    "notes.txt/x",
    "notes.txt\0../outside/secret.txt",
    "",
    "   ",
    ".",
    "/",
    "n" * 5000,
    "n/" * 3000,
    "file-link",
    "relative-link",
    "folder-link/secret.txt",
    "up-link/outside/secret.txt",
    "sub/chain/secret.txt",
    "loop",
    "loop/x",
    "dangling",
    "proc-link/self/environ",
    "hard-link",
    "fifo",
    "socket",
    "/proc/self/environ",
    "/proc/self/root{outside}/secret.txt",
    "/proc/self/cwd/secret.txt",
    "/proc/1/environ",
    "/proc/self/mem",
    "/dev/zero",
    "/dev/stdin",
    "/dev/tty",
    "/dev/fd/0",
    "/sys/kernel/notes",
]


@pytest.fixture
def trapped(workshop: Workshop) -> Iterator[Workshop]:
    root, outside = workshop.root, workshop.outside
    twin = root.with_name("root-twin")
    twin.mkdir()
    (twin / "secret.txt").write_text(SECRET)
    (root / "file-link").symlink_to(outside / "secret.txt")
    (root / "relative-link").symlink_to("../outside/secret.txt")
    (root / "folder-link").symlink_to(outside)
    (root / "up-link").symlink_to("..")
    (root / "sub" / "chain").symlink_to("../folder-link")
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to(outside / "new.txt")
    (root / "proc-link").symlink_to("/proc")
    os.link(outside / "secret.txt", root / "hard-link")
    os.mkfifo(root / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        # A relative name: an absolute one may be too long for a socket.
        with contextlib.chdir(root):
            server.bind("socket")
        yield workshop
    workshop.check_outside()
    assert (twin / "secret.txt").read_text() == SECRET


@pytest.mark.parametrize("path", PATHS)
@pytest.mark.parametrize("tool", ["read_file", "write_file", "list_files", "search_files"])
async def test_path_that_leads_out(trapped: Workshop, path: str, tool: str) -> None:
    path = path.format(root=trapped.root, outside=trapped.outside)
    more = {"content": "pwned"} if tool == "write_file" else {"query": SECRET} if tool == "search_files" else {}
    parameter = "path" if tool in ("read_file", "write_file") else "folder"
    text = await trapped.attempt(tool, **{parameter: path}, **more)
    assert SECRET not in text
    # A backslash is a letter of a name, and the root may be listed.
    if not (path == "." and parameter == "folder") and not (tool == "write_file" and "\\" in path):
        assert text.startswith("Error: ")
        assert "\n" not in text


async def test_searching_and_listing_follow_no_link_and_wait_for_no_pipe(trapped: Workshop) -> None:
    began_s = time.monotonic()
    found = await trapped.attempt("search_files", query=SECRET, folder=".")
    assert found.startswith("No matches.")
    assert "skipped" in found
    listed = await trapped.attempt("list_files", folder=".")
    assert "folder-link@" in listed
    assert "secret.txt" not in listed
    assert time.monotonic() - began_s < 5


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a device")
async def test_device_in_the_root(workshop: Workshop) -> None:
    os.mknod(workshop.root / "zero", 0o20666, os.makedev(1, 5))
    assert await workshop.attempt("read_file", path="zero") == "Error: zero is not a regular file"
    assert await workshop.attempt("write_file", path="zero", content="x") == "Error: zero is not a regular file"
    assert (await workshop.attempt("search_files", query="x", folder=".")).startswith("No matches.")


async def test_hostile_names_reach_no_terminal(workshop: Workshop) -> None:
    for name in ("a\x1b]52;c;aGk=\x07", "b\nError: fake", "c\u202etxt", "d\udcff"):
        (workshop.root / name).write_text("needle")
    for text in (
        await workshop.attempt("list_files", folder="."),
        await workshop.attempt("search_files", query="needle", folder="."),
        await workshop.attempt("read_file", path="a\x1b]52;c;aGk=\x07x"),
    ):
        assert not set(text) & set("\x1b\x07\u202e\udcff")
        assert "\nError" not in text


async def test_file_without_end_or_with_holes(workshop: Workshop) -> None:
    with (workshop.root / "sparse").open("wb") as file:
        file.truncate(1 << 40)
    began_s = time.monotonic()
    assert await workshop.attempt("read_file", path="sparse") == "Error: sparse is not a text file"
    assert "larger than" in await workshop.attempt("write_file", path="sparse", content="x")
    assert "1 skipped" in await workshop.attempt("search_files", query="absent", folder=".")
    assert time.monotonic() - began_s < 5


async def test_content_without_end_is_refused(workshop: Workshop) -> None:
    text = await workshop.attempt("write_file", path="big.txt", content="x" * (1 << 21))
    assert text == "Error: the content is larger than 1 MiB"


@pytest.mark.parametrize("path", [".git/hooks/pre-commit", "sub/.git/config", ".hg/hgrc"])
async def test_version_control_is_not_written(workshop: Workshop, path: str) -> None:
    (workshop.root / path).parent.mkdir(parents=True)
    assert "belongs to version control" in await workshop.attempt("write_file", path=path, content="x")
    assert not (workshop.root / path).exists()


async def test_search_says_that_it_reaches_below(workshop: Workshop) -> None:
    for name, arguments, reaches_below in (
        ("search_files", {"query": "x", "folder": "."}, True),
        ("run_command", {"command": "ls"}, True),
        ("list_files", {"folder": "."}, False),
        ("read_file", {"path": "notes.txt"}, False),
    ):
        tool = workshop.registry.get(name)
        assert tool is not None
        assert (await tool.look_at(arguments)).reaches_below == reaches_below


# ---- swaps between the look and the use


async def run_after(workshop: Workshop, swap: Callable[[], object], name: str, **arguments: str) -> str:
    """Run a call whose surroundings change after it was looked at and allowed."""
    tool = workshop.registry.get(name)
    assert tool is not None
    scope = await tool.look_at(arguments)
    swap()
    try:
        return await tool.run(arguments, scope)
    except ToolError as error:
        return f"Error: {error}"


def replace_by_link(path: Path, target: Path) -> None:
    path.rename(path.with_name(path.name + "-old"))
    path.symlink_to(target)


async def test_file_becomes_a_link(workshop: Workshop) -> None:
    notes, secret = workshop.root / "notes.txt", workshop.outside / "secret.txt"
    text = await run_after(workshop, lambda: replace_by_link(notes, secret), "read_file", path="notes.txt")
    assert text == "Error: notes.txt is a symbolic link; links are not followed"
    text = await workshop.attempt("write_file", path="notes.txt", content="pwned")
    assert text.startswith("Error: ")
    workshop.check_outside()


@pytest.mark.parametrize("tool", ["read_file", "write_file", "list_files", "search_files"])
async def test_folder_becomes_a_link(workshop: Workshop, tool: str) -> None:
    (workshop.outside / "secret.txt").write_text(SECRET)
    arguments = {
        "read_file": {"path": "sub/secret.txt"},
        "write_file": {"path": "sub/secret.txt", "content": "pwned"},
        "list_files": {"folder": "sub"},
        "search_files": {"folder": "sub", "query": SECRET},
    }[tool]
    swap = lambda: replace_by_link(workshop.root / "sub", workshop.outside)  # noqa: E731
    text = await run_after(workshop, swap, tool, **arguments)
    assert text.startswith("Error: ")
    assert "link" in text
    workshop.check_outside()


async def test_root_becomes_a_link(workshop: Workshop) -> None:
    swap = lambda: replace_by_link(workshop.root, workshop.outside)  # noqa: E731
    text = await run_after(workshop, swap, "write_file", path="secret.txt", content="mine")
    # The root that was allowed is held open and is the one that is written.
    assert text.startswith("Wrote")
    assert (workshop.root.with_name("root-old") / "secret.txt").read_text() == "mine"
    workshop.check_outside()


async def test_link_appears_where_a_new_file_goes(workshop: Workshop) -> None:
    swap = lambda: (workshop.root / "new.txt").symlink_to(workshop.outside / "secret.txt")  # noqa: E731
    text = await run_after(workshop, swap, "write_file", path="new.txt", content="pwned")
    assert text.startswith("Error: ")
    workshop.check_outside()


async def test_hard_link_appears(workshop: Workshop) -> None:
    def swap() -> None:
        (workshop.root / "notes.txt").unlink()
        os.link(workshop.outside / "secret.txt", workshop.root / "notes.txt")

    for tool, more in (("read_file", {}), ("write_file", {"content": "pwned"})):
        text = await run_after(workshop, swap, tool, path="notes.txt", **more)
        assert "hard link" in text
        (workshop.root / "notes.txt").unlink()
        (workshop.root / "notes.txt").write_text("again")
    workshop.check_outside()


async def test_file_changes_after_its_diff_was_shown(workshop: Workshop) -> None:
    notes = workshop.root / "notes.txt"
    swap = lambda: notes.write_text("my own work")  # noqa: E731
    text = await run_after(workshop, swap, "write_file", path="notes.txt", content="the model's")
    assert "changed meanwhile" in text
    assert notes.read_text() == "my own work"


async def test_folder_is_another_one_after_the_diff(workshop: Workshop) -> None:
    def swap() -> None:
        (workshop.root / "sub").rename(workshop.root / "sub-old")
        (workshop.root / "sub").mkdir()

    text = await run_after(workshop, swap, "write_file", path="sub/new.txt", content="x")
    assert "changed meanwhile" in text
    assert not (workshop.root / "sub" / "new.txt").exists()


@pytest.mark.parametrize("kind", ["file", "folder"])
async def test_thousands_of_swaps_never_let_a_read_out(workshop: Workshop, kind: str) -> None:
    """Another process flips a name between what is allowed and a link that leads out, as fast as it can."""
    root, outside = workshop.root, workshop.outside
    if kind == "file":
        good, evil, name = root / "good", root / "evil", root / "target"
        good.write_text("harmless")
        evil.symlink_to(outside / "secret.txt")
        path = "target"
    else:
        good, evil, name = root / "good", root / "evil", root / "target"
        good.mkdir()
        (good / "secret.txt").write_text("harmless")
        evil.symlink_to(outside)
        path = "target/secret.txt"
    is_over = threading.Event()

    def flip() -> None:
        while not is_over.is_set():
            for source in (good, evil):
                source.rename(name)
                name.rename(source)

    flipping = threading.Thread(target=flip)
    flipping.start()
    try:
        texts = {await workshop.attempt("read_file", path=path) for _ in range(400)}
        for _ in range(100):
            texts.add(await workshop.attempt("write_file", path=path, content="harmless"))
    finally:
        is_over.set()
        flipping.join()
    assert SECRET not in "".join(texts)
    workshop.check_outside()
