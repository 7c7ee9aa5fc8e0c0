"""`hotslot ask`: one question, one answer, nothing kept. The same chat core as the screen, over a store in memory."""

import argparse
import asyncio
import signal
from collections.abc import Iterator
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from app.call_text import call_text
from app.chat.events import (
    AnswerTextStreamed,
    DocumentPlanned,
    EngineReady,
    EngineStarting,
    NoticeShown,
    PermissionAnswer,
    PermissionAsked,
    PrefillAdvanced,
    ToolCallEnded,
    ToolCallRejected,
    ToolCallShown,
    TurnEnded,
    TurnEvent,
)
from app.chat.session import ChatSession
from app.commands.context import CommandContext
from app.commands.inputs import read_files, read_prompt
from app.commands.options import add_chat_options, add_engine_options, add_model_option, parse_output_path
from app.commands.tool_options import add_tool_options, make_toolbox, offer_given_tools
from app.console import Console
from app.documents.reading_plan import ReadingChoice
from app.engine import LocalEngine
from app.messages import Attachment
from app.sanitize import clean_line
from app.store.conversations import Store
from app.tools.toolbox import ToolBox
from runtime.errors import EngineError, UsageError
from runtime.protocol import EngineStats, RequestStats, ToolCall

INTERRUPTED = 130


@dataclass(frozen=True)
class _Question:
    prompt: str
    documents: list[Attachment]
    reading: ReadingChoice


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_option(parser)
    parser.add_argument(
        "--file",
        action="append",
        default=[],
        metavar="F",
        help="a document to go with the question: text, code, HTML, PDF or DOCX; - is stdin; may be repeated",
    )
    parser.add_argument(
        "--reading",
        choices=get_args(ReadingChoice),
        default="auto",
        help="how documents are read: whole, passages that a search finds, or all in pieces; auto: whole where it fits",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end")
    parser.add_argument("--trace", metavar="FILE", help="record which experts are routed, for hotslot bench policy")
    parser.add_argument("prompt", metavar="PROMPT", nargs="?", help="the question, or - to read it from stdin")
    add_tool_options(parser)
    add_chat_options(parser)
    add_engine_options(parser)
    parser.set_defaults(run=run)


def run(context: CommandContext, arguments: argparse.Namespace) -> int:
    context.tell_settings_notice()
    console = context.console
    if [*arguments.file, arguments.prompt].count("-") > 1:
        raise UsageError("stdin can be read once only; give one of --file - and the prompt -.")
    attachments = read_files(arguments.file, console, may_be_stdin=True)
    if arguments.prompt is None and not attachments:
        raise UsageError("There is no prompt; write a question, or - to read it from stdin.")
    prompt = read_prompt(console) if arguments.prompt == "-" else arguments.prompt or ""
    if not prompt.strip() and not attachments:
        raise UsageError("The prompt is empty; write a question, or - to read it from stdin.")
    trace_path = parse_output_path("--trace", arguments.trace)
    toolbox = make_toolbox(arguments, console)
    model_path = context.model_path()
    question = _Question(prompt, attachments, arguments.reading)
    return asyncio.run(_ask(context, model_path, question, toolbox, trace_path, arguments.json))


async def _ask(
    context: CommandContext,
    model_path: Path,
    question: _Question,
    toolbox: ToolBox | None,
    trace_path: Path | None,
    is_json: bool,
) -> int:
    # A trace is replayed over empty slots, so that it is recorded over such.
    engine = LocalEngine(context.locations.engine_log_file, context.locations.cache_dir, trace_path is None)
    session = ChatSession(engine, Store.in_memory(), context.settings, model_path, toolbox=toolbox)
    if toolbox is not None:
        offer_given_tools(toolbox, session)
    printer = _Printer(context.console, is_json, runs_tools=toolbox is not None)
    try:
        with _interrupt_cancels(session):
            async with aclosing(session.send(question.prompt, question.documents, question.reading)) as events:
                async for event in events:
                    printer.show(event)
                    if isinstance(event, PermissionAsked):
                        session.answer_permission(event.call_id, PermissionAnswer(is_allowed=False))
                    if trace_path is not None and isinstance(event, EngineReady):
                        await engine.start_trace(trace_path)
        assert printer.end is not None
        status = _conclude(context.console, session, printer.end, is_json)
        if trace_path is not None and engine.is_running:
            await engine.stop_trace()
        return status
    finally:
        await session.close()


@contextmanager
def _interrupt_cancels(session: ChatSession) -> Iterator[None]:
    """The first Ctrl-C cancels the turn, which keeps the partial answer; the second ends the program."""
    loop = asyncio.get_running_loop()
    cancels: list[asyncio.Task[None]] = []

    def cancel() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        cancels.append(loop.create_task(session.cancel()))

    # Where the loop can't handle signals, Ctrl-C ends the program at once.
    with suppress(NotImplementedError):
        loop.add_signal_handler(signal.SIGINT, cancel)
    try:
        yield
    finally:
        with suppress(NotImplementedError):
            loop.remove_signal_handler(signal.SIGINT)


class _Printer:
    """Shows the events of one turn as they come; remembers its end."""

    def __init__(self, console: Console, is_json: bool, runs_tools: bool) -> None:
        self._console = console
        self._is_json = is_json
        self._runs_tools = runs_tools
        self.end: TurnEnded | None = None

    def show(self, event: TurnEvent) -> None:
        match event:
            case EngineStarting(phase, fraction, detail):
                self._console.progress(f"Loading the model ({phase}) {fraction:.0%} {detail}")
            case DocumentPlanned():
                self._console.notice(event.line)
            case PrefillAdvanced(done, total) if done < total:
                self._console.progress(f"Reading the prompt: {done:,} of {total:,} tokens")
            case AnswerTextStreamed(channel, text) if not self._is_json:
                (self._console.answer if channel == "text" else self._console.reasoning)(text)
            case ToolCallShown(call) if not self._is_json and not self._runs_tools:
                self._console.notice(f"the model calls a tool, which is not run: {call_text(call)}")
            case ToolCallEnded(_, call, status, text) if not self._is_json:
                self._console.notice(f"tool {status}: {call_text(call)} -> {_shortened(clean_line(text))}")
            case ToolCallRejected(_, reason):
                self._console.notice(f"the model wrote a tool call that can't be read: {reason}")
            case NoticeShown(text):
                self._console.notice(text)
            case TurnEnded():
                self.end = event
                self._console.end_line()


def _conclude(console: Console, session: ChatSession, end: TurnEnded, is_json: bool) -> int:
    if end.outcome == "failed":
        raise EngineError(end.error)
    if is_json:
        console.print_json(_answer_json(session, end))
    elif end.outcome == "length":
        console.notice("the answer met its token limit and is not complete.")
    return INTERRUPTED if end.outcome == "cancelled" else 0


def _answer_json(session: ChatSession, end: TurnEnded) -> dict[str, Any]:
    """The object of `--json`; a stable door. Text, reasoning and calls are those of all rounds."""
    answers = [message for message in session.messages if message.role == "assistant"]
    figures = session.stats or EngineStats()
    return {
        "text": "\n\n".join(answer.content for answer in answers if answer.content),
        "reasoning": "\n\n".join(answer.reasoning for answer in answers if answer.reasoning),
        "tool_calls": [_call_json(call) for answer in answers for call in answer.tool_calls],
        "finish_reason": end.outcome,
        "usage": {
            "prompt_tokens": end.usage.prompt_tokens,
            "cached_tokens": end.usage.cached_tokens,
            "completion_tokens": end.usage.completion_tokens,
        },
        "stats": _stats_json(end.stats or RequestStats(), figures),
        "model": answers[-1].model_name if answers else figures.model_name,
    }


def _stats_json(request: RequestStats, engine: EngineStats) -> dict[str, Any]:
    return {
        "ttft_s": request.ttft_s,
        "prefill_tok_s": request.prefill_tok_s,
        "decode_tok_s": request.decode_tok_s,
        "slot_hit_rate": engine.slot_hit_rate,
        "ram_hit_rate": engine.ram_hit_rate,
        "disk_rate": engine.disk_rate,
        "disk_bytes": engine.num_disk_bytes,
        "slots": engine.num_slots,
        "vram_used_bytes": engine.vram_used_bytes,
        "vram_headroom_bytes": engine.vram_headroom_bytes,
        "overlap": engine.overlap_level,
        "overlap_reason": engine.overlap_reason,
        "policy": engine.policy,
    }


def _call_json(call: ToolCall) -> dict[str, Any]:
    return {"name": call.name, "arguments": call.arguments}


def _shortened(line: str, limit: int = 200) -> str:
    return line if len(line) <= limit else f"{line[:limit]}… ({len(line)} characters)"
