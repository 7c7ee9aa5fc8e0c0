"""Messages that wait for the running answer to end: seen, taken back for editing, removed."""

from textual import events
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from app.tui.display import shown

LONGEST_SHOWN = 200


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
        self._texts: list[str] = []

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self._texts)

    def add(self, text: str) -> None:
        self._texts.append(text)
        self._show()

    def pop(self, index: int = 0) -> str:
        """Take one out; raises IndexError when there is none."""
        text = self._texts.pop(index)
        self._show()
        return text

    def clear(self) -> None:
        self._texts.clear()
        self._show()

    def _show(self) -> None:
        self.set_class(bool(self._texts), "waiting")
        self.call_next(self._rebuild)

    async def _rebuild(self) -> None:
        async with self.batch():
            await self.remove_children()
            for index, text in enumerate(self._texts):
                row = Horizontal(QueuedText(index, text), QueuedRemove(index))
                await self.mount(row)


class QueuedText(Static):
    """A click takes the message back into the prompt."""

    def __init__(self, index: int, text: str) -> None:
        super().__init__(Content("» ") + shown(text[:LONGEST_SHOWN]), markup=False)
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
