"""What the list of models shows: everything here, begun or in the catalogue, with what this machine can do with it.

Looks at disks and at the machine, so an event loop does that in a thread. Changes nothing.
"""

import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from app.errors import ModelNameError
from app.fit import Fit, FitJudge
from app.library import (
    DEMO_NAME,
    LocalModel,
    RemoteModel,
    bytes_to_fetch,
    describe_model,
    find_remote,
    list_models,
    list_partial,
    list_remotes,
    resolve_model,
)
from app.locations import Locations
from app.settings import Settings
from runtime.downloads.events import DownloadProgressed
from runtime.downloads.places import ModelPlaces
from runtime.downloads.progress_file import progress_elsewhere
from runtime.errors import DownloadError
from runtime.memory.budget_plan import Machine
from runtime.protocol import EngineStats
from runtime.spec import ModelSpec

EntryState = Literal["complete", "unusable", "partial", "absent"]
ModelAction = Literal["use", "pull", "pause", "cancel", "verify", "remove"]


@dataclass(frozen=True)
class ModelEntry:
    """One model. `local` is its folder if one is here, `remote` the repository it comes from if that is known."""

    name: str
    """What `--model` takes."""
    local: LocalModel | None
    remote: RemoteModel | None
    state: EntryState
    present_bytes: int
    fit: Fit | None
    """None where its shapes are not known."""
    commit: str = ""
    """Of what is here."""

    @property
    def key(self) -> str:
        """Tells entries apart: the repository, or the folder."""
        return self.remote.places.repo_id if self.remote is not None else str(self.local.path if self.local else "")

    def is_at(self, path: Path) -> bool:
        """Whether this folder is its."""
        return self.local is not None and self.local.path == path

    @property
    def spec(self) -> ModelSpec | None:
        """As measured, else as the catalogue says."""
        if self.local is not None and self.local.spec is not None:
            return self.local.spec
        return self.remote.spec if self.remote is not None else None

    @property
    def licence(self) -> str:
        known = [self.local.licence if self.local else "", self.remote.licence if self.remote else ""]
        return next((licence for licence in known if licence not in ("", "unknown")), "unknown")

    @property
    def download_bytes(self) -> int | None:
        return self.remote.download_bytes if self.remote is not None else None

    @property
    def problem(self) -> str:
        """Why what is here can't be used, with the names of its files alone."""
        return self.local.problem.replace(f"{self.local.path}/", "") if self.local is not None else ""

    def progress_elsewhere(self) -> DownloadProgressed | None:
        """How far another process that downloads it is."""
        return progress_elsewhere(self.remote.places) if self.remote is not None else None


@dataclass(frozen=True)
class ModelShelf:
    """All entries as they were when somebody looked; `is_offline`: the Hub is switched off."""

    entries: tuple[ModelEntry, ...]
    machine: Machine
    disk_free_bytes: int
    is_offline: bool

    def find(self, name: str) -> ModelEntry | None:
        """By name or repository."""
        return next((entry for entry in self.entries if name in (entry.name, entry.key)), None)

    def with_entry(self, entry: ModelEntry) -> "ModelShelf":
        """With this one first, or in the place of the same one."""
        others = [other for other in self.entries if other.key != entry.key]
        at = next((place for place, other in enumerate(self.entries) if other.key == entry.key), 0)
        return replace(self, entries=(*others[:at], entry, *others[at:]))


class ShelfKeeper:
    """Looks at one user's models, judged by the options that an engine would get."""

    def __init__(
        self,
        locations: Locations,
        settings: Settings,
        stats: EngineStats | None = None,
        told: Mapping[str, RemoteModel] | None = None,
    ) -> None:
        """`stats`: of the engine that runs. What it holds counts as free, since it ends before another model loads.

        `told`: what the Hub has said of models, by repository.
        """
        self._told = dict(told or {})
        self._locations = locations
        self._options = settings.engine_options(Path())
        self._stats = stats

    def look(self) -> ModelShelf:
        """Raises HotslotError where the device of the settings can't be used, or the catalogue can't be read."""
        judge = self._judge()
        disk_free_bytes = free_disk_bytes(self._locations.models_dir)
        return ModelShelf(tuple(self._entries(judge)), judge.machine, disk_free_bytes, _is_hub_switched_off())

    def entry_of(self, name: str) -> ModelEntry:
        """Of whatever a user names: a model, a repository or a folder. Raises ModelNameError."""
        judge = self._judge()
        remote = None if name == DEMO_NAME else find_remote(name, self._locations)
        if remote is not None:
            return self._of_remote(remote, judge)
        path = resolve_model(name, self._locations)
        known = name if name == DEMO_NAME or self._locations.models_dir / name == path else str(path)
        return self._of_local(describe_model(known, path), judge)

    def _entries(self, judge: FitJudge) -> Iterable[ModelEntry]:
        remotes = {remote.places.repo_id: remote for remote in list_remotes(self._locations)}
        begun = [name for name in list_partial(self._locations) if name not in remotes]
        remotes |= {name: remote for name in begun if (remote := find_remote(name, self._locations)) is not None}
        for model in list_models(self._locations):
            remote = remotes.pop(model.name, None) or self._origin(model)
            yield self._of_local(model, judge) if remote is None else self._of_remote(remote, judge, model)
        # What was begun comes before what was not.
        for remote in sorted(remotes.values(), key=lambda remote: remote.state == "absent"):
            yield self._of_remote(remote, judge)

    def _origin(self, model: LocalModel) -> RemoteModel | None:
        """The repository that a folder was downloaded from."""
        remote = None if model.name == DEMO_NAME else find_remote(model.name, self._locations)
        return remote if remote is not None and remote.places.folder == model.path else None

    def _of_local(self, model: LocalModel, judge: FitJudge) -> ModelEntry:
        state: EntryState = "complete" if model.spec is not None else "unusable"
        num_bytes = model.spec.weights.checkpoint_bytes if model.spec is not None else 0
        return ModelEntry(model.name, model, None, state, num_bytes, self._fit(model, judge))

    def _of_remote(self, remote: RemoteModel, judge: FitJudge, model: LocalModel | None = None) -> ModelEntry:
        places = remote.places
        remote = self._told.get(places.repo_id, remote)
        if model is None and places.folder.is_dir():
            model = describe_model(places.repo_id, places.folder)
        state: EntryState = remote.state
        if model is not None and not places.is_downloaded:
            # A folder of this name that somebody put here.
            return self._of_local(model, judge)
        if state == "complete" and model is not None and model.spec is None:
            state = "unusable"
        entry = ModelEntry(remote.name, model, remote, state, places.present_bytes(), None, _commit(places))
        if entry.local is not None and entry.local.spec is not None and state == "complete":
            return replace(entry, fit=self._fit(entry.local, judge))
        fit = None if entry.spec is None else judge.judge(entry.spec, bytes_to_fetch(remote))
        return replace(entry, fit=fit)

    @staticmethod
    def _fit(model: LocalModel, judge: FitJudge) -> Fit | None:
        return None if model.spec is None else judge.judge(model.spec, fingerprint=model.fingerprint)

    def _judge(self) -> FitJudge:
        disk_free_bytes, cache_dir = free_disk_bytes(self._locations.models_dir), self._locations.cache_dir
        return FitJudge(self._probe(), self._options, disk_free_bytes=disk_free_bytes, cache_dir=cache_dir)

    def _probe(self) -> Machine:
        # Brings psutil, which those who draw and do not look need not wait for.
        from runtime.memory.probe import probe_machine

        machine = probe_machine(self._options)
        stats = self._stats
        if stats is None:
            return machine
        ram_bytes = min(machine.ram_total_bytes, machine.ram_available_bytes + stats.engine_rss_bytes)
        vram_bytes = machine.vram_free_bytes
        if vram_bytes is not None and stats.device != "cpu":
            vram_bytes += stats.vram_used_bytes
        return replace(machine, ram_available_bytes=ram_bytes, vram_free_bytes=vram_bytes)


def _commit(places: ModelPlaces) -> str:
    """Of the finished folder; a damaged manifest is the state's business."""
    with suppress(DownloadError):
        manifest = places.finished_manifest()
        return manifest.commit if manifest is not None else ""
    return ""


def possible_actions(entry: ModelEntry, is_running: bool, is_in_use: bool) -> tuple[ModelAction, ...]:
    """What can be done with a model; `is_running`: a download or a check of it runs here."""
    actions: list[ModelAction] = []
    remote = entry.remote
    if entry.state == "complete" and not is_in_use and not is_running:
        actions.append("use")
    if remote is None:
        return tuple(actions)
    if is_running:
        return (*actions, "pause", "cancel")
    if entry.state in ("absent", "partial"):
        actions.append("pull")
    if entry.state == "partial":
        actions.append("cancel")
    if entry.local is not None and remote.places.is_downloaded:
        actions.append("verify")
    if entry.state != "absent" and not is_in_use:
        actions.append("remove")
    return tuple(actions)


def refuse_impossible(entry: ModelEntry, action: ModelAction, is_running: bool, is_in_use: bool) -> None:
    """Raises ModelNameError with what stands against it."""
    if action in possible_actions(entry, is_running, is_in_use):
        return
    if is_in_use and action in ("use", "remove"):
        why = "it answers now" if action == "use" else "it answers now; choose another model first"
    elif is_running:
        why = "a download or a check of it runs; pause or cancel that first"
    elif entry.remote is None and action != "use":
        why = f"it was not downloaded by Hotslot, but lies in {entry.key}"
    elif entry.state == "absent":
        why = "it is not here"
    elif action in ("pause", "cancel"):
        why = "nothing of it is being downloaded"
    elif action == "pull":
        why = "it is complete; verify it to be sure"
    else:
        why = entry.problem or "it is not complete; download the rest first"
    raise ModelNameError(f"{entry.name}: {why}.")


def free_disk_bytes(folder: Path) -> int:
    """Of the disk that the folder lies on or would lie on; 0 where no folder on the way can be looked at."""
    for place in (folder, *folder.parents):
        with suppress(OSError):
            return shutil.disk_usage(place).free
    return 0


def _is_hub_switched_off() -> bool:
    # A tenth of a second, which only those who look should wait for.
    from huggingface_hub import constants

    return bool(constants.is_offline_mode())
