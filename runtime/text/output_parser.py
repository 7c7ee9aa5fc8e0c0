"""A model's output stream, split into answer text, reasoning and tool calls.

Only real special tokens open or close reasoning and calls; the same spelling in ordinary tokens is text. Nothing the
model wrote is lost but line breaks beside markup. Refuses to judge a call: that is `tool_call_syntax`.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from runtime.protocol import ToolCall, ToolSchema
from runtime.text.tool_call_syntax import CallSyntaxError, ToolStyle, parse_call

Channel = Literal["text", "reasoning"]
OPEN_THINK, CLOSE_THINK = "<think>", "</think>"
OPEN_CALL, CLOSE_CALL = "<tool_call>", "</tool_call>"


@dataclass(frozen=True)
class Text:
    """A piece of one channel; pieces concatenate."""

    channel: Channel
    text: str


@dataclass(frozen=True)
class Call:
    """A well-formed call."""

    call: ToolCall


@dataclass(frozen=True)
class MalformedCall:
    """What the model wrote, markup included, and why it is not a call."""

    raw: str
    reason: str


Part = Text | Call | MalformedCall


class OutputParser:
    """Push tokens in order, then `finish` once.

    Line breaks right after and right before markup belong to the markup and are dropped; those at the end of the
    answer are kept.
    """

    def __init__(self, style: ToolStyle, tools: Iterable[ToolSchema], opens_reasoning: bool) -> None:
        self._style = style
        self._tools = {tool.name: tool for tool in tools}
        self._channel: Channel = "reasoning" if opens_reasoning else "text"
        self._is_at_start = True
        """No character of the open block has been shown yet."""
        self._held_breaks = ""
        self._call_pieces: list[str] | None = None
        """What an open call contains so far; None outside of calls."""

    def push(self, token_text: str, special_name: str | None = None) -> list[Part]:
        """Add text, then the special token that follows it, if one does.

        `token_text` is what the detokenizer released with this token (for a special token: the rest of the character
        before it).
        """
        if token_text == special_name:
            token_text = ""
        parts = self._add_text(token_text)
        if special_name is not None:
            parts += self._add_special(special_name)
        return parts

    def finish(self) -> list[Part]:
        """What is still held; an open call is malformed."""
        if self._call_pieces is not None:
            return [self._malformed("the answer ends inside the call")]
        held, self._held_breaks = self._held_breaks, ""
        is_shown = held and self._channel == "text" and not self._is_at_start
        return [Text("text", held)] if is_shown else []

    def _add_special(self, name: str) -> list[Part]:
        if self._call_pieces is not None:
            return self._add_special_in_call(name)
        if self._channel == "reasoning":
            return self._open_block("text") if name == CLOSE_THINK else self._add_text(name)
        if name == OPEN_THINK:
            return self._open_block("reasoning")
        if name == OPEN_CALL:
            self._call_pieces = []
            return self._open_block("text")
        return self._add_text(name)

    def _add_special_in_call(self, name: str) -> list[Part]:
        assert self._call_pieces is not None
        if name == CLOSE_CALL:
            return [self._close_call()]
        if name == OPEN_CALL:
            part = self._malformed("another call begins inside the call")
            self._call_pieces = []
            return [part]
        self._call_pieces.append(name)
        return []

    def _open_block(self, channel: Channel) -> list[Part]:
        self._channel, self._is_at_start, self._held_breaks = channel, True, ""
        return []

    def _add_text(self, text: str) -> list[Part]:
        if self._call_pieces is not None:
            self._call_pieces.append(text)
            return []
        text = self._held_breaks + text
        if self._is_at_start:
            text = text.lstrip("\n")
        shown = text.rstrip("\n")
        self._held_breaks = text[len(shown) :]
        self._is_at_start = self._is_at_start and not shown
        return [Text(self._channel, shown)] if shown else []

    def _close_call(self) -> Part:
        body = "".join(self._call_pieces or ())
        try:
            part: Part = Call(parse_call(body, self._style, self._tools))
        except CallSyntaxError as error:
            return self._malformed(str(error), CLOSE_CALL)
        self._call_pieces = None
        return part

    def _malformed(self, reason: str, closing: str = "") -> MalformedCall:
        raw = OPEN_CALL + "".join(self._call_pieces or ()) + closing
        self._call_pieces = None
        return MalformedCall(raw, reason)
