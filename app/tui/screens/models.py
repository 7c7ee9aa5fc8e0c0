"""The models on this machine. Its answer is the one to use, or None."""

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from app.figures import count_text, size_text
from app.library import LocalModel
from app.tui.display import MUTED, shown


class ModelsScreen(ModalScreen[LocalModel | None]):
    """One row per model; what can't be used says why and can't be chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f2", "dismiss(None)", "Back")]

    def __init__(self, models: Sequence[LocalModel], current: Path) -> None:
        super().__init__(classes="panel-screen")
        self._models = tuple(models)
        self._current = current

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel-box") as box:
            box.border_title = Content("Models")
            box.border_subtitle = Content("Enter use · Esc back")
            yield OptionList(
                *(Option(self._row(model), disabled=bool(model.problem)) for model in self._models), markup=False
            )
            if not self._models:
                yield Static(Content("There is no model here."), markup=False, classes="empty")

    def on_mount(self) -> None:
        options = self.query_one(OptionList)
        paths = [model.path for model in self._models]
        if self._current in paths:
            options.highlighted = paths.index(self._current)
        options.focus()

    def _row(self, model: LocalModel) -> Content:
        mark = "● " if model.path == self._current else "  "
        title = Content.assemble((mark, "$text-accent"), shown(model.name, "bold"))
        if model.problem or model.spec is None:
            return title + Content("\n    ") + shown(model.problem, "$text-error")
        spec = model.spec
        facts = (
            f"{spec.num_layers} layers · {spec.moe.num_experts} experts, {spec.moe.num_experts_per_token} per token · "
            f"{spec.weights.expert_format} · {size_text(spec.weights.checkpoint_bytes)} · "
            f"up to {count_text(spec.max_context_tokens)} tokens"
        )
        return title + Content("\n    ") + shown(f"{facts} · {model.licence}", MUTED)

    @on(OptionList.OptionSelected)
    def chosen(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(self._models[event.option_index])
