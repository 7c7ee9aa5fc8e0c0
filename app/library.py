"""Which models there are on this machine and in the catalogue, which folder a name means, and what fits."""

import re
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from app.errors import ModelNameError
from app.locations import DEMO_MODEL, Locations, asset_path
from app.sanitize import clean_line
from runtime.downloads.file_names import is_repo_id
from runtime.downloads.manifest import Manifest
from runtime.downloads.places import ModelPlaces, ModelState
from runtime.errors import DownloadError, HotslotError
from runtime.spec import ModelSpec

if TYPE_CHECKING:
    from runtime.downloads.catalog import CatalogModel
    from runtime.downloads.hub import HubAccess

DEMO_NAME = "demo"
CATALOG = "catalog.toml"


@dataclass(frozen=True)
class LocalModel:
    """A model folder as it lies on the disk; `spec` is None where `problem` says why it can't be used."""

    name: str
    path: Path
    licence: str
    spec: ModelSpec | None
    problem: str = ""
    fingerprint: str = ""
    """Names what is remembered of it from one start to the next."""


@dataclass(frozen=True)
class RemoteModel:
    """A model of the Hub, on this machine or not. What is not known of it is None, its licence 'unknown'."""

    name: str
    """Its name in the catalogue, or the repository's."""
    places: ModelPlaces
    revision: str
    licence: str
    download_bytes: int | None
    spec: ModelSpec | None

    @property
    def state(self) -> ModelState:
        return self.places.state()


def resolve_model(name: str, locations: Locations) -> Path:
    """The folder of `demo`, of a name in the models folder or the catalogue, of a repository, or of a path.

    Raises ModelNameError; reads no weights.
    """
    shown = clean_line(name)
    if name == DEMO_NAME:
        demo = asset_path(DEMO_MODEL)
        if not demo.is_dir():
            raise ModelNameError(f"The demo model is missing ({demo}); install Hotslot again, or give a model folder.")
        return demo
    try:
        for folder in (locations.models_dir / name, Path(name).expanduser()):
            if name.strip() and folder.is_dir():
                return folder.absolute()
        is_file = bool(name.strip()) and Path(name).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        # Too long for a path, a NUL in it, no home to expand: no such folder in any case.
        is_file = False
    if is_file:
        raise ModelNameError(f"{shown} is a file; --model takes the folder with config.json and *.safetensors.")
    remote = find_remote(name, locations)
    if remote is not None:
        if remote.places.folder.is_dir():
            return remote.places.folder.absolute()
        begun = "is not complete; go on" if remote.state == "partial" else "is not on this machine; get it"
        raise ModelNameError(f"{shown} {begun} with: hotslot models pull {shown}")
    raise ModelNameError(f"There is no model '{shown}'; --model takes 'demo' or a folder (see: hotslot models list).")


def read_catalogue() -> "tuple[CatalogModel, ...]":
    """The published checkpoints that this version knows."""
    # Brings numpy, which commands that name no model of the catalogue need not wait for.
    from runtime.downloads.catalog import read_catalog

    return read_catalog(asset_path(CATALOG))


def find_remote(name: str, locations: Locations) -> RemoteModel | None:
    """The model of the Hub that a name of the catalogue or a repository (owner/name) means; None if it is neither."""
    if not re.fullmatch(r"[\w.-]{1,96}(/[\w.-]{1,96})?", name, re.ASCII):
        return None
    for entry in read_catalogue():
        if name in (entry.name, entry.repo_id):
            return _of_catalogue(entry, locations)
    if not is_repo_id(name):
        return None
    return RemoteModel(name, ModelPlaces.of(locations.models_dir, name), "", "unknown", None, None)


def ask_hub(remote: RemoteModel, access: "HubAccess", stop: Event) -> RemoteModel:
    """The same with what the Hub says of it now. Raises HotslotError, also where no such model can be run here."""
    # Brings the HTTP client, which those who ask nothing need not wait for.
    from runtime.downloads.catalog import spec_of_config
    from runtime.downloads.preview import preview_repository

    preview = preview_repository(access, remote.places.repo_id, remote.revision, stop)
    spec = spec_of_config(preview.config, remote.name, preview.total_bytes)
    licence = preview.licence if remote.licence == "unknown" else remote.licence
    return replace(remote, licence=clean_line(licence), download_bytes=preview.total_bytes, spec=spec or remote.spec)


def require_remote(name: str, locations: Locations) -> RemoteModel:
    """The same, or ModelNameError."""
    remote = find_remote(name, locations)
    if remote is None and any(model.name == name for model in list_models(locations)):
        raise ModelNameError(
            f"{clean_line(name)} is here and was not downloaded by Hotslot, so it can't be fetched, checked or removed "
            f"by it; see: hotslot models info {clean_line(name)}"
        )
    if remote is None:
        raise ModelNameError(
            f"'{clean_line(name)}' is neither in the catalogue nor a repository like owner/name; "
            "see: hotslot models list"
        )
    return remote


def list_remotes(locations: Locations) -> list[RemoteModel]:
    """The whole catalogue, in its order."""
    return [_of_catalogue(entry, locations) for entry in read_catalogue()]


def list_partial(locations: Locations) -> list[str]:
    """Repositories whose download was begun and is not complete, by name."""
    try:
        folders = sorted(path for path in ModelPlaces(locations.models_dir, "a/b").staging.parent.iterdir())
    except OSError:
        return []
    names = [folder.name.replace("--", "/", 1) for folder in folders if folder.is_dir()]
    return [name for name in names if is_repo_id(name) and ModelPlaces(locations.models_dir, name).state() == "partial"]


def bytes_to_fetch(remote: RemoteModel) -> int:
    """What is not here yet of a model of the Hub; 0 where its size is not known."""
    if remote.state == "complete":
        return 0
    whole = remote.download_bytes or (remote.spec.weights.checkpoint_bytes if remote.spec is not None else 0)
    return max(0, whole - remote.places.present_bytes())


def remove_download(places: ModelPlaces, locations: Locations) -> int:
    """Remove a downloaded model and what was made of it; bytes that were freed. Raises DownloadError."""
    # Brings the file lock, and with it asyncio, which only those who remove a model need.
    from runtime.checkpoint.record_place import remove_record_files
    from runtime.downloads.removal import remove_model

    freed_bytes = remove_model(places)
    try:
        return freed_bytes + remove_record_files(locations.cache_dir, places.folder)
    except OSError as error:
        raise DownloadError(f"{error.filename}: can't be removed ({error.strerror})") from error


def _of_catalogue(entry: "CatalogModel", locations: Locations) -> RemoteModel:
    places = ModelPlaces.of(locations.models_dir, entry.repo_id)
    return RemoteModel(entry.name, places, entry.revision, entry.licence, entry.download_bytes, entry.spec)


def list_models(locations: Locations) -> list[LocalModel]:
    """The demo, then every folder in the models folder by name."""
    demo = asset_path(DEMO_MODEL)
    found = [describe_model(DEMO_NAME, demo)] if demo.is_dir() else []
    try:
        # Unfinished downloads lie in a hidden folder.
        folders = sorted(path for path in locations.models_dir.iterdir() if path.is_dir() and path.name[0] != ".")
    except OSError:
        folders = []
    return found + [describe_model(_name_of(folder), folder) for folder in folders]


def describe_model(name: str, folder: Path) -> LocalModel:
    """What the folder's headers say; a folder that can't be used is described by its problem."""
    # Brings numpy, which the commands that only resolve a name need not wait for.
    from runtime.checkpoint.facts import open_checkpoint
    from runtime.checkpoint.fingerprint import fingerprint

    try:
        checkpoint = open_checkpoint(folder)
        known_as = fingerprint(checkpoint.files)
        return LocalModel(name, folder, _read_licence(folder), checkpoint.spec, fingerprint=known_as)
    except HotslotError as error:
        return LocalModel(name, folder, _read_licence(folder), None, clean_line(str(error)))


def _name_of(folder: Path) -> str:
    """The repository that a downloaded folder came from, else what the folder is called."""
    try:
        manifest = Manifest.read(folder)
    except HotslotError:
        manifest = None
    return manifest.repo_id if manifest is not None else clean_line(folder.name)


def _read_licence(folder: Path) -> str:
    """The `license:` line of the model card's front matter."""
    try:
        with (folder / "README.md").open(encoding="utf-8", errors="replace") as card:
            head = card.read(4096)
    except OSError:
        return "unknown"
    front_matter = re.match(r"---\n(.*?)\n---", head, re.DOTALL)
    licence = re.search(r"^license:\s*(\S+)", front_matter[1], re.MULTILINE) if front_matter else None
    return clean_line(licence[1]) if licence else "unknown"
