"""The scrolling column of the chat: keeps the newest blocks on the screen, follows the end while the user is there.

Pruning takes widgets away, never messages: earlier ones come back on request from the list given to `show_messages`.
"""

from collections.abc import Sequence

from textual import events
from textual.containers import VerticalScroll
from textual.content import Content
from textual.message import Message as TextualMessage
from textual.widget import Widget

from app.chat.message_groups import Group, grouped
from app.messages import Message
from app.tui.widgets.answer_block import AnswerBlock
from app.tui.widgets.message_blocks import ShowMore, UserBlock

MOST_BLOCKS = 60
"""Above this many blocks the oldest are taken away …"""
KEPT_BLOCKS = 40
"""… until this many are left, so that it happens rarely."""
MOST_CHARS = 200_000
"""Characters of stored messages shown at first."""


class Transcript(VerticalScroll, can_focus=True):
    """Blocks of one conversation, oldest first."""

    class EndLeft(TextualMessage):
        """The user scrolled away from the end, or came back to it."""

        def __init__(self, is_at_end: bool) -> None:
            super().__init__()
            self.is_at_end = is_at_end

    def __init__(self) -> None:
        super().__init__(id="transcript")
        self._groups: list[Group] = []
        """What becomes one block each."""
        self._num_hidden = 0
        """How many of `_groups`, from the first, are not on the screen."""
        self.is_reasoning_folded = True

    @property
    def blocks(self) -> list[Widget]:
        return [child for child in self.children if not isinstance(child, EarlierLine)]

    @property
    def answers(self) -> list[AnswerBlock]:
        return [child for child in self.children if isinstance(child, AnswerBlock)]

    # ---- stored messages

    async def show_messages(self, messages: Sequence[Message]) -> None:
        """Replace everything by these messages."""
        self._groups = grouped(messages)
        self._num_hidden = len(self._groups)
        with self.app.batch_update():
            await self.remove_children()
            await self._show_earlier()
        self.scroll_end(animate=False)

    async def _show_earlier(self) -> None:
        """Put the next older messages above those that are there."""
        last = self._num_hidden
        first, num_chars = last, 0
        while first > 0 and last - first < KEPT_BLOCKS and (num_chars < MOST_CHARS or first == last):
            first -= 1
            num_chars += sum(len(message.content) for message in self._groups[first])
        self._num_hidden = first
        await self.query(EarlierLine).remove()
        blocks = [self._block_of(group) for group in self._groups[first:last]]
        if blocks:
            await self.mount_all(blocks, before=0 if self.children else None)
        for block, group in zip(blocks, self._groups[first:last], strict=True):
            if isinstance(block, AnswerBlock):
                await block.show_stored(group)
        await self._update_earlier_line()

    def _block_of(self, group: Group) -> UserBlock | AnswerBlock:
        message = group[0]
        if message.role == "user":
            block = UserBlock(message.content, tuple(attachment.name for attachment in message.attachments))
            block.message_id = message.id
            return block
        return AnswerBlock(message.model_name, are_reasonings_folded=self.is_reasoning_folded)

    async def _update_earlier_line(self) -> None:
        await self.query(EarlierLine).remove()
        if self._num_hidden:
            await self.mount(EarlierLine(self._num_hidden), before=0 if self.children else None)

    async def on_show_more_asked(self, message: ShowMore.Asked) -> None:
        message.stop()
        await self.show_earlier()

    async def show_earlier(self) -> None:
        """Bring earlier messages back, keeping the place the user looks at."""
        if not self._num_hidden:
            return
        from_end = self.virtual_size.height - self.scroll_y
        with self.app.batch_update():
            await self._show_earlier()
        self.call_after_refresh(lambda: self.scroll_to(y=self.virtual_size.height - from_end, animate=False))

    # ---- what is new

    async def add(self, block: Widget, before: Widget | None = None) -> None:
        """Add a block at the end, or before another."""
        await self.mount(block, before=before)

    async def drop_last_answer(self) -> None:
        """Take everything after the last user's message off the screen."""
        blocks = self.blocks
        while blocks and not isinstance(blocks[-1], UserBlock):
            await blocks.pop().remove()

    async def sync(self, messages: Sequence[Message]) -> None:
        """What is on the screen is stored as the last of these messages; take the oldest blocks away if many."""
        self._groups = grouped(messages)
        blocks = self.blocks
        if len(blocks) > MOST_BLOCKS and self.is_following:
            with self.app.batch_update():
                for block in blocks[: len(blocks) - KEPT_BLOCKS]:
                    await block.remove()
        spoken = [block for block in self.blocks if isinstance(block, UserBlock | AnswerBlock)]
        self._num_hidden = max(0, len(self._groups) - len(spoken))
        for block, group in zip(spoken, self._groups[self._num_hidden :], strict=False):
            block.message_id = group[-1].id
        await self._update_earlier_line()

    # ---- following the end

    @property
    def is_following(self) -> bool:
        """Whether new text scrolls into view."""
        return self.scroll_y >= self.max_scroll_y - 1

    def watch_virtual_size(self) -> None:
        self._follow_when_full()

    def on_resize(self) -> None:
        self._follow_when_full()

    def _follow_when_full(self) -> None:
        """Follow the end only when there is more than fits: an anchored widget pushes its blocks to the bottom."""
        is_full = self.virtual_size.height > self.container_size.height > 0
        if is_full != self.is_anchored:
            self.anchor(is_full)
            if not is_full:
                self.scroll_to(y=0, animate=False, force=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        super().watch_scroll_y(old_value, new_value)
        self.post_message(self.EndLeft(self.is_following))

    def fold_reasoning(self, is_folded: bool) -> None:
        self.is_reasoning_folded = is_folded
        for answer in self.answers:
            answer.fold_reasoning(is_folded)


class EarlierLine(ShowMore):
    """Stands for the messages above that are not on the screen."""

    DEFAULT_CSS = """
    EarlierLine { width: 1fr; content-align: center middle; color: $text-accent; margin: 0 0 1 0; }
    """

    def __init__(self, num_hidden: int) -> None:
        super().__init__(Content(f"▴ {num_hidden} earlier messages"), markup=False)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(ShowMore.Asked())
