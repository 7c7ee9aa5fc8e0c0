"""Times the kernels of the routed experts at the flagship's geometry beside the floors of the same run.

Every figure is a median of graph replays by device events. An iteration uses experts that no other one uses, of more
slots and host memory than any cache holds. A step that fails is reported and the others go on. Markdown tables.
"""

import argparse
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

# The repository's own packages, wherever the script is started from.
import torch  # noqa: E402
import triton  # noqa: E402

from runtime.kernels.triton_ops import copying, experts, router, slots  # noqa: E402
from scripts.kernel_bench.floors import Floors, measure_floors  # noqa: E402
from scripts.kernel_bench.layer import ExpertMemory, Geometry, Layer, SlotMap, work_lists  # noqa: E402
from scripts.kernel_bench.timing import Timer, kernel_medians  # noqa: E402

NUM_MISSED = (0, 1, 4, 10)


class Bench:
    """All steps over one memory."""

    def __init__(self, geometry: Geometry, device: torch.device, num_rounds: int, num_iterations: int) -> None:
        self.timer = Timer(device, num_rounds)
        self.memory = ExpertMemory(geometry, device)
        self.maps = {policy: SlotMap(self.memory, policy) for policy in ("lru", "rule")}
        self.floors: Floors | None = None
        self.copy_alone: dict[int, float] = {}
        self._num_iterations = num_iterations
        self._num_choices = geometry.num_choices
        self.num_missed = [min(number, self._num_choices) for number in NUM_MISSED]

    def measure_floors(self) -> None:
        self.floors = measure_floors(self.timer, self.memory, self.num_missed)
        print("\n".join(self.floors.lines(self.memory)))

    def parts(self) -> None:
        """Kernels alone."""
        slot_map = self.maps["lru"]
        layer, routings = Layer(self.memory, slot_map), slot_map.routings(self._num_iterations, 1, 0)
        ids_and_weights = [layer.route(routing) for routing in routings]
        slot_map.restore()
        slot_ids = [layer.ensure(r, ids)[0] for r, (ids, _) in zip(routings, ids_and_weights, strict=True)]
        rows = [layer.compute(r, s) for r, s in zip(routings, slot_ids, strict=True)]
        shared = torch.randn_like(routings[0].hidden)
        print("| kernel alone | µs |\n|---|---|")
        self._print_time("top-k", [lambda r=r: layer.route(r) for r in routings])
        self._print_time(
            "experts", [lambda r=r, s=s: layer.compute(r, s) for r, s in zip(routings, slot_ids, strict=True)]
        )
        nowhere = torch.full_like(slot_ids[0], -1)
        self._print_time("experts, no route has a slot", [lambda r=r: layer.compute(r, nowhere) for r in routings])
        combined = [(x, weights) for x, (_, weights) in zip(rows, ids_and_weights, strict=True)]
        self._print_time("combine", [lambda x=x, w=w: router.combine_routes(x, w, shared) for x, w in combined])

    def ensure(self) -> None:
        """By policy and misses."""
        print("| ensure, µs | " + " | ".join(f"{number} misses" for number in self.num_missed) + " |")
        print("|---" * (len(self.num_missed) + 1) + "|")
        for policy in self.maps:
            times = [self._time_ensure(policy, number) for number in self.num_missed]
            print(f"| {policy} | " + " | ".join(f"{us:.2f}" for us in times) + " |")

    def copy(self) -> None:
        """Beside memcpy of the same records."""
        print("| miss copy alone | µs | GB/s | memcpy, µs | share of memcpy's speed |\n|---|---|---|---|---|")
        for number in self.num_missed:
            self.copy_alone[number] = us = self._time_copy(number)
            if number:
                memcpy = self.floors.memcpy_us[number] if self.floors else float("nan")
                gigabytes = number * self.memory.geometry.layout.record_bytes / us / 1e3
                print(f"| {number} | {us:.1f} | {gigabytes:.1f} | {memcpy:.1f} | {memcpy / us:.3f} |")
            else:
                print(f"| 0 | {us:.2f} | | | |")

    def layer(self) -> None:
        """From top-k to the summed routes."""
        print("| policy, rows, misses | floor, µs | layer, µs | layer - copy alone |\n|---|---|---|---|")
        cases = [(policy, 1, number) for policy in self.maps for number in self.num_missed]
        for policy, num_rows, number in [*cases, ("lru", 2, min(8, 2 * self._num_choices))]:
            us = self._time_layer(policy, num_rows, number)
            floor = self.floors.layer_us(self.memory, num_rows, number) if self.floors else float("nan")
            alone = self.copy_alone.get(number, float("nan")) if number else 0.0
            print(f"| {policy}, {num_rows}, {number} | {floor:.1f} | {us:.2f} | {us - alone:.2f} |", flush=True)

    def by_arrival(self) -> None:
        """The layer with copy and experts in one launch."""
        print("| policy, rows, misses, experts by arrival | layer, µs | layer - copy alone |\n|---|---|---|")
        cases = [(policy, 1, number) for policy in self.maps for number in self.num_missed]
        for policy, num_rows, number in [*cases, ("lru", 2, min(8, 2 * self._num_choices))]:
            us = self._time_by_arrival(policy, num_rows, number)
            alone = self.copy_alone.get(number, float("nan")) if number else 0.0
            print(f"| {policy}, {num_rows}, {number} | {us:.2f} | {us - alone:.2f} |", flush=True)

    def profile(self) -> None:
        """Device time of each kernel inside the layer, medians."""
        for policy in self.maps:
            for number in self.num_missed:
                slot_map = self.maps[policy]
                layer, routings = Layer(self.memory, slot_map), slot_map.routings(self._num_iterations, 1, number)
                replay = self.timer.capture([lambda r=r, la=layer: la.run(r) for r in routings], slot_map.restore)
                parts = ", ".join(f"{name} {us:.2f}" for name, us in kernel_medians(replay, slot_map.restore).items())
                print(f"{policy}, {number} misses, µs: {parts}", flush=True)

    def sweep(self) -> None:
        """Cuts of every launch; all cuts of the experts must give the same bits."""
        self._sweep_experts()
        self._sweep_arrivals()
        self._sweep_copy()
        print("\n| ensure: policy, warps | " + " | ".join(f"{number}" for number in self.num_missed) + " |")
        print("|---" * (len(self.num_missed) + 1) + "|")
        for policy in self.maps:
            for num_warps in slots.ENSURE_WARPS:
                times = [self._time_ensure(policy, number, num_warps) for number in self.num_missed]
                print(f"| {policy}, {num_warps} | " + " | ".join(f"{us:.2f}" for us in times) + " |", flush=True)

    def _sweep_copy(self) -> None:
        numbers = [number for number in self.num_missed if number]
        found = [([self._time_copy(number, cut) for number in numbers], cut) for cut in copying.COPY_CUTS]
        for times, cut in sorted(found, key=lambda pair: pair[0]):
            by_number = zip(numbers, times, strict=True)
            print(f"copy {cut}: " + ", ".join(f"{number}: {us:.1f} µs" for number, us in by_number), flush=True)

    def _sweep_experts(self) -> None:
        slot_map = self.maps["lru"]
        layer, routings = Layer(self.memory, slot_map), slot_map.routings(self._num_iterations, 1, 0)
        slot_map.restore()
        slot_ids = [layer.ensure(r, layer.route(r)[0])[0] for r in routings]
        expected = layer.compute(routings[0], slot_ids[0])
        found = []
        for tuning in experts.TUNINGS:
            calls = [lambda r=r, s=s, t=tuning: layer.compute(r, s, t) for r, s in zip(routings, slot_ids, strict=True)]
            is_same = torch.equal(calls[0](), expected)
            found.append((self.timer.in_graph(calls), "same bits" if is_same else "OTHER BITS", tuning))
        for us, bits, tuning in sorted(found, key=lambda entry: entry[0]):
            print(f"experts {us:.2f} µs, {bits}: {tuning}", flush=True)

    def _sweep_arrivals(self) -> None:
        for tuning in experts.TUNINGS:
            by_number = {number: self._time_by_arrival("lru", 1, number, tuning) for number in self.num_missed[::2]}
            print("layer, " + ", ".join(f"{n}: {us:.1f} µs" for n, us in by_number.items()) + f": {tuning}", flush=True)

    def _print_time(self, name: str, calls: list[Callable[[], object]]) -> None:
        print(f"| {name} | {self.timer.in_graph(calls):.2f} |", flush=True)

    def _time_ensure(self, policy: str, num_missed: int, num_warps: int | None = None) -> float:
        slot_map = self.maps[policy]
        layer, routings = Layer(self.memory, slot_map), slot_map.routings(self._num_iterations, 1, num_missed)
        ids = [layer.route(routing)[0] for routing in routings]
        calls = [lambda r=r, i=i: layer.ensure(r, i, num_warps) for r, i in zip(routings, ids, strict=True)]
        return self.timer.in_graph(calls, slot_map.restore)

    def _time_copy(self, num_missed: int, cut: copying.CopyCut = copying.DEFAULT_COPY) -> float:
        lists = work_lists(self.maps["lru"], self.memory, self._num_iterations, num_missed)
        banks, pool = self.memory.banks, self.memory.pool
        calls = []
        for i, state in enumerate(lists):
            bank = banks[i % len(banks)]
            calls.append(lambda state=state, bank=bank: copying.copy_missed(state, bank, pool, cut))
        return self.timer.in_graph(calls)

    def _time_by_arrival(
        self, policy: str, num_rows: int, num_missed: int, tuning: experts.Tuning = experts.DEFAULT_TUNING
    ) -> float:
        slot_map = self.maps[policy]
        layer, routings = Layer(self.memory, slot_map), slot_map.routings(self._num_iterations, num_rows, num_missed)
        return self.timer.in_graph([lambda r=r: layer.run_by_arrival(r, tuning) for r in routings], slot_map.restore)

    def _time_layer(self, policy: str, num_rows: int, num_missed: int) -> float:
        slot_map = self.maps[policy]
        layer, routings = Layer(self.memory, slot_map), slot_map.routings(self._num_iterations, num_rows, num_missed)
        return self.timer.in_graph([lambda r=r: layer.run(r) for r in routings], slot_map.restore)


def main() -> int:
    """Run the steps; 1 if one failed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-sweep", action="store_true", help="leave out the times of every cut of every launch")
    parser.add_argument(
        "--profile", action="store_true", help="also split the layer by kernel, from a profiler's trace"
    )
    parser.add_argument("--layers", type=int, default=6, help="layers with a host bank of their own, 1.3 GiB each")
    parser.add_argument("--slots", type=int, default=1650)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--iterations", type=int, default=24, help="layers per replay")
    arguments = parser.parse_args()
    device = torch.device("cuda")
    geometry = Geometry(num_layers=arguments.layers, num_slots=arguments.slots)
    bench = Bench(geometry, device, arguments.rounds, arguments.iterations)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, triton {triton.__version__}: {geometry}")
    print(
        f"{bench.memory.pool.nbytes / 2**30:.2f} GiB of slots, {bench.memory.num_host_bytes / 2**30:.2f} GiB of banks"
    )
    steps = [bench.measure_floors, bench.parts, bench.ensure, bench.copy, bench.layer, bench.by_arrival]
    steps += [bench.profile] if arguments.profile else []
    steps += [] if arguments.no_sweep else [bench.sweep]
    ended_well = [attempt(step) for step in steps]
    return int(not all(ended_well))


def attempt(step: Callable[[], None]) -> bool:
    """Whether it ended well; the others go on anyway."""
    print(f"\n### {step.__name__}\n", flush=True)
    try:
        step()
    except Exception:
        traceback.print_exc(file=sys.stdout)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
