"""Which models there are on this machine, and which folder a model's name means. Downloads nothing."""

import re
from dataclasses import dataclass
from pathlib import Path

from app.errors import ModelNameError
from app.locations import DEMO_MODEL, Locations, asset_path
from app.sanitize import clean_line
from runtime.errors import HotslotError
from runtime.spec import ModelSpec

DEMO_NAME = "demo"


@dataclass(frozen=True)
class LocalModel:
    """A model folder as it lies on the disk; `spec` is None where `problem` says why it can't be used."""

    name: str
    path: Path
    licence: str
    spec: ModelSpec | None
    problem: str = ""


def resolve_model(name: str, locations: Locations) -> Path:
    """The folder of `demo`, of a name in the models folder, or of a path. Raises ModelNameError; reads no weights."""
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
    if re.fullmatch(r"[\w.-]+/[\w.-]+", name):
        raise ModelNameError(
            f"There is no folder {shown}; download that repository yourself and give its folder to --model."
        )
    raise ModelNameError(f"There is no model '{shown}'; --model takes 'demo' or a folder (see: hotslot models list).")


def list_models(locations: Locations) -> list[LocalModel]:
    """The demo, then every folder in the models folder by name."""
    demo = asset_path(DEMO_MODEL)
    found = [describe_model(DEMO_NAME, demo)] if demo.is_dir() else []
    try:
        folders = sorted(path for path in locations.models_dir.iterdir() if path.is_dir())
    except OSError:
        folders = []
    return found + [describe_model(clean_line(folder.name), folder) for folder in folders]


def describe_model(name: str, folder: Path) -> LocalModel:
    """What the folder's headers say; a folder that can't be used is described by its problem."""
    # Brings numpy, which the commands that only resolve a name need not wait for.
    from runtime.checkpoint.facts import read_facts

    try:
        return LocalModel(name, folder, _read_licence(folder), read_facts(folder))
    except HotslotError as error:
        return LocalModel(name, folder, _read_licence(folder), None, clean_line(str(error)))


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
