"""No file takes the app down: each bad one is refused by name with the next step, in less than 1 GiB of memory."""

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from app.chat.attachments import read_attachment
from app.documents import extract as extract_module
from app.documents.extract import extract
from app.errors import AttachmentError
from tests.support.command_line import REPO
from tests.support.documents import bomb_docx, make_docx, make_pdf, pack_docx, word_xml
from tests.support.privileges import as_ordinary_user

GIB = 2**30
LAUGHS = b"<!DOCTYPE x [<!ENTITY a 'ha'>" + b"".join(
    f"<!ENTITY {b} '{f'&{a};' * 10}'>".encode() for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
BAD_FILES: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty.txt": (lambda: b"", "is empty; there is nothing to read"),
    "empty.pdf": (lambda: b"", "is empty; there is nothing to read"),
    "scanned.pdf": (lambda: make_pdf(["", ""], is_scanned=True), r"only pictures of its pages; run text recognition"),
    "locked.pdf": (lambda: make_pdf(["secret"], password="key"), "protected with a password; save a copy without it"),
    "truncated.pdf": (lambda: make_pdf(["words"] * 9)[:300], "is damaged or not complete; open it in its own program"),
    "noise.pdf": (lambda: b"%PDF-1.7\n" + random.Random(0).randbytes(10**6), "is damaged or not complete"),
    "truncated.docx": (lambda: make_docx(["words"] * 9)[:-3000], "is damaged or not complete"),
    "torn.docx": (lambda: pack_docx(word_xml("<w:p>")[:-30]), "is damaged or not complete"),
    "blank.docx": (lambda: make_docx([""]), "has no text in it"),
    "bomb.docx": (
        lambda: bomb_docx(GIB * 3 // 4),
        "more than 16 million characters of text; attach the part that matters",
    ),
    "blank-bomb.docx": (lambda: bomb_docx(GIB // 2, "<w:p>"), "unpacks to more than 256 MiB and was not read; attach"),
    "laughs.docx": (lambda: pack_docx(LAUGHS + b"]><x>&i;</x>"), "XML declarations that no word processor writes"),
    "external.docx": (
        lambda: pack_docx(b"<!DOCTYPE x [<!ENTITY e SYSTEM 'file:///etc/passwd'>]><x>&e;</x>"),
        "XML declarations",
    ),
    "deep.docx": (lambda: pack_docx(word_xml("<w:p>" * 200_000)), "is damaged or not complete"),
    "sheet.xlsx": (lambda: pack_docx(b"").replace(b"word/document", b"xl/workbookxx"), "a document that is not DOCX"),
    "old.doc": (lambda: b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600), "old Word"),
    "huge.txt": (lambda: b"a line of text\n" * (200 * 2**20 // 15), "larger than 16 MiB; attach the part that matters"),
    "lines.txt": (lambda: b"a\n" * (8 * 2**20), "more than 400,000 lines; attach the part"),
    "cut.txt": (lambda: "text".encode("utf-16")[:-1], "damaged; save it as UTF-8"),
}
GOOD_FILES: dict[str, bytes] = {
    "utf16.txt": "Grüße\n".encode("utf-16"),
    "latin1.txt": "Grüße\n".encode("latin-1"),
    "crlf.txt": "Grüße\r\n".encode(),
}
PROGRAM = """
import re, resource, sys
from pathlib import Path
from app.chat.attachments import read_attachment
from app.errors import AttachmentError
for name in sys.argv[1:]:
    try:
        read_attachment(Path(name))
    except AttachmentError:
        pass
# The kernel's other count of this process begins with what its parent held.
own = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
print(1024 * (own + resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss))
"""


@pytest.mark.parametrize("name", BAD_FILES)
def test_a_bad_file_is_named_with_the_next_step(name: str, tmp_path: Path) -> None:
    make, reason = BAD_FILES[name]
    path = tmp_path / name
    path.write_bytes(make())
    with pytest.raises(AttachmentError, match=reason) as caught:
        read_attachment(path)
    line = str(caught.value)
    assert name in line
    assert "\n" not in line
    assert peak_bytes(path) < GIB


def peak_bytes(*paths: Path) -> int:
    """Of a process that reads these files, its reader processes included."""
    command = [sys.executable, "-c", PROGRAM, *map(str, paths)]
    ended = subprocess.run(command, cwd=REPO, capture_output=True, text=True, check=True)
    return int(ended.stdout)


@pytest.mark.parametrize("name", GOOD_FILES)
def test_any_encoding_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(GOOD_FILES[name])
    assert read_attachment(path)[0].text == "Grüße\n"


def test_largest_text_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "largest.txt"
    path.write_text("Grüße ☕ and forty more characters of text\n" * 350_000)
    assert len(read_attachment(path)[0].text) > 14_000_000
    assert peak_bytes(path) < GIB


def test_largest_documents_are_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "largest.docx"
    path.write_bytes(pack_docx(word_xml("<w:p><w:r><w:t>some words of a paragraph</w:t></w:r></w:p>" * 390_000)))
    assert len(read_attachment(path)[0].text) > 9_000_000
    assert peak_bytes(path) < GIB


def test_places_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    for path, reason in {
        tmp_path: "is a folder; name the files",
        tmp_path / "pipe": "is not a regular file; copy",
        Path("/dev/zero"): "is not a regular file; copy",
        tmp_path / "link": "There is no file .*; check the path",
    }.items():
        with pytest.raises(AttachmentError, match=reason):
            read_attachment(path, may_be_pipe=False)


def test_unreadable_pdf(tmp_path: Path) -> None:
    path = tmp_path / "secret.pdf"
    path.write_bytes(make_pdf(["x"]))
    path.chmod(0)
    with as_ordinary_user(), pytest.raises(AttachmentError, match="permission denied; change its permissions"):
        read_attachment(path)


@pytest.mark.parametrize("change", ["grows", "is rewritten", "shrinks"])
def test_a_file_that_changes_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(b"x" * 2**21)
    read, is_changed = os.read, []

    def changing_read(descriptor: int, num_bytes: int) -> bytes:
        data = read(descriptor, num_bytes)
        if not is_changed:
            is_changed.append(True)
            path.write_bytes({"grows": b"x" * 2**22, "is rewritten": b"y" * 2**21, "shrinks": b"x"}[change])
            os.utime(path, ns=(0, 0))
        return data

    monkeypatch.setattr(os, "read", changing_read)
    with pytest.raises(AttachmentError, match=r"log\.txt changed while it was read; attach it again"):
        read_attachment(path)


def test_a_file_that_becomes_a_pipe_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.txt"
    path.write_text("x")
    opened = os.open

    def swap(name: Path, flags: int) -> int:
        path.unlink()
        os.mkfifo(path)
        return opened(name, flags)

    monkeypatch.setattr(os, "open", swap)
    with pytest.raises(AttachmentError, match="not a regular file"):
        read_attachment(path)


def test_a_slow_reader_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extract_module, "TIME_LIMIT_S", 0.01)
    with pytest.raises(AttachmentError, match=r"slow\.pdf took more than"):
        extract(make_pdf(["x"]), "pdf", "slow.pdf")


def test_readers_are_strangers_to_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """No variable, no thread of it matters to a reader; several run at once."""
    monkeypatch.setenv("HF_TOKEN", "secret")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/opt/lib")
    assert extract_module._reader_environment().keys() == {"PYTHONPATH", "LD_LIBRARY_PATH"}
    texts: list[str] = []
    data = make_pdf(["Words."])
    threads = [threading.Thread(target=lambda: texts.append(extract(data, "pdf", "a").text)) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == ["Words."] * 3


@pytest.mark.parametrize(
    ("deed", "ending"),
    [
        ("bytearray(700 * 2**20)", "MemoryError"),
        ("open('big', 'wb', 0).write(bytes(90 * 2**20)); open('big', 'ab', 0).write(b'x')", "File too large"),
    ],
)
def test_readers_are_limited_by_the_system(tmp_path: Path, deed: str, ending: str) -> None:
    program = "import signal; from app.documents.reader import _limit; _limit();"
    program += f"signal.signal(signal.SIGXFSZ, signal.SIG_IGN); {deed}"
    environment = {"PYTHONPATH": str(REPO)}
    run = [sys.executable, "-c", program]
    ended = subprocess.run(run, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert ending in ended.stderr


def test_damaged_pdfs_of_all_kinds_end_in_words(tmp_path: Path) -> None:
    """Bytes exchanged at random: read, or refused by name."""
    whole = make_pdf(["Some words on a page."] * 3)
    draw = random.Random(1)
    endings = set()
    for _ in range(8):
        data = bytearray(whole)
        for _ in range(40):
            data[draw.randrange(9, len(data))] = draw.randrange(256)
        try:
            endings.add(extract(bytes(data), "pdf", "a.pdf").kind)
        except AttachmentError as error:
            endings.add(str(error).split()[0])
    assert endings <= {"pages", "a.pdf"}
