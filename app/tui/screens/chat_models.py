"""The models of the chat: the list, what is downloaded meanwhile, and switching the engine to another model."""

from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

from textual import on
from textual.message import Message as TextualMessage

from app.chat.events import TurnEvents
from app.chat.session import ChatSession
from app.errors import HotslotError
from app.figures import size_text
from app.library import RemoteModel, resolve_model
from app.locations import Locations
from app.model_jobs import JobState, ModelJobs
from app.model_shelf import ModelAction, ModelEntry, ShelfKeeper, refuse_impossible
from app.model_words import cancel_question, detail_text, job_text, remove_question
from app.settings import Settings
from app.store.conversations import Store
from app.threads import in_thread
from app.tui.screens.chat_base import ChatBase
from app.tui.screens.dialogs import ConfirmScreen
from app.tui.screens.models import ModelsScreen
from app.tui.screens.text_view import TextScreen


class ModelShelfControls(ChatBase):
    """Owns the jobs, which go on while the list is closed. One model at most waits to be loaded."""

    class JobChanged(TextualMessage):
        """A download or a check is further than before, or has ended."""

        def __init__(self, state: JobState) -> None:
            super().__init__()
            self.state = state

    def __init__(self, session: ChatSession, store: Store, locations: Locations) -> None:
        super().__init__(session, store, locations)
        self.jobs = ModelJobs(locations)
        self.told: dict[str, RemoteModel] = {}
        """What the Hub has said of models that are not here, by repository."""
        self._next_model: tuple[str, Path] | None = None
        """To be loaded as soon as nothing else runs: what `--model` takes for it, and its folder."""
        self._loading_model: tuple[str, Path] | None = None
        """Is being loaded in place of the one that answers."""

    # ---- offered by the chat screen

    def load(self, events: TurnEvents) -> None:
        """Show a start of the engine. Only while nothing else runs."""
        raise NotImplementedError

    def use_settings(self, settings: Settings) -> None:
        """Use these and keep them."""
        raise NotImplementedError

    # ---- the list

    def follow_jobs(self) -> None:
        def tell(state: JobState) -> None:
            self.post_message(self.JobChanged(state))

        self.jobs.on_changed = tell

    def action_models(self, name: str = "") -> None:
        """Choose from the list, or the model of this name."""
        if not name:
            self.app.push_screen(ModelsScreen(self), self._model_chosen)
            return
        try:
            self.switch_to(name, resolve_model(name, self.locations))
        except HotslotError as error:
            self.say(str(error), "error")

    @property
    def model_path(self) -> Path:
        return self.session.model_path

    def shelf_keeper(self) -> ShelfKeeper:
        stats = self.session.stats if self.session.loaded is not None else None
        return ShelfKeeper(self.locations, self.session.settings, stats, self.told)

    def _model_chosen(self, entry: ModelEntry | None) -> None:
        if entry is not None and entry.local is not None:
            self.switch_to(entry.name, entry.local.path)

    @on(JobChanged)
    def job_changed(self, message: JobChanged) -> None:
        self.status.downloads = tuple(self.jobs.running)
        state = message.state
        if isinstance(self.app.screen, ModelsScreen):
            # It says so itself.
            return
        if state.phase in ("failed", "done") and state == self.jobs.states.get(state.repo_id):
            self.say(f"{state.remote.name}: {job_text(state)}", "error" if state.phase == "failed" else "information")

    # ---- one model

    def do_with_model(self, action: ModelAction, entry: ModelEntry) -> None:
        """Do it, if it is possible; what throws bytes away is asked first. Raises ModelNameError."""
        refuse_impossible(entry, action, self.jobs.is_running(entry.key), entry.is_at(self.session.model_path))
        remote = entry.remote
        assert remote is not None
        match action:
            case "pull":
                self.jobs.pull(remote)
            case "pause":
                self.jobs.pause(entry.key)
            case "verify":
                self.jobs.verify(remote)
            case "cancel":
                self._ask_and_free(cancel_question(entry), "Give up", lambda: self.jobs.cancel(remote))
            case "remove":
                self._ask_and_free(remove_question(entry), "Delete", lambda: self.jobs.remove(remote))

    def _ask_and_free(self, question: str, yes: str, do: Callable[[], Coroutine[Any, Any, int]]) -> None:
        async def run() -> None:
            try:
                self.say(f"{size_text(await do())} freed.")
            except HotslotError as error:
                self.say(str(error), "error")

        def answered(is_sure: bool | None) -> None:
            if is_sure:
                self.run_worker(run(), group="removing")

        self.app.push_screen(ConfirmScreen(question, yes), answered)

    async def _named(self, name: str, do: Callable[[ModelEntry], object]) -> None:
        """Do it with the model of this name; without a name, show the list."""
        if not name:
            self.action_models()
            return
        keeper = self.shelf_keeper()
        try:
            do(await in_thread(lambda _: keeper.entry_of(name)))
        except HotslotError as error:
            self.say(str(error), "error")

    async def action_pull_model(self, name: str = "") -> None:
        await self._named(name, lambda entry: self.do_with_model("pull", entry))

    async def action_pause_model(self, name: str = "") -> None:
        await self._named(name, lambda entry: self.do_with_model("pause", entry))

    async def action_verify_model(self, name: str = "") -> None:
        await self._named(name, lambda entry: self.do_with_model("verify", entry))

    async def action_cancel_model(self, name: str = "") -> None:
        await self._named(name, lambda entry: self.do_with_model("cancel", entry))

    async def action_remove_model(self, name: str = "") -> None:
        await self._named(name, lambda entry: self.do_with_model("remove", entry))

    async def action_model_details(self, name: str = "") -> None:
        await self._named(name, self.show_details)

    def show_details(self, entry: ModelEntry) -> None:
        text = detail_text(entry, self.jobs.states.get(entry.key))
        self.app.push_screen(TextScreen(entry.name, text))

    # ---- switching

    def switch_to(self, name: str, path: Path) -> None:
        """Load this model as soon as nothing else runs; the one that answers stays if it can't be loaded."""
        if path == self.session.model_path and self._loading_model is None:
            return
        self._next_model = (name, path)
        if self._is_answering:
            self.say(f"{name} is loaded after this answer.")
        elif self._is_busy:
            # A start of the engine that nobody waits for any more.
            self.run_worker(self.session.cancel(), group="stopping")
        else:
            self.load_next()

    def load_next(self) -> bool:
        """Begin to load the model that waits for it; False where none does."""
        if self._next_model is None:
            return False
        self._loading_model, self._next_model = self._next_model, None
        self.load(self.session.switch_model(self._loading_model[1]))
        return True

    def note_load_over(self, is_stopped: bool) -> bool:
        """A turn or a start of the engine has ended; `is_stopped`: a start, by the user.

        Whether the former model has to be loaded again.
        """
        loading, self._loading_model = self._loading_model, None
        if self._next_model is not None:
            return False
        if loading is None:
            if is_stopped:
                self.say("Loading was stopped; the next message loads the model.")
            return False
        name, path = loading
        former = self.session.settings.model
        if self.session.model_path != path:
            self.say(f"{name} was not loaded; {former} stays.", "warning")
            return True
        self.use_settings(replace(self.session.settings, model=name))
        self.say(f"{name} answers from now on.")
        return False
