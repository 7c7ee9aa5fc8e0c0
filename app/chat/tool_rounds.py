"""The calls of one turn: checked, allowed, run one after another, and bounded, so that no model can go on for ever.

Owns the caps and the waiting for an answer to a permission question. Stores nothing: `take_results` hands over what the
model is to read. Every call that was written ends in exactly one result.
"""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeVar

from app.chat.events import (
    NoticeShown,
    PermissionAnswer,
    PermissionAsked,
    ToolCallEnded,
    ToolCallStarted,
    TurnEvent,
)
from app.chat.turn import Answer
from app.errors import HotslotError, SideCallError, StoreError
from app.messages import ToolStatus
from app.sanitize import clean, clean_line
from app.tools.arguments import check_arguments
from app.tools.permissions import Decision, PermissionScope
from app.tools.registry import Scope, Tool, ToolError
from app.tools.toolbox import ToolBox
from runtime.protocol import ToolCall

MAX_ROUNDS = 12
"""Rounds of a turn whose calls are run."""
MAX_SAME_CALLS = 3
"""Times that one call, with the same arguments, is run in a turn."""
MAX_CALLS_A_ROUND = 8
MAX_FRUITLESS_ROUNDS = 2
"""Rounds in a row without a call that could be run, after which the model may still try again."""
MAX_RESULT_CHARS = 12_000
"""Of one result; longer ones are shortened by side calls where that is possible, else they are cut visibly."""

DENIED = "The user did not allow this call."
CANCELLED = "Error: cancelled by the user"
Result = TypeVar("Result")
Shorten = Callable[[ToolCall, str], Awaitable[str]]
"""Makes less than MAX_RESULT_CHARS of a long result. Raises SideCallError where it can't."""


@dataclass(frozen=True)
class ToolResult:
    """What the model reads of one call; `name` is '' for a call that could not be read.

    `full_text` is all of a result of which the model reads less, else ''.
    """

    name: str
    status: ToolStatus
    text: str
    full_text: str = ""


class ToolRounds:
    """Lives for one turn."""

    def __init__(self, toolbox: ToolBox, shorten: Shorten) -> None:
        self._toolbox = toolbox
        self._shorten = shorten
        self._num_rounds = 0
        self._num_fruitless = 0
        self._num_same: Counter[str] = Counter()
        self._results: list[ToolResult] = []
        self._is_cancelled = False
        self._waiting: asyncio.Future[Any] | None = None
        self._questions: dict[str, asyncio.Future[PermissionAnswer]] = {}

    @property
    def may_go_on(self) -> bool:
        """The model may have another round."""
        return not self._is_cancelled and self._num_fruitless <= MAX_FRUITLESS_ROUNDS

    @property
    def end_notice(self) -> str:
        """Why there is no other round, for the user; '' where there may be."""
        if self._is_cancelled or self.may_go_on:
            return ""
        return f"The model made no usable tool call in {self._num_fruitless} rounds; its turn ends here."

    def cancel(self) -> None:
        """Stop what runs or waits; all calls to come end as cancelled."""
        self._is_cancelled = True
        if self._waiting is not None:
            self._waiting.cancel()

    def answer_permission(self, call_id: str, answer: PermissionAnswer) -> None:
        """Answer a question that is open; others are ignored (its turn may have been cancelled meanwhile)."""
        question = self._questions.get(call_id)
        if question is not None and not question.done():
            question.set_result(answer)

    def take_results(self) -> list[ToolResult]:
        """What came of the calls since the last time."""
        results, self._results = self._results, []
        return results

    async def run(self, answer: Answer) -> AsyncGenerator[TurnEvent, None]:
        """All calls of one answer, the unreadable ones last."""
        self._num_rounds += 1
        num_usable = 0
        for place, (call_id, call) in enumerate(zip(answer.call_ids, answer.tool_calls, strict=True)):
            # What runs is exactly what is shown.
            async with aclosing(self._run_call(call_id, _cleaned_call(call), place)) as events:
                async for event in events:
                    if isinstance(event, ToolCallEnded):
                        num_usable += event.status in ("done", "failed")
                        self._results.append(ToolResult(call.name, event.status, event.text, event.full_text))
                    yield event
        for malformed in answer.malformed_calls:
            self._results.append(ToolResult("", "rejected", f"Error: the call can't be read: {malformed.reason}"))
        self._num_fruitless = 0 if num_usable else self._num_fruitless + 1

    async def _run_call(self, call_id: str, call: ToolCall, place: int) -> AsyncGenerator[TurnEvent, None]:
        began_s = time.monotonic()
        full_text = ""
        status: ToolStatus = "rejected"
        try:
            tool = self._admit(call, place)
            status = "failed"
            scope = await self._wait(tool.look_at(call.arguments))
            permissions = self._toolbox.permissions
            asked = (scope.permission, scope.folder, scope.reaches_below)
            verdict = await self._wait(permissions.run(permissions.verdict, *asked))
            if verdict == "ask":
                yield self._ask(call_id, call, tool, scope)
                verdict, notice = await self._answered(call_id, scope)
                if notice:
                    yield NoticeShown(notice)
            if verdict == "allow":
                began_s = time.monotonic()
                yield ToolCallStarted(call_id, call)
                full_text = clean(await self._wait(tool.run(call.arguments, scope)))
                text, status = await self._readable(call, full_text), "done"
            else:
                text, status = DENIED, "denied"
        except HotslotError as error:
            text = f"Error: {clean_line(str(error))}"
        except asyncio.CancelledError:
            if not self._is_cancelled:
                raise
            text, status = CANCELLED, "cancelled"
        except Exception as error:
            # A tool may have a bug of its own; the chat goes on, and both sides are told.
            text = f"Error: the tool broke ({type(error).__name__})"
        full_text = full_text if full_text != text else ""
        yield ToolCallEnded(call_id, call, status, text, time.monotonic() - began_s, full_text)

    def _admit(self, call: ToolCall, place: int) -> Tool:
        """The tool of a call that may be considered. Raises ToolError."""
        if self._is_cancelled:
            raise asyncio.CancelledError
        tool = self._toolbox.registry.get(call.name)
        if tool is None:
            names = ", ".join(self._toolbox.registry.names) or "none"
            raise ToolError(f"there is no tool called {call.name[:40]!r}; the tools are: {names}")
        check_arguments(tool.schema, call.arguments)
        if self._num_rounds > MAX_ROUNDS:
            raise ToolError("too many tool calls for one answer; answer with what you have")
        if place >= MAX_CALLS_A_ROUND:
            raise ToolError(f"more than {MAX_CALLS_A_ROUND} calls at once; make this one later")
        same = json.dumps([call.name, call.arguments], sort_keys=True)
        self._num_same[same] += 1
        if self._num_same[same] > MAX_SAME_CALLS:
            raise ToolError(f"this call was made {MAX_SAME_CALLS} times already; use its result")
        return tool

    def _ask(self, call_id: str, call: ToolCall, tool: Tool, scope: Scope) -> PermissionAsked:
        self._questions[call_id] = asyncio.get_running_loop().create_future()
        scopes: tuple[PermissionScope, ...] = ("once", "folder", "always") if scope.folder else ("once", "always")
        folder, diff = clean_line(scope.folder), clean(scope.diff)
        return PermissionAsked(call_id, call, scope.permission, tool.risk, folder, diff, scopes, scope.note)

    async def _answered(self, call_id: str, scope: Scope) -> tuple[Decision, str]:
        """What the user decides, remembered where that is wished; and a line where it could not be."""
        answer = await self._wait(self._questions[call_id])
        decision: Decision = "allow" if answer.is_allowed else "deny"
        if answer.scope != "once":
            folder = scope.folder if answer.scope == "folder" else ""
            permissions = self._toolbox.permissions
            try:
                await permissions.run(permissions.remember, scope.permission, folder, decision)
            except StoreError as error:
                return decision, f"{error} This decision holds once."
        return decision, ""

    async def _readable(self, call: ToolCall, text: str) -> str:
        """The result as the model reads it: all of it, less of it, or its beginning."""
        if len(text) > MAX_RESULT_CHARS:
            try:
                text = clean(await self._wait(self._shorten(call, text)))
            except SideCallError:
                # It is listed there with its error; the turn goes on with the beginning of the result.
                return _cut(text)
        return text if len(text) <= MAX_RESULT_CHARS else _cut(text)

    async def _wait(self, work: Awaitable[Result]) -> Result:
        """The outcome of `work`, which `cancel` stops."""
        if self._is_cancelled:
            if isinstance(work, Coroutine):
                work.close()
            raise asyncio.CancelledError
        self._waiting = asyncio.ensure_future(work)
        try:
            return await self._waiting
        finally:
            self._waiting = None


def _cut(text: str) -> str:
    return f"{text[:MAX_RESULT_CHARS]}\n[cut: {MAX_RESULT_CHARS} of {len(text)} characters are shown]"


def _cleaned_call(call: ToolCall) -> ToolCall:
    return ToolCall(
        clean_line(call.name), {clean_line(name): _cleaned(value) for name, value in call.arguments.items()}
    )


def _cleaned(value: Any) -> Any:
    """A JSON value whose texts may be shown."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [_cleaned(item) for item in value]
    if isinstance(value, dict):
        return {clean_line(str(key)): _cleaned(item) for key, item in value.items()}
    return value
