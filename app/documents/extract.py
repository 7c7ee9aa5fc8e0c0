"""PDF, DOCX and HTML to text, in a child process with limits of memory and time: no file can take the app down.

Every way it can end badly is an AttachmentError that names the file and the next step.
"""

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from app.documents.limits import MAX_EXTRACTED_CHARS, MAX_UNPACKED_BYTES, MEMORY_LIMIT_BYTES, TIME_LIMIT_S
from app.environment import reader_variables
from app.errors import AttachmentError
from app.messages import PAGE_BREAK, DocumentKind
from app.sanitize import clean, clean_line

Form = Literal["pdf", "docx", "html"]
_MIB = 2**20


@dataclass(frozen=True)
class Extracted:
    """A document's text, cleaned, pages parted by `PAGE_BREAK`; a notice is a line the user should see."""

    kind: DocumentKind
    text: str
    notices: tuple[str, ...] = ()


_PROBLEMS = {
    "encrypted": "is protected with a password; save a copy without it and attach that.",
    "damaged": "is damaged or not complete; open it in its own program, save it again and attach that.",
    "no text": "has no text, only pictures of its pages; run text recognition (OCR) on it and attach the result.",
    "empty": "has no text in it; there is nothing to read.",
    "too much text": f"has more than {MAX_EXTRACTED_CHARS // 10**6} million characters of text; attach the part that"
    " matters.",
    "unpacks": f"unpacks to more than {MAX_UNPACKED_BYTES // _MIB} MiB and was not read; attach the part that matters,"
    " as text.",
    "declarations": "has XML declarations that no word processor writes and was not read; save it again with one.",
    "not a document": "is an archive, or a document that is not DOCX; save it as PDF, DOCX or text and attach that.",
    "no reader": "is a PDF, and PDFs need pypdfium2; install it with: pip install 'hotslot[documents]'.",
    "time": f"took more than {TIME_LIMIT_S} s to read and was given up; attach the part that matters, as text.",
    "memory": f"needs more than {MEMORY_LIMIT_BYTES // _MIB} MiB to be read and was given up; attach the part that"
    " matters, as text.",
    "crashed": "can't be read: its reader crashed on it; save it again, or attach its text.",
}
"""After the file's name."""
_KINDS: tuple[DocumentKind, ...] = get_args(DocumentKind)


def extract(data: bytes, form: Form, name: str) -> Extracted:
    """The text of a file called `name`. Takes up to TIME_LIMIT_S. Raises AttachmentError."""
    head, body = _run_reader(data, form, name)
    if "problem" in head:
        raise _problem(name, str(head["problem"]))
    kind = next((kind for kind in _KINDS if kind == head.get("kind")), None)
    if kind is None:
        raise _problem(name, "crashed")
    pages = [clean(page).replace(PAGE_BREAK, " ").strip("\n") for page in body.split("\f")]
    if not any(page.strip() for page in pages):
        raise _problem(name, "empty")
    return Extracted(kind, PAGE_BREAK.join(pages), _notices(head, name))


def _run_reader(data: bytes, form: Form, name: str) -> tuple[dict[str, object], str]:
    """The reader's head and text. What it writes goes to a file, so that its size is the system's to bound."""
    with tempfile.TemporaryFile() as output:
        try:
            ended = subprocess.run(
                [sys.executable, "-P", "-m", "app.documents.reader", form],
                input=data,
                stdout=output,
                stderr=subprocess.DEVNULL,
                env=_reader_environment(),
                timeout=TIME_LIMIT_S,
            )
        except subprocess.TimeoutExpired:
            raise _problem(name, "time") from None
        except OSError as error:
            reason = clean_line(error.strerror or str(error))
            raise AttachmentError(f"{name} can't be read: no reader could be started ({reason}); try again.") from error
        output.seek(0)
        written = output.read()
    if ended.returncode != 0:
        raise _problem(name, _cause(ended.returncode))
    first, _, rest = written.partition(b"\n")
    try:
        head = json.loads(first)
        return dict(head), rest.decode("utf-8")
    except ValueError:
        raise _problem(name, "crashed") from None


def _reader_environment() -> dict[str, str]:
    """Where to import from, and nothing else of this process."""
    packages = [str(Path(__file__).resolve().parents[2]), *filter(None, sys.path)]
    return reader_variables() | {"PYTHONPATH": os.pathsep.join(packages)}


def _cause(status: int) -> str:
    """What killed a reader; PDFium ends itself with a trap or a fault where memory runs out."""
    return "time" if status in (-24, -9) else "crashed"


def _problem(name: str, problem: str) -> AttachmentError:
    return AttachmentError(f"{name} {_PROBLEMS.get(problem, _PROBLEMS['crashed'])}")


def _notices(head: dict[str, object], name: str) -> tuple[str, ...]:
    pages = head.get("pages_without_text")
    if not isinstance(pages, list) or not pages:
        return ()
    numbers = ", ".join(str(page) for page in pages[:8]) + (f" and {len(pages) - 8} more" if len(pages) > 8 else "")
    return (f"{name} has no text on page {numbers}: pictures are not read.",)
