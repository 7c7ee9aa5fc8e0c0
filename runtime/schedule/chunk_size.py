"""How long a prefill chunk may be while another stream waits for its next token. Told durations; looks at no clock."""

_FEWEST_TOKENS = 16
_FIRST_TOKENS = 32


class ChunkSize:
    """The longest of 16, 32, 64 … `most_tokens` tokens that takes no more than `target_s`; `most_tokens` if None."""

    def __init__(self, most_tokens: int, target_s: float | None) -> None:
        self._most_tokens = most_tokens
        self._target_s = target_s
        self.tokens = most_tokens if target_s is None else min(_FIRST_TOKENS, most_tokens)

    def note(self, num_tokens: int, seconds: float) -> None:
        """A chunk took so long. Only one of the present size says something about it."""
        if self._target_s is None or num_tokens != self.tokens:
            return
        if seconds > self._target_s:
            self.tokens = max(self.tokens // 2, min(_FEWEST_TOKENS, self._most_tokens))
        elif 2 * seconds < self._target_s:
            self.tokens = min(2 * self.tokens, self._most_tokens)
