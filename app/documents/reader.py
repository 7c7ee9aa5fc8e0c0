"""The reader process: a file on stdin, one line of JSON and then its text on stdout. Hostile files end here.

Limits itself before it looks at the file. Imports no more of the app than the parsers beside it.
"""

import ctypes
import json
import resource
import signal
import sys

from app.documents.limits import MAX_EXTRACTED_CHARS, MEMORY_LIMIT_BYTES, TIME_LIMIT_S
from app.documents.parsing import Parsed, ReadingError

_PR_SET_PDEATHSIG = 1


def main(form: str) -> None:
    _limit()
    try:
        parsed = _parse(form, sys.stdin.buffer.read())
        head: dict[str, object] = {"kind": parsed.kind, "pages_without_text": parsed.pages_without_text}
        body = parsed.text.encode("utf-8", errors="replace")
    except ReadingError as problem:
        head, body = {"problem": problem.name}, b""
    except MemoryError:
        head, body = {"problem": "memory"}, b""
    sys.stdout.buffer.write(json.dumps(head).encode() + b"\n" + body)


def _limit() -> None:
    """Hard limits, which a process can't raise again; and whoever wanted the text may end before it is read."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    output_bytes = 4 * MAX_EXTRACTED_CHARS + 2**20
    limits = {
        resource.RLIMIT_AS: MEMORY_LIMIT_BYTES,
        resource.RLIMIT_CPU: TIME_LIMIT_S,
        resource.RLIMIT_FSIZE: output_bytes,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NPROC: 0,
    }
    for limit, value in limits.items():
        resource.setrlimit(limit, (value, value))


def _parse(form: str, data: bytes) -> Parsed:
    """Imports only the parser of that form: the others' libraries would take memory from it."""
    if form == "pdf":
        from app.documents.pdf import parse_pdf as parse
    elif form == "docx":
        from app.documents.docx import parse_docx as parse
    else:
        from app.documents.html import parse_html as parse
    return parse(data)


if __name__ == "__main__":
    main(sys.argv[1])
