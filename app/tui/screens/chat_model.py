"""Which model answers and how: the models and settings screens, and the switches that are settings of their own."""

from dataclasses import replace

from textual.message import Message as TextualMessage

from app.chat.session import ChatSession
from app.errors import HotslotError, SettingsError
from app.library import resolve_model
from app.locations import Locations
from app.settings import Settings, ThemeName
from app.settings_file import SettingsFile
from app.settings_words import setting_named, with_setting
from app.store.conversations import Store
from app.tui.screens.chat_models import ModelShelfControls
from app.tui.screens.settings import SettingsScreen

SWITCHES = {
    "toggle_thinking": ("auto", "on", "off"),
    "toggle_overlap": ("on", "off"),
    "switch_policy": ("rule", "lru"),
}
"""Actions that choose one of a few values; without a word they take the next one."""


class ModelControls(ModelShelfControls):
    """Applies what was chosen, keeps it in the settings file, and starts the engine anew when that is needed."""

    class SettingsChanged(TextualMessage):
        """These settings hold from now on."""

        def __init__(self, settings: Settings) -> None:
            super().__init__()
            self.settings = settings

    def __init__(self, session: ChatSession, store: Store, locations: Locations) -> None:
        super().__init__(session, store, locations)
        self._is_stale = False
        """Options of loading may have changed since the engine was asked to start."""

    def warm_up(self) -> None:
        """Start the engine as the settings say, unless it runs so already. Only while nothing else runs."""
        raise NotImplementedError

    def apply_tools(self) -> None:
        """Offer the tools that the settings say."""
        raise NotImplementedError

    def action_settings(self, words: str = "") -> None:
        """Open the settings, or change one: 'temperature 0.7'."""
        if words:
            self._change_by_words(words)
            return
        screen = SettingsScreen(self.session.settings, self.session.stats, self.session.loaded)
        self.app.push_screen(screen, self._settings_chosen)

    def _settings_chosen(self, settings: Settings | None) -> None:
        if settings is None or settings == self.session.settings:
            return
        name, former = settings.model, self.session.settings.model
        # Kept once it is loaded.
        settings = replace(settings, model=former)
        if name != former:
            try:
                self._next_model = (name, resolve_model(name, self.locations))
            except HotslotError as error:
                self.say(str(error), "error")
        self._change_settings(settings)
        self.say("Settings saved.")

    def _change_by_words(self, words: str) -> None:
        name, _, value = words.partition(" ")
        try:
            if not value.strip():
                field = setting_named(name)
                self.say(f"{field.name} is {getattr(self.session.settings, field.name)}; it takes {field.expectation}.")
                return
            settings = with_setting(self.session.settings, name, value)
        except SettingsError as error:
            self.say(str(error), "warning")
            return
        self._settings_chosen(settings)

    def action_toggle_thinking(self) -> None:
        self.switch("toggle_thinking", _next("toggle_thinking", self.session.settings.thinking))

    def action_toggle_overlap(self) -> None:
        self.switch("toggle_overlap", "off" if self.session.settings.overlap else "on")

    def action_switch_policy(self) -> None:
        self.switch("switch_policy", _next("switch_policy", self.session.settings.policy))

    def switch(self, action_name: str, value: str) -> None:
        """Choose one of the action's `SWITCHES` and say what follows from it."""
        settings = self.session.settings
        if action_name == "toggle_thinking":
            self._change_settings(replace(settings, thinking=value))  # type: ignore[arg-type]
            words = {"auto": "as the model likes", "on": "on", "off": "off"}[value]
            self.say(f"Thinking: {words}, from the next message on.")
        elif action_name == "toggle_overlap":
            self._change_settings(replace(settings, overlap=value == "on"))
            self.say(f"Overlap {value}; the engine restarts.{self._why_overlap_declines(value)}")
        else:
            self._change_settings(replace(settings, policy=value))  # type: ignore[arg-type]
            self.say(f"Slot policy {value}; the engine restarts.")

    def _why_overlap_declines(self, value: str) -> str:
        stats = self.session.stats
        if value == "off" or stats is None or not (stats.overlap_requested and stats.overlap_reason):
            return ""
        return f" It does not run: {stats.overlap_reason}."

    def set_theme_name(self, name: ThemeName) -> None:
        """Use and keep this theme."""
        self._change_settings(replace(self.session.settings, theme=name))

    def _change_settings(self, settings: Settings) -> None:
        """Use the settings and keep what changed, leaving aside what only this run was told."""
        before = self.session.settings
        self.session.apply_settings(settings)
        self.apply_tools()
        try:
            if notice := SettingsFile(self.locations.config_file).update(before, settings):
                self.say(notice, "warning")
        except SettingsError as error:
            self.say(str(error), "error")
        self.app.post_message(self.SettingsChanged(settings))
        self._is_stale = True
        if not self._is_busy and not self.load_next():
            self.warm_up()

    def use_settings(self, settings: Settings) -> None:
        self._change_settings(settings)


def _next(action_name: str, value: str) -> str:
    values = SWITCHES[action_name]
    return values[(values.index(value) + 1) % len(values)]
