"""Overlap changes no bit, runs where it says it runs, and survives what moves under it."""

from collections.abc import Iterator

import pytest
import torch

from runtime.benches.kernel_trace import Kernel, profile_kernels
from runtime.benches.moe_stack import MoeStack
from runtime.benches.synthetic import TINY, synthetic_spec
from runtime.benches.traces import fixed_miss_trace
from runtime.execute.overlap import LEVELS, OverlapLevel
from runtime.execute.streams import DecodeStreams
from runtime.kernels.ops import select_ops
from runtime.spec import ExpertFormat
from tests.support.synthetic_decode import SyntheticDecode

NUM_STEPS = 12
GEOMETRY = TINY | {"hidden_size": 256, "moe_intermediate_size": 128, "shared_expert_intermediate_size": 128}


@pytest.fixture(scope="module")
def streams(device: torch.device) -> Iterator[DecodeStreams]:
    created = DecodeStreams(device)
    yield created
    torch.cuda.synchronize()


def make_stack(
    device: torch.device, streams: DecodeStreams, num_rows: int, expert_format: ExpertFormat = "nvfp4"
) -> MoeStack:
    spec = synthetic_spec(GEOMETRY, 3, expert_format)
    trace = fixed_miss_trace(spec, 48, 40, num_rows, 2 * num_rows)
    return MoeStack(spec, trace, 48, select_ops(device), device, streams, "rule")


def played(stack: MoeStack, level: OverlapLevel, is_captured: bool) -> list[torch.Tensor]:
    """Outputs of every step, slot map, owners and slots."""
    step = stack.step(level, is_captured)
    stack.experts.pool.zero_()
    outputs = []
    assert stack.streams is not None
    for _ in range(NUM_STEPS):
        # Poison: what a step does not write must not look right.
        stack.outputs.fill_(float("nan"))
        step.run()
        stack.streams.compute.synchronize()
        outputs.append(stack.outputs.cpu().clone())
    state = stack.experts.cache.state
    return [*outputs, state.slot_of.cpu(), state.owner.cpu(), state.counters.cpu(), stack.experts.pool.cpu()]


def assert_same_bits(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    for place, (ours, theirs) in enumerate(zip(found, expected, strict=True)):
        assert not ours.is_floating_point() or bool(torch.isfinite(ours).all())
        assert torch.equal(ours, theirs), f"part {place} of {len(found)} differs"


@pytest.mark.parametrize("num_rows", [1, 2, 4])
@pytest.mark.parametrize("expert_format", ["nvfp4", "bf16"])
def test_all_levels_have_the_same_bits(
    device: torch.device, streams: DecodeStreams, expert_format: ExpertFormat, num_rows: int
) -> None:
    with torch.cuda.stream(streams.compute):
        stack = make_stack(device, streams, num_rows, expert_format)
        expected = played(stack, "off", is_captured=False)
        assert expected[-2][1] > 0
        for level in LEVELS:
            for is_captured in (False, True):
                assert_same_bits(played(stack, level, is_captured), expected)


def test_after_a_rebuild_and_300_pooled_streams(device: torch.device, streams: DecodeStreams) -> None:
    """Slots resized and graphs captured again, with every stream of torch's pool handed out several times."""
    with torch.cuda.stream(streams.compute):
        stack = make_stack(device, streams, 2)
        for level in LEVELS:
            played(stack, level, is_captured=True)
        drawn = [torch.cuda.Stream(device, priority=priority) for priority in (0, -1) for _ in range(200)]
        own = {streams.compute.cuda_stream, streams.side("shared").cuda_stream}
        assert not own & {stream.cuda_stream for stream in drawn}
        assert len(own) == 2
        streams.check_integrity()
        stack.resize(40)
        expected = played(stack, "off", is_captured=False)
        for level in LEVELS:
            assert_same_bits(played(stack, level, is_captured=True), expected)


def test_the_copy_stays_on_the_compute_stream_and_the_shared_expert_does_not(
    device: torch.device, streams: DecodeStreams
) -> None:
    with torch.cuda.stream(streams.compute):
        stack = make_stack(device, streams, 1)
        num_streams: dict[str, int] = {}
        for level in LEVELS:
            step = stack.step(level, is_captured=False)
            step.run()
            kernels = profile_kernels(step.run)
            compute = {kernel.stream for kernel in kernels if kernel.part in ("router", "combine")}
            assert len(compute) == 1
            for part in ("ensure", "copy"):
                assert {kernel.stream for kernel in kernels if kernel.part == part} == compute, (level, part)
            num_streams[level] = len({kernel.stream for kernel in kernels})
            shared = [kernel for kernel in kernels if is_of_shared_expert(kernel)]
            assert shared
            assert ({kernel.stream for kernel in shared} == compute) is (level == "off"), level
            experts = [kernel for kernel in kernels if kernel.part == "experts"]
            assert {kernel.stream for kernel in experts} == (set() if level == "resident" else compute)
            copies = [kernel for kernel in kernels if kernel.part == "copy"]
            assert len(copies) == stack.spec.num_layers
            assert all(("experts" in kernel.name) is (level == "resident") for kernel in copies)
        assert num_streams == {"off": 1, "shared": 2, "resident": 2}


def is_of_shared_expert(kernel: Kernel) -> bool:
    return any(mark in kernel.name.lower() for mark in ("silu", "sigmoid", "shared"))


@pytest.mark.parametrize("num_rows", [1, 2, 3, 4])
def test_a_whole_step_has_the_same_bits_at_every_level(
    device: torch.device, streams: DecodeStreams, num_rows: int
) -> None:
    decode = SyntheticDecode(select_ops(device), device, streams)
    eager = SyntheticDecode(select_ops(device), device, streams, captures=False)
    expected = eager.run("off", num_rows, NUM_STEPS)
    for level in LEVELS:
        assert_same_bits(decode.run(level, num_rows, NUM_STEPS), expected)


def test_a_rows_bits_are_its_own(device: torch.device, streams: DecodeStreams) -> None:
    """Logits of the first row, whoever shares the batch."""
    decode = SyntheticDecode(select_ops(device), device, streams, num_slots=96)
    runs = [decode.run("resident", num_rows, NUM_STEPS) for num_rows in (1, 4)]
    for alone, together in zip(runs[0][:NUM_STEPS], runs[1][:NUM_STEPS], strict=True):
        assert torch.equal(alone[0], together[0])


@pytest.mark.parametrize("policy", ["lru", "rule"])
def test_a_whole_step_equals_the_torch_twins(device: torch.device, streams: DecodeStreams, policy: str) -> None:
    cpu = torch.device("cpu")
    expected = SyntheticDecode(select_ops(cpu), cpu, policy=policy).run("off", 2, NUM_STEPS)
    found = SyntheticDecode(select_ops(device), device, streams, policy=policy).run("resident", 2, NUM_STEPS)
    for ours, theirs in zip(found[:NUM_STEPS], expected[:NUM_STEPS], strict=True):
        assert (ours - theirs).abs().max() <= 2e-3 * theirs.abs().max()
