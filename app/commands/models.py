"""`hotslot models list`: the models on this machine with what their headers say."""

import argparse
from typing import Any

from app.commands.context import CommandContext
from app.console import format_bytes
from app.library import LocalModel, list_models


def add_parser(commands: Any) -> None:
    parser = commands.add_parser("models", help="models on this machine", allow_abbrev=False)
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    listing = actions.add_parser("list", help="list them", allow_abbrev=False)
    listing.add_argument("--json", action="store_true", help="print one JSON list")
    listing.set_defaults(run=run_list)


def run_list(context: CommandContext, arguments: argparse.Namespace) -> int:
    context.tell_settings_notice()
    models = list_models(context.locations)
    if arguments.json:
        context.console.print_json([_to_json(model) for model in models])
        return 0
    header = ("name", "family", "size", "experts", "format", "context", "licence")
    context.console.print_table([header, *(_to_row(model) for model in models)], right=(2, 5))
    for model in models:
        if model.problem:
            context.console.notice(f"{model.name} can't be used: {model.problem}")
    context.console.notice(f"more models: put their folders into {context.locations.models_dir}")
    return 0


def _to_row(model: LocalModel) -> tuple[str, ...]:
    spec = model.spec
    if spec is None:
        return (model.name, "?", "?", "?", "?", "?", model.licence)
    return (
        model.name,
        spec.family,
        format_bytes(spec.weights.checkpoint_bytes),
        f"{spec.num_layers} x {spec.moe.num_experts}, top {spec.moe.num_experts_per_token}",
        spec.weights.expert_format,
        str(spec.max_context_tokens),
        model.licence,
    )


def _to_json(model: LocalModel) -> dict[str, Any]:
    facts: dict[str, Any] = {
        "name": model.name,
        "path": str(model.path),
        "licence": model.licence,
        "is_usable": model.spec is not None,
        "problem": model.problem,
    }
    if model.spec is not None:
        spec = model.spec
        facts |= {
            "family": spec.family,
            "checkpoint_bytes": spec.weights.checkpoint_bytes,
            "layers": spec.num_layers,
            "experts": spec.moe.num_experts,
            "experts_per_token": spec.moe.num_experts_per_token,
            "expert_format": spec.weights.expert_format,
            "record_bytes": spec.weights.record_bytes,
            "context_tokens": spec.max_context_tokens,
        }
    return facts
