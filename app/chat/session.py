"""One chat over one engine and one store, without a screen: what is said, in which order it is stored, how it ends.

Draws nothing, parses nothing and owns no widget: the TUI and the command line both iterate its events.
"""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path

from app.chat.context_window import build_context
from app.chat.document_reading import DocumentCounter, DocumentReader, ReadPieces, without_readings
from app.chat.engine_start import EngineStarter
from app.chat.events import (
    DocumentPlanned,
    EngineReady,
    NoticeShown,
    PermissionAnswer,
    StatsUpdated,
    TurnEvent,
    TurnEvents,
    UserMessageStored,
)
from app.chat.open_chat import OpenChat
from app.chat.opening import OpeningReader
from app.chat.recording import store_answer, store_results
from app.chat.side_calls import SideCalls
from app.chat.side_jobs import SideJobs
from app.chat.tool_rounds import Shorten, ToolRounds
from app.chat.turn import Turn
from app.chat.turn_progress import TurnProgress
from app.documents.reading_plan import ReadingChoice, ReadingPlan
from app.engine import Engine
from app.errors import HotslotError, TurnInProgressError
from app.locations import DEMO_MODEL, asset_path
from app.messages import Attachment, Message, new_id
from app.sanitize import clean, clean_line
from app.settings import Settings
from app.store.conversations import Store
from app.tools.toolbox import ToolBox
from runtime.errors import RequestError
from runtime.protocol import ChatMessage, CountTokens, EngineStats, Generate, Loaded, ToolSchema


class ChatSession(OpenChat):
    """Sends messages and yields what happens. One turn at a time; every turn ends in exactly one `TurnEnded`.

    The user's message is stored before the engine is asked. A turn that is cancelled, fails or is abandoned (its
    iteration closed) stores what had been produced, marked so. Must be used from one event loop.
    """

    def __init__(
        self,
        engine: Engine,
        store: Store,
        settings: Settings,
        model_path: Path,
        names_chats: bool = False,
        toolbox: ToolBox | None = None,
    ) -> None:
        super().__init__(store)
        self.engine = engine
        self.settings = settings
        self.model_path = model_path
        self.toolbox = toolbox
        """The tools the model is offered; None: none."""
        self.stats: EngineStats | None = None
        """The engine's last figures; None before its first start."""
        self._names_chats = names_chats
        self._starter = EngineStarter(engine)
        self.side_calls = SideCalls(engine)
        self.opening = OpeningReader(engine)
        """Reads ahead after every start of the engine."""
        self.side_jobs = SideJobs(self.side_calls, self._transcript, self._starter)
        self.shorten_result: Shorten = self.side_jobs.shorten
        """Makes less of a result over MAX_RESULT_CHARS."""
        self.read_pieces: ReadPieces = self.side_jobs.read_pieces
        """Reads a document that does not fit, piece by piece."""
        self._turn: Turn | None = None
        self._rounds: ToolRounds | None = None
        self._reading: asyncio.Future[str] | None = None
        self._is_busy = False
        self._is_warming_up = False
        self._is_cancel_asked = False
        self._new_stats: EngineStats | None = None
        engine.on_stats = self._note_stats

    # ---- the engine

    @property
    def loaded(self) -> Loaded | None:
        """What the engine said when it was ready; None while no model is loaded."""
        return self._starter.loaded if self.engine.is_running else None

    @property
    def is_busy(self) -> bool:
        """A turn or a start of the engine is running."""
        return self._is_busy

    def apply_settings(self, settings: Settings) -> None:
        """Use these from the next message on; what concerns loading restarts the engine then."""
        self.settings = settings

    # ---- turns

    async def send(
        self, text: str, attachments: Sequence[Attachment] = (), reading: ReadingChoice = "auto"
    ) -> TurnEvents:
        """Say something and stream the answer. Raises HotslotError, before anything is stored, if it can't be said.

        `reading` is how documents are to be shown to the model.
        """
        self._refuse_if_busy()
        content = clean(text)
        if not content.strip() and not attachments:
            raise RequestError("The message is empty; type something first.")
        async with aclosing(self._say(content, tuple(attachments), reading)) as events:
            async for event in events:
                yield event

    async def edit(self, message_id: str, text: str, reading: ReadingChoice = "auto") -> TurnEvents:
        """Say a user's message of this branch in other words; the former one stays in the store as another branch.

        It keeps its attachments. Raises HotslotError, before anything is stored, if it can't be said.
        """
        self._refuse_if_busy()
        edited = self._message(message_id)
        content = clean(text)
        if edited.role != "user":
            raise RequestError("Only your own messages can be edited; regenerate an answer instead.")
        if not content.strip() and not edited.attachments:
            raise RequestError("The message is empty; type something first.")
        self._transcript.step_back_to(edited.parent_id)
        async with aclosing(self._say(content, edited.attachments, reading)) as events:
            async for event in events:
                yield event

    async def _say(self, content: str, files: tuple[Attachment, ...], reading: ReadingChoice) -> TurnEvents:
        self._begin_turn()
        attachments = without_readings(files)
        try:
            conversation = self._transcript.begin(content or attachments[0].name, self.settings.model)
            message = Message(conversation.id, self._transcript.head_id, "user", content, attachments=attachments)
            await self._transcript.append(message)
            for notice in self._transcript.take_notices():
                yield NoticeShown(notice)
            yield UserMessageStored(message.id)
            async with aclosing(self._answer(reading)) as events:
                async for event in events:
                    yield event
        finally:
            self._is_busy = False

    async def regenerate(self, message_id: str | None = None) -> TurnEvents:
        """Answer again: the last user message, or the one that this message of the branch is or answers.

        The former answer stays in the store as another branch, and stays in sight where nothing new was answered.
        """
        self._refuse_if_busy()
        messages = self.messages
        last = len(messages) - 1 if message_id is None else messages.index(self._message(message_id))
        asked = next((message for message in messages[last::-1] if message.role == "user"), None)
        if asked is None:
            raise RequestError("There is nothing to answer yet; send a message first.")
        self._begin_turn()
        try:
            self._transcript.step_back_to(asked.id)
            async with aclosing(self._answer()) as events:
                async for event in events:
                    yield event
        finally:
            if self._transcript.head_id == asked.id:
                self._transcript.messages = messages
            self._is_busy = False

    async def warm_up(self) -> TurnEvents:
        """Load the model before the first message. Raises HotslotError.

        Needs no conversation: another may be opened or begun meanwhile.
        """
        async with aclosing(self.switch_model(self.model_path)) as events:
            async for event in events:
                yield event

    async def switch_model(self, model_path: Path) -> TurnEvents:
        """Load another model, which answers from its `EngineReady` on. Raises HotslotError.

        Where loading fails or is cancelled the former model is kept: it is loaded again by the next message.
        """
        self._refuse_if_busy()
        self._begin_turn()
        self._is_warming_up = True
        try:
            async with aclosing(self._start_engine(model_path)) as events:
                async for event in events:
                    yield event
            self._read_opening()
        except asyncio.CancelledError:
            if not self._is_cancel_asked:
                raise
        finally:
            self._is_busy = self._is_warming_up = False

    async def cancel(self) -> None:
        """Stop the turn: the engine stops within one step or chunk, and the turn ends as cancelled."""
        if not self._is_busy:
            return
        self._is_cancel_asked = True
        self._starter.cancel()
        if self._reading is not None:
            self._reading.cancel()
        if self._rounds is not None:
            self._rounds.cancel()
        if self._turn is not None:
            await self.engine.cancel(self._turn.request.request_id)

    def answer_permission(self, call_id: str, answer: PermissionAnswer) -> None:
        """Answer a `PermissionAsked`; ignored where that question is no longer open."""
        if self._rounds is not None:
            self._rounds.answer_permission(call_id, answer)

    async def count_tokens(self, text: str, attachments: Sequence[Attachment] = ()) -> int | None:
        """Tokens the whole prompt would have with this message and all of its documents; None while no model is loaded.

        Documents far too long for the context are estimated.
        """
        if self.loaded is None:
            return None
        counter = DocumentCounter(self._count, self.loaded.context_limit_tokens, self.messages)
        sampled = [document for document in attachments if counter.is_sampled(document)]
        counted = tuple(document for document in attachments if not counter.is_sampled(document))
        draft = Message("", None, "user", clean(text), attachments=counted)
        return await self._count((*self.messages, draft)) + sum([await counter.whole(one) for one in sampled])

    async def plan_reading(
        self, text: str, attachments: Sequence[Attachment], reading: ReadingChoice = "auto"
    ) -> tuple[DocumentPlanned, ...]:
        """How `send` would show these documents, and those of earlier messages that were shown in part.

        Nothing is read in pieces yet. Empty while no model is loaded. Raises HotslotError where it can't be done.
        """
        if self.loaded is None:
            return ()
        draft = Message("", None, "user", clean(text), attachments=without_readings(attachments))
        reader = self._reader((*self.messages, draft), reading, is_draft=True)
        return tuple([planned async for planned in reader.decide()]) if reader.has_to_decide else ()

    async def close(self) -> None:
        """End side calls and the engine."""
        self.opening.give_way()
        await self.side_calls.close()
        await self.engine.close()

    # ---- one answer

    async def _answer(self, reading: ReadingChoice = "auto") -> TurnEvents:
        progress = TurnProgress()
        try:
            async with aclosing(self._start_engine(self.model_path)) as starting:
                async for event in starting:
                    yield event
            async with aclosing(self._decide_readings(reading)) as deciding:
                async for event in deciding:
                    yield event
            async with aclosing(self._all_rounds(progress)) as events:
                async for event in events:
                    for figures in self._take_stats():
                        yield figures
                    yield event
        except HotslotError as error:
            progress.fail(clean_line(str(error)))
        except asyncio.CancelledError:
            if not self._is_cancel_asked:
                raise
        finally:
            # Also runs when the iteration is closed half way: what was produced is kept.
            self._turn = self._rounds = None
            await store_answer(self._transcript, progress, self._starter.loaded)
        if self._names_chats and progress.answer.outcome in ("stop", "length"):
            self.side_jobs.start_naming()
        for event in self._last_events(progress):
            yield event

    async def _all_rounds(self, progress: TurnProgress) -> TurnEvents:
        """The model's answers of one turn; between them, the calls it made."""
        rounds = self._rounds = None if self.toolbox is None else ToolRounds(self.toolbox, self.shorten_result)
        while not self._is_cancel_asked:
            turn = self._turn = Turn(self.engine, self._request())
            progress.begin(turn.answer)
            async with aclosing(turn.events()) as streaming:
                async for event in streaming:
                    yield event
            if rounds is None or not turn.answer.has_calls_to_run:
                return
            await store_answer(self._transcript, progress, self._starter.loaded)
            if turn.answer.outcome == "cancelled":
                rounds.cancel()
            async with aclosing(rounds.run(turn.answer)) as running:
                async for event in running:
                    await store_results(self._transcript, rounds.take_results())
                    yield event
            await store_results(self._transcript, rounds.take_results())
            if not rounds.may_go_on:
                if rounds.end_notice:
                    yield NoticeShown(rounds.end_notice)
                return

    async def _decide_readings(self, reading: ReadingChoice) -> TurnEvents:
        """How the last message shows its documents, where that is still open."""
        reader = self._reader(self.messages, reading)
        if self._is_cancel_asked or not reader.has_to_decide:
            return
        async with aclosing(reader.decide()) as plans:
            async for planned in plans:
                yield planned
        await self._transcript.note_readings(reader.attachments)

    def _reader(self, branch: Sequence[Message], choice: ReadingChoice, is_draft: bool = False) -> DocumentReader:
        loaded = self._starter.loaded
        assert loaded is not None
        read_pieces = _read_nothing if is_draft else self._read
        return DocumentReader(
            branch, self._count, loaded.context_limit_tokens, self.settings.max_tokens, choice, read_pieces
        )

    async def _read(self, document: Attachment, question: str, plan: ReadingPlan) -> str:
        """`read_pieces`, which `cancel` ends."""
        self._reading = asyncio.ensure_future(self.read_pieces(document, question, plan))
        try:
            return await self._reading
        finally:
            self._reading.cancel()
            self._reading = None

    def _context(self, branch: Sequence[Message]) -> tuple[ChatMessage, ...]:
        # The demo model was taught to cite by the marks alone and follows no instruction about it.
        asks_for_citations = self.model_path != asset_path(DEMO_MODEL)
        return build_context(branch, self.settings.system_prompt, asks_for_citations)

    async def _count(self, branch: Sequence[Message]) -> int:
        """Tokens of the whole prompt for a branch."""
        context = self._context(branch)
        settings = self.settings
        return await self.engine.count_tokens(
            CountTokens(new_id(), context, self._tools, settings.wants_thinking, settings.template_switches)
        )

    async def _start_engine(self, model_path: Path) -> TurnEvents:
        async with aclosing(self._starter.ensure(self.settings.engine_options(model_path))) as events:
            async for event in events:
                if isinstance(event, EngineReady):
                    self.model_path, self.stats = model_path, event.stats
                yield event

    def _request(self) -> Generate:
        conversation = self.conversation
        assert conversation is not None
        return replace(self._request_of(self.messages), conversation_id=conversation.id)

    def _request_of(self, branch: Sequence[Message]) -> Generate:
        loaded = self._starter.loaded
        assert loaded is not None
        return Generate(
            request_id=new_id(),
            messages=self._context(branch),
            sampling=self.settings.sampling_options(loaded.default_sampling),
            thinking=self.settings.wants_thinking,
            tools=self._tools,
            switches=self.settings.template_switches,
        )

    def _read_opening(self) -> None:
        if self._starter.loaded is not None:
            self.opening.start(self._starter.loaded, self._request_of(()))

    def _last_events(self, progress: TurnProgress) -> list[TurnEvent]:
        if progress.answer.stats is not None:
            self._note_stats(progress.answer.stats.engine)
        notices: list[TurnEvent] = [NoticeShown(notice) for notice in self._transcript.take_notices()]
        return [*self._take_stats(), *notices, progress.end(is_cancelled=self._is_cancel_asked)]

    @property
    def _tools(self) -> tuple[ToolSchema, ...]:
        return () if self.toolbox is None else self.toolbox.registry.schemas

    def _begin_turn(self) -> None:
        self._is_busy = True
        self._is_cancel_asked = False
        self.opening.give_way()
        self.side_jobs.give_way()

    def _refuse_if_busy(self) -> None:
        if self._is_busy:
            raise TurnInProgressError("An answer is still coming; stop it or wait for its end.")

    def _refuse_if_answering(self) -> None:
        if not self._is_warming_up:
            self._refuse_if_busy()

    def _note_stats(self, stats: EngineStats) -> None:
        self.stats = self._new_stats = stats

    def _take_stats(self) -> list[TurnEvent]:
        stats, self._new_stats = self._new_stats, None
        return [] if stats is None else [StatsUpdated(stats)]


async def _read_nothing(document: Attachment, question: str, plan: ReadingPlan) -> str:
    """In place of reading pieces, for a plan that is only looked at."""
    return ""
