"""One queued or running sequence as the scheduler sees it: its tokens and how far they are computed. Ids only."""

from dataclasses import dataclass, field
from typing import Literal

Phase = Literal["waiting", "prefill", "decode", "closing", "ended"]


@dataclass
class Sequence:
    """A request's tokens. The first `num_computed` are in the cache; `prompt_ids` come first, then `generated_ids`.

    `save_points` are numbers of leading prompt tokens whose state is worth saving on the way, such as those before the
    generation prompt, which the next turn's history repeats whatever its template does to the answer.
    A scored sequence wants the logits of every prompt token, and leaves nothing behind for later requests;
    `is_fed_by_decode` sends its prompt token by token through decode steps.
    """

    sequence_id: str
    prompt_ids: tuple[int, ...]
    save_points: frozenset[int] = frozenset()
    is_scored: bool = False
    is_fed_by_decode: bool = False
    chunk_tokens: int | None = None
    """Instead of the scheduler's."""
    generated_ids: list[int] = field(default_factory=list)
    num_cached: int = 0
    num_computed: int = 0
    phase: Phase = "waiting"

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_ids) + len(self.generated_ids)

    def tokens(self, start: int, end: int) -> tuple[int, ...]:
        """Tokens start..end-1 of prompt and answer."""
        num_prompt = len(self.prompt_ids)
        if end <= num_prompt:
            return self.prompt_ids[start:end]
        answer = tuple(self.generated_ids[max(0, start - num_prompt) : end - num_prompt])
        return self.prompt_ids[start:] + answer
