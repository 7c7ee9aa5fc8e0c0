"""`hotslot models pull` and `verify`: run a download and show how it goes."""

import argparse
from collections.abc import Iterator
from threading import Event
from typing import Any

from app.commands.context import CommandContext
from app.console import format_bytes
from app.figures import seconds_text
from app.library import RemoteModel, describe_model, require_remote
from app.model_jobs import mend
from app.model_words import event_text
from runtime.downloads.events import (
    DownloadEvent,
    DownloadFinished,
    DownloadProgressed,
    FileChecked,
    FileRetried,
    RepositoryListed,
)
from runtime.downloads.verify import verify_model
from runtime.errors import DownloadError

_REMARK_SHARE = 10
"""Where no line can be rewritten, progress is said every so many percent."""


def run_pull(context: CommandContext, arguments: argparse.Namespace) -> int:
    context.tell_settings_notice()
    remote = require_remote(arguments.name, context.locations)
    revision = remote.revision if arguments.revision is None else arguments.revision
    finished = _fetch(context, remote, _download(remote, revision))
    model = describe_model(remote.name, finished.folder)
    if model.problem:
        context.console.notice(f"{remote.name} is complete but can't be used: {model.problem}")
    if arguments.json:
        context.console.print_json(_finished_json(remote, finished) | {"is_usable": not model.problem})
    else:
        context.console.print(f"{remote.places.repo_id} is complete: {finished.folder}")
    return 0


def run_verify(context: CommandContext, arguments: argparse.Namespace) -> int:
    context.tell_settings_notice()
    remote = require_remote(arguments.name, context.locations)
    bad = _find_bad(context, remote)
    repaired = bool(bad) and not arguments.no_fetch
    if repaired:
        _fetch(context, remote, _mend(remote, bad))
    if arguments.json:
        context.console.print_json(
            {
                "name": remote.name,
                "repo_id": remote.places.repo_id,
                "bad": [{"file": file.name, "problem": file.problem} for file in bad],
                "is_repaired": repaired,
                "is_complete": repaired or not bad,
            }
        )
    elif not bad or repaired:
        context.console.print(f"{remote.places.repo_id}: every file is right" + (" now" if bad else ""))
    else:
        context.console.notice(f"fetch what is bad with: hotslot models verify {remote.name}")
    return 1 if bad and not repaired else 0


def _fetch(context: CommandContext, remote: RemoteModel, events: Iterator[DownloadEvent]) -> DownloadFinished:
    """Show a download to its end. Raises DownloadError; an interrupt stops it and keeps what is there."""
    shown = _Shown(context)
    for event in events:
        shown.show(event)
        if isinstance(event, DownloadFinished):
            return event
    raise DownloadError(f"{remote.places.repo_id}: the download was stopped; pull again to go on")


def _download(remote: RemoteModel, revision: str) -> Iterator[DownloadEvent]:
    # Brings the HTTP client, which the other commands need not wait for.
    from runtime.downloads.download import Download
    from runtime.downloads.hub import HubAccess

    return Download(remote.places, HubAccess.from_environment(), revision).run(Event())


def _mend(remote: RemoteModel, bad: list[FileChecked]) -> Iterator[DownloadEvent]:
    # Brings the HTTP client, too.
    from runtime.downloads.hub import HubAccess

    return mend(remote, bad, HubAccess.from_environment(), Event())


class _Shown:
    """Progress on stderr: one line that is rewritten on a terminal, a few lines elsewhere."""

    def __init__(self, context: CommandContext) -> None:
        self._console = context.console
        self._said_share = -1
        self._is_listed = False

    def show(self, event: DownloadEvent) -> None:
        if isinstance(event, RepositoryListed):
            self._is_listed = True
            self._console.remark(
                f"{event.repo_id} at {event.commit[:8]}: {event.num_files} files, {format_bytes(event.total_bytes)}, "
                f"{format_bytes(event.present_bytes)} of it here"
            )
        elif isinstance(event, FileRetried):
            self._console.remark(f"{event.name}: {event.reason}; next try in {seconds_text(event.seconds)}")
        elif isinstance(event, DownloadProgressed) and (self._is_listed or event.is_elsewhere):
            self._show_progress(event)

    def _show_progress(self, event: DownloadProgressed) -> None:
        text = _progress_text(event)
        self._console.progress(text)
        share = 100 * event.done_bytes // max(1, event.total_bytes) // _REMARK_SHARE
        if share > self._said_share and not self._console.is_live:
            self._said_share = share
            self._console.remark(text)


def _progress_text(event: DownloadProgressed) -> str:
    text = event_text(event)
    return f"another Hotslot downloads it: {text}" if event.is_elsewhere else text


def _find_bad(context: CommandContext, remote: RemoteModel) -> list[FileChecked]:
    bad = []
    for event in verify_model(remote.places):
        if not isinstance(event, FileChecked):
            context.console.progress(f"{format_bytes(event.done_bytes)} of {format_bytes(event.total_bytes)} read")
        elif event.problem:
            bad.append(event)
            context.console.notice(f"{event.name} {event.problem}")
    context.console.end_line()
    return bad


def _finished_json(remote: RemoteModel, finished: DownloadFinished) -> dict[str, Any]:
    return {
        "name": remote.name,
        "repo_id": remote.places.repo_id,
        "state": remote.state,
        "path": str(finished.folder),
        "commit": finished.commit,
        "fetched_bytes": finished.fetched_bytes,
        "present_bytes": remote.places.present_bytes(),
    }
