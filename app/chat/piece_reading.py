"""Reading all of a long document: every piece is asked the question in a fresh context, what they find is put together.

The findings keep the marks of the document, `[p.3]` or `[line 12]`, so that the chat's answer can cite them.
"""

import re
from collections.abc import Collection, Sequence

from app.chat.side_calls import Question, SideCalls
from app.chat.summaries import REQUEST as SUMMARY_REQUEST
from app.documents.blocks import Block, blocks_of, mark_of
from app.documents.passages import Passage
from app.documents.reading_plan import ReadingPlan
from app.documents.rendering import fence
from app.errors import SideCallError
from app.messages import Attachment, DocumentKind

_MARK = re.compile(r"\[(?:p\.|line )\d+\]")
_SPACED_MARK = re.compile(rf"\s*{_MARK.pattern}")
_QUOTED = re.compile(r"[\"“](.{8,}?)[\"”]")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_LEAST_QUOTE_CHARS = 12
_WORD = re.compile(r"\w{3,}|\d+")
_NOT_THERE = re.compile(
    r"^(sorry, )?(the|this) (document|text|file|passage|excerpt|page) (does not|doesn't|did not)"
    r" (say|mention|contain)\b",
    re.IGNORECASE,
)


async def read_pieces(
    side_calls: SideCalls, document: Attachment, question: str, plan: ReadingPlan, conversation_id: str = ""
) -> str:
    """What the pieces of `plan` say to the question, a line each; without a question, what they are about.

    Pieces that say nothing of it are left out, pieces that could not be read are named. Raises SideCallError where
    none could.
    """
    pieces = plan.passages
    questions = [
        Question(
            f"{document.name}, {piece.place(document)} ({number} of {len(pieces)})",
            _prompt(document, piece, question),
        )
        for number, piece in enumerate(pieces, 1)
    ]
    answers = await side_calls.ask_each("reading", questions, plan.note_tokens, conversation_id)
    failures = [answer for answer in answers if isinstance(answer, SideCallError)]
    if len(failures) == len(answers):
        raise failures[0] if failures else SideCallError(f"{document.name} has no pieces to read.")
    notes = [
        note
        for piece, answer in zip(pieces, answers, strict=True)
        if (note := _note(document, piece, answer)) is not None
    ]
    return "\n".join(notes) or f"None of the {len(pieces)} pieces of the document says anything about this."


def _prompt(document: Attachment, piece: Passage, question: str) -> str:
    text = piece.text(document)
    if not question.strip():
        return SUMMARY_REQUEST.format(text=text)
    return f"{fence(f'File {document.name}:', text)}\n\n{question}"


def _note(document: Attachment, piece: Passage, answer: str | SideCallError) -> str | None:
    """A line with its mark; None where the piece has nothing to say."""
    if isinstance(answer, SideCallError):
        return f"({piece.place(document)} could not be read: {answer})"
    finding = " ".join(answer.split())
    if not finding or _NOT_THERE.match(finding):
        return None
    blocks = blocks_of(document)[piece.first : piece.end]
    cited = set(_MARK.findall(finding))
    bare = _SPACED_MARK.sub("", finding).strip()
    # Models take the words of a text more exactly than its marks.
    block = _quoted(bare, blocks) or _cited(cited, blocks, document.kind) or _closest(bare, blocks)
    return f"{mark_of(block.place, document.kind)} {bare}"


def _quoted(finding: str, blocks: Sequence[Block]) -> Block | None:
    """The first block that has a quote or a sentence of the finding."""
    sentences = [sentence for sentence in _SENTENCE_END.split(finding) if len(sentence) >= _LEAST_QUOTE_CHARS]
    quotes = [*_QUOTED.findall(finding), *sentences]
    texts = [" ".join(block.text.split()) for block in blocks]
    return next((block for quote in quotes for block, text in zip(blocks, texts, strict=True) if quote in text), None)


def _cited(marks: Collection[str], blocks: Sequence[Block], kind: DocumentKind) -> Block | None:
    """The first block that the finding names, where it is one that was read."""
    return next((block for block in blocks if mark_of(block.place, kind) in marks), None)


def _closest(finding: str, blocks: Sequence[Block]) -> Block:
    """The block that shares most words with the finding, the first of several."""
    words = set(_WORD.findall(finding.lower()))
    return max(blocks, key=lambda block: len(words.intersection(_WORD.findall(block.text.lower()))))
