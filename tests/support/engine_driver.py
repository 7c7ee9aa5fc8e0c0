"""The real engine in the test's own process, spoken to as the worker does, checked after every step."""

from pathlib import Path
from typing import Any

from runtime.execute.engine import Engine
from runtime.execute.opened_model import OpenModel, open_folder
from runtime.execute.placement import Placement
from runtime.options import EngineOptions, SamplingOptions
from runtime.protocol import (
    Cancelled,
    ChatMessage,
    Command,
    Event,
    Failed,
    Finished,
    Generate,
    Loaded,
    LoadModel,
    Scored,
)

DEMO_FOLDER = Path(__file__).resolve().parents[2] / "assets" / "demo-model"
_LAST_EVENTS = (Finished, Cancelled, Failed, Scored)


class EngineDriver:
    """An engine with the events it sent."""

    def __init__(
        self, options: EngineOptions, placement: Placement | None = None, open_model: OpenModel = open_folder
    ) -> None:
        self.events: list[Event] = []
        self.engine = Engine(self.events.append, placement, open_model)
        self.engine.handle(LoadModel(options))

    @property
    def loaded(self) -> Loaded:
        return next(event for event in self.events if isinstance(event, Loaded))

    def send(self, command: Command) -> None:
        """Hand over a command without a step."""
        self.engine.handle(command)

    def step(self, num_steps: int = 1) -> None:
        """Run steps; pages, rows, slots and queue must be sound after each."""
        for _ in range(num_steps):
            self.engine.step()
            model = self.engine._model
            assert model is not None
            model.scheduler.check_integrity()
            model.experts.cache.check_integrity()

    def settle(self) -> None:
        """Step until nothing is left to do."""
        while not self.engine.is_idle:
            self.step()

    def events_of(self, request_id: str) -> list[Event]:
        """All events of a request, the last of which ended it if it has ended."""
        return [event for event in self.events if getattr(event, "request_id", None) == request_id]

    def run(self, command: Any) -> Event:
        """Handle a command, settle, and return its one last event."""
        first = len(self.events)
        self.send(command)
        self.settle()
        of_request = [
            event for event in self.events[first:] if getattr(event, "request_id", None) == command.request_id
        ]
        last = [event for event in of_request if isinstance(event, _LAST_EVENTS)]
        assert len(last) == 1, of_request
        assert of_request[-1] is last[0]
        return last[0]

    def ask(
        self, request_id: str, messages: tuple[ChatMessage, ...], max_tokens: int = 12, **sampling: Any
    ) -> Finished:
        """The finished answer to a chat, thinking off."""
        options = SamplingOptions(max_tokens=max_tokens, **sampling)
        finished = self.run(Generate(request_id, messages, options, thinking=False))
        assert isinstance(finished, Finished), finished
        return finished

    def reply_to(self, messages: tuple[ChatMessage, ...], finished: Finished) -> tuple[ChatMessage, ...]:
        """History with the answer in it, as an app keeps it."""
        answer = ChatMessage(
            "assistant",
            finished.text,
            finished.reasoning,
            finished.tool_calls,
            finished.generated_ids,
            self.loaded.tokenizer_fingerprint,
        )
        return (*messages, answer)
