"""`hotslot bench overlap`, `decode` and `side-calls`: run in a process of their own, which has torch and the GPU."""

import argparse
import json
import subprocess
import sys
import tempfile
from typing import Any

from app.commands.context import CommandContext
from app.console import Console
from app.errors import BenchError

_OVERLAP_OPTIONS = {
    "--layers": ("N", "MoE layers, 4 by default"),
    "--bench-slots": ("N", "expert slots, 1,650 by default"),
    "--rows": ("N", "sequences decoded together, 1 to 4"),
    "--misses": ("N,N", "missing experts per layer and step, several to compare"),
    "--replays": ("N", "replays of one measure"),
    "--rounds": ("N", "rounds in which the levels take turns"),
}
_DECODE_OPTIONS = {
    "--layers": ("N", "decoder layers, 48 by default"),
    "--bench-slots": ("N", "expert slots, 1,650 by default"),
    "--hit-rate": ("X", "share of routed experts that are resident, 0.57 by default"),
    "--rows": ("N,N", "sequences decoded together, several to compare"),
    "--steps": ("N", "steps of one measure"),
    "--rounds": ("N", "rounds in which the levels take turns"),
    "--position": ("N", "tokens before the one that is decoded"),
    "--banks": ("N", "host banks of experts; fewer than layers are shared"),
    "--policies": ("P,P", "of lru, rule"),
    "--levels": ("L,L", "of off, shared, resident"),
    "--dense": ("D,D", "of bf16, fp8"),
}
_SIDE_CALL_OPTIONS = {
    "--layers": ("N", "decoder layers, 48 by default"),
    "--bench-slots": ("N", "expert slots, 1,650 by default"),
    "--hit-rate": ("X", "share of the chat's routed experts that are resident, 0.57 by default"),
    "--banks": ("N", "host banks of experts; fewer than layers are shared"),
    "--seconds": ("S", "with side calls, 60 by default"),
    "--seconds-alone": ("S", "before, and once more after, 10 by default"),
    "--prompt-tokens": ("N", "of a side call, 300 by default"),
    "--answer-tokens": ("N", "of a side call, 60 by default"),
    "--chunk-tokens": ("N", "of one prefill step"),
    "--trace-tokens": ("N", "length of the routing trace, which repeats"),
}


def add_parsers(benches: Any) -> None:
    """All benches. Options go to the bench as they are; it refuses what it can't use."""
    for name, help_text, options in (
        ("overlap", "what overlap saves per MoE layer, on a GPU", _OVERLAP_OPTIONS),
        ("decode", "a decode step at full size, and its distance to the floor, on a GPU", _DECODE_OPTIONS),
        ("side-calls", "a chat beside three side calls at full size, on a GPU", _SIDE_CALL_OPTIONS),
    ):
        parser = benches.add_parser(name, help=help_text, allow_abbrev=False)
        for option, (metavar, option_help) in options.items():
            parser.add_argument(option, metavar=metavar, help=option_help)
        parser.add_argument("--tiny", action="store_true", help="a tiny model, to see the bench run; on a CPU too")
        parser.add_argument("--json", action="store_true", help="print one JSON object")
        parser.set_defaults(run=run, bench_options=tuple(options))


def run(context: CommandContext, arguments: argparse.Namespace) -> int:
    context.tell_settings_notice()
    report = _run_bench(arguments, context.console)
    if arguments.json:
        context.console.print_json(report)
    elif arguments.bench == "overlap":
        _print_overlap(context.console, report)
    elif arguments.bench == "decode":
        _print_decode(context.console, report)
    else:
        _print_side_calls(context.console, report)
    return 0


def _run_bench(arguments: argparse.Namespace, console: Console) -> dict[str, Any]:
    """The report of the bench's process, whose progress is told as it comes. Raises BenchError with its last line."""
    command = [sys.executable, "-m", f"runtime.benches.{arguments.bench.replace('-', '_')}"]
    for option in arguments.bench_options:
        value = getattr(arguments, option.removeprefix("--").replace("-", "_"))
        if value is not None:
            command += [option.replace("--bench-", "--"), value]
    if arguments.tiny:
        command.append("--tiny")
    with tempfile.TemporaryFile("w+") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        last_line = ""
        for line in process.stderr:
            last_line = line.strip() or last_line
            console.progress(last_line)
        if process.wait():
            raise BenchError(f"The bench could not run: {last_line or f'it ended with status {process.returncode}'}")
        output.seek(0)
        report: dict[str, Any] = json.load(output)
    return report


def _print_overlap(console: Console, report: dict[str, Any]) -> None:
    """A row per number of misses: microseconds per layer at every level, and what is saved."""
    levels = list(report["by_misses"][0]["us_per_layer"])
    rows = [
        ("misses", *(f"{level}, us" for level in levels), *(f"saved by {level}" for level in levels[1:]), "same bits")
    ]
    for result in report["by_misses"]:
        saved = result.get("saved_us_per_layer", {})
        times = [f"{result['us_per_layer'][level]:.1f}" for level in levels]
        times += [f"{saved[level]:.1f}" for level in levels[1:]]
        rows.append((f"{result['misses_counted']:.1f}", *times, "yes" if result["bitwise_identical"] else "NO"))
    console.print_table(rows, right=range(len(rows[0]) - 1))
    console.notice(f"{report['device']}: {report['geometry']['layers']} layers, {report['slots']} slots, per MoE layer")


def _print_decode(console: Console, report: dict[str, Any]) -> None:
    """A row per dense precision, policy, number of rows and level."""
    rows = [("dense", "policy", "rows", "overlap", "ms/token", "tok/s", "hit rate", "of floor")]
    for arm in report["arms"]:
        ratio = f"{arm['ratio_to_floor']:.2f}" if "ratio_to_floor" in arm else "-"
        figures = (f"{arm['ms_per_token']:.2f}", f"{arm['tok_s']:.1f}", f"{arm['hit_rate']:.1%}", ratio)
        rows.append((arm["dense"], arm["policy"], str(arm["rows"]), arm["overlap"], *figures))
    console.print_table(rows, right=(2, 4, 5, 6, 7))
    shared = f", {report['host_banks']} host banks shared by all layers" if report["host_banks_are_shared"] else ""
    console.notice(f"{report['device']}: {report['layers']} layers of random weights, {report['slots']} slots{shared}")


def _print_side_calls(console: Console, report: dict[str, Any]) -> None:
    """What the chat keeps, what the side calls take, and what it costs each to wait."""
    latency_s = report["side_call_latency_s_median"]
    rows = [
        ("chat alone, before and after", " / ".join(f"{rate:.1f} tok/s" for rate in report["chat_alone_tok_s"])),
        ("chat beside side calls", f"{report['chat_beside_tok_s']:.1f} tok/s"),
        ("of its speed alone", f"{report['ratio']:.1%}"),
        ("the same, prefill left out", f"{report['ratio_outside_prefill']:.1%}"),
        ("side calls' share of step time", f"{report['share_of_step_time']:.1%} of {report['share_wanted']:.0%}"),
        ("worst gap of the chat", f"{report['worst_gap_ms']:.0f} ms"),
        ("chunks between two tokens, at most", str(report["most_chunks_between_tokens"])),
        ("longest chunk", f"{report['longest_chunk_ms']:.0f} ms"),
        (f"a chunk of {report['chunk_tokens']:,} tokens by itself", f"{report['whole_chunk_ms']:.0f} ms"),
        ("side call, from asking to its end", "none ended" if latency_s is None else f"{latency_s:.1f} s"),
    ]
    console.print_table(rows, right=(1,))
    console.notice(f"{report['device']}: {report['layers']} layers of random weights, {report['slots']} slots")
