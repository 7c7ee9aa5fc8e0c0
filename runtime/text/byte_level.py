"""The byte-level alphabet: which printable character stands for which byte in a byte-level BPE vocabulary.

Source: GPT-2's `bytes_to_unicode`. Printable Latin-1 stands for itself; the other bytes, in order, for U+0100 onward.
"""

_PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
_OTHERS = tuple(byte for byte in range(256) if byte not in frozenset(_PRINTABLE))

BYTE_OF_CHARACTER: dict[str, int] = {chr(byte): byte for byte in _PRINTABLE}
BYTE_OF_CHARACTER |= {chr(0x100 + place): byte for place, byte in enumerate(_OTHERS)}


def bytes_of(token: str) -> bytes:
    """The bytes a vocabulary entry stands for. Raises KeyError for a character outside the alphabet."""
    return bytes(BYTE_OF_CHARACTER[character] for character in token)
