"""Which model answers and how: the models and settings screens, and the switches that are settings of their own."""

from dataclasses import replace
from pathlib import Path

from textual.message import Message as TextualMessage

from app.chat.session import ChatSession
from app.errors import HotslotError, SettingsError
from app.library import LocalModel, list_models, resolve_model
from app.locations import Locations
from app.settings import Settings
from app.tui.screens.chat_base import ChatBase
from app.tui.screens.models import ModelsScreen
from app.tui.screens.settings import SettingsScreen
from app.tui.settings_keeper import keep_changes
from app.tui.themes import THEME_NAMES

THINKING_ORDER = {"auto": "on", "on": "off", "off": "auto"}


class ModelControls(ChatBase):
    """Applies what was chosen, keeps it in the settings file, and starts the engine anew when that is needed."""

    class SettingsChanged(TextualMessage):
        """These settings hold from now on."""

        def __init__(self, settings: Settings) -> None:
            super().__init__()
            self.settings = settings

    def __init__(self, session: ChatSession, locations: Locations) -> None:
        super().__init__(session, locations)
        self._is_stale = False
        """Options of loading may have changed since the engine was asked to start."""

    def warm_up(self) -> None:
        """Start the engine as the settings say, unless it runs so already. Only while nothing else runs."""
        raise NotImplementedError

    def action_models(self) -> None:
        models = list_models(self.locations)
        self.app.push_screen(ModelsScreen(models, self.session.model_path), self._model_chosen)

    def _model_chosen(self, model: LocalModel | None) -> None:
        if model is None or model.path == self.session.model_path:
            return
        self._use_model(model.path)
        self._change_settings(replace(self.session.settings, model=model.name))
        self.say(f"{model.name} answers from the next message on.")

    def _use_model(self, path: Path) -> None:
        self.session.set_model(path)
        self.status.model = path.name

    def action_settings(self) -> None:
        screen = SettingsScreen(self.session.settings, THEME_NAMES, self.session.stats, self.session.loaded)
        self.app.push_screen(screen, self._settings_chosen)

    def _settings_chosen(self, settings: Settings | None) -> None:
        if settings is None or settings == self.session.settings:
            return
        if settings.model != self.session.settings.model:
            try:
                self._use_model(resolve_model(settings.model, self.locations))
            except HotslotError as error:
                self.say(str(error), "error")
                settings = replace(settings, model=self.session.settings.model)
        self._change_settings(settings)
        self.say("Settings saved.")

    def action_toggle_thinking(self) -> None:
        settings = self.session.settings
        thinking = THINKING_ORDER[settings.thinking]
        self._change_settings(replace(settings, thinking=thinking))  # type: ignore[arg-type]
        words = {"auto": "as the model likes", "on": "on", "off": "off"}[thinking]
        self.say(f"Thinking: {words}, from the next message on.")

    def action_toggle_overlap(self) -> None:
        settings = self.session.settings
        self._change_settings(replace(settings, overlap=not settings.overlap))
        stats = self.session.stats
        reason = ""
        if not settings.overlap and stats is not None and stats.overlap_requested and stats.overlap_reason:
            reason = f" It does not run: {stats.overlap_reason}."
        self.say(f"Overlap {'off' if settings.overlap else 'on'}; the engine restarts.{reason}")

    def action_switch_policy(self) -> None:
        settings = self.session.settings
        policy = "lru" if settings.policy == "rule" else "rule"
        self._change_settings(replace(settings, policy=policy))  # type: ignore[arg-type]
        self.say(f"Slot policy {policy}; the engine restarts.")

    def set_theme_name(self, name: str) -> None:
        """Use and keep this theme."""
        self._change_settings(replace(self.session.settings, theme=name))

    def _change_settings(self, settings: Settings) -> None:
        """Use the settings and keep what changed, leaving aside what only this run was told."""
        before = self.session.settings
        self.session.apply_settings(settings)
        try:
            keep_changes(self.locations.config_file, before, settings)
        except SettingsError as error:
            self.say(str(error), "error")
        self.app.post_message(self.SettingsChanged(settings))
        self._is_stale = True
        if not self._is_busy:
            self.warm_up()
