"""Messages to prompt ids, through the checkpoint's own chat template.

Owns the template's source, the shape in which it sees messages (transformers': `reasoning_content`, `tool_calls`,
tools as functions) and the encoding of what it renders. Special tokens come from the template alone; a special token
spelled in a message, a tool or an argument stays text.
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import jinja2

from runtime.errors import CheckpointError, RequestError
from runtime.protocol import ChatMessage, ToolSchema
from runtime.text.output_parser import OPEN_THINK
from runtime.text.spans import Span, SpellingGuard
from runtime.text.template_sandbox import SandboxedTemplate
from runtime.text.tokenizer import Tokenizer
from runtime.text.tool_call_syntax import ToolStyle
from runtime.text.turn_reuse import Place, Reuse, Spans, find_turns, reuse_turn

_NAMED_TOKENS = ("bos_token", "eos_token", "pad_token", "unk_token")
_SCHEMA_WORDS = frozenset({
    *("type", "properties", "required", "description", "items", "enum", "default", "title", "format", "const", "$ref"),
    *("anyOf", "oneOf", "allOf", "string", "number", "integer", "boolean", "object", "array", "null"),
})  # fmt: skip
"""Words of JSON Schema that a template may look for in a tool's parameters."""
_PROBE = (ChatMessage("user", "?"),)


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
        except (jinja2.TemplateError, RecursionError) as error:
            raise CheckpointError(f"{source_name} is not a usable chat template ({_one_line(error)})") from None
        self.tool_style: ToolStyle = "xml" if "<function=" in source else "hermes"
        self._source_name = source_name
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
        except (OSError, ValueError, AttributeError, TypeError, KeyError) as error:
            raise CheckpointError(f"{config_path} or {path.name} can't be read ({_one_line(error)})") from None
        if source is None:
            return None
        names = {name: _spelling(config[name]) for name in _NAMED_TOKENS if config.get(name)}
        return cls(source, str(path if path.is_file() else config_path), tokenizer, names)

    def encode(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema] = (),
        thinking: bool | None = None,
        *,
        add_generation_prompt: bool = True,
    ) -> RenderedPrompt:
        """The prompt's ids. Raises RequestError, in one line, when the template refuses the messages."""
        spans = self._render(messages, tools, thinking, add_generation_prompt)
        reuses = self._reuses(spans, messages, add_generation_prompt)
        num_spans_of_history = len(spans) - self._num_prompt_spans(spans, thinking, add_generation_prompt)
        history, prompt = self._encode_spans(spans, reuses, num_spans_of_history)
        return RenderedPrompt(
            tuple(history + prompt),
            _ends_in_open_think(spans),
            len(history),
            sum(len(reuse.ids) for reuse in reuses),
        )

    @cached_property
    def can_think(self) -> bool:
        """Whether switching thinking changes what the model is given."""
        prompts = self._generation_prompts
        return prompts.get(True) != prompts.get(False)

    def _render(
        self,
        messages: Sequence[ChatMessage],
        tools: Sequence[ToolSchema],
        thinking: bool | None,
        add_generation_prompt: bool,
    ) -> Spans:
        content = _all_text(messages, tools)
        breaker = self._guard.choose_breaker(content)
        variables: dict[str, Any] = {
            **self._token_names,
            "messages": [self._template_message(message, breaker) for message in messages],
            "tools": [self._template_tool(tool, breaker) for tool in tools] or None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
        }
        if thinking is not None:
            variables["enable_thinking"] = thinking
        try:
            rendered = self._template.render(variables, len(content))
        except Exception as error:  # a template is a program: its expressions may raise anything
            raise RequestError(f"The model's chat template refuses these messages: {_one_line(error)}") from None
        return self._guard.split(rendered, breaker)

    def _template_message(self, message: ChatMessage, breaker: str) -> dict[str, Any]:
        shown: dict[str, Any] = {"role": message.role, "content": self._guard.protect(message.content, breaker)}
        if message.reasoning:
            shown["reasoning_content"] = self._guard.protect(message.reasoning, breaker)
        if message.tool_calls:
            calls = [{"name": call.name, "arguments": call.arguments} for call in message.tool_calls]
            protected = [{key: self._guard.protect(part, breaker) for key, part in call.items()} for call in calls]
            shown["tool_calls"] = [{"type": "function", "function": call} for call in protected]
        return shown

    def _template_tool(self, tool: ToolSchema, breaker: str) -> dict[str, Any]:
        function = {
            "name": self._guard.protect(tool.name, breaker),
            "description": self._guard.protect(tool.description, breaker),
            "parameters": self._guard.protect(tool.parameters, breaker, _SCHEMA_WORDS),
        }
        return {"type": "function", "function": function}

    @cached_property
    def _generation_prompts(self) -> dict[bool | None, Spans]:
        """What the template adds for the model to go on from, by thinking switch; empty where it can't be told."""
        try:
            return {thinking: self._generation_prompt(thinking) for thinking in (None, True, False)}
        except RequestError:
            return {}

    def _generation_prompt(self, thinking: bool | None) -> Spans:
        history = self._render(_PROBE, (), thinking, False)
        whole = self._render(_PROBE, (), thinking, True)
        return whole[len(history) :] if whole[: len(history)] == history else ()

    def _num_prompt_spans(self, spans: Spans, thinking: bool | None, add_generation_prompt: bool) -> int:
        prompt = self._generation_prompts.get(thinking, ())
        is_at_end = add_generation_prompt and prompt and spans[-len(prompt) :] == prompt
        return len(prompt) if is_at_end else 0

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

    def _encode_spans(self, spans: Spans, reuses: Iterable[Reuse], num_history: int) -> tuple[list[int], list[int]]:
        """Ids of the history and of the generation prompt."""
        parts = [*_parts(spans[:num_history], reuses), None, *spans[num_history:]]
        encoded = self._encode_texts([part.text for part in parts if isinstance(part, Span) and not part.is_special])
        history: list[int] = []
        ids = history
        for part in parts:
            if part is None:
                ids = []
            elif isinstance(part, Reuse):
                ids += part.ids
            else:
                ids += (self._tokenizer.special_ids[part.text],) if part.is_special else encoded[part.text]
        return history, ids

    def _encode_texts(self, texts: Sequence[str]) -> dict[str, tuple[int, ...]]:
        new = [text for text in dict.fromkeys(texts) if text not in self._encoded]
        known = {text: self._encoded[text] for text in texts if text in self._encoded}
        fresh = zip(new, map(tuple, self._tokenizer.encode_texts(new)), strict=True)
        self._encoded = known | dict(fresh)
        return self._encoded


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


def _all_text(messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]) -> str:
    """Everything the template is given, in one text."""
    texts = [text for message in messages for text in (message.content, message.reasoning)]
    calls = [(call.name, call.arguments) for message in messages for call in message.tool_calls]
    offers = [(tool.name, tool.description, tool.parameters) for tool in tools]
    return "".join([*texts, json.dumps([calls, offers], ensure_ascii=False)])


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
