"""Live decode and prefill rates of the engine. Owns no clock."""

from runtime.telemetry.rates import RateWindow


class Meter:
    """Rates over the steps of the last seconds in which tokens flowed."""

    def __init__(self) -> None:
        self._decode = RateWindow()
        self._prefill = RateWindow()

    def add(self, end_s: float, busy_s: float, num_tokens: int, is_decode: bool, holds_up_stream: bool = False) -> None:
        """One step that ended at `end_s` and took `busy_s`, its events included, for `num_tokens` that were wanted.

        A step that holds up a stream that decodes counts in the stream's rate, as time without a token.
        """
        if num_tokens and not (is_decode and holds_up_stream):
            (self._decode if is_decode else self._prefill).add(end_s, busy_s, num_tokens)
        if holds_up_stream:
            self._decode.add(end_s, busy_s, 0)

    @property
    def decode_tok_s(self) -> float | None:
        return self._decode.tokens_per_second

    @property
    def prefill_tok_s(self) -> float | None:
        return self._prefill.tokens_per_second
