"""Names of files in a repository: which are needed, and which could do harm.

The runtime reads the top of a model folder only, so no needed file lies in a folder of its own.
"""

import re
import unicodedata
from collections.abc import Iterable

from runtime.errors import DownloadError

INDEX_NAME = "model.safetensors.index.json"
SIDE_FILES = frozenset(
    {
        "config.json",
        "generation_config.json",
        "hf_quant_config.json",
        "tokenizer.json",
        "tokenizer_config.json",
        "chat_template.jinja",
        "README.md",
        "LICENSE",
        INDEX_NAME,
    }
)
"""Beside the weights: what the runtime reads, and what says whose the model is."""

_DEVICE = re.compile(r"(con|prn|aux|nul|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(\..*)?", re.IGNORECASE)
_REPO_ID = re.compile(r"[A-Za-z0-9_][\w.-]{0,95}/[A-Za-z0-9_][\w.-]{0,95}", re.ASCII)
_LONGEST_NAME_BYTES = 200
"""File systems take 255; the names of unfinished files are a little longer."""


def is_repo_id(name: str) -> bool:
    """Whether `name` can be owner/name of a repository; the Hub allows no '--' and no '..'."""
    return bool(_REPO_ID.fullmatch(name)) and not any(part in name for part in ("--", "..", ".git/"))


def is_needed(name: str) -> bool:
    """Whether the runtime has a use for the file."""
    return name in SIDE_FILES or ("/" not in name and name.endswith(".safetensors"))


def needed_names(repo_id: str, names: Iterable[str]) -> list[str]:
    """The needed ones of a listing, sorted. Raises DownloadError for a listing that no honest repository has."""
    needed: dict[str, str] = {}
    for name in names:
        _refuse_escape(repo_id, name)
        if is_needed(name):
            refuse_unsafe_name(repo_id, name)
            other = needed.setdefault(unicodedata.normalize("NFKC", name).casefold(), name)
            if other != name:
                raise DownloadError(f"{repo_id}: {other!a} and {name!a} would be one file; choose another repository")
    return sorted(needed.values())


def refuse_unsafe_name(repo_id: str, name: str) -> None:
    """Raises DownloadError unless `name` is one ordinary file of a folder on every system."""
    is_safe = (
        name.isprintable()
        and unicodedata.is_normalized("NFC", name)
        and not set(name) & set('/\\:<>"|?*')
        and name[:1] not in ("", ".", " ", "-")
        and name[-1:] not in (".", " ")
        and not _DEVICE.fullmatch(name)
        and len(name.encode("utf-8", "surrogatepass")) <= _LONGEST_NAME_BYTES
    )
    if not is_safe:
        raise DownloadError(f"{repo_id}: {name[:80]!a} is no name for a file here; choose another repository")


def _refuse_escape(repo_id: str, name: str) -> None:
    parts = name.replace("\\", "/").split("/")
    if ".." in parts or "" in parts or "\0" in name or re.match(r"[A-Za-z]:", name):
        raise DownloadError(
            f"{repo_id}: lists the file {name[:80]!a}, which points out of its folder; choose another repository"
        )
