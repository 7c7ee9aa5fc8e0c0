"""What side calls do for one chat: name it, sum up long results, read documents in pieces, answer questions aside.

Each job ends with what it is for or with an error of its own; none of them touches the turn that runs.
"""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress

from app.chat.asides import ask_aside
from app.chat.engine_start import EngineStarter
from app.chat.piece_reading import read_pieces
from app.chat.side_calls import SideCalls
from app.chat.summaries import summarise
from app.chat.titles import find_title
from app.chat.transcript import Transcript
from app.documents.reading_plan import ReadingPlan
from app.errors import HotslotError, SideCallError
from app.messages import Attachment, Message
from app.tools.registry import ToolError
from runtime.protocol import ToolCall


class SideJobs:
    """`on_title_changed` is called when the open conversation has got a new name."""

    def __init__(self, side_calls: SideCalls, transcript: Transcript, starter: EngineStarter) -> None:
        self.on_title_changed: Callable[[], object] | None = None
        self._side_calls = side_calls
        self._transcript = transcript
        self._starter = starter
        self._unnamed: dict[str, tuple[Message, ...]] = {}
        """Conversations that are to be named, by id, and how they begin."""
        self._asked_ids: set[str] = set()
        """Those that were, or are in `_unnamed`."""
        self._naming: asyncio.Task[None] | None = None

    def start_naming(self) -> None:
        """Ask for a title beside the chat, once for a conversation, where it is still named by its first words."""
        conversation = self._transcript.conversation
        assert conversation is not None
        if conversation.title_source == "words" and conversation.id not in self._asked_ids:
            self._asked_ids.add(conversation.id)
            self._unnamed[conversation.id] = self._transcript.messages
        if self._unnamed:
            self._naming = self._side_calls.start(self._name_all)

    def give_way(self) -> None:
        """A turn begins: titles can wait for its end."""
        if self._naming is not None:
            self._naming.cancel()

    async def _name_all(self) -> None:
        for conversation_id, messages in tuple(self._unnamed.items()):
            # A side call that fails is listed with its error; the first words are a title too.
            with suppress(HotslotError):
                await self._name(conversation_id, messages)
            del self._unnamed[conversation_id]

    async def _name(self, conversation_id: str, messages: Sequence[Message]) -> None:
        title = await find_title(self._side_calls, messages)
        if title and await self._transcript.take_title(conversation_id, title) and self.on_title_changed is not None:
            self.on_title_changed()

    async def shorten(self, call: ToolCall, text: str) -> str:
        """A summary of a tool's result. Raises SideCallError."""
        loaded = self._starter.loaded
        assert loaded is not None
        return await summarise(self._side_calls, call.name, text, loaded.context_limit_tokens, self._conversation_id)

    async def read_pieces(self, document: Attachment, question: str, plan: ReadingPlan) -> str:
        """What the pieces of a document say to a question, with their marks. Raises SideCallError."""
        return await read_pieces(self._side_calls, document, question, plan, self._conversation_id)

    async def ask_aside(self, question: str) -> str:
        """The answer of a fresh context to a question of the model's own. Raises ToolError."""
        try:
            answer = await ask_aside(self._side_calls, question, self._conversation_id)
        except SideCallError as error:
            raise ToolError(str(error)) from error
        if not answer:
            raise ToolError("the question got no answer; ask it in other words")
        return answer

    @property
    def _conversation_id(self) -> str:
        conversation = self._transcript.conversation
        return conversation.id if conversation is not None else ""
