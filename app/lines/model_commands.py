"""Slash commands of the model and the settings: choose the model, show and change every typed setting."""

from collections.abc import Awaitable, Callable
from dataclasses import replace

from app.chat.events import TurnEvents
from app.errors import TurnInProgressError
from app.library import resolve_model
from app.lines.line_base import LineCommands, LineState
from app.sanitize import clean_line
from app.settings import SETTING_FIELDS
from app.settings_words import setting_named, with_setting


class ModelCommands(LineCommands):
    """Settings hold from the next message on and are kept in the settings file; a model once it is loaded."""

    def __init__(self, state: LineState, answer: Callable[[TurnEvents], Awaitable[None]]) -> None:
        """`answer` prints what happens to its end, and lets the user stop it."""
        super().__init__(state)
        self._answer = answer

    async def use_model(self, name: str) -> None:
        """Load it now. The one that answers stays if that fails or is stopped. Raises HotslotError."""
        path, former = resolve_model(name, self.state.locations), self.session.settings.model
        if path == self.session.model_path:
            self.console.remark(f"{clean_line(name)} answers already.")
            return
        if self.session.is_busy:
            raise TurnInProgressError("An answer is still coming; stop it or wait for its end.")
        try:
            await self._answer(self.session.switch_model(path))
        finally:
            if self.session.model_path != path:
                self.console.remark(f"{clean_line(name)} was not loaded; {clean_line(former)} stays.")
        if self.session.model_path == path:
            self.change_settings(replace(self.session.settings, model=name))
            self.console.remark(f"{clean_line(name)} answers from now on.")

    async def do_settings(self, words: str) -> None:
        name, _, value = words.partition(" ")
        if not name:
            for field in SETTING_FIELDS:
                self.console.print(self._setting_line(field.name))
            self.console.remark("/set NAME VALUE changes one, /set NAME - gives it back its default.")
        elif not value.strip():
            self.console.print(self._setting_line(setting_named(name).name))
            self.console.remark(f"{setting_named(name).info.help}; {setting_named(name).expectation}.")
        elif setting_named(name).name == "model":
            await self.use_model(value.strip())
        else:
            self.change_settings(with_setting(self.session.settings, name, value))
            self.console.remark(f"{self._setting_line(setting_named(name).name)} (from the next message on)")

    def _setting_line(self, name: str) -> str:
        value = getattr(self.session.settings, name)
        shown = ("off", "on")[value] if isinstance(value, bool) else "automatic" if value in (None, "") else value
        return f"{name} = {clean_line(str(shown))}"

    async def do_toggle_thinking(self, value: str) -> None:
        await self.do_settings(f"thinking {value}")

    async def do_toggle_overlap(self, value: str) -> None:
        await self.do_settings(f"overlap {value}")

    async def do_switch_policy(self, value: str) -> None:
        await self.do_settings(f"policy {value}")
