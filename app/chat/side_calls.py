"""Small requests beside the chat: their list, their limit, their end. Knows no purpose but by its name.

A side call is answered by the chat's own engine at lower priority. It starts no engine and never fails a chat: what
goes wrong is a `SideCallError` for whoever asked. At most `MOST_RUNNING` are given to the engine at once, so that one
of its sequences is always free for the chat.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from app.engine import Engine
from app.errors import HotslotError, SideCallCancelledError, SideCallError
from app.messages import new_id
from app.sanitize import clean, clean_line
from runtime.options import SamplingOptions
from runtime.protocol import (
    Cancelled,
    ChatMessage,
    Failed,
    Finished,
    Generate,
    PromptAccepted,
    RequestEvent,
    TextProduced,
    Usage,
)

SideCallKind = Literal["title", "summary", "reading", "aside"]
SideCallState = Literal["waiting", "running", "done", "failed", "cancelled"]

MOST_RUNNING = 3
"""The engine runs four sequences; the fourth is the chat's."""
MOST_AT_ONCE_OF_ONE_JOB = 2
"""Of the requests of one long job (reading a document), so that it does not keep others waiting to its end."""
MOST_LISTED = 100


@dataclass(frozen=True)
class SideCall:
    """One side call as a front end shows it; a new value for every change.

    `subject` is one sanitised line: what it is about. `usage` grows while it runs. `asked_at` is Unix seconds;
    `latency_s` is from asking to the end, None before. `error` is one readable line where it failed, else ''.
    """

    id: str
    kind: SideCallKind
    subject: str
    state: SideCallState = "waiting"
    usage: Usage = field(default_factory=Usage)
    asked_at: float = 0.0
    latency_s: float | None = None
    error: str = ""

    @property
    def is_over(self) -> bool:
        return self.state in ("done", "failed", "cancelled")


@dataclass(frozen=True)
class Question:
    """One of many questions to fresh contexts; `subject` says in a line what it is about."""

    subject: str
    prompt: str


class SideCalls:
    """All side calls of one chat, the last `MOST_LISTED` of them listed. Must be used from one event loop.

    `on_changed` is called after every change of `calls`, many times a second while they run.
    """

    def __init__(self, engine: Engine) -> None:
        self.on_changed: Callable[[], None] | None = None
        self._engine = engine
        self._free = asyncio.Semaphore(MOST_RUNNING)
        self._calls: dict[str, SideCall] = {}
        self._asking: dict[str, asyncio.Task[str]] = {}
        self._jobs: set[asyncio.Task[None]] = set()

    @property
    def calls(self) -> tuple[SideCall, ...]:
        """In the order in which they were asked."""
        return tuple(self._calls.values())

    async def ask(
        self,
        kind: SideCallKind,
        subject: str,
        messages: Sequence[ChatMessage],
        max_tokens: int,
        conversation_id: str = "",
    ) -> str:
        """The sanitised answer of a fresh context, without reasoning, greedy. Cancelling the wait cancels the call.

        `max_tokens` bounds the answer; one that meets the bound is returned as far as it went.
        Raises SideCallCancelledError where the user cancelled it, or another SideCallError.
        """
        call = SideCall(new_id(), kind, clean_line(subject), asked_at=time.time())
        request = Generate(
            call.id,
            tuple(messages),
            SamplingOptions(max_tokens=max_tokens),
            thinking=False,
            conversation_id=conversation_id,
            kind="side_call",
        )
        self._put(call)
        task = self._asking[call.id] = asyncio.create_task(self._answer(request), name=f"side-call-{kind}")
        try:
            return await task
        except asyncio.CancelledError:
            waiting = asyncio.current_task()
            if task.cancelled() and waiting is not None and not waiting.cancelling():
                self._end(call.id, "cancelled")
                raise SideCallCancelledError(f"The side call was cancelled: {call.subject}.") from None
            task.cancel()
            self._end(call.id, "cancelled")
            raise
        except HotslotError as error:
            self._end(call.id, "failed", clean_line(str(error)))
            raise SideCallError(clean_line(str(error))) from error
        except Exception:
            self._end(call.id, "failed", "Something unforeseen went wrong; see the log.")
            raise
        finally:
            del self._asking[call.id]

    async def ask_each(
        self, kind: SideCallKind, questions: Sequence[Question], max_tokens: int, conversation_id: str = ""
    ) -> list[str | SideCallError]:
        """The answers of one long job in order, few asked at once; a question without one has its error there."""
        is_free = asyncio.Semaphore(MOST_AT_ONCE_OF_ONE_JOB)

        async def ask(question: Question) -> str | SideCallError:
            async with is_free:
                messages = (ChatMessage("user", question.prompt),)
                try:
                    return await self.ask(kind, question.subject, messages, max_tokens, conversation_id)
                except SideCallError as error:
                    return error

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(question)) for question in questions]
        return [task.result() for task in tasks]

    def cancel(self, side_call_id: str) -> None:
        """Stop one; what is over or unknown is ignored."""
        if (task := self._asking.get(side_call_id)) is not None:
            task.cancel()

    def start(self, job: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Run a job of side calls that nobody waits for; a `HotslotError` ends it, and is seen in `calls`."""
        task = asyncio.create_task(_quietly(job))
        self._jobs.add(task)
        task.add_done_callback(self._jobs.discard)
        return task

    async def settle(self) -> None:
        """Wait until nothing is asked any more and all jobs are done."""
        while tasks := {*self._jobs, *self._asking.values()}:
            await asyncio.wait(tasks)

    async def close(self) -> None:
        """Cancel all and wait for their end."""
        tasks = [*self._jobs, *self._asking.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def check_integrity(self) -> None:
        """Raises AssertionError unless every call that is not over is being asked, and no place is lost."""
        unfinished = {call.id for call in self._calls.values() if not call.is_over}
        assert unfinished <= set(self._asking), (unfinished, set(self._asking))
        # One that is over may still be leaving the engine.
        if not self._asking:
            assert self._free._value == MOST_RUNNING, self._free._value

    # ---- one call

    async def _answer(self, request: Generate) -> str:
        async with self._free, aclosing(self._engine.generate(request)) as events:
            text = ""
            async for event in events:
                text += self._take(event)
            return clean(text).strip()

    def _take(self, event: RequestEvent) -> str:
        """Note what happened; returns the text that came. Raises SideCallError, or CancelledError."""
        call = self._calls[event.request_id]
        match event:
            case PromptAccepted():
                usage = Usage(event.prompt_tokens, event.cached_tokens)
                self._put(replace(call, state="running", usage=usage))
            case TextProduced():
                num_tokens = call.usage.completion_tokens + event.num_tokens
                self._put(replace(call, usage=replace(call.usage, completion_tokens=num_tokens)))
                return event.text if event.channel == "text" else ""
            case Finished():
                self._put(replace(call, usage=event.usage))
                self._end(call.id, "done")
            case Cancelled():
                self._put(replace(call, usage=event.usage))
                raise asyncio.CancelledError
            case Failed():
                raise SideCallError(event.message)
        return ""

    def _end(self, side_call_id: str, state: SideCallState, error: str = "") -> None:
        call = self._calls[side_call_id]
        if not call.is_over:
            self._put(replace(call, state=state, latency_s=time.time() - call.asked_at, error=error))

    def _put(self, call: SideCall) -> None:
        self._calls[call.id] = call
        if len(self._calls) > MOST_LISTED:
            oldest = next((listed.id for listed in self._calls.values() if listed.is_over), None)
            if oldest is not None:
                del self._calls[oldest]
        if self.on_changed is not None:
            self.on_changed()


async def _quietly(job: Callable[[], Coroutine[Any, Any, None]]) -> None:
    try:
        await job()
    except HotslotError:
        # The call that failed is listed with its error; nobody waits for the job.
        return
