"""Messages that wait for the running answer to end: seen, taken back for editing, removed."""

from dataclasses import dataclass

from textual import events
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from app.messages import Attachment
from app.tui.display import shown

LONGEST_SHOWN = 200


@dataclass(frozen=True)
class Draft:
    """A message that is written but not sent."""

    text: str
    attachments: tuple[Attachment, ...] = ()


class QueueView(Vertical):
    """The queue itself, first to be sent on top; hidden while empty."""

    DEFAULT_CSS = """
    QueueView {
        height: auto;
        max-height: 5;
        overflow-y: auto;
        display: none;
        padding: 0 1;
        &.waiting { display: block; }
        Horizontal { height: 1; }
        QueuedText { width: 1fr; height: 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
        QueuedText:hover { color: $text; }
        QueuedRemove { width: 3; height: 1; color: $text-muted; content-align: right middle; }
        QueuedRemove:hover { color: $text-error; }
    }
    """

    class EditAsked(Message):
        """The user wants a queued message back in the prompt."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    class RemoveAsked(Message):
        """The user wants a queued message gone."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def __init__(self) -> None:
        super().__init__(id="queue")
        self._drafts: list[Draft] = []

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(draft.text for draft in self._drafts)

    def add(self, draft: Draft) -> None:
        self._drafts.append(draft)
        self._show()

    def pop(self, index: int = 0) -> Draft:
        """Take one out; raises IndexError when there is none."""
        draft = self._drafts.pop(index)
        self._show()
        return draft

    def clear(self) -> None:
        self._drafts.clear()
        self._show()

    def _show(self) -> None:
        self.set_class(bool(self._drafts), "waiting")
        self.call_next(self._rebuild)

    async def _rebuild(self) -> None:
        async with self.batch():
            await self.remove_children()
            for index, draft in enumerate(self._drafts):
                row = Horizontal(QueuedText(index, draft), QueuedRemove(index))
                await self.mount(row)


class QueuedText(Static):
    """A click takes the message back into the prompt."""

    def __init__(self, index: int, draft: Draft) -> None:
        mark = f"» ⊕{len(draft.attachments)} " if draft.attachments else "» "
        super().__init__(Content(mark) + shown(draft.text[:LONGEST_SHOWN]), markup=False)
        self._index = index
        self.tooltip = Content("Waits for the answer; click or F9 to edit it")

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(QueueView.EditAsked(self._index))


class QueuedRemove(Static):
    """A click removes the message."""

    def __init__(self, index: int) -> None:
        super().__init__(Content("✕"), markup=False)
        self._index = index
        self.tooltip = Content("Remove from the queue")

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(QueueView.RemoveAsked(self._index))
