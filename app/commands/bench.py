"""`hotslot bench policy`: what recorded routing would have missed with other slots and other policies."""

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from app.commands import bench_load, bench_runtime
from app.commands.context import CommandContext
from app.console import Console
from app.sanitize import clean_line

if TYPE_CHECKING:
    from runtime.experts.trace import RoutingTrace

POLICY_NAMES = ("lru", "rule", "belady")
SLOT_SHARES = (1 / 8, 1 / 4, 3 / 8, 1 / 2, 3 / 4)
"""Slot counts where none is given, as shares of all experts."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    benches = parser.add_subparsers(dest="bench", metavar="BENCH", required=True)
    policy = benches.add_parser("policy", help="replay recorded routing", allow_abbrev=False)
    policy.add_argument("traces", metavar="TRACE", nargs="+", help="a file of hotslot ask --trace")
    # Not the names of the engine's own settings, which hold one value each.
    policy.add_argument(
        "--slots", dest="slot_counts", type=_list_of(_positive), metavar="N,N", help="numbers of expert slots"
    )
    policy.add_argument(
        "--policy",
        dest="policies",
        type=_list_of(_policy),
        default=POLICY_NAMES,
        metavar="P,P",
        help=f"of {', '.join(POLICY_NAMES)}; belady knows the future and is the bound",
    )
    policy.add_argument(
        "--joined", action="store_true", help="all traces in one engine, one after the other; otherwise one each"
    )
    policy.add_argument("--json", action="store_true", help="print one JSON object")
    policy.set_defaults(run=run_policy)
    bench_load.add_parser(benches)
    bench_runtime.add_parsers(benches)


@dataclass(frozen=True)
class Replayed:
    """What decode counted with these slots and this policy, over all traces."""

    num_slots: int
    policy: str
    num_routed: int
    num_missed: int

    @property
    def hit_rate(self) -> float | None:
        """1 - missed / routed; None where nothing was routed."""
        return 1 - self.num_missed / self.num_routed if self.num_routed else None


def run_policy(context: CommandContext, arguments: argparse.Namespace) -> int:
    # Numpy takes a tenth of a second to import, which no other command should pay for.
    from runtime.experts.replay import check_same_model, count_distinct
    from runtime.experts.trace import read_trace

    context.tell_settings_notice()
    traces = [read_trace(Path(name)) for name in arguments.traces]
    facts = check_same_model(traces)
    slot_counts = arguments.slot_counts or tuple(round(share * facts.num_all_experts) for share in SLOT_SHARES)
    results = []
    for num_slots in slot_counts:
        for policy in arguments.policies:
            context.console.progress(f"Replaying {policy} with {num_slots} slots")
            results.append(_replay(traces, policy, num_slots, arguments.joined))
    if arguments.json:
        context.console.print_json(
            {
                "model": facts.model,
                "experts": facts.num_all_experts,
                "experts_routed": count_distinct(traces),
                "joined": arguments.joined,
                "traces": [{"file": trace.name, "steps": trace.num_steps} for trace in traces],
                "results": [_to_json(result) for result in results],
            }
        )
    else:
        _print_results(context.console, results, facts.num_all_experts)
        num_steps = sum(trace.num_steps for trace in traces)
        begins = "in one engine" if arguments.joined else "each from empty slots"
        context.console.notice(f"{facts.model}: {num_steps} decode steps, traces: {len(traces)}, {begins}")
    return 0


def _replay(traces: "list[RoutingTrace]", policy: str, num_slots: int, is_joined: bool) -> Replayed:
    from runtime.experts.replay import replay  # As above.

    sessions = [traces] if is_joined else [[trace] for trace in traces]
    counted = [replay(session, policy, num_slots) for session in sessions]
    return Replayed(
        num_slots,
        policy,
        sum(counters.num_routed for counters in counted),
        sum(counters.num_missed for counters in counted),
    )


def _print_results(console: Console, results: list[Replayed], num_all_experts: int) -> None:
    """Hit rates: a row per slot count, a column per policy."""
    policies = list(dict.fromkeys(result.policy for result in results))
    rows = [("slots", "of all", *policies)]
    for num_slots in dict.fromkeys(result.num_slots for result in results):
        rates = {result.policy: result.hit_rate for result in results if result.num_slots == num_slots}
        cells = ("-" if (rate := rates[policy]) is None else f"{rate:.1%}" for policy in policies)
        rows.append((str(num_slots), f"{num_slots / num_all_experts:.1%}", *cells))
    console.print_table(rows, right=range(len(rows[0])))


def _to_json(result: Replayed) -> dict[str, Any]:
    return {
        "slots": result.num_slots,
        "policy": result.policy,
        "routed": result.num_routed,
        "missed": result.num_missed,
        "hit_rate": result.hit_rate,
    }


def _list_of(parse: Callable[[str], Any]) -> Callable[[str], tuple[Any, ...]]:
    """An argparse type: values between commas, each once."""
    return lambda text: tuple(dict.fromkeys(parse(part.strip()) for part in text.split(",")))


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) < 1 << 31):
        raise argparse.ArgumentTypeError(f"must be whole numbers like 96,192, not '{clean_line(text)}'")
    return int(text)


def _policy(text: str) -> str:
    if text not in POLICY_NAMES:
        raise argparse.ArgumentTypeError(f"must be of {', '.join(POLICY_NAMES)}, not '{clean_line(text)}'")
    return text
