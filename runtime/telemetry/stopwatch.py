"""Timing of one request: time to its first token, prefill and decode rates. Owns no clock."""

from dataclasses import dataclass


@dataclass
class RequestTiming:
    """Seconds of a monotonic clock; `None` until it happened."""

    accepted_s: float
    prefill_started_s: float | None = None
    num_prefilled: int = 0
    first_token_s: float | None = None
    last_token_s: float | None = None
    num_generated: int = 0

    def prefilled(self, started_s: float, num_tokens: int) -> None:
        """A prefill chunk of `num_tokens` ran, started at `started_s`."""
        if self.prefill_started_s is None:
            self.prefill_started_s = started_s
        self.num_prefilled += num_tokens

    def generated(self, now_s: float) -> None:
        """One token was sampled."""
        if self.first_token_s is None:
            self.first_token_s = now_s
        self.last_token_s = now_s
        self.num_generated += 1

    @property
    def ttft_s(self) -> float:
        """From acceptance to the first token; 0 if there was none."""
        return 0.0 if self.first_token_s is None else self.first_token_s - self.accepted_s

    @property
    def prefill_tok_s(self) -> float:
        """Computed prompt tokens over the time from the first chunk to the first token; 0 if there was none."""
        if self.first_token_s is None or self.prefill_started_s is None:
            return 0.0
        return self.num_prefilled / max(self.first_token_s - self.prefill_started_s, 1e-9)

    @property
    def decode_tok_s(self) -> float:
        """Tokens after the first over the time since it; 0 where fewer than two were made."""
        if self.num_generated < 2 or self.first_token_s is None or self.last_token_s is None:
            return 0.0
        return (self.num_generated - 1) / max(self.last_token_s - self.first_token_s, 1e-9)
