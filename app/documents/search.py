"""Full-text search in one document: SQLite's FTS5 over its passages, in memory, best first.

Words are found by their stem (Porter). Scripts written without spaces are searched by pairs of characters.
"""

import re
import sqlite3
from contextlib import closing
from functools import lru_cache
from itertools import pairwise

from app.documents.blocks import blocks_of
from app.documents.passages import Passage, searched_passages
from app.messages import Attachment, DocumentKind

MAX_HITS = 12
_WEAKEST_SHARE = 0.2
"""Of the best hit's rank: what fits less well only dilutes."""
_UNSPACED = re.compile("[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\u0e00-\u0e7f]")
_COMMON_WORDS = (
    "a about all am an and any are as at be been but by can could did do does document file for from had has have how i"
    " if in into is it its me my no not of on or our page pdf please say says shall she should so tell text than that"
    " the their them then there these they this those to us was we were what when where which while who whom whose why"
    " will with would you your"
)
_COMMON = frozenset(_COMMON_WORDS.split())


def find_passages(document: Attachment, question: str, limit: int = MAX_HITS) -> tuple[Passage, ...]:
    """Passages that have words of the question, best first; none where no word is found. Takes a second for 16 MiB."""
    words = _query(question)
    if not words:
        return ()
    passages = searched_passages(document)
    with closing(_index(document)) as index:
        rows = index.execute(
            "SELECT rowid, rank FROM passages WHERE passages MATCH ? ORDER BY rank LIMIT ?", (words, limit)
        ).fetchall()
    # FTS5's rank is below 0, the best one lowest.
    return tuple(passages[rowid] for rowid, rank in rows if rank <= _WEAKEST_SHARE * rows[0][1])


def _index(document: Attachment) -> sqlite3.Connection:
    """A copy of the index, for one thread, which must close it."""
    connection = sqlite3.connect(":memory:")
    connection.deserialize(_serialized_index(document.text, document.kind))
    return connection


@lru_cache(maxsize=4)
def _serialized_index(text: str, kind: DocumentKind) -> bytes:
    document = Attachment("", text, kind)
    blocks = blocks_of(document)
    with closing(sqlite3.connect(":memory:")) as connection:
        # Without a copy of the words: passages are found by their number.
        connection.execute(
            "CREATE VIRTUAL TABLE passages USING"
            " fts5(words, content='', tokenize='porter unicode61 remove_diacritics 2')"
        )
        connection.executemany(
            "INSERT INTO passages(rowid, words) VALUES (?, ?)",
            (
                (number, _spaced(" ".join(block.text for block in blocks[passage.first : passage.end])))
                for number, passage in enumerate(searched_passages(document))
            ),
        )
        connection.commit()
        return connection.serialize()


def _query(question: str) -> str:
    """An FTS5 expression: any of the words that mean something; all of them where none does."""
    words = re.findall(r"\w+", question.replace("_", " "))
    meaning = [word for word in words if word.lower() not in _COMMON and (len(word) > 1 or word.isdigit())]
    terms = dict.fromkeys(term for word in meaning or words for term in _terms(word))
    return " OR ".join(f'"{term}"' for term in terms)


def _terms(word: str) -> list[str]:
    spaced = _spaced(word).split()
    if len(spaced) < 2:
        return spaced
    return [f"{first} {second}" for first, second in pairwise(spaced)]


def _spaced(text: str) -> str:
    return _UNSPACED.sub(lambda found: f" {found[0]} ", text)
