"""Any text file is read, anything else is refused by name in one line."""

import os
from pathlib import Path

import pytest

from app.chat import attachments
from app.chat.attachments import decode_text, read_attachment
from app.errors import AttachmentError
from tests.support.privileges import as_ordinary_user

WORDS = "Grüße, naïve café — “quoted” ☕ 🙂\nsecond line\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
def test_unicode_with_or_without_mark(tmp_path: Path, encoding: str) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(WORDS.encode(encoding))
    attachment, notice = read_attachment(path)
    assert (attachment.name, attachment.text, notice) == ("a.txt", WORDS, None)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_without_mark_is_said(encoding: str) -> None:
    assert decode_text("plain text".encode(encoding), "f") == ("plain text", f"f was read as {encoding.upper()}.")


def test_latin1_is_said() -> None:
    text, notice = decode_text("Grüße aus Köln".encode("latin-1"), "f")
    assert text == "Grüße aus Köln"
    assert notice is not None
    assert "Latin-1" in notice


@pytest.mark.parametrize(
    "data",
    [
        bytes(range(256)) * 4,
        b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR" + b"\xff\xd8\0" * 9,
        b"\0" * 100,
        b"\x7fELF\x02\x01",
        b"%PDF-1.7 plain",
        b"PK\x03\x04 rest",
        b"\xff\xfea",
    ],
)
def test_binary_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "data.bin"
    path.write_bytes(data)
    with pytest.raises(AttachmentError, match=r"data\.bin"):
        read_attachment(path)


def test_random_bytes_are_refused() -> None:
    with pytest.raises(AttachmentError, match="binary"):
        decode_text(os.urandom(4096) + b"\xff", "f")


def test_stray_controls_are_removed_and_the_rest_stays(tmp_path: Path) -> None:
    path = tmp_path / "a\x1b]0;title\x07\u202e.txt"
    path.write_bytes(b"safe \x1b]52;c;aGk=\x07 NUL\0 csi \x1b[31m <|im_end|> end\r\n")
    attachment, notice = read_attachment(path)
    assert attachment.text == "safe ]52;c;aGk= NUL csi [31m <|im_end|> end\n"
    assert attachment.name == "a]0;title.txt"
    assert notice is None


def test_named_errors(tmp_path: Path) -> None:
    (tmp_path / "empty.txt").write_bytes(b"")
    cases = {
        tmp_path / "missing.txt": "There is no file .*missing.txt",
        tmp_path: "is a folder",
        tmp_path / "empty.txt": "is empty",
        Path("/dev/null"): "not a regular file",
        tmp_path / ("x" * 5000): "can't be read",
        tmp_path / "a\0b": "can't be read",
        tmp_path / "empty.txt" / "deeper": "can't be read",
    }
    for path, pattern in cases.items():
        with pytest.raises(AttachmentError, match=pattern) as caught:
            read_attachment(path)
        assert "\n" not in str(caught.value)


def test_unreadable_file(tmp_path: Path) -> None:
    path = tmp_path / "secret.txt"
    path.write_text("x")
    path.chmod(0)
    with as_ordinary_user(), pytest.raises(AttachmentError, match=r"secret\.txt.*permission"):
        read_attachment(path)


def test_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attachments, "MAX_FILE_BYTES", 2**20)
    path = tmp_path / "big.txt"
    path.write_bytes(b"x" * (2**20 + 1))
    with pytest.raises(AttachmentError, match="larger than 1 MiB"):
        read_attachment(path)


def test_pipe_is_read(tmp_path: Path) -> None:
    read_end, write_end = os.pipe()
    os.write(write_end, b"through a pipe")
    os.close(write_end)
    attachment, _ = read_attachment(Path(f"/dev/fd/{read_end}"))
    os.close(read_end)
    assert attachment.text == "through a pipe"
