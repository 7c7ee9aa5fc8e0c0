"""Sampled ids to text, reasoning and tool calls, and the end of an answer. Owns one answer's text; draws nothing."""

from collections.abc import Iterable
from dataclasses import dataclass

from runtime.protocol import TextProduced, ToolCall, ToolCallMalformed, ToolCallProduced
from runtime.text.detokenize import Detokenizer
from runtime.text.output_parser import Call, MalformedCall, OutputParser, Part, Text
from runtime.text.stop_rules import StopRules
from runtime.text.tokenizer import Tokenizer

HarvestEvent = TextProduced | ToolCallProduced | ToolCallMalformed


@dataclass
class Harvest:
    """Text of one answer as it grows. `is_stopped` once a stop id or a stop text ended it."""

    request_id: str
    tokenizer: Tokenizer
    stop_rules: StopRules
    parser: OutputParser
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    stopped_by: str = ""
    is_stopped: bool = False

    def __post_init__(self) -> None:
        self._detokenizer = Detokenizer(self.tokenizer)

    def push(self, token_id: int) -> list[HarvestEvent]:
        """Events of one more token."""
        assert not self.is_stopped, "the answer has ended"
        if self.stop_rules.is_stop_id(token_id):
            events = self.finish()
            self.is_stopped = True
            return events
        parts = self._through_stop_rules(self._detokenizer.push(token_id))
        special_name = self.tokenizer.special_name(token_id)
        if special_name is not None and not self.is_stopped:
            # A special token has no text, so no stop text can reach across it.
            parts += self.parser.push(self.stop_rules.flush(), special_name)
        if self.is_stopped:
            parts += self.parser.finish()
        return self._events(parts)

    def finish(self) -> list[HarvestEvent]:
        """Events of what was held back; the answer ends without another token."""
        parts = self._through_stop_rules(self._detokenizer.flush())
        if not self.is_stopped:
            parts += self.parser.push(self.stop_rules.flush(), None)
        parts += self.parser.finish()
        return self._events(parts)

    def _through_stop_rules(self, text: str) -> list[Part]:
        allowed = self.stop_rules.push(text)
        if allowed.stopped_by is not None:
            self.is_stopped = True
            self.stopped_by = allowed.stopped_by
        return list(self.parser.push(allowed.text, None)) if allowed.text else []

    def _events(self, parts: Iterable[Part]) -> list[HarvestEvent]:
        events: list[HarvestEvent] = []
        for part in parts:
            if isinstance(part, Text):
                self._grow(part)
                events.append(TextProduced(self.request_id, part.channel, part.text))
            elif isinstance(part, Call):
                self.tool_calls += (part.call,)
                events.append(ToolCallProduced(self.request_id, part.call))
            else:
                assert isinstance(part, MalformedCall)
                events.append(ToolCallMalformed(self.request_id, part.raw, part.reason))
        return events

    def _grow(self, part: Text) -> None:
        if part.channel == "text":
            self.text += part.text
        else:
            self.reasoning += part.text
