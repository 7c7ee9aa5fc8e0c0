"""A tree of files to attach one. Its answer is the file, or None."""

from pathlib import Path
from typing import ClassVar

from rich.style import Style
from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import DirectoryTree, Input
from textual.widgets._directory_tree import DirEntry
from textual.widgets.tree import TreeNode

from app.sanitize import clean_line


class CleanTree(DirectoryTree):
    """Names of files are only text."""

    def process_label(self, label: str | Text) -> Text:
        return Text(clean_line(label if isinstance(label, str) else label.plain))

    def render_label(self, node: TreeNode[DirEntry], base_style: Style, style: Style) -> Text:
        return super().render_label(node, base_style, style)


class FilePicker(ModalScreen[Path | None]):
    """The line takes a path too; Tab moves between it and the tree, Backspace in the tree goes one folder up."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel"),
        Binding("backspace", "up", "Folder above", show=False),
    ]

    def __init__(self, folder: Path) -> None:
        super().__init__(classes="panel-screen")
        self._folder = folder

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel-box") as box:
            box.border_title = Content("Attach a file")
            box.border_subtitle = Content("Enter attach · Backspace folder above · Tab path · Esc cancel")
            yield Input(placeholder="Path of a file", compact=True)
            yield CleanTree(self._folder)

    def on_mount(self) -> None:
        self.query_one(CleanTree).focus()

    def action_up(self) -> None:
        tree = self.query_one(CleanTree)
        tree.path = Path(tree.path).absolute().parent

    @on(DirectoryTree.FileSelected)
    def file_selected(self, event: DirectoryTree.FileSelected) -> None:
        self.dismiss(event.path)

    @on(Input.Submitted)
    def path_submitted(self, event: Input.Submitted) -> None:
        if event.value.strip():
            self.dismiss(Path(event.value.strip()))
