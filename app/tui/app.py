"""The Textual application: themes, the screens over the chat, and the way in. Owns no chat state."""

import asyncio
import gc
import signal
import sys
from typing import Any, ClassVar

from textual.app import App
from textual.binding import BindingType
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver

from app.chat.session import ChatSession
from app.engine import Engine, LocalEngine
from app.figures import explain
from app.library import resolve_model
from app.locations import Locations
from app.settings import Settings
from app.store.conversations import Store
from app.tui.bindings import bindings_of
from app.tui.commands import ActionCommands
from app.tui.driver import StoppableDriver
from app.tui.keyboard import teach_terminal
from app.tui.screens.chat import ChatScreen
from app.tui.screens.chat_model import ModelControls
from app.tui.screens.dialogs import ConfirmScreen
from app.tui.screens.help import HelpScreen
from app.tui.themes import FALLBACK_VARIABLES, OWN_THEMES, THEME_NAMES
from runtime.errors import UsageError


class HotslotApp(App[None]):
    """One chat screen, always at the bottom of the stack."""

    TITLE = "Hotslot"
    CSS_PATH = "hotslot.tcss"
    COMMANDS: ClassVar = {ActionCommands}
    BINDINGS: ClassVar[list[BindingType]] = [*bindings_of("app")]
    HORIZONTAL_BREAKPOINTS = [(0, "-narrow"), (60, "-wide")]  # noqa: RUF012 (the base class declares no ClassVar)
    VERTICAL_BREAKPOINTS = [(0, "-low"), (12, "-high")]  # noqa: RUF012 (the base class declares no ClassVar)

    def __init__(self, session: ChatSession, store: Store, locations: Locations, notices: tuple[str, ...] = ()) -> None:
        super().__init__()
        teach_terminal()
        self.chat = ChatScreen(session, store, locations, notices)
        self._quit_question: ConfirmScreen | None = None
        for theme in OWN_THEMES:
            self.register_theme(theme)
        self._use_theme(session.settings.theme)

    def get_driver_class(self) -> type[Driver]:
        driver = super().get_driver_class()
        return StoppableDriver if driver is LinuxDriver else driver

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return FALLBACK_VARIABLES

    def on_mount(self) -> None:
        self.push_screen(self.chat)

    def on_ready(self) -> None:
        if not self.is_headless:
            # Modules and style sheets stay for good: a full collection that walks them stops the screen for 50 ms.
            gc.collect()
            gc.freeze()
            # Keys are read and the screen is written by threads: each waits this long for a loop that is drawing.
            sys.setswitchinterval(0.001)
            self._end_on_signals()

    def exit(self, *arguments: Any, **options: Any) -> None:
        """End; a file that is being read is not waited for."""
        self.chat.stop_reading_file()
        super().exit(*arguments, **options)

    async def action_quit(self) -> None:
        """Leave. What is written but not sent would be lost: asked about it, the user may press the key again."""
        num_unsent = self.chat.num_unsent
        if not num_unsent or self.screen is self._quit_question:
            self.exit()
            return
        what = "A message that you wrote is" if num_unsent == 1 else f"{num_unsent} messages that you wrote are"
        self._quit_question = ConfirmScreen(f"{what} not sent and would be lost.", "Quit")
        self.push_screen(self._quit_question, lambda is_sure: self.exit() if is_sure else None)

    def _end_on_signals(self) -> None:
        """A `kill` or a closed terminal ends the app as Ctrl+Q does: terminal restored, what was said kept."""
        loop = asyncio.get_running_loop()

        def end(number: int) -> None:
            # The second one finds no handler, and ends a program that hangs.
            loop.remove_signal_handler(number)
            self.exit(return_code=128 + number)

        for number in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is signal.SIG_DFL:
                loop.add_signal_handler(number, end, number)

    def _use_theme(self, name: str) -> None:
        self.theme = name

    def on_model_controls_settings_changed(self, message: ModelControls.SettingsChanged) -> None:
        self._use_theme(message.settings.theme)

    def action_next_theme(self) -> None:
        index = THEME_NAMES.index(self.theme) if self.theme in THEME_NAMES else -1
        name = THEME_NAMES[(index + 1) % len(THEME_NAMES)]
        self.chat.set_theme_name(name)
        self.notify(f"Theme: {name}", markup=False)

    def action_show_help(self) -> None:
        """Open the help, or close it."""
        if isinstance(self.screen, HelpScreen):
            self.screen.dismiss()
            return
        stats = self.chat.session.stats
        self.push_screen(HelpScreen(explain(stats) if stats is not None else ()))


def run_tui(
    locations: Locations, settings: Settings, notices: tuple[str, ...] = (), engine: Engine | None = None
) -> int:
    """Open the chat and return the exit status. Raises HotslotError, before the screen is touched, for a bad model."""
    if sys.__stderr__ is None or not sys.__stderr__.isatty():
        raise UsageError("The chat screen is drawn on stderr; leave it on the terminal (hotslot doctor names the log)")
    model_path = resolve_model(settings.model, locations)
    store = Store.open_later(locations.database_file)
    session = ChatSession(
        engine or LocalEngine(locations.engine_log_file, locations.cache_dir),
        store,
        settings,
        model_path,
        names_chats=True,
    )
    app = HotslotApp(session, store, locations, notices)
    try:
        app.run()
    finally:
        store.close()
    return app.return_code or 0
