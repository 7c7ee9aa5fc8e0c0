"""What `search_document` does: the passages of the chat's documents that have words of a query, with their marks."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from app.documents.search import find_passages
from app.messages import Attachment
from app.tools.given_tools import NO_PASSAGES
from app.tools.registry import ToolError

MOST_PASSAGES = 5


def document_search(documents: Callable[[], Sequence[Attachment]]) -> Callable[[str], Awaitable[str]]:
    """For `search_document_tool`. `documents` gives those of the conversation as it is when the tool runs."""

    async def search(query: str) -> str:
        attached = {(document.name, document.text): document for document in documents()}
        if not attached:
            raise ToolError("no document is attached")
        return await asyncio.to_thread(_search, list(attached.values()), query)

    return search


def _search(documents: Sequence[Attachment], query: str) -> str:
    found = []
    for document in documents:
        texts = [
            passage.text(document).replace("\n\n", "\n") for passage in find_passages(document, query, MOST_PASSAGES)
        ]
        if texts:
            is_alone = len(documents) == 1
            found.append("\n".join(texts if is_alone else [f"File {document.name}:", *texts]))
    return "\n".join(found) or NO_PASSAGES
