"""Token prefixes whose pages and state are kept for later requests, in order of use.

Owns the entries' order and the search; refuses to allocate or free pages and rows (`sequence_cache.py` does).
"""

from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass


def pack(token_ids: Sequence[int]) -> bytes:
    """Token ids as bytes, so that prefixes compare at memory speed; 4 bytes a token."""
    return array("i", token_ids).tobytes()


TOKEN_BYTES = array("i").itemsize


@dataclass(frozen=True)
class SavedPrefix:
    """State after `num_tokens` tokens sits in `state_row`; their keys and values fill `page_ids` in order."""

    packed: bytes
    page_ids: tuple[int, ...]
    state_row: int

    @property
    def num_tokens(self) -> int:
        return len(self.packed) // TOKEN_BYTES


class PrefixIndex:
    """Saved prefixes, least recently used first."""

    def __init__(self) -> None:
        self._entries: dict[bytes, SavedPrefix] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[SavedPrefix]:
        return iter(self._entries.values())

    def longest_match(self, token_ids: Sequence[int]) -> SavedPrefix | None:
        """The longest entry that is a proper prefix of `token_ids` (its last token is always left to compute)."""
        packed = pack(token_ids)
        best: SavedPrefix | None = None
        for entry in self._entries.values():
            is_longer = best is None or len(entry.packed) > len(best.packed)
            if is_longer and len(entry.packed) < len(packed) and packed.startswith(entry.packed):
                best = entry
        return best

    def find(self, token_ids: Sequence[int]) -> SavedPrefix | None:
        """The entry of exactly these tokens."""
        return self._entries.get(pack(token_ids))

    def touch(self, entry: SavedPrefix) -> None:
        """`entry` becomes the most recently used."""
        self._entries[entry.packed] = self._entries.pop(entry.packed)

    def insert(self, entry: SavedPrefix) -> None:
        """Add an entry as the most recently used; its tokens must be new."""
        assert entry.packed not in self._entries, "prefix is saved already"
        self._entries[entry.packed] = entry

    def remove(self, entry: SavedPrefix) -> None:
        del self._entries[entry.packed]

    def least_recently_used(self) -> SavedPrefix | None:
        return next(iter(self._entries.values()), None)

    def check_integrity(self) -> None:
        """Keys name their entries and no entry lacks pages."""
        for packed, entry in self._entries.items():
            assert packed == entry.packed, "entry under a wrong key"
            assert entry.num_tokens > 0, "empty prefix saved"
