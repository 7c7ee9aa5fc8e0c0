"""Kernels of a decode step at full size: right, and the same bits for a row in any batch, eager or in a graph."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from runtime.kernels.torch_ops import attention_rows as attention_twin
from runtime.kernels.torch_ops import conv as conv_twin
from runtime.kernels.torch_ops import delta_rule as delta_twin
from runtime.kernels.torch_ops import hyper_connection as hyper_twin
from runtime.kernels.torch_ops import norms as norms_twin
from runtime.kernels.torch_ops import sampler as sampler_twin
from runtime.kernels.torch_ops.delta_rule import DeltaNetConstants
from runtime.kernels.torch_ops.linear import Convolved
from runtime.kernels.triton_ops import (
    attention,
    conv,
    delta_rule,
    dense,
    hyper_connection,
    indexer,
    launch_order,
    norms,
    router,
)
from runtime.kernels.triton_ops.sampler import sample_rows
from runtime.options import SamplingOptions
from tests.support.row_independence import assert_rows_stand_alone

NUM_RUNS = 3
"""Of fresh random inputs."""
EPS = 1e-6
PRODUCTS = [(16480, 2560), (2560, 6144), (1281, 2560), (2560, 640), (324, 10240), (512, 2560), (151_936, 2048)]
"""Outputs and width: of the flagship, and a head of Qwen3."""


def assert_graph_has_the_same_bits(run: Callable[[], Tensor | tuple[Tensor, ...]]) -> None:
    """`run` starts from the same state each time."""
    run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = run()
    for _ in range(3):
        graph.replay()
    eager = run()
    torch.cuda.synchronize()
    pairs = zip(captured, eager, strict=True) if isinstance(eager, tuple) else [(captured, eager)]
    assert all(torch.equal(one, other) for one, other in pairs)


@pytest.mark.parametrize(("num_outputs", "width"), PRODUCTS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.uint8, torch.float32])
def test_linear(num_outputs: int, width: int, dtype: torch.dtype, device: torch.device) -> None:
    for _ in range(NUM_RUNS):
        x, scale = torch.randn(4, width, device=device), None
        weight = torch.randn(num_outputs, width, device=device)
        weight = weight.to(torch.float8_e4m3fn if dtype == torch.uint8 else dtype)
        exact = x.double() @ weight.double().t()
        if dtype == torch.uint8:
            weight, scale = weight.view(torch.uint8), torch.rand(num_outputs, device=device) + 0.5
            exact *= scale
        torch.testing.assert_close(dense.linear(x, weight, scale).double(), exact, rtol=1e-4, atol=1e-3)
        assert_rows_stand_alone(lambda rows, x=x, w=weight, s=scale: dense.linear(x[rows], w, s), 4)
    assert_graph_has_the_same_bits(lambda: dense.linear(x, weight, scale))


def test_e4m3_weights_beside_exact_ones(device: torch.device) -> None:
    """The smallest e4m3 numbers are subnormal bf16 on their way through the tensor cores."""
    numbers = torch.arange(256, dtype=torch.uint8, device=device)
    numbers = numbers[(numbers & 0x7F) != 0x7F]
    weight, x = torch.zeros(len(numbers), 2560, dtype=torch.uint8, device=device), torch.zeros(4, 2560, device=device)
    weight[:, 1003] = numbers
    x[:, 1003] = torch.tensor([1.0, 1e-3, -3.7, 1e5], device=device)
    wanted = x[:, 1003:1004] * numbers.view(torch.float8_e4m3fn).float()
    assert torch.equal(dense.linear(x, weight), wanted)
    gates = torch.randn(96, 2560, device=device).to(torch.bfloat16)
    weight = torch.randn(16384, 2560, device=device).to(torch.float8_e4m3fn)
    x, scale = torch.randn(4, 2560, device=device), torch.rand(16384, device=device) + 0.5
    exact = torch.cat((x.double() @ weight.double().t() * scale, x.double() @ gates.double().t()), dim=1)
    run = lambda rows: dense.linear(x[rows], weight.view(torch.uint8), scale, gates)  # noqa: E731
    torch.testing.assert_close(run(slice(0, 4)).double(), exact, rtol=1e-4, atol=1e-3)
    assert_rows_stand_alone(run, 4)
    assert_graph_has_the_same_bits(lambda: run(slice(0, 4)))


def test_products_on_two_streams_do_not_disturb_each_other(device: torch.device) -> None:
    x, weight = torch.randn(1, 6144, device=device), torch.randn(2560, 6144, device=device).to(torch.bfloat16)
    expected, side = dense.linear(x, weight), torch.cuda.Stream()
    results = []
    for _ in range(200):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            results.append(dense.linear(x, weight))
        results.append(dense.linear(x, weight))
        torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    assert all(torch.equal(result, expected) for result in results)


def assert_early_launches_change_no_bit(
    chain: Callable[[], list[Tensor]], begin: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`chain` of what `begin` holds: as a graph whose launches begin early, and with one launch after the other."""
    chain()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        results = chain()
    monkeypatch.setattr(launch_order, "LAUNCHES_EARLY", False)
    for _ in range(50):
        begin.normal_()
        expected = [result.clone() for result in chain()]
        graph.replay()
        assert all(torch.equal(*pair) for pair in zip(results, expected, strict=True))


def test_launches_that_begin_early_see_what_comes_before(device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """A chain in which every launch reads what the one before wrote, as a graph, and one after the other."""
    scale, weight = torch.rand(4, 2560, device=device), torch.randn(2560, 2560, device=device).bfloat16() / 50
    down, up = (
        torch.randn(324, 10240, device=device).bfloat16() / 100,
        torch.randn(10240, 320, device=device).bfloat16(),
    )
    begin, residual = torch.randn(2, 10240, device=device), torch.empty(2, 10240, device=device)

    def chain() -> list[Tensor]:
        residual.copy_(begin)
        hidden, inject = hyper_connection.mix_streams(residual, scale, down, up, 4, EPS)
        results = []
        for _ in range(12):
            output = dense.linear(dense.linear(hidden, weight), weight)
            hidden, inject = hyper_connection.inject_and_mix(residual, output, inject, scale, down, up, 4, EPS)
            results += [output, hidden, inject]
        return [*results, residual]

    assert_early_launches_change_no_bit(chain, begin, monkeypatch)


def test_delta_nets_that_begin_early_go_on_from_their_states(
    device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps of one layer: each reads its states and histories before it waits, as the step before left them."""
    weight, out = (torch.randn(*shape, device=device).bfloat16() / 50 for shape in ((16480, 2560), (2560, 6144)))
    wide, heads = weight[:6144].clone(), torch.rand(2, 48, device=device)
    rows = torch.tensor([2, 0], device=device)
    constants = DeltaNetConstants(-heads[0], heads[1], torch.rand(128, device=device), EPS, True, 16)
    begin = torch.randn(2, 2560, device=device)
    begins = torch.randn(3, 48, 128, 128, device=device), torch.randn(3, 3, 10240, device=device)
    states, histories = (torch.empty_like(each) for each in begins)
    convolved = Convolved(histories, rows, torch.randn(4, 10240, device=device))

    def chain() -> list[Tensor]:
        states.copy_(begins[0])
        histories.copy_(begins[1])
        # What wrote the states is not the launch before theirs.
        x, results = dense.linear(dense.linear(begin, wide), out), []
        for _ in range(6):
            mixed, *gates = dense.linear_conv(x, convolved, weight).split((10240, 6144, 48, 48), dim=1)
            x = dense.linear(delta_rule.delta_net_rows(mixed, tuple(gates), constants, states, rows), out)
            results.append(x)
        return [*results, states, histories]

    assert_early_launches_change_no_bit(chain, begin, monkeypatch)


@pytest.mark.parametrize("is_side_slow", [True, False])
def test_a_combine_that_begins_early_waits_for_both_streams(
    is_side_slow: bool, device: torch.device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routes on one stream, the shared expert on another, one of them late by milliseconds."""
    shapes = (2560, 2560), (25600, 2560), (100_000, 2560)
    shared_weight, routed_weight, long = (torch.randn(*shape, device=device).bfloat16() / 50 for shape in shapes)
    begin, weights, side = torch.randn(1, 2560, device=device), torch.rand(1, 10, device=device), torch.cuda.Stream()

    def delayed(x: Tensor, is_slow: bool) -> Tensor:
        for _ in range(20 if is_slow else 0):
            x = x + dense.linear(x, long)[:, :2560] / 1000
        return x

    def layer() -> list[Tensor]:
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            shared = dense.linear(delayed(begin, is_side_slow), shared_weight, is_fork=True)
            shared = dense.linear(shared, shared_weight)
        rows = dense.linear(delayed(begin, not is_side_slow), routed_weight).view(1, 10, 2560)
        main.wait_stream(side)
        return [router.combine_routes(rows, weights, shared)]

    assert_early_launches_change_no_bit(layer, begin, monkeypatch)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
def test_mix_streams(dtype: torch.dtype, device: torch.device) -> None:
    for _ in range(NUM_RUNS):
        residual, scale = torch.randn(4, 10240, device=device), torch.rand(4, 2560, device=device)
        down = (torch.randn(324, 10240, device=device) / 100).to(dtype)
        up = torch.randn(10240, 320, device=device).to(dtype)
        results = hyper_connection.mix_streams(residual, scale, down, up, 4, EPS)
        expected = hyper_twin.mix_streams(residual, scale, down.float(), up.float(), 4, EPS)
        for result, wanted in zip(results, expected, strict=True):
            torch.testing.assert_close(result, wanted, rtol=1e-4, atol=1e-4)
        run = lambda rows, r=residual, s=scale, d=down, u=up: hyper_connection.mix_streams(r[rows], s, d, u, 4, EPS)  # noqa: E731
        assert_rows_stand_alone(run, 4)
        output, inject = torch.randn(4, 2560, device=device), torch.rand(4, 4, device=device)
        fused, apart = residual.clone(), residual.clone()
        results = hyper_connection.inject_and_mix(fused, output, inject, scale, down, up, 4, EPS)
        hyper_connection.inject_output(apart, output, inject)
        expected = hyper_connection.mix_streams(apart, scale, down, up, 4, EPS)
        assert torch.equal(fused, apart)
        assert all(torch.equal(*pair) for pair in zip(results, expected, strict=True))
    assert_graph_has_the_same_bits(lambda: run(slice(0, 4)))


def test_norms(device: torch.device) -> None:
    x, scale = torch.randn(4, 26, 256, device=device), torch.rand(26, 256, device=device)
    torch.testing.assert_close(norms.rms_norm(x, scale, EPS), norms_twin.rms_norm(x, scale, EPS))
    assert_rows_stand_alone(lambda rows: norms.rms_norm(x[rows], scale, EPS), 4)
    # A row that starts where nothing is aligned: its loads must not change its sum.
    wide = torch.randn(4, 2563, device=device)
    x, scale = wide[:, 3:], torch.rand(2560, device=device)
    assert torch.equal(norms.rms_norm(x, scale, EPS), norms.rms_norm(x.contiguous(), scale, EPS))


def test_delta_net_and_convolution(device: torch.device) -> None:
    state_rows = torch.tensor([3, 0, 4, 1], device=device)
    heads = torch.rand(2, 48, device=device)
    constants = DeltaNetConstants(-heads[0], heads[1], torch.rand(128, device=device), EPS, True, 16)
    for _ in range(NUM_RUNS):
        mixed, pool = torch.randn(4, 10240, device=device), torch.randn(5, 48, 128, 128, device=device)
        gates = [torch.randn(4, width, device=device) for width in (6144, 48, 48)]

        def step(rows: slice, pool=pool, mixed=mixed, gates=gates) -> tuple[Tensor, Tensor]:
            moved, own = pool.clone(), tuple(gate[rows] for gate in gates)
            # The launch before is none that wrote the states.
            result = delta_rule.delta_net_rows(mixed[rows].clone(), own, constants, moved, state_rows[rows])
            return result, moved[state_rows[rows]]

        moved = pool.clone()
        expected = delta_twin.delta_net_rows(mixed, tuple(gates), constants, moved, state_rows)
        result, states = step(slice(0, 4))
        torch.testing.assert_close(result, expected, rtol=1e-3, atol=1e-4)
        torch.testing.assert_close(states, moved[state_rows], rtol=1e-4, atol=1e-4)
        assert_rows_stand_alone(step, 4)
    assert_graph_has_the_same_bits(lambda: step(slice(0, 4)))
    history, taps = torch.randn(5, 9, 10240, device=device), torch.randn(4, 10240, device=device)
    expected_history = history.clone()
    expected = conv_twin.conv_rows(mixed, expected_history, state_rows, taps, 3)
    torch.testing.assert_close(conv.conv_rows(mixed, history, state_rows, taps, 3), expected, rtol=1e-5, atol=1e-5)
    assert torch.equal(history, expected_history)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("context", [200, 2051, 131_072])
def test_sparse_attention(context: int, dtype: torch.dtype, device: torch.device) -> None:
    per_row = -(-context // 64)
    table = torch.randperm(4 * per_row, device=device).view(4, per_row)
    keys = torch.randn(4 * per_row, 16, 128, device=device, dtype=dtype)
    positions = torch.tensor([context - 1, context // 2, context - 7, 99], device=device)
    queries = torch.randn(4, 4, 128, device=device)

    def select(rows: slice) -> Tensor:
        return indexer.select_rows(queries[rows], keys, table[rows], positions[rows], 512, 4)

    blocks = select(slice(0, 4))
    expected = attention_twin.select_rows(queries, keys, table, positions, 512, 4)
    # Sums in another order may trade neighbours at the border of the budget.
    assert _num_differing(blocks, expected) <= 4
    assert_rows_stand_alone(select, 4)
    assert_graph_has_the_same_bits(lambda: select(slice(0, 4)))
    pool = torch.randn(2, 4 * per_row, 64, 2, 256, device=device, dtype=dtype)
    q = torch.randn(4, 24, 256, device=device)

    def attend(rows: slice) -> Tensor:
        inputs = q[rows], pool[0], pool[1], table[rows], positions[rows], 0.0625, blocks[rows], 4
        return attention.attend_rows(*inputs)

    wanted = attention_twin.attend_rows(q, pool[0], pool[1], table, positions, 0.0625, blocks, 4)
    torch.testing.assert_close(attend(slice(0, 4)), wanted, rtol=1e-3, atol=2e-4)
    assert_rows_stand_alone(attend, 4)
    assert_graph_has_the_same_bits(lambda: attend(slice(0, 4)))


def _num_differing(blocks: Tensor, expected: Tensor) -> int:
    """Most blocks of a row that are in one selection and not in the other."""
    return max(len(set(one) ^ set(other)) for one, other in zip(blocks.tolist(), expected.tolist(), strict=True))


@pytest.mark.parametrize("context", [1, 63, 64, 65, 5000, 40_000])
def test_plain_attention(context: int, device: torch.device) -> None:
    per_row = -(-context // 64)
    table = torch.randperm(4 * per_row, device=device).view(4, per_row)
    pool = torch.randn(2, 4 * per_row, 64, 4, 128, device=device, dtype=torch.float16)
    positions = torch.tensor([context - 1, context // 2, context - 1, 0], device=device)
    q = torch.randn(4, 32, 128, device=device)

    def attend(rows: slice) -> Tensor:
        return attention.attend_rows(q[rows], pool[0], pool[1], table[rows], positions[rows], 0.1)

    wanted = attention_twin.attend_rows(q, pool[0], pool[1], table, positions, 0.1)
    torch.testing.assert_close(attend(slice(0, 4)), wanted, rtol=1e-3, atol=2e-4)
    assert_rows_stand_alone(attend, 4)
    assert_graph_has_the_same_bits(lambda: attend(slice(0, 4)))


@pytest.mark.parametrize(
    "options",
    [
        SamplingOptions(),
        SamplingOptions(temperature=1.0),
        SamplingOptions(temperature=1.0, top_k=20, top_p=0.95, presence_penalty=1.5),
        SamplingOptions(temperature=0.7, top_p=0.8, min_p=0.01, repetition_penalty=1.1),
    ],
)
@pytest.mark.parametrize("vocab_size", [151_936, 248_320])
@pytest.mark.parametrize("steepness", [1.0, 4.0])
def test_sampler(options: SamplingOptions, vocab_size: int, steepness: float, device: torch.device) -> None:
    generated: list[list[int]] = [[1, 2, 3], [], [5], [7, 7]]
    state_rows = torch.tensor([3, 0, 5, 1], device=device)
    choices = sampler_twin.pack_options([options] * 4).to(device)
    for _ in range(10):
        logits, seen = torch.randn(4, vocab_size, device=device) * steepness, torch.zeros(6, vocab_size, device=device)
        seen = seen.to(torch.uint8)
        for row, tokens in zip(state_rows.tolist(), generated, strict=True):
            seen[row, tokens] = 1
        uniforms = torch.rand(4, dtype=torch.float64, device=device)
        ids, logprobs = sample_rows(logits, choices, seen.clone(), state_rows, uniforms)
        expected, expected_logprobs = sampler_twin.sample_rows(
            *(tensor.cpu() for tensor in (logits, choices, seen, state_rows, uniforms))
        )
        assert torch.equal(ids.cpu(), expected)
        torch.testing.assert_close(logprobs.cpu(), expected_logprobs, rtol=1e-4, atol=1e-4)
    run = lambda rows: sample_rows(logits[rows], choices[rows], seen.clone(), state_rows[rows], uniforms[rows])  # noqa: E731
    assert_rows_stand_alone(run, 4)
    assert_graph_has_the_same_bits(lambda: run(slice(0, 4)))
