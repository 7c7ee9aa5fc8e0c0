"""One queued or running sequence as the scheduler sees it: its tokens and how far they are computed. Ids only."""

from dataclasses import dataclass, field
from typing import Literal

from runtime.protocol import RequestKind
from runtime.spec import PAGE_TOKENS

UNKNOWN_ID = -1
"""A token that a step draws which was not read yet: the device knows it, the host does not."""
Phase = Literal["waiting", "prefill", "decode", "closing", "ended"]


@dataclass
class Sequence:
    """A request's tokens. The first `num_computed` are in the cache; `prompt_ids` come first, then `generated_ids`.

    `save_points` are numbers of leading prompt tokens whose state is worth saving on the way, such as those before the
    generation prompt, which the next turn's history repeats whatever its template does to the answer.
    A scored sequence wants the logits of every prompt token; `is_fed_by_decode` sends its prompt token by token through
    decode steps. It runs at the priority of side calls. Neither leaves anything behind for later requests: many small
    ones would push out what chats come back for.
    """

    sequence_id: str
    prompt_ids: tuple[int, ...]
    save_points: frozenset[int] = frozenset()
    is_scored: bool = False
    is_fed_by_decode: bool = False
    chunk_tokens: int | None = None
    """Instead of the scheduler's."""
    kind: RequestKind = "chat"
    max_new_tokens: int | None = None
    """Most tokens it may generate; None: as many as there are pages for."""
    generated_ids: list[int] = field(default_factory=list)
    num_expected: int = 0
    """Of the generated tokens, the last ones: steps that were launched draw them, until they are read `UNKNOWN_ID`."""
    num_cached: int = 0
    num_computed: int = 0
    phase: Phase = "waiting"
    was_paused: bool = False
    """It ran before, and reads its tokens again."""
    last_chunk_turn: int = 0
    """Of its kind's turns, the last in which a chunk of it was computed."""

    @property
    def is_side_call(self) -> bool:
        return self.is_scored or self.kind == "side_call"

    @property
    def can_share_chunk(self) -> bool:
        """Its chunks may have other side calls' tokens in them; what is scored has borders of its own."""
        return self.is_side_call and not self.is_scored

    @property
    def num_tokens(self) -> int:
        return len(self.prompt_ids) + len(self.generated_ids)

    @property
    def is_spent(self) -> bool:
        """The token that is expected is the last it may generate."""
        is_full = self.max_new_tokens is not None and len(self.generated_ids) >= self.max_new_tokens
        return self.num_expected > 0 and is_full

    def expect(self) -> None:
        """A step was launched that draws one more token."""
        self.generated_ids.append(UNKNOWN_ID)
        self.num_expected += 1

    def learn(self, token_id: int) -> None:
        """The first token that is expected."""
        assert self.num_expected, "no token is expected"
        self.generated_ids[-self.num_expected] = token_id
        self.num_expected -= 1

    def forget_expected(self) -> None:
        """Whatever steps draw is not wanted: the sequence ends with what is known."""
        if self.num_expected:
            del self.generated_ids[-self.num_expected :]
            self.num_expected = 0

    def num_needed_pages(self, num_pages: int) -> int:
        """Pages it may hold in the end, where there are `num_pages` in all."""
        if self.max_new_tokens is None and not self.is_scored:
            return num_pages
        return -(-(len(self.prompt_ids) + (self.max_new_tokens or 0)) // PAGE_TOKENS)

    def tokens(self, start: int, end: int) -> tuple[int, ...]:
        """Tokens start..end-1 of prompt and answer."""
        num_prompt = len(self.prompt_ids)
        if end <= num_prompt:
            return self.prompt_ids[start:end]
        answer = tuple(self.generated_ids[max(0, start - num_prompt) : end - num_prompt])
        return self.prompt_ids[start:] + answer
