"""The one filter between foreign text (model, documents, files, tools) and the screen.

Removes what a terminal or a text layout would act on, and nothing else: the printable rest of an escape sequence
stays readable. What is removed:

- C0 controls but newline and tab, DEL, C1 controls, lone surrogates;
- marks that reorder text (bidirectional embeddings, overrides, isolates, LRM, RLM, ALM);
- invisible format characters (zero-width space, word joiner and its like, byte order mark, interlinear annotations,
  tag characters) and noncharacters.

Zero-width joiner and non-joiner and the variation selectors stay: emoji and several scripts are written with them.
Every kind of line break becomes a newline.
"""

_LINE_BREAKS = "\r\v\f\x85\u2028\u2029"
_REMOVED_RANGES = (
    (0x00, 0x08), (0x0E, 0x1F), (0x7F, 0x84), (0x86, 0x9F), (0x61C, 0x61C), (0x200B, 0x200B), (0x200E, 0x200F),
    (0x202A, 0x202E), (0x2060, 0x206F), (0xD800, 0xDFFF), (0xFDD0, 0xFDEF), (0xFEFF, 0xFEFF), (0xFFF9, 0xFFFB),
    (0xE0000, 0xE007F), *((plane << 16 | 0xFFFE, plane << 16 | 0xFFFF) for plane in range(17)),
)  # fmt: skip
_REPLACEMENTS = {chr(code): "" for first, last in _REMOVED_RANGES for code in range(first, last + 1)}
_REPLACEMENTS |= dict.fromkeys(_LINE_BREAKS, "\n")
_UNSAFE = frozenset(_REPLACEMENTS)
_TRANSLATION = {ord(character): replacement or None for character, replacement in _REPLACEMENTS.items()}
_FEW = 16
"""Replacing up to this many different characters one by one is faster than translating text that is not ASCII."""


def clean(text: str) -> str:
    """`text` without anything a terminal acts on; the readable characters are unchanged."""
    text = text.replace("\r\n", "\n")
    if text.isascii():
        return text.translate(_TRANSLATION)
    found = _UNSAFE.intersection(text)
    if len(found) > _FEW:
        return text.translate(_TRANSLATION)
    for character in found:
        text = text.replace(character, _REPLACEMENTS[character])
    return text


def clean_line(text: str) -> str:
    """`clean` on one line, for names and titles: line breaks and tabs become spaces, the ends are trimmed."""
    return clean(text).translate({0x0A: " ", 0x09: " "}).strip()


class StreamCleaner:
    """`clean` for text that arrives in pieces: the cleaned pieces concatenate to `clean` of the whole."""

    def __init__(self) -> None:
        self._follows_return = False

    def push(self, text: str) -> str:
        """The cleaned piece; nothing is held back."""
        if self._follows_return and text:
            text = text.removeprefix("\n")
            self._follows_return = False
        if text:
            self._follows_return = text.endswith("\r")
        return clean(text)
