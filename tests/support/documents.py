"""Makes documents with the libraries that people make them with, and files that are none."""

import io
import zipfile
from collections.abc import Sequence

import docx
from fpdf import FPDF

WORD = "http://schemas.openxmlformats.org/wordprocessingml/2006/main"


def make_pdf(pages: Sequence[str], password: str = "", is_scanned: bool = False) -> bytes:
    """One page each; paragraphs are parted by blank lines. A scanned page is a picture."""
    pdf = FPDF()
    pdf.set_font("helvetica", size=11)
    if password:
        pdf.set_encryption(owner_password=password + "!", user_password=password)
    for page in pages:
        pdf.add_page()
        if is_scanned:
            pdf.rect(20, 20, 100, 100, style="F")
        else:
            pdf.multi_cell(0, 6, page)
    return bytes(pdf.output())


def make_docx(pages: Sequence[str]) -> bytes:
    """Pages by page breaks; a paragraph a line."""
    document = docx.Document()
    for number, page in enumerate(pages):
        if number:
            document.add_page_break()
        for paragraph in page.split("\n"):
            document.add_paragraph(paragraph)
    output = io.BytesIO()
    document.save(output)
    return output.getvalue()


def pack_docx(document_xml: bytes, **parts: bytes) -> bytes:
    """A DOCX with exactly this in it, well-formed or not; `footnotes=` and the like are further parts."""
    output = io.BytesIO()
    with zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        archive.writestr("word/document.xml", document_xml)
        for name, content in parts.items():
            archive.writestr(f"word/{name}.xml", content)
    return output.getvalue()


def word_xml(body: str) -> bytes:
    return f'<?xml version="1.0"?><w:document xmlns:w="{WORD}"><w:body>{body}</w:body></w:document>'.encode()


def bomb_docx(num_bytes: int, opening: str = "<w:p><w:r><w:t>") -> bytes:
    """Unpacks to one paragraph, or other thing that begins so, of that many letters."""
    output = io.BytesIO()
    with (
        zipfile.ZipFile(output, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("word/document.xml", "w", force_zip64=True) as part,
    ):
        part.write(word_xml(opening).removesuffix(b"</w:body></w:document>"))
        for _ in range(num_bytes // 2**20):
            part.write(b"x" * 2**20)
    return output.getvalue()
