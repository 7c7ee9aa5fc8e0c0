"""The settings, generated from their typed fields. Its answer is the changed settings, or None."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.lazy import Lazy
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Button, Input, Select, Static, Switch

from app.errors import SettingsError
from app.sanitize import clean_line
from app.settings import SETTING_FIELDS, SettingField, Settings
from app.tui.display import shown
from runtime.protocol import EngineStats, Loaded

GROUP_TITLES = {"chat": "Chat", "sampling": "Sampling", "tools": "Tools", "engine": "Engine", "screen": "Screen"}
MODEL_SAMPLING = {"temperature", "top_k", "top_p", "min_p", "presence_penalty", "repetition_penalty"}


def needs_restart(field: SettingField) -> bool:
    """Whether the engine loads anew when this changes."""
    return field.info.group == "engine" or field.name == "model"


class SettingRow(Vertical):
    """One setting: label, control, help, and what is wrong with the value typed."""

    def __init__(self, field: SettingField, value: Any, choices: tuple[str, ...], note: str, placeholder: str) -> None:
        super().__init__(classes="setting")
        self.field = field
        self._value = value
        self._choices = choices
        self._note = note
        self._placeholder = placeholder
        self._written = "" if value is None else clean_line(str(value))
        """What the text field shows at first: one line without controls. Left as it is, the value stays as it is."""

    def compose(self) -> ComposeResult:
        with Horizontal(classes="setting-line"):
            yield Static(Content(self.field.info.label), markup=False, classes="setting-label")
            yield self._control()
        yield Static(self._words(), markup=False, classes="setting-help")

    def _words(self, problem: str = "") -> Content:
        words = Content(self.field.info.help)
        if needs_restart(self.field):
            words += Content.styled("  ↻ restarts the engine", "$text-accent")
        if self._note:
            words += Content("\n") + shown(self._note, "$text-warning")
        if problem:
            words += Content("\n") + shown(problem, "$text-error")
        return words

    def _control(self) -> Widget:
        if self.field.kind is bool:
            return Switch(bool(self._value), animate=False)
        if self._choices:
            options = [(Content(choice), choice) for choice in self._choices]
            return Select(options, value=self._value, allow_blank=False, compact=True)
        return Input(self._written, placeholder=self._placeholder, compact=True)

    def read(self) -> Any:
        """The value on the screen. Raises SettingsError, which is shown in the row too."""
        words = self.query_one(".setting-help", Static)
        try:
            value = self._read()
        except SettingsError as problem:
            words.update(self._words(str(problem)))
            raise
        words.update(self._words())
        return value

    def _read(self) -> Any:
        if self.field.kind is bool:
            return self.query_one(Switch).value
        if self._choices:
            return self.query_one(Select).value
        written = self.query_one(Input).value
        return self._value if written == self._written else self.field.parse(written)


class SettingSection(Vertical):
    """The settings of one group under its title."""

    def __init__(self, group: str, rows: Sequence[SettingRow]) -> None:
        title = Static(Content(GROUP_TITLES.get(group, group.title())), markup=False, classes="group")
        super().__init__(title, *rows, classes="section")


class SettingsScreen(ModalScreen[Settings | None]):
    """Rows in groups; Ctrl+S or the button saves, Esc leaves everything as it was."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss(None)", "Cancel"),
        Binding("ctrl+s", "save", "Save", priority=True),
    ]

    def __init__(self, settings: Settings, stats: EngineStats | None, loaded: Loaded | None) -> None:
        super().__init__(classes="panel-screen")
        self._settings = settings
        self._stats = stats
        self._loaded = loaded

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel-box") as box:
            box.border_title = Content("Settings")
            box.border_subtitle = Content("Ctrl+S save · Esc cancel · Tab next")
            with VerticalScroll(can_focus=False):
                for number, (group, fields) in enumerate(groupby(SETTING_FIELDS, lambda field: field.info.group)):
                    section = SettingSection(group, [self._row(field) for field in fields])
                    # All at once would keep the screen from opening for most of a second.
                    yield Lazy(section) if number else section
            with Horizontal(classes="buttons"):
                yield Button("Save", id="save", variant="primary", compact=True)
                yield Button("Cancel", id="cancel", compact=True)

    def _row(self, field: SettingField) -> SettingRow:
        value = getattr(self._settings, field.name)
        return SettingRow(field, value, field.choices, self._note(field), self._placeholder(field))

    def _note(self, field: SettingField) -> str:
        stats = self._stats
        if field.name == "overlap" and stats is not None and stats.overlap_level == "off" and stats.overlap_reason:
            return f"Does not run now: {stats.overlap_reason}"
        return ""

    def _placeholder(self, field: SettingField) -> str:
        if field.name in MODEL_SAMPLING and self._loaded is not None:
            return f"model's own: {getattr(self._loaded.default_sampling, field.name)}"
        if not field.is_optional:
            return ""
        return "model's own" if field.name in MODEL_SAMPLING else "automatic"

    @on(Button.Pressed, "#save")
    def action_save(self) -> None:
        """Dismiss with the settings on the screen, unless one of them is wrong."""
        values: dict[str, Any] = {}
        wrong: list[SettingRow] = []
        for row in self.query(SettingRow):
            try:
                values[row.field.name] = row.read()
            except SettingsError:
                wrong.append(row)
        if wrong:
            wrong[0].scroll_visible()
            wrong[0].query(Input).focus()
            return
        self.dismiss(replace(self._settings, **values))

    @on(Button.Pressed, "#cancel")
    def cancel(self) -> None:
        self.dismiss(None)
