"""`hotslot models`: what is on this machine and in the catalogue, what fits; get, check and remove a model."""

import argparse
import sys
from pathlib import Path
from typing import Any

from app.commands.context import CommandContext
from app.commands.described_machine import described_machine, judged_disk_bytes
from app.commands.models_fetch import run_pull, run_verify
from app.commands.options import add_disk_option, add_memory_options
from app.console import format_bytes
from app.errors import ModelNameError
from app.figures import tok_s_text
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
    remove_download,
    require_remote,
    resolve_model,
)
from runtime.errors import UsageError
from runtime.spec import ModelSpec

_NAME_HELP = "a name in the catalogue, or a repository like owner/name"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = _add_action(actions, "list", run_list, "list what is here and what is in the catalogue, with what fits")
    add_memory_options(listing)
    add_disk_option(listing)
    _add_action(actions, "info", run_info, "all that is known of one model", "'demo', a folder, or " + _NAME_HELP)
    pull = _add_action(actions, "pull", run_pull, "download a model, or go on with it", _NAME_HELP)
    pull.add_argument("--revision", metavar="R", default=None, help="a branch, tag or commit; default: the newest")
    verify = _add_action(actions, "verify", run_verify, "read a model again and check every hash", _NAME_HELP)
    verify.add_argument("--no-fetch", action="store_true", help="only name what is bad; do not fetch it again")
    remove = _add_action(actions, "rm", run_remove, "remove a downloaded model", _NAME_HELP)
    remove.add_argument("--yes", action="store_true", help="do not ask")


def run_list(context: CommandContext, arguments: argparse.Namespace) -> int:
    context.tell_settings_notice()
    models = list_models(context.locations)
    remotes = [remote for remote in list_remotes(context.locations) if remote.state != "complete"]
    judge = _Judge(context, arguments.disk)
    if arguments.json:
        listed = [_local_json(model, judge) for model in models] + [_remote_json(remote, judge) for remote in remotes]
        context.console.print_json(listed)
        return 0
    header = ("name", "family", "size", "experts", "format", "context", "fits", "licence")
    context.console.print_table([header, *(_local_row(model, judge) for model in models)], right=(2, 5))
    context.console.print("")
    remote_header = ("catalogue", "repository", "download", "here", "fits", "licence")
    context.console.print_table([remote_header, *(_remote_row(remote, judge) for remote in remotes)], right=(2,))
    for model in models:
        if model.problem:
            context.console.notice(f"{model.name} can't be used: {model.problem}")
    for name in list_partial(context.locations):
        context.console.notice(f"{name} is not complete; go on with: hotslot models pull {name}")
    context.console.notice(
        f"get one with: hotslot models pull NAME; other models: put their folders into {context.locations.models_dir}"
    )
    return 0


def run_info(context: CommandContext, arguments: argparse.Namespace) -> int:
    context.tell_settings_notice()
    judge = _Judge(context)
    facts = _info(context, arguments.name, judge)
    if arguments.json:
        context.console.print_json(facts)
    else:
        rows = [(key.replace("_", " "), _shown(key, value)) for key, value in facts.items()]
        context.console.print_table(rows)
    return 0


def run_remove(context: CommandContext, arguments: argparse.Namespace) -> int:
    context.tell_settings_notice()
    remote = require_remote(arguments.name, context.locations)
    if remote.places.folder.is_dir() and not remote.places.is_downloaded:
        raise UsageError(f"{remote.places.folder} was not downloaded by Hotslot; delete that folder yourself")
    num_bytes = remote.places.present_bytes()
    if not num_bytes and remote.state == "absent":
        raise ModelNameError(f"{remote.places.repo_id} is not on this machine; see: hotslot models list")
    if not arguments.yes and not _is_confirmed(context, f"Remove {remote.places.repo_id}, {format_bytes(num_bytes)}?"):
        context.console.notice("nothing was removed")
        return 1
    freed_bytes = remove_download(remote.places, context.locations)
    if arguments.json:
        context.console.print_json({"name": remote.name, "repo_id": remote.places.repo_id, "freed_bytes": freed_bytes})
    else:
        context.console.print(f"removed {remote.places.repo_id}: {format_bytes(freed_bytes)} freed")
    return 0


def _add_action(actions: Any, name: str, run: Any, text: str, name_help: str = "") -> argparse.ArgumentParser:
    action: argparse.ArgumentParser = actions.add_parser(name, help=text, allow_abbrev=False)
    if name_help:
        action.add_argument("name", metavar="M", help=name_help)
    action.add_argument("--json", action="store_true", help="print JSON")
    action.set_defaults(run=run)
    return action


class _Judge:
    """Judges for this machine as it is now, or for the one that the options describe; looked at once."""

    def __init__(self, context: CommandContext, disk: str | None = None) -> None:
        options = context.settings.engine_options(Path())
        self.disk_free_bytes = judged_disk_bytes(options, disk, context.locations.models_dir)
        self._judge = FitJudge(
            described_machine(options),
            options,
            disk_free_bytes=self.disk_free_bytes,
            cache_dir=context.locations.cache_dir,
        )

    def local(self, model: LocalModel) -> Fit | None:
        return None if model.spec is None else self._judge.judge(model.spec, fingerprint=model.fingerprint)

    def remote(self, remote: RemoteModel) -> Fit | None:
        return None if remote.spec is None else self._judge.judge(remote.spec, bytes_to_fetch(remote))


def _fit_text(fit: Fit | None) -> str:
    if fit is None:
        return "?"
    if not fit.fits or fit.speed is None:
        return f"no, {fit.shortage}" if fit.shortage else "no"
    return f"{fit.verdict}, {fit.num_slots} slots, about {tok_s_text(fit.speed.tok_s)}"


def _fit_facts(fit: Fit | None) -> dict[str, Any]:
    if fit is None:
        return {
            "fits": None,
            "fit_verdict": None,
            "fit_reason": "its shapes are not known before its config is here",
        }
    return {
        "fits": fit.fits,
        "fit_reason": fit.reason,
        "fit_shortage": fit.shortage,
        "fit_verdict": fit.verdict,
        "fit_slots": fit.num_slots,
        "fit_total_bytes": fit.total_bytes,
        "to_fetch_bytes": fit.to_fetch_bytes,
        "predicted_tok_s": None if fit.speed is None else round(fit.speed.tok_s, 2),
        "predicted_why": "" if fit.speed is None else fit.speed.why,
    }


def _info(context: CommandContext, name: str, judge: _Judge) -> dict[str, Any]:
    remote = None if name == DEMO_NAME else find_remote(name, context.locations)
    if remote is None or (remote.places.folder.is_dir() and remote.places.finished_manifest() is None):
        return _local_json(describe_model(name, resolve_model(name, context.locations)), judge)
    facts = _remote_json(remote, judge)
    manifest = remote.places.finished_manifest()
    if manifest is not None:
        facts |= _local_json(describe_model(remote.name, remote.places.folder), judge)
        facts |= {"commit": manifest.commit, "state": remote.state, "num_files": len(manifest.files)}
    return facts


def _local_row(model: LocalModel, judge: _Judge) -> tuple[str, ...]:
    spec = model.spec
    if spec is None:
        return (model.name, "?", "?", "?", "?", "?", "?", model.licence)
    return (
        model.name,
        spec.family,
        format_bytes(spec.weights.checkpoint_bytes),
        f"{spec.num_layers} x {spec.moe.num_experts}, top {spec.moe.num_experts_per_token}",
        spec.weights.expert_format,
        str(spec.max_context_tokens),
        _fit_text(judge.local(model)),
        model.licence,
    )


def _remote_row(remote: RemoteModel, judge: _Judge) -> tuple[str, ...]:
    size = "?" if remote.download_bytes is None else format_bytes(remote.download_bytes)
    here = format_bytes(remote.places.present_bytes()) if remote.state == "partial" else "no"
    return (remote.name, remote.places.repo_id, size, here, _fit_text(judge.remote(remote)), remote.licence)


def _local_json(model: LocalModel, judge: _Judge) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": model.name,
        "state": "complete" if model.spec is not None else "unusable",
        "path": str(model.path),
        "licence": model.licence,
        "is_usable": model.spec is not None,
        "problem": model.problem,
    }
    return facts | _spec_facts(model.spec) | _fit_facts(judge.local(model))


def _remote_json(remote: RemoteModel, judge: _Judge) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": remote.name,
        "repo_id": remote.places.repo_id,
        "state": remote.state,
        "path": str(remote.places.folder) if remote.places.folder.is_dir() else None,
        "licence": remote.licence,
        "is_usable": False,
        "problem": "",
        "revision": remote.revision,
        "download_bytes": remote.download_bytes,
        "present_bytes": remote.places.present_bytes(),
        "disk_free_bytes": judge.disk_free_bytes,
    }
    return facts | _spec_facts(remote.spec) | _fit_facts(judge.remote(remote))


def _spec_facts(spec: ModelSpec | None) -> dict[str, Any]:
    if spec is None:
        return {}
    return {
        "family": spec.family,
        "checkpoint_bytes": spec.weights.checkpoint_bytes,
        "layers": spec.num_layers,
        "experts": spec.moe.num_experts,
        "experts_per_token": spec.moe.num_experts_per_token,
        "expert_format": spec.weights.expert_format,
        "record_bytes": spec.weights.record_bytes,
        "context_tokens": spec.max_context_tokens,
    }


def _shown(key: str, value: Any) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format_bytes(value) if key.endswith("_bytes") else str(value)


def _is_confirmed(context: CommandContext, question: str) -> bool:
    if not sys.stdin.isatty():
        raise UsageError("nobody can be asked here; add --yes to remove without asking")
    context.console.remark(f"{question} Type yes to remove it.")
    return sys.stdin.readline().strip().lower() in ("y", "yes")
