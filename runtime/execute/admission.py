"""Commands to work: renders and checks a request before anything is computed. Raises RequestError, computes nothing."""

from pathlib import Path

from runtime.errors import RequestError, prompt_too_long
from runtime.execute.answer import Answer
from runtime.execute.harvest import Harvest
from runtime.execute.scoring import LogitsFile, Scoring
from runtime.options import SamplingOptions
from runtime.protocol import CountTokens, Generate, Score
from runtime.schedule.request import Sequence
from runtime.text.chat_template import ChatTemplate, RenderedPrompt
from runtime.text.output_parser import OutputParser
from runtime.text.stop_rules import StopRules
from runtime.text.tokenizer import SOON_ENCODED_CHARS, Tokenizer

_SAVE_INTERVAL_TOKENS = 2048
"""A long prompt is saved this often, so that an edit at its end reads only the end again."""


class Admission:
    """Turns `Generate` and `Score` into work for a model with `context_tokens` and `vocab_size`.

    `tokenizer` and `template` are None for a folder without them; such a model can only score ids.
    """

    def __init__(
        self,
        tokenizer: Tokenizer | None,
        template: ChatTemplate | None,
        stop_ids: frozenset[int],
        context_tokens: int,
        vocab_size: int,
    ) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._stop_ids = stop_ids
        self._context_tokens = context_tokens
        self._vocab_size = vocab_size

    def answer(self, request: Generate, now_s: float) -> Answer:
        """Work for a chat request.

        Raises RequestError: no messages, no template, an empty or foreign prompt, or one too long (with both numbers);
        one that can't ever fit is refused before it is encoded.
        """
        tokenizer, template = self._chat_parts()
        prompt = self._render(request)
        num_prompt = len(prompt.ids)
        if not num_prompt:
            raise RequestError(
                "The model's chat template makes an empty prompt of these messages; check its chat_template.jinja."
            )
        self._refuse_foreign_prompt(prompt.ids)
        if num_prompt >= self._context_tokens:
            raise prompt_too_long(num_prompt, self._context_tokens)
        room = self._context_tokens - num_prompt
        sampling: SamplingOptions = request.sampling
        harvest = Harvest(
            request.request_id,
            tokenizer,
            StopRules(self._stop_ids, sampling.stop),
            OutputParser(template.tool_style, request.tools, prompt.opens_reasoning),
        )
        max_new_tokens = room if sampling.max_tokens is None else min(room, sampling.max_tokens)
        sequence = Sequence(
            request.request_id,
            prompt.ids,
            save_points=_save_points(prompt),
            kind=request.kind,
            max_new_tokens=max_new_tokens,
        )
        return Answer(sequence, sampling, harvest, max_new_tokens, now_s)

    def count_tokens(self, request: CountTokens) -> int:
        """Length of the rendered prompt. Raises RequestError as `answer` does, but not for a length it has counted."""
        return len(self._render(request).ids)

    def scoring(self, request: Score, now_s: float) -> Scoring:
        """Work for a scoring request. Raises RequestError naming what is wrong with the tokens or the file."""
        token_ids = self._score_ids(request)
        if not token_ids:
            raise RequestError("There are no tokens to score; give at least one token or a text that is not empty.")
        self._refuse_too_many(len(token_ids))
        unknown = next((token for token in token_ids if not 0 <= token < self._vocab_size), None)
        if unknown is not None:
            raise RequestError(
                f"Token id {unknown} is not below the vocabulary size {self._vocab_size}; check the ids."
            )
        if request.chunk_tokens is not None and request.chunk_tokens < 1:
            raise RequestError(f"A chunk of {request.chunk_tokens} tokens makes no progress; use 1 or more.")
        path = request.logits_path
        logits_file = None if path is None else LogitsFile(Path(path), len(token_ids), self._vocab_size)
        sequence = Sequence(
            request.request_id,
            token_ids,
            is_scored=True,
            is_fed_by_decode=request.by_decode,
            chunk_tokens=request.chunk_tokens,
        )
        return Scoring(sequence, logits_file, now_s)

    def _refuse_foreign_prompt(self, ids: tuple[int, ...]) -> None:
        highest = max(ids)
        if highest >= self._vocab_size:
            raise RequestError(
                f"The prompt has token id {highest}, which is not below the model's vocabulary size "
                f"{self._vocab_size}; tokenizer.json belongs to another model."
            )

    def _score_ids(self, request: Score) -> tuple[int, ...]:
        if (request.token_ids is None) == (request.text is None):
            raise RequestError("Give either token ids or a text to score.")
        if request.text is None:
            return tuple(request.token_ids or ())
        if self._tokenizer is None:
            raise RequestError(
                "This model folder has no tokenizer.json, so it can't score text; give token ids instead."
            )
        if len(request.text) >= SOON_ENCODED_CHARS:
            self._refuse_too_many(self._tokenizer.least_tokens(request.text), "at least ")
        return tuple(self._tokenizer.encode_text(request.text))

    def _refuse_too_many(self, num_tokens: int, precision: str = "") -> None:
        if num_tokens > self._context_tokens:
            raise RequestError(
                f"There are {precision}{num_tokens:,} tokens to score, but the context holds {self._context_tokens:,}; "
                "shorten the text or load the model with a larger context."
            )

    def _chat_parts(self) -> tuple[Tokenizer, ChatTemplate]:
        if self._tokenizer is None:
            raise RequestError("This model folder has no tokenizer.json, so it can't chat; choose a complete model.")
        if self._template is None:
            raise RequestError("This model folder has no chat template, so it can't chat; choose a chat model.")
        return self._tokenizer, self._template

    def _render(self, request: Generate | CountTokens) -> RenderedPrompt:
        _, template = self._chat_parts()
        if isinstance(request, Generate) and request.kind == "opening":
            return template.encode_opening(request.messages, request.tools, request.thinking, switches=request.switches)
        if not request.messages:
            raise RequestError("There is no message to answer; write one first.")
        return template.encode(
            request.messages,
            request.tools,
            request.thinking,
            switches=request.switches,
            context_tokens=self._context_tokens,
        )


def _save_points(prompt: RenderedPrompt) -> frozenset[int]:
    """Before the generation prompt, and at intervals before that."""
    num_history = prompt.num_history_tokens
    return frozenset({num_history, *range(_SAVE_INTERVAL_TOKENS, num_history, _SAVE_INTERVAL_TOKENS)} - {0})
