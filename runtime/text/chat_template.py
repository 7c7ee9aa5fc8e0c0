"""Messages to prompt ids, through the checkpoint's own chat template.

Owns the template's source and the encoding of what it renders. Special tokens come from the template alone; a special
token spelled in a message, a tool or an argument stays text.
"""

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import jinja2

from runtime.errors import CheckpointError, RequestError, prompt_too_long
from runtime.protocol import ChatMessage, TemplateSwitches, ToolSchema
from runtime.text.output_parser import OPEN_THINK
from runtime.text.spans import Span, SpellingGuard
from runtime.text.template_sandbox import SandboxedTemplate
from runtime.text.template_view import all_text, show_message, show_tool
from runtime.text.tokenizer import SOON_ENCODED_CHARS, Tokenizer
from runtime.text.tool_call_syntax import ToolStyle
from runtime.text.turn_reuse import Place, Reuse, Spans, find_turns, reuse_turn

_NAMED_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
_PROBE = (ChatMessage("user", "?"),)
_OTHER_PROBE = (ChatMessage("user", "0"),)
_NO_SWITCHES = TemplateSwitches()


@dataclass(frozen=True)
class RenderedPrompt:
    """What the model is given.

    `num_history_tokens` are those before the generation prompt: a later turn has the same ones.
    """

    ids: tuple[int, ...]
    opens_reasoning: bool
    num_history_tokens: int
    num_reused_tokens: int
    """How many ids are ones the model generated earlier."""


class ChatTemplate:
    """One checkpoint's template. `source_name` is the file it came from."""

    def __init__(self, source: str, source_name: str, tokenizer: Tokenizer, token_names: dict[str, str]) -> None:
        try:
            self._template = SandboxedTemplate(source)
        except (jinja2.TemplateError, RecursionError, ValueError) as error:
            # ValueError: a number of thousands of digits.
            raise CheckpointError(f"{source_name} is not a usable chat template ({_one_line(error)})") from None
        self.tool_style: ToolStyle = "xml" if "<function=" in source else "hermes"
        self._tokenizer = tokenizer
        self._token_names = token_names
        self._guard = SpellingGuard(tokenizer.special_ids)
        self._encoded: dict[str, tuple[int, ...]] = {}
        """Ids of the texts of the last prompt: the next turn has nearly all of them again."""

    @classmethod
    def load(cls, folder: Path, tokenizer: Tokenizer) -> "ChatTemplate | None":
        """From chat_template.jinja, else tokenizer_config.json; None for a checkpoint that has no template."""
        config_path, path = folder / "tokenizer_config.json", folder / "chat_template.jinja"
        try:
            config = json.loads(config_path.read_bytes()) if config_path.is_file() else {}
            source = path.read_text("utf-8") if path.is_file() else _configured_source(config.get("chat_template"))
            names = {name: _spelling(config[name]) for name in _NAMED_TOKENS if config.get(name)}
        except (OSError, ValueError, AttributeError, TypeError, KeyError, RecursionError) as error:
            raise CheckpointError(f"{config_path} or {path.name} can't be read ({_one_line(error)})") from None
        if source is None:
            return None
        return cls(source, str(path if path.is_file() else config_path), tokenizer, names)

    def encode(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema] = (),
        thinking: bool | None = None,
        *,
        switches: TemplateSwitches = _NO_SWITCHES,
        add_generation_prompt: bool = True,
        context_tokens: int | None = None,
    ) -> RenderedPrompt:
        """The prompt's ids. Raises RequestError, in one line, when the template refuses the messages.

        With `context_tokens`, a long prompt that can't have fewer is not encoded, which may take half a minute: raises
        RequestError with both numbers.
        """
        spans = self._render(messages, tools, thinking, add_generation_prompt, switches)
        reuses = self._reuses(spans, messages, add_generation_prompt)
        num_prompt = self._num_prompt_spans(spans, thinking) if add_generation_prompt else 0
        history, prompt = spans[: len(spans) - num_prompt], spans[len(spans) - num_prompt :]
        parts = _parts(history, reuses)
        if context_tokens is not None:
            self._refuse_hopeless([*parts, *prompt], context_tokens)
        history_ids, prompt_ids = self._encode_parts(parts, prompt)
        num_reused = sum(len(reuse.ids) for reuse in reuses)
        return RenderedPrompt(history_ids + prompt_ids, _ends_in_open_think(spans), len(history_ids), num_reused)

    def encode_opening(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema] = (),
        thinking: bool | None = None,
        *,
        switches: TemplateSwitches = _NO_SWITCHES,
    ) -> RenderedPrompt:
        """The ids that a chat of these messages and tools has whatever its user says next; there may be none.

        Raises RequestError, in one line, when the template refuses the messages.
        """
        chats = [(*messages, *said) for said in (_PROBE, _OTHER_PROBE)]
        opening = _common_prefix([self._render(chat, tools, thinking, True, switches) for chat in chats])
        [ids] = self._encode_parts(opening)
        return RenderedPrompt(ids, False, len(ids), 0)

    @cached_property
    def can_think(self) -> bool:
        """Whether switching thinking changes what the model is given."""
        prompts = self._generation_prompts
        return {True, False} <= prompts.keys() and prompts[True] != prompts[False]

    def _render(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema],
        thinking: bool | None,
        add_generation_prompt: bool,
        switches: TemplateSwitches = _NO_SWITCHES,
    ) -> Spans:
        content = all_text(messages, tools)
        breaker = self._guard.choose_breaker(content)
        protect = partial(self._guard.protect, breaker=breaker)
        variables: dict[str, Any] = {
            **self._token_names,
            "messages": [show_message(message, protect) for message in messages],
            "tools": [show_tool(tool, protect) for tool in tools] or None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        given = {"enable_thinking": thinking, **asdict(switches)}
        variables |= {name: value for name, value in given.items() if value is not None}
        try:
            rendered = self._template.render(variables, len(content))
        except Exception as error:  # a template is a program: its expressions may raise anything
            raise RequestError(f"The model's chat template refuses these messages: {_one_line(error)}") from None
        return self._guard.split(rendered, breaker)

    @cached_property
    def _generation_prompts(self) -> dict[bool | None, Spans]:
        """What the template adds for the model to go on from, for each thinking switch it allows."""
        prompts: dict[bool | None, Spans] = {}
        for thinking in (None, True, False):
            with suppress(RequestError):
                prompts[thinking] = self._generation_prompt(thinking)
        return prompts

    def _generation_prompt(self, thinking: bool | None) -> Spans:
        history = self._render(_PROBE, (), thinking, False)
        whole = self._render(_PROBE, (), thinking, True)
        return whole[len(history) :] if whole[: len(history)] == history else ()

    def _num_prompt_spans(self, spans: Spans, thinking: bool | None) -> int:
        prompt = self._generation_prompts.get(thinking, ())
        return len(prompt) if prompt and spans[-len(prompt) :] == prompt else 0

    def _reuses(self, spans: Spans, messages: Sequence[ChatMessage], add_generation_prompt: bool) -> list[Reuse]:
        """Where generated ids replace encoding, in order of place."""
        answers = [message for message in messages if message.role == "assistant"]
        prompts = tuple(dict.fromkeys(prompt for prompt in self._generation_prompts.values() if prompt))
        turns = find_turns(spans, _common_prefix(prompts)[:2])
        if len(turns) != len(answers) + add_generation_prompt:
            return []
        fingerprint = self._tokenizer.fingerprint
        return [
            reuse
            for turn, answer in zip(turns, answers, strict=False)
            if answer.generated_ids and answer.tokenizer_fingerprint == fingerprint
            if (reuse := reuse_turn(spans, turn, prompts, answer.generated_ids, self._tokenizer)).ids
        ]

    def _encode_parts(self, *groups: Sequence[Span | Reuse]) -> list[tuple[int, ...]]:
        """Ids of each group."""
        spans = [part for group in groups for part in group if isinstance(part, Span)]
        ids_of_text = self._encode_texts([span.text for span in spans if not span.is_special])

        def ids_of(part: Span | Reuse) -> tuple[int, ...]:
            if isinstance(part, Reuse):
                return part.ids
            return (self._tokenizer.special_ids[part.text],) if part.is_special else ids_of_text[part.text]

        return [tuple(token_id for part in group for token_id in ids_of(part)) for group in groups]

    def _refuse_hopeless(self, parts: Sequence[Span | Reuse], context_tokens: int) -> None:
        if sum(len(part.text) for part in parts if isinstance(part, Span)) < SOON_ENCODED_CHARS:
            return  # Its exact number is known as soon.
        least = sum(self._least_tokens(part) for part in parts)
        if least >= context_tokens:
            raise prompt_too_long(least, context_tokens, is_least=True)

    def _least_tokens(self, part: Span | Reuse) -> int:
        if isinstance(part, Reuse):
            return len(part.ids)
        return 1 if part.is_special else self._tokenizer.least_tokens(part.text)

    def _encode_texts(self, texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
        # Another thread may count a prompt meanwhile and leave its own texts: each goes on with what it saw.
        encoded = self._encoded
        new = [text for text in dict.fromkeys(texts) if text not in encoded]
        known = {text: encoded[text] for text in texts if text in encoded}
        self._encoded = known = known | dict(zip(new, map(tuple, self._tokenizer.encode_texts(new)), strict=True))
        return known


def _parts(spans: Spans, reuses: Iterable[Reuse]) -> list[Span | Reuse]:
    """Spans and reused stretches in order; a text that is partly reused is cut."""
    parts: list[Span | Reuse] = []
    place = Place(0)
    for reuse in reuses:
        parts += _between(spans, place, reuse.start)
        parts.append(reuse)
        place = reuse.end
    return parts + _between(spans, place, Place(len(spans)))


def _between(spans: Spans, begin: Place, end: Place) -> list[Span | Reuse]:
    cut: list[Span] = []
    for index in range(begin.index, min(end.index + 1, len(spans))):
        text = spans[index].text
        first = begin.offset if index == begin.index else 0
        last = end.offset if index == end.index else len(text)
        cut.append(Span(text[first:last], spans[index].is_special))
    return [span for span in cut if span.text]


def _common_prefix(prompts: Sequence[Spans]) -> Spans:
    if not prompts:
        return ()
    common: list[Span] = []
    for column in zip(*prompts, strict=False):
        if len(set(column)) > 1:
            break
        common.append(column[0])
    return tuple(common)


def _ends_in_open_think(spans: Spans) -> bool:
    last_special = next((span.text for span in reversed(spans) if span.is_special), None)
    return last_special == OPEN_THINK


def _configured_source(value: Any) -> str | None:
    """The template of tokenizer_config.json: one text, or named ones of which `default` answers chats."""
    if isinstance(value, list):
        named = {entry["name"]: entry["template"] for entry in value}
        return named.get("default")
    return value


def _spelling(token: Any) -> str:
    return token["content"] if isinstance(token, dict) else token


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
