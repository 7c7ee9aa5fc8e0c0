"""The files that go with the next message: seen above the prompt, with their size, until they are sent or removed."""

from collections.abc import Sequence
from dataclasses import dataclass

from textual import events
from textual.containers import Horizontal, VerticalScroll
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from app.figures import count_text, size_text
from app.messages import Attachment
from app.tui.display import MUTED, shown


@dataclass
class AttachedFile:
    """`num_tokens` is None until the engine has counted, and where it can't."""

    attachment: Attachment
    num_tokens: int | None = None


class AttachmentTray(VerticalScroll, can_focus=False):
    """The files themselves, in the order they are sent; hidden while there is none."""

    DEFAULT_CSS = """
    AttachmentTray {
        height: auto;
        max-height: 6;
        display: none;
        padding: 0 1;
        &.filled { display: block; }
        Horizontal { height: 1; }
        AttachmentChip { width: 1fr; height: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        AttachmentRemove { width: 3; height: 1; color: $text-muted; content-align: right middle; }
        AttachmentRemove:hover { color: $text-error; }
        .plan { height: auto; max-height: 2; color: $text-muted; }
        .plan.problem { color: $text-error; }
    }
    """

    class RemoveAsked(Message):
        """The user wants a file gone."""

        def __init__(self, index: int) -> None:
            super().__init__()
            self.index = index

    def __init__(self) -> None:
        super().__init__(id="attachments")
        self._files: list[AttachedFile] = []
        self._plan = ""
        self._is_problem = False

    @property
    def files(self) -> tuple[Attachment, ...]:
        return tuple(file.attachment for file in self._files)

    def add(self, attachment: Attachment) -> None:
        self._files.append(AttachedFile(attachment))
        self._show()

    def restore(self, attachments: Sequence[Attachment]) -> None:
        """Put files back in front of those that are there."""
        self._files[:0] = [AttachedFile(attachment) for attachment in attachments]
        self._show()

    def note_tokens(self, attachment: Attachment, num_tokens: int) -> None:
        """Show what a file costs; one that is gone by now costs nothing."""
        for file in self._files:
            if file.attachment is attachment:
                file.num_tokens = num_tokens
        self._show()

    def note_plan(self, plan: str, *, is_problem: bool = False) -> None:
        """Show in words how the files would be read, or why they can't be."""
        if (plan, is_problem) != (self._plan, self._is_problem):
            self._plan, self._is_problem = plan, is_problem
            self._show()

    def take(self) -> tuple[Attachment, ...]:
        """All files, which are sent now; none are left."""
        files, self._files = self.files, []
        self._show()
        return files

    def remove_last(self) -> Attachment | None:
        """None when there is none."""
        return self.remove_at(len(self._files) - 1) if self._files else None

    def remove_at(self, index: int) -> Attachment:
        """Raises IndexError when there is none."""
        file = self._files.pop(index)
        self._show()
        return file.attachment

    def _show(self) -> None:
        self.set_class(bool(self._files), "filled")
        self.call_next(self._rebuild)

    async def _rebuild(self) -> None:
        async with self.batch():
            await self.remove_children()
            for index, file in enumerate(self._files):
                await self.mount(Horizontal(AttachmentChip(file), AttachmentRemove(index)))
            if self._plan and self._files:
                classes = "plan problem" if self._is_problem else "plan"
                await self.mount(Static(shown(self._plan), markup=False, classes=classes))


class AttachmentChip(Static):
    """Name and size of one file."""

    def __init__(self, file: AttachedFile) -> None:
        attachment = file.attachment
        size = size_text(len(attachment.text.encode("utf-8")))
        cost = f" · {count_text(file.num_tokens)} tokens" if file.num_tokens is not None else ""
        super().__init__(Content.assemble("⊕ ", shown(attachment.name), (f"  {size}{cost}", MUTED)), markup=False)


class AttachmentRemove(Static):
    """A click removes the file."""

    def __init__(self, index: int) -> None:
        super().__init__(Content("✕"), markup=False)
        self._index = index
        self.tooltip = Content("Don't send this file")

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.post_message(AttachmentTray.RemoveAsked(self._index))
