"""`hotslot bench load`: how fast a model is loaded, against what its disk gives."""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from app.commands.context import CommandContext
from app.commands.options import add_memory_options, add_model_option
from app.console import Console, format_bytes
from app.errors import BenchError
from runtime.errors import EngineError

if TYPE_CHECKING:
    from app.commands.load_figures import LoadFigures


def add_parser(benches: Any) -> None:
    parser = benches.add_parser(
        "load", help="a start with an empty page cache, against the disk's own rate", allow_abbrev=False
    )
    add_model_option(parser)
    parser.add_argument("--rounds", type=int, default=2, metavar="N", help="starts that are measured, 2 by default")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_memory_options(parser)
    parser.set_defaults(run=run)


def run(context: CommandContext, arguments: argparse.Namespace) -> int:
    # Here, not above: no other command should wait for what it imports.
    from app.commands.load_figures import measure

    context.tell_settings_notice()
    if arguments.rounds < 1:
        raise BenchError(f"--rounds {arguments.rounds} measures nothing; use 1 or more.")
    options = context.settings.engine_options(context.model_path())
    try:
        figures = measure(options, arguments.rounds, context.console.progress)
    except EngineError as error:
        raise BenchError(f"The bench could not run: {error}") from error
    if arguments.json:
        context.console.print_json({**asdict(figures), "ratio": figures.ratio})
    else:
        _print(context.console, figures)
    return 0


def _print(console: Console, figures: "LoadFigures") -> None:
    rows = [(phase, f"{seconds:.2f} s") for phase, seconds in figures.seconds.items()]
    rows += [
        ("weights", format_bytes(figures.weights_bytes)),
        ("read while loading", f"{figures.read_rate / 1e9:.2f} GB/s"),
        ("the disk alone", f"{figures.disk_rate / 1e9:.2f} GB/s"),
        ("ratio", f"{figures.ratio:.2f}"),
    ]
    console.print_table(rows, right=(1,))
    if not figures.is_verified:
        console.notice(
            "Not verified: the kernel counted fewer bytes from the disk than there are weights, because experts stay "
            "on the disk, or because the page cache could not be emptied."
        )
