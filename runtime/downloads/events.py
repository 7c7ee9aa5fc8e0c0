"""What a download tells while it runs: one frozen dataclass per event. Sizes are bytes."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RepositoryListed:
    """What will be fetched is known; `present_bytes` of it are here already."""

    repo_id: str
    commit: str
    num_files: int
    total_bytes: int
    present_bytes: int


@dataclass(frozen=True)
class DownloadProgressed:
    """How far it is, a few times a second. `seconds_left` is None where there is no speed to judge by."""

    done_bytes: int
    total_bytes: int
    bytes_per_second: float
    seconds_left: float | None
    num_files_done: int
    num_files: int
    is_elsewhere: bool = False
    """Another process downloads this model, and this is its progress."""


@dataclass(frozen=True)
class FileRetried:
    """An attempt failed and the next comes in `seconds`."""

    name: str
    reason: str
    seconds: float


@dataclass(frozen=True)
class FileFetched:
    """A file is complete and its hash is right."""

    name: str
    num_bytes: int


@dataclass(frozen=True)
class DownloadPaused:
    """Stopped on request; everything fetched is kept."""

    done_bytes: int
    total_bytes: int


@dataclass(frozen=True)
class DownloadFinished:
    """The model is complete and verified in `folder`. `fetched_bytes` came over the network in this run."""

    folder: Path
    commit: str
    fetched_bytes: int


@dataclass(frozen=True)
class FileChecked:
    """One file was read again; `problem` is empty if it is right."""

    name: str
    num_bytes: int
    problem: str = ""


@dataclass(frozen=True)
class VerifyProgressed:
    """How much has been read again."""

    done_bytes: int
    total_bytes: int


DownloadEvent = RepositoryListed | DownloadProgressed | FileRetried | FileFetched | DownloadPaused | DownloadFinished
VerifyEvent = FileChecked | VerifyProgressed
