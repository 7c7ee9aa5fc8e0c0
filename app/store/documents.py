"""Documents as rows: one text is stored once, by its content, however many messages show it; unused ones are removed.

A message's row names its documents and how each is read; rows of the first release hold the text itself.
"""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from app.errors import StoreError
from app.messages import Attachment, Message, Reading
from app.store.database import Database

_MAX_VARIABLES = 500


def document_id(text: str) -> str:
    """The same for the same text only."""
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()


def pack_attachments(attachments: Iterable[Attachment]) -> str:
    """What a message's row says of its documents."""
    return json.dumps([_packed(attachment) for attachment in attachments])


def _packed(attachment: Attachment) -> dict[str, Any]:
    values = asdict(attachment)
    del values["text"]
    return {**values, "document": document_id(attachment.text)}


def unpack_attachments(packed: str, texts: Mapping[str, str]) -> tuple[Attachment, ...]:
    """The documents of a row, `texts` by document id. Raises StoreError."""
    return tuple(_unpacked(values, texts) for values in json.loads(packed))


def _unpacked(values: dict[str, Any], texts: Mapping[str, str]) -> Attachment:
    text = values["text"] if "text" in values else texts.get(values["document"])
    if text is None:
        raise StoreError(f"The text of {values['name']} is missing from the database; attach it again in a new chat.")
    return Attachment(values["name"], text, values.get("kind", "text"), _reading(values.get("reading")))


def _reading(values: dict[str, Any] | None) -> Reading | None:
    if values is None:
        return None
    return Reading(**{**values, "blocks": tuple((first, end) for first, end in values["blocks"])})


def read_texts(database: Database, packed: Iterable[str]) -> dict[str, str]:
    """The texts that these rows name, by document id."""
    ids = list({values["document"] for row in packed for values in json.loads(row) if "document" in values})
    texts: dict[str, str] = {}
    for start in range(0, len(ids), _MAX_VARIABLES):
        some = ids[start : start + _MAX_VARIABLES]
        marks = ", ".join("?" * len(some))
        rows = database.read(f"SELECT id, text FROM documents WHERE id IN ({marks})", *some)
        texts |= {row["id"]: row["text"] for row in rows}
    return texts


def write_documents(connection: sqlite3.Connection, messages: Sequence[Message]) -> None:
    """Store what is new of these messages' documents; the messages are stored already."""
    for message in messages:
        for text in {attachment.text for attachment in message.attachments}:
            found = document_id(text)
            connection.execute("INSERT INTO documents VALUES (?, ?) ON CONFLICT(id) DO NOTHING", (found, text))
            connection.execute(
                "INSERT INTO message_documents VALUES (?, ?) ON CONFLICT DO NOTHING", (message.id, found)
            )


def documents_problems(database: Database) -> list[sqlite3.Row]:
    """Rows that should not be: documents no message shows, and messages whose documents are missing."""
    return [
        *database.read("SELECT id FROM documents WHERE id NOT IN (SELECT document_id FROM message_documents)"),
        *database.read(
            "SELECT m.id FROM messages m, json_each(m.attachments) a"
            " WHERE json_extract(a.value, '$.document') IS NOT NULL AND NOT EXISTS (SELECT 1 FROM message_documents d"
            "  WHERE d.message_id = m.id AND d.document_id = json_extract(a.value, '$.document'))"
        ),
    ]
