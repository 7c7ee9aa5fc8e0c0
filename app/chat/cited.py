"""The citations of an answer with the passages they name, numbered as every front end shows them."""

from collections.abc import Sequence

from app.chat.message_groups import said
from app.documents.blocks import blocks_of
from app.documents.citations import CitedPassage, find_citations, resolve
from app.messages import Attachment, Message
from runtime.errors import UsageError


def cited_passages(answer: str, documents: Sequence[Attachment]) -> tuple[CitedPassage, ...]:
    """Each place that the answer cites, once, in order of appearance; what names no place of a document is left out."""
    found: dict[str, CitedPassage] = {}
    if documents:
        for citation in find_citations(answer):
            passage = resolve(citation, answer, documents)
            if passage is not None:
                found.setdefault(passage.place, passage)
    return tuple(found.values())


def cited_numbered(messages: Sequence[Message], documents: Sequence[Attachment], number: str) -> CitedPassage:
    """The citation of a number from 1 in the last answer that has one, the first for ''. Raises UsageError."""
    answers = [message for message in messages if message.role == "assistant" and message.content]
    for answer in reversed(answers):
        passages = cited_passages(said((answer,)), documents)
        if not passages:
            continue
        if not number:
            return passages[0]
        if not number.isdecimal() or not 1 <= int(number) <= len(passages):
            raise UsageError(f"The last answer with citations has {len(passages)} of them.")
        return passages[int(number) - 1]
    raise UsageError("No answer here cites a document.")


def document_and_line(cited: CitedPassage) -> tuple[str, int]:
    """The whole text of the document, and the line (from 0) where the passage begins in it."""
    text = "\n\n".join(block.text for block in blocks_of(cited.document))
    before = "\n\n".join(block.text for block in blocks_of(cited.document)[: cited.passage.first])
    return text, before.count("\n") + (2 if before else 0)
