"""The models: what is here, what fits, what is being downloaded. Its answer is the one to use, or None.

Shows and asks; `ModelJobs` does. Disks are looked at in a thread, so that nothing here waits for one.
"""

from pathlib import Path
from threading import Event
from typing import ClassVar, Protocol

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Input, OptionList, Static
from textual.widgets.option_list import Option

from app.actions import ACTIONS, Action, key_name
from app.errors import HotslotError
from app.library import RemoteModel
from app.model_jobs import JobState, ModelJobs
from app.model_shelf import ModelAction, ModelEntry, ModelShelf, ShelfKeeper, possible_actions
from app.model_words import OFFLINE_TEXT, about_lines, fit_word, job_word, machine_text, size_words
from app.threads import in_thread
from app.tui.bindings import bindings_of
from app.tui.display import MUTED, shown
from app.tui.screens.dialogs import ConfirmScreen
from app.tui.widgets.status_bar import gauge
from runtime.downloads.events import DownloadProgressed

REFRESH_S = 0.5
LOOK_S = 1.0
"""Between two looks at what other processes download."""
LIST_HINT, NAMING_HINT = "Enter use · Esc back", "Enter looks it up · Esc to the list"
NAME_CELLS = 28
"""Longer names push the rest of their row to the right."""
WIDE_CELLS = 60
MADE_BY: dict[str, ModelAction] = {
    "pull_model": "pull",
    "pause_model": "pause",
    "cancel_model": "cancel",
    "verify_model": "verify",
    "remove_model": "remove",
}
"""Actions of the table that are not always possible."""
FIT_STYLES = {"fits": "$text-success", "mapped": "$text-warning", "too big": "$text-error"}


class ModelOwner(Protocol):
    """What the list asks of the chat under it."""

    jobs: ModelJobs
    told: dict[str, RemoteModel]
    """What the Hub has said of models that are not here, by repository."""

    @property
    def model_path(self) -> Path:
        """The folder of the model that answers."""
        ...

    def shelf_keeper(self) -> ShelfKeeper:
        """One that knows the settings and the engine of this moment."""
        ...

    def do_with_model(self, action: ModelAction, entry: ModelEntry) -> None:
        """Do it, or ask before it. Raises ModelNameError where it can't be done."""
        ...

    def show_details(self, entry: ModelEntry) -> None: ...


class ModelsScreen(ModalScreen[ModelEntry | None]):
    """One row per model; under the list, all about the one that is marked and what can be done with it."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,f2", "leave", "Back"), *bindings_of("models")]

    def __init__(self, owner: ModelOwner) -> None:
        super().__init__(classes="panel-screen models")
        self._owner, self._jobs = owner, owner.jobs
        self._shelf: ModelShelf | None = None
        self._typed: list[str] = []
        """Names that the user typed here and no list has."""
        self._answers: dict[str, str] = {}
        """Of repositories that the Hub is asked about: that it is, or why it has no answer."""
        self._elsewhere: dict[str, DownloadProgressed] = {}
        self._num_endings = owner.jobs.num_endings

    def compose(self) -> ComposeResult:
        with Vertical(classes="panel-box") as box:
            box.border_title = Content("Models")
            box.border_subtitle = Content(LIST_HINT)
            yield Static("", id="machine", markup=False)
            yield OptionList(markup=False)
            yield Static(Content("Looking at what is here…"), markup=False, classes="empty")
            yield Static("", id="about", markup=False)
            yield Input(placeholder="N: another repository (owner/name) or folder", compact=True)
            with Horizontal(classes="buttons"):
                for action in ACTIONS:
                    if action.scope == "models" and action.name != "name_model":
                        yield ActionButton(action)

    def on_mount(self) -> None:
        self.query_one(OptionList).display = False
        self.set_focus(self.query_one(OptionList))
        self._look_again()
        self.set_interval(REFRESH_S, self._tick)
        self.set_interval(LOOK_S, self._watch_others)

    # ---- looking

    def _look_again(self) -> None:
        # Not a coroutine: one that is replaced before it began would never be awaited.
        self.run_worker(self._look, group="look", exclusive=True)  # type: ignore[arg-type]

    async def _look(self) -> None:
        keeper, typed = self._owner.shelf_keeper(), tuple(self._typed)
        try:
            shelf = await in_thread(lambda _: _look_at(keeper, typed))
        except HotslotError as error:
            self.query_one(".empty", Static).update(shown(str(error)))
        else:
            self._show(shelf, self._chosen.key if self._chosen is not None else "")

    def _watch_others(self) -> None:
        if self._shelf is not None:
            entries = [entry for entry in self._shelf.entries if entry.state != "complete"]
            self.run_worker(self._watch(entries), group="watch", exclusive=True)

    async def _watch(self, entries: list[ModelEntry]) -> None:
        def look(_: Event) -> dict[str, DownloadProgressed]:
            found = {entry.key: entry.progress_elsewhere() for entry in entries}
            return {key: progress for key, progress in found.items() if progress is not None}

        before, self._elsewhere = self._elsewhere, await in_thread(look)
        if set(before) - set(self._elsewhere):
            self._look_again()

    def _tick(self) -> None:
        """Draw what has happened; look again where something on the disk has changed."""
        if self._num_endings != self._jobs.num_endings:
            self._num_endings = self._jobs.num_endings
            self._look_again()
        self._draw()

    # ---- drawing

    def _show(self, shelf: ModelShelf, chosen: str) -> None:
        """Draw a list that may have other rows than before, with the row of this key marked."""
        self._shelf = shelf
        options = self.query_one(OptionList)
        options.display = True
        self.query_one(".empty").display = False
        options.clear_options()
        options.add_options([Option(self._row(entry), id=entry.key) for entry in shelf.entries])
        keys = [entry.key for entry in shelf.entries]
        in_use = next((entry.key for entry in shelf.entries if entry.is_at(self._owner.model_path)), keys[0])
        options.highlighted = keys.index(chosen if chosen in keys else in_use)
        if self.focused is None:
            self.set_focus(options)
        self._draw()

    def _draw(self) -> None:
        shelf, options = self._shelf, self.query_one(OptionList)
        if shelf is None:
            return
        for place, entry in enumerate(shelf.entries):
            row = self._row(entry)
            if options.get_option_at_index(place).prompt != row:
                options.replace_option_prompt_at_index(place, row)
        offline = Content.styled(f"\n{OFFLINE_TEXT}", "$text-warning") if shelf.is_offline else Content("")
        self.query_one("#machine", Static).update(Content.styled(machine_text(shelf), MUTED) + offline)
        self._draw_chosen()

    @on(OptionList.OptionHighlighted)
    def _draw_chosen(self) -> None:
        entry = self._chosen
        lines = [] if entry is None else self._about(entry)
        self.query_one("#about", Static).update(Content("\n").join([shown(line) for line in lines]))
        possible = () if entry is None else self._possible(entry)
        for button in self.query(ActionButton):
            wanted = MADE_BY.get(button.action_name)
            button.display = entry is not None and (wanted is None or wanted in possible)
        self.refresh_bindings()

    def _about(self, entry: ModelEntry) -> list[str]:
        job = self._job(entry)
        lines = about_lines(entry, job, self._elsewhere.get(entry.key))
        answer = self._answers.get(entry.key)
        return lines if answer is None or job is not None else [answer, *lines]

    def _row(self, entry: ModelEntry) -> Content:
        mark = "● " if entry.is_at(self._owner.model_path) else "  "
        name, fit = shown(entry.name, "bold"), fit_word(entry.fit)
        # Columns where there is room for them.
        gap = " " * max(1, NAME_CELLS - name.cell_length) if self.size.width >= WIDE_CELLS else "  "
        job, other = self._job(entry), self._elsewhere.get(entry.key)
        if job is not None and (job.is_running or job.phase in ("paused", "failed")) and entry.state != "complete":
            what = _bar(job.done_bytes / max(1, job.total_bytes), job_word(job), job.phase == "failed")
        elif other is not None:
            percent = f"{100 * other.done_bytes // max(1, other.total_bytes)} %"
            what = _bar(other.done_bytes / max(1, other.total_bytes), f"{percent} elsewhere")
        else:
            what = shown(job_word(job) if job is not None and job.is_running else size_words(entry), MUTED)
        row = Content.assemble((mark, "$text-accent"), name, gap, (f"{fit:<8}", FIT_STYLES.get(fit, MUTED)), what)
        return row + Content("\n    ") + shown(entry.problem, "$text-error") if entry.state == "unusable" else row

    # ---- the one that is marked

    @property
    def _chosen(self) -> ModelEntry | None:
        at = self.query_one(OptionList).highlighted
        entries = self._shelf.entries if self._shelf is not None else ()
        return entries[at] if at is not None and at < len(entries) else None

    def _job(self, entry: ModelEntry) -> JobState | None:
        return self._jobs.states.get(entry.key) if entry.remote is not None else None

    def _possible(self, entry: ModelEntry) -> tuple[ModelAction, ...]:
        return possible_actions(entry, self._jobs.is_running(entry.key), entry.is_at(self._owner.model_path))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys that would do nothing with the marked model do nothing."""
        wanted = MADE_BY.get(action)
        return wanted is None or (self._chosen is not None and wanted in self._possible(self._chosen))

    @on(OptionList.OptionSelected)
    def chosen(self) -> None:
        """Enter or a click: use it, or read about what can't be used."""
        entry = self._chosen
        if entry is None:
            return
        if "use" not in self._possible(entry):
            self.action_model_details()
        elif entry.fit is not None and not entry.fit.fits:
            question = f"{entry.name} does not fit: {entry.fit.reason} Try it all the same?"
            self.app.push_screen(ConfirmScreen(question, "Try"), lambda is_sure: is_sure and self.dismiss(entry))
        else:
            self.dismiss(entry)

    @on(Button.Pressed)
    async def pressed(self, event: Button.Pressed) -> None:
        assert isinstance(event.button, ActionButton)
        await self.run_action(event.button.action_name)
        self.set_focus(self.query_one(OptionList))

    def action_pull_model(self) -> None:
        self._do("pull")

    def action_pause_model(self) -> None:
        self._do("pause")

    def action_cancel_model(self) -> None:
        self._do("cancel")

    def action_verify_model(self) -> None:
        self._do("verify")

    def action_remove_model(self) -> None:
        self._do("remove")

    def _do(self, action: ModelAction) -> None:
        if (entry := self._chosen) is None:
            return
        try:
            self._owner.do_with_model(action, entry)
        except HotslotError as error:
            self.notify(shown(str(error)).plain, severity="error", markup=False)
        self._tick()
        # The disk may have more room than when it was looked at last.
        self._look_again()

    def action_model_details(self) -> None:
        if (entry := self._chosen) is not None:
            self._owner.show_details(entry)
            self._ask_hub(entry)

    def _ask_hub(self, entry: ModelEntry) -> None:
        """What nobody here knows of a model that is not here."""
        is_known = entry.spec is not None and entry.download_bytes is not None
        if entry.remote is None or entry.state != "absent" or is_known:
            return
        self._answers[entry.key] = "Asking the Hub…"
        self.run_worker(self._ask(entry.key, entry.remote), group=f"hub {entry.key}", exclusive=True)

    async def _ask(self, key: str, remote: RemoteModel) -> None:
        try:
            self._owner.told[key] = await self._jobs.ask_hub(remote)
        except HotslotError as error:
            self._answers[key] = str(error)
            self._draw()
        else:
            del self._answers[key]
            self._look_again()

    # ---- a name that is typed

    def action_name_model(self) -> None:
        # Not `focus`, which is later: what is typed meanwhile would press keys of the list.
        self.set_focus(self.query_one(Input))

    def action_leave(self) -> None:
        """Back to the list first, then to the chat."""
        if self.query_one(Input).has_focus:
            self.set_focus(self.query_one(OptionList))
        else:
            self.dismiss(None)

    def on_descendant_focus(self) -> None:
        is_naming = self.query_one(Input).has_focus
        self.query_one(".panel-box").border_subtitle = Content(NAMING_HINT if is_naming else LIST_HINT)

    @on(Input.Submitted)
    async def named(self, event: Input.Submitted) -> None:
        name = event.value.strip()
        if not name or self._shelf is None:
            self.set_focus(self.query_one(OptionList))
            return
        keeper = self._owner.shelf_keeper()
        try:
            entry = self._shelf.find(name)
            if entry is None:
                entry = await in_thread(lambda _: keeper.entry_of(name))
        except HotslotError as error:
            self.notify(shown(str(error)).plain, severity="error", markup=False)
            return
        self._typed = [*self._typed, name]
        event.input.value = ""
        self._show(self._shelf.with_entry(entry), entry.key)
        self.set_focus(self.query_one(OptionList))
        self._ask_hub(entry)


class ActionButton(Button):
    """One action of the table, with its key."""

    def __init__(self, action: Action) -> None:
        super().__init__(f"{key_name(action.keys[0])} {action.label}", compact=True)
        self.action_name = action.name
        self.id = action.name
        self.can_focus = False


def _look_at(keeper: ShelfKeeper, typed: tuple[str, ...]) -> ModelShelf:
    shelf = keeper.look()
    for name in typed:
        if shelf.find(name) is None:
            try:
                shelf = shelf.with_entry(keeper.entry_of(name))
            except HotslotError:
                # A folder that was named here and is gone: it is in no list then.
                continue
    return shelf


def _bar(fraction: float, words: str, is_failed: bool = False) -> Content:
    style = "$text-error" if is_failed else "$text-primary"
    return Content.assemble((gauge(fraction, 8), style), " ", shown(words))
