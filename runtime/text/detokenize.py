"""Token ids to text while they arrive: only whole characters leave, and nothing is held longer than its own bytes."""

import codecs

from runtime.text.tokenizer import Tokenizer


class Detokenizer:
    """The pieces concatenate to `tokenizer.decode(ids)` of each run between special tokens.

    A special token has no text of its own: it ends the character before it.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def push(self, token_id: int) -> str:
        """Text that is complete with this token; invalid bytes are U+FFFD."""
        if self._tokenizer.special_name(token_id) is not None:
            return self.flush()
        return self._decoder.decode(self._tokenizer.token_bytes(token_id))

    @property
    def is_whole(self) -> bool:
        """Whether no byte is held."""
        return not self._decoder.getstate()[0]

    def flush(self) -> str:
        """U+FFFD for a character that never became whole, else nothing."""
        text = self._decoder.decode(b"", final=True)
        self._decoder.reset()
        return text
