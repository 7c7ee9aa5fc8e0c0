"""Every form of document gives its words, its pages or lines, and no markup."""

from pathlib import Path

import pytest

from app.chat.attachments import pasted_path, path_of, read_attachment, read_document
from app.messages import Attachment
from tests.support.documents import WORD, make_docx, make_pdf, pack_docx, word_xml

LONG = "The harbour of Vellmar opens at seven in the morning and closes at nine in the evening, even on holidays. "
PAGES = [f"Number {number}. {LONG}{LONG}{LONG}\n\nShort end {number}." for number in range(1, 4)]


def read(data: bytes, name: str) -> Attachment:
    attachment, notice = read_document(data, name, name)
    assert notice is None
    return attachment


def test_pdf_keeps_pages_and_whole_sentences() -> None:
    document = read(make_pdf(PAGES), "report.pdf")
    pages = document.text.split("\ue00c")
    assert (document.name, document.kind, len(pages)) == ("report.pdf", "pages", 3)
    for number, page in enumerate(pages, 1):
        assert page == f"Number {number}. {LONG}{LONG}{LONG.strip()}\nShort end {number}."


def test_pdf_pages_without_text_are_said() -> None:
    document, notice = read_document(make_pdf(["One.", "", "Three.", ""]), "mixed.pdf", "mixed.pdf")
    assert document.text == "One.\ue00c\ue00cThree.\ue00c"
    assert notice == "mixed.pdf has no text on page 2, 4: pictures are not read."


def test_pdf_is_known_by_its_bytes() -> None:
    assert read(make_pdf(["Words."]), "no-suffix").kind == "pages"
    assert read(b"\n\n" + make_pdf(["Words."]), "shifted.PDF").text == "Words."
    assert read(b"About %PDF-1.7 files\n", "notes.md").kind == "text"


def test_docx_with_page_breaks() -> None:
    document = read(make_docx(["# One\nfirst", "second", "third"]), "a.docx")
    assert (document.kind, document.text) == ("pages", "# One\nfirst\ue00csecond\ue00cthird")


def test_docx_without_pages_has_lines() -> None:
    document = read(make_docx(["one\ntwo"]), "a.docx")
    assert (document.kind, document.text) == ("text", "one\ntwo")


def test_docx_pages_of_the_layout_count_once() -> None:
    noted = "<w:p><w:r><w:t>{}</w:t></w:r></w:p><w:p><w:r><w:br w:type='page'/></w:r></w:p>"
    noted += "<w:p><w:r><w:lastRenderedPageBreak/><w:t>{}</w:t></w:r></w:p>"
    document = read(pack_docx(word_xml(noted.format("a" * 9000, "b"))), "a.docx")
    assert document.text == "a" * 9000 + "\ue00cb"


def test_docx_page_longer_than_any_page_is_not_called_one() -> None:
    body = f"<w:p><w:r><w:t>{'a' * 9000}</w:t><w:br w:type='page'/><w:t>b</w:t></w:r></w:p>"
    assert read(pack_docx(word_xml(body)), "a.docx").kind == "text"


def test_docx_details() -> None:
    body = (
        "<w:p><w:pPr><w:pStyle w:val='Heading1'/></w:pPr><w:r><w:t>Head</w:t></w:r></w:p>"
        "<w:p><w:pPr><w:numPr/></w:pPr><w:r><w:t>point</w:t><w:tab/><w:t>x</w:t></w:r></w:p>"
        "<w:tbl><w:tr><w:tc><w:p><w:r><w:t>1</w:t></w:r></w:p></w:tc>"
        "<w:tc><w:p><w:r><w:t>2</w:t></w:r></w:p></w:tc></w:tr></w:tbl>"
        "<w:p><w:del><w:r><w:delText>gone</w:delText></w:r></w:del><w:r><w:instrText>PAGE</w:instrText></w:r>"
        "<w:r><mc:AlternateContent xmlns:mc='m'><mc:Choice><w:t>once</w:t></mc:Choice><mc:Fallback><w:t>once</w:t>"
        "</mc:Fallback></mc:AlternateContent></w:r></w:p>"
    )
    notes = f"<w:footnotes xmlns:w='{WORD}'><w:p><w:r><w:t>a note</w:t></w:r></w:p></w:footnotes>".encode()
    document = read(pack_docx(word_xml(body), footnotes=notes), "a.docx")
    assert document.text == "# Head\n- point\tx\n1 | 2\nonce\n\na note"


def test_html_is_what_a_reader_sees() -> None:
    page = (
        b"<html><head><title>T</title><style>p{}</style></head><body><h2>Head</h2><p>One <b>two</b>\n &amp; three"
        b"<script>bad()</script><ul><li>x<li>y</ul><table><tr><td>1<td>2</table><pre>a\n  b</pre><!-- no -->"
    )
    document = read(page, "a.html")
    assert (document.kind, document.text) == ("text", "T\n\n## Head\n\nOne two & three\n\n- x\n- y\n\n1 | 2\n\na\n  b")


def test_html_by_its_beginning_and_declared_encoding() -> None:
    page = "<!DOCTYPE html><meta charset='shift_jis'><p>日本語</p>".encode("shift_jis")
    assert read(page, "page").text == "日本語"
    wrong = "<!DOCTYPE html><meta charset='euc-jp'><p>Grüße, naïve</p>".encode()
    assert read(wrong, "page").text == "Grüße, naïve"


@pytest.mark.parametrize(
    ("name", "kind"), [("a.py", "code"), ("Makefile", "code"), ("a.md", "text"), ("LICENSE", "text")]
)
def test_code_and_prose(name: str, kind: str) -> None:
    assert read(b"one\ntwo\n", name).kind == kind


def test_line_ends_are_one_kind() -> None:
    assert read(b"a\r\nb\rc\nd\x0ce", "a.txt").text == "a\nb\nc\nd\ne"


def test_hostile_text_of_a_pdf_is_cleaned() -> None:
    assert read(pack_docx(word_xml("<w:p><w:r><w:t>a&#x202E;b&#x9b;31m</w:t></w:r></w:p>")), "a.docx").text == "ab31m"


def test_paths_as_people_write_them(tmp_path: Path) -> None:
    file = tmp_path / "my report's.pdf"
    file.write_bytes(b"x")
    escaped = str(file).replace(" ", "\\ ").replace("'", "\\'")
    for written in (str(file), f'"{file}"', file.as_uri(), escaped, f" {file}\n"):
        assert path_of(written) == file
        assert pasted_path(written) == file
    for text in (
        "hello",
        "",
        str(tmp_path),
        f"{file} and more",
        f"{file}\n{file}",
        "/" + "x" * 5000,
        "/a\0b",
        "report",
    ):
        assert pasted_path(text) is None


def test_a_file_without_extras_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "pypdfium2.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "a.pdf").write_bytes(make_pdf(["x"]))
    with pytest.raises(Exception, match=r"pip install 'hotslot\[documents\]'"):
        read_attachment(tmp_path / "a.pdf")
