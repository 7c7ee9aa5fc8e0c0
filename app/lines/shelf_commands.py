"""Slash commands of the models: what is here and what fits; get, check and remove one.

A script's downloads are waited for. At a terminal they go on beside the chat and say now and then how far they are.
"""

from collections.abc import Awaitable, Callable

from app.lines.line_base import LineCommands, LineState
from app.model_jobs import JobState, ModelJobs
from app.model_shelf import ModelAction, ModelEntry, ShelfKeeper, refuse_impossible
from app.model_words import (
    OFFLINE_TEXT,
    detail_text,
    fit_word,
    job_text,
    job_word,
    machine_text,
    remove_question,
    size_words,
)
from app.sanitize import clean_line
from app.threads import in_thread
from runtime.errors import UsageError

_TOLD_SHARE = 10
"""Progress is said every so many percent."""


class ShelfCommands(LineCommands):
    """Owns the jobs; `close` stops them and keeps what they fetched."""

    def __init__(self, state: LineState, use: Callable[[str], Awaitable[None]]) -> None:
        """`use` switches to the model of a name."""
        super().__init__(state)
        self._use = use
        self.jobs = ModelJobs(state.locations)
        self.jobs.on_changed = self._tell
        self._told: dict[str, tuple[str, int, str]] = {}
        """Phase, tenth and note that were last said of each repository."""

    async def close(self) -> None:
        await self.jobs.close()

    async def do_models(self, name: str) -> None:
        """List them, or switch to one."""
        if name:
            await self._use(name)
            return
        keeper = self._keeper()
        shelf = await in_thread(lambda _: keeper.look())
        self.console.remark(machine_text(shelf))
        if shelf.is_offline:
            self.console.remark(OFFLINE_TEXT)
        for entry in shelf.entries:
            self.console.print(self._line(entry))
        self.console.remark(
            "/models and a name chooses one; /models pull and a name downloads one; /help has the rest."
        )

    def _line(self, entry: ModelEntry) -> str:
        job, other = self.jobs.states.get(entry.key), entry.progress_elsewhere()
        facts = [fit_word(entry.fit), size_words(entry)]
        if entry.is_at(self.session.model_path):
            facts.insert(0, "in use")
        if job is not None and job.is_running:
            facts.append(job_word(job))
        elif other is not None:
            facts.append(f"{100 * other.done_bytes // max(1, other.total_bytes)} % elsewhere")
        problem = f": can't be used: {entry.problem}" if entry.state == "unusable" else ""
        return clean_line(f"{entry.name} ({', '.join(facts)}){problem}")

    async def do_pull_model(self, name: str) -> None:
        entry = await self._possible(name, "pull")
        assert entry.remote is not None
        self.jobs.pull(entry.remote)
        await self._go_on(entry)

    async def do_verify_model(self, name: str) -> None:
        entry = await self._possible(name, "verify")
        assert entry.remote is not None
        self.jobs.verify(entry.remote)
        await self._go_on(entry)

    async def do_pause_model(self, name: str) -> None:
        self.jobs.pause((await self._possible(name, "pause")).key)

    async def do_cancel_model(self, name: str) -> None:
        entry = await self._possible(name, "cancel")
        assert entry.remote is not None
        freed_bytes = await self.jobs.cancel(entry.remote)
        self.console.remark(f"{clean_line(entry.name)}: given up, {freed_bytes} bytes freed.")

    async def do_remove_model(self, name: str) -> None:
        """Asks for `yes` behind the name, since a line can't be taken back."""
        wanted, _, sure = name.partition(" ")
        entry = await self._possible(wanted, "remove")
        assert entry.remote is not None
        if sure.strip() != "yes":
            self.console.remark(f"{remove_question(entry)} Then write: /models rm {clean_line(wanted)} yes")
            return
        freed_bytes = await self.jobs.remove(entry.remote)
        self.console.remark(f"{clean_line(entry.name)}: removed, {freed_bytes} bytes freed.")

    async def do_model_details(self, name: str) -> None:
        entry = await self._entry(name, "info")
        text = detail_text(entry, self.jobs.states.get(entry.key))
        for line in text.splitlines():
            self.console.print(clean_line(line))

    # ---- helpers

    def _keeper(self) -> ShelfKeeper:
        stats = self.session.stats if self.session.loaded is not None else None
        return ShelfKeeper(self.state.locations, self.session.settings, stats)

    async def _entry(self, name: str, word: str) -> ModelEntry:
        if not name:
            raise UsageError(f"/models {word} takes the name of a model; /models lists them")
        keeper = self._keeper()
        return await in_thread(lambda _: keeper.entry_of(name))

    async def _possible(self, name: str, action: ModelAction) -> ModelEntry:
        """The model, or an error that says why that can't be done with it."""
        entry = await self._entry(name, {"remove": "rm"}.get(action, action))
        refuse_impossible(entry, action, self.jobs.is_running(entry.key), entry.is_at(self.session.model_path))
        return entry

    async def _go_on(self, entry: ModelEntry) -> None:
        if not self.state.input.is_terminal:
            await self.jobs.wait(entry.key)

    def _tell(self, state: JobState) -> None:
        tenth = 100 * state.done_bytes // max(1, state.total_bytes) // _TOLD_SHARE
        told = (state.phase, tenth, state.note)
        if self._told.get(state.repo_id) == told or state.phase == "stopping":
            return
        self._told[state.repo_id] = told
        self.console.remark(f"{clean_line(state.remote.name)}: {job_text(state)}")
