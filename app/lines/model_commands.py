"""Slash commands of the model and the settings: list and choose models, show and change every typed setting."""

from dataclasses import replace

from app.library import list_models, resolve_model
from app.lines.line_base import LineCommands
from app.sanitize import clean_line
from app.settings import SETTING_FIELDS
from app.settings_keeper import setting_named, with_setting


class ModelCommands(LineCommands):
    """What changes holds from the next message on and is kept in the settings file."""

    async def do_models(self, name: str) -> None:
        if name:
            self._use_model(name)
            return
        for model in list_models(self.state.locations):
            mark = " (in use)" if model.path == self.session.model_path else ""
            problem = f": can't be used: {model.problem}" if model.problem else ""
            self.console.print(f"{clean_line(model.name)}{mark}{problem}")
        self.console.remark("/model and a name chooses one.")

    def _use_model(self, name: str) -> None:
        self.session.set_model(resolve_model(name, self.state.locations))
        self.change_settings(replace(self.session.settings, model=name))
        self.console.remark(f"{clean_line(name)} answers from the next message on.")

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
            self._use_model(value.strip())
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
