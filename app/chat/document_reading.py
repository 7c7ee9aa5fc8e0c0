"""Decides how the documents of a message are shown, once the engine can count their tokens; the decision is kept.

Reading all of a document in pieces is done by whoever is given as `ReadPieces`; everything else is counted and searched
here. Documents that were attached to an earlier message and not shown whole are searched again for the new question.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace

from app.chat.context_window import is_left_out
from app.chat.events import DocumentPlanned
from app.documents.passages import Passage, merged
from app.documents.reading_plan import ReadingChoice, ReadingPlan, reading_plan, wants_all
from app.documents.rendering import example_mark, fenced
from app.errors import ReadingError
from app.messages import Attachment, Message, Reading

CountTokens = Callable[[Sequence[Message]], Awaitable[int]]
"""Tokens of the whole prompt for a branch."""
ReadPieces = Callable[[Attachment, str, ReadingPlan], Awaitable[str]]
"""Asks the question of every piece of the document (`plan.passages`, at most `plan.note_tokens` each) and returns the
notes, with the marks they cite; raises HotslotError."""

ANSWER_TOKENS = 1024
"""Left for the answer, or a quarter of a small context."""
_MOST_CHARS_PER_TOKEN = 16
"""No document has more on average: a longer one can't fit, and is counted by a sample."""
_SAMPLE_CHARS = 50_000


def without_readings(attachments: Sequence[Attachment]) -> tuple[Attachment, ...]:
    """The documents that belong to a message itself, nothing decided: for a question in other words."""
    own = [
        attachment for attachment in attachments if attachment.reading is None or not attachment.reading.is_follow_up
    ]
    return tuple(replace(attachment, reading=None) for attachment in own)


def emptied(documents: Sequence[Attachment]) -> tuple[Attachment, ...]:
    """As little as can be of them, cited by the same marks: what a document adds to a message that has these others."""
    return tuple(
        replace(document, text="a\n\nb" if example_mark(document) else "a", reading=None) for document in documents
    )


class DocumentCounter:
    """Tokens of documents. Counting 16 MiB takes the engine 20 s and a GiB: what can't fit is counted by a sample."""

    def __init__(self, count: CountTokens, context_tokens: int, earlier: Sequence[Message] = ()) -> None:
        self._count = count
        self._earlier = tuple(earlier)
        self._most_chars = _MOST_CHARS_PER_TOKEN * context_tokens

    def is_sampled(self, document: Attachment) -> bool:
        """Whether its tokens are an estimate; the context has no room for them then."""
        return len(document.text) > self._most_chars

    async def whole(self, document: Attachment, others: Sequence[Attachment] = ()) -> int:
        """What the whole of it adds to a prompt."""
        document = replace(document, reading=None)
        if len(await asyncio.to_thread(fenced, document)) <= self._most_chars:
            return await self.shown(document, others)
        sample = replace(document, text=document.text[:_SAMPLE_CHARS])
        return await self.shown(sample, others) * len(document.text) // len(sample.text)

    async def shown(self, document: Attachment, others: Sequence[Attachment] = ()) -> int:
        """What it adds to a prompt after the earlier messages: its name, its fences and the word on citing, too.

        That word is one for all documents of a message: it counts with the first, so not beside `others`.
        """
        beside = await asyncio.to_thread(emptied, others)
        drafts = (Message("", None, "user", "?", attachments=files) for files in ((*beside, document), beside))
        with_document, without = [await self._count((*self._earlier, draft)) for draft in drafts]
        return with_document - without


class DocumentReader:
    """One decision for the last message of `branch`. `attachments` are complete once `decide` has ended."""

    def __init__(
        self,
        branch: Sequence[Message],
        count: CountTokens,
        context_tokens: int,
        answer_tokens: int | None,
        choice: ReadingChoice,
        read_pieces: ReadPieces,
    ) -> None:
        self._earlier = tuple(message for message in branch[:-1] if not is_left_out(message))
        self._message = branch[-1]
        self._count = count
        self._counter = DocumentCounter(count, context_tokens, self._earlier)
        self._context_tokens = context_tokens
        self._answer_tokens = min(answer_tokens or ANSWER_TOKENS, context_tokens // 4)
        self._choice = choice
        self._read_pieces = read_pieces
        own = self._message.attachments
        self._num_own = len(own)
        is_decided = any(document.reading is not None for document in own)
        self._documents = own if is_decided else (*own, *self._follow_ups())
        self.attachments = own

    @property
    def has_to_decide(self) -> bool:
        return any(document.reading is None for document in self._documents)

    async def decide(self) -> AsyncGenerator[DocumentPlanned, None]:
        """Yields each plan when it is made, before pieces are read. Raises HotslotError."""
        waiting = [number for number, document in enumerate(self._documents) if document.reading is None]
        decided = [document for document in self._documents if document.reading is not None]
        bare = (*self._earlier, replace(self._message, attachments=tuple(decided)))
        room = self._context_tokens - self._answer_tokens - await self._count(bare)
        sizes = {
            number: await self._counter.whole(self._documents[number], self._documents[:number]) for number in waiting
        }
        readings = {number: document.reading for number, document in enumerate(self._documents)}
        # The smallest first: what it leaves of its share is there for the others.
        waiting.sort(key=lambda number: sizes[number])
        for place, number in enumerate(waiting):
            document = self._documents[number]
            plan = await self._plan(number, room // (len(waiting) - place), sizes[number])
            yield self._event(document, plan, sizes[number])
            readings[number] = await self._carry_out(number, plan)
            room -= plan.num_tokens
        read = [replace(document, reading=readings[number]) for number, document in enumerate(self._documents)]
        self.attachments = tuple(document for document in read if document.reading is not None)

    async def _plan(self, number: int, room_tokens: int, num_tokens: int) -> ReadingPlan:
        """A document of an earlier message never keeps a question from being answered."""
        if not self._is_follow_up(number) or self._choice in ("passages", "all"):
            return await self._plan_as(self._choice, number, room_tokens, num_tokens)
        try:
            choice: ReadingChoice = "auto" if wants_all(self._message.content) else "passages"
            return await self._plan_as(choice, number, room_tokens, num_tokens, "searched again")
        except ReadingError as error:
            return ReadingPlan("passages", (), f"nothing more is shown: {error}", 0)

    async def _plan_as(
        self, choice: ReadingChoice, number: int, room_tokens: int, num_tokens: int, because: str = "as chosen"
    ) -> ReadingPlan:
        """Passages are counted: where the estimate was too low, fewer are planned."""
        document, question = self._documents[number], self._message.content
        shown = self._shown_before(document)
        planned_room = room_tokens
        while True:
            # In a thread: searching a large document takes a second.
            plan = await asyncio.to_thread(
                reading_plan, document, question, planned_room, num_tokens, choice, shown, because
            )
            if plan.mode != "passages":
                return plan
            shown_part, others = _with_passages(document, plan), self._documents[:number]
            cost = await self._counter.shown(shown_part, others) if plan.passages else 0
            if cost <= max(room_tokens, 0):
                return replace(plan, num_tokens=cost)
            planned_room = int(planned_room * 0.7 * room_tokens / cost)

    async def _carry_out(self, number: int, plan: ReadingPlan) -> Reading | None:
        """None: a follow-up that has nothing new to show."""
        document, is_follow_up = self._documents[number], self._is_follow_up(number)
        if plan.mode == "passages":
            is_new = plan.passages or not is_follow_up
            return Reading("passages", merged(plan.passages), is_follow_up=is_follow_up) if is_new else None
        if plan.mode == "whole":
            return Reading("whole", is_follow_up=is_follow_up)
        notes = await self._read_pieces(document, self._message.content, plan)
        return Reading("all", notes=notes, is_follow_up=is_follow_up)

    # ---- documents

    def _follow_ups(self) -> tuple[Attachment, ...]:
        """Documents of earlier messages of which the model has seen a part only."""
        seen_whole = {(own.name, own.text) for own in self._message.attachments}
        partly: dict[tuple[str, str], Attachment] = {}
        for message in self._earlier:
            for document in message.attachments:
                key = (document.name, document.text)
                if document.reading is None or document.reading.mode == "whole":
                    seen_whole.add(key)
                else:
                    partly[key] = replace(document, reading=None)
        return tuple(document for key, document in partly.items() if key not in seen_whole)

    def _is_follow_up(self, number: int) -> bool:
        return number >= self._num_own

    def _shown_before(self, document: Attachment) -> tuple[tuple[int, int], ...]:
        return merged(
            Passage(first, end)
            for message in self._earlier
            for shown in message.attachments
            if shown.text == document.text and shown.reading is not None
            for first, end in shown.reading.blocks
        )

    def _event(self, document: Attachment, plan: ReadingPlan, num_tokens: int) -> DocumentPlanned:
        share = plan.num_tokens / self._context_tokens
        return DocumentPlanned(document.name, plan.mode, plan.why, plan.num_tokens, num_tokens, share)


def _with_passages(document: Attachment, plan: ReadingPlan) -> Attachment:
    return replace(document, reading=Reading("passages", merged(plan.passages)))
