"""Reading all of a long document: every piece is asked the question in a fresh context, what they find is put together.

The findings keep the marks of the document, `[p.3]` or `[line 12]`, so that the chat's answer can cite them.
"""

import re
from collections.abc import Sequence

from app.chat.side_calls import Question, SideCalls
from app.chat.summaries import REQUEST as SUMMARY_REQUEST
from app.documents.blocks import Block, blocks_of, mark_of
from app.documents.passages import Passage
from app.documents.reading_plan import ReadingPlan
from app.documents.rendering import fence
from app.errors import SideCallError
from app.messages import Attachment

_MARK = re.compile(r"\[(?:p\.|line )\d+\]")
_QUOTED = re.compile(r"[\"“](.{8,}?)[\"”]", re.DOTALL)
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
    if _MARK.search(finding):
        return finding
    blocks = blocks_of(document)[piece.first : piece.end]
    return f"{mark_of(_block_of(finding, blocks).place, document.kind)} {finding}"


def _block_of(finding: str, blocks: Sequence[Block]) -> Block:
    """The block that a finding quotes, else the one that shares most of its words, the first of several."""
    quoted = [" ".join(quote.split()) for quote in _QUOTED.findall(finding)]
    for block in blocks:
        text = " ".join(block.text.split())
        if any(quote in text for quote in quoted):
            return block
    words = set(re.findall(r"\w{3,}", finding.lower()))
    return max(blocks, key=lambda block: len(words.intersection(re.findall(r"\w{3,}", block.text.lower()))))
