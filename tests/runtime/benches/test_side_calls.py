"""The bench of side calls at a published geometry: its routing, what it counts, and that it runs."""

import numpy as np
import pytest
import torch

from runtime.benches.random_model import byte_tokenizer
from runtime.benches.reuse_routing import ReuseRouting, reuse_exponent, reuse_trace
from runtime.benches.side_calls import Answer, Phase, Step, figures, parse, run
from runtime.benches.synthetic import TINY, synthetic_spec
from runtime.kernels.ops import select_ops


@pytest.mark.parametrize("hit_rate", [0.4, 0.57, 0.8])
def test_a_trace_hits_as_often_as_it_should(hit_rate: float) -> None:
    """With least recently used and 8 slots per layer; distinct experts in every row."""
    spec = synthetic_spec(TINY, 2)
    num_routed = spec.moe.num_experts_per_token
    trace = reuse_trace(spec, 800, reuse_exponent(spec.moe.num_experts, num_routed, 8, hit_rate))
    assert all(len(set(row)) == num_routed for row in trace.reshape(-1, num_routed).tolist())
    num_hits, recent = 0, list(range(8))
    for row in trace[:, 0].tolist():
        num_hits += len(set(row) & set(recent))
        recent = [*row, *(expert for expert in recent if expert not in row)][:8]
    assert num_hits / trace[:, 0].size == pytest.approx(hit_rate, abs=0.02)


def test_where_a_token_is_routed_follows_from_sequence_and_position() -> None:
    trace = np.arange(40 * 2 * 3, dtype=np.int16).reshape(40, 2, 3)
    routing = ReuseRouting(trace, 4, torch.device("cpu"))
    route = routing.ops(select_ops("cpu")).route
    logits = torch.randn(3, 240)
    assert torch.equal(route(logits, 3, True)[0], logits.topk(3).indices), "no step has begun"
    routing.start_sequence(2)
    routing.start_sequence(1)
    begin = 1499 % 40
    routing.begin_step(torch.tensor([2, 2, 1]), torch.tensor([5, 6, 5]))
    for layer in range(2):
        logits = torch.randn(3, 240)
        chosen, weights = route(logits, 3, True)
        assert chosen.tolist() == trace[[5, 6, (begin + 5) % 40], layer].tolist()
        assert weights.sum(-1) == pytest.approx([1.0, 1.0, 1.0])
        assert torch.equal(logits.topk(3).indices.sort().values, chosen.sort().values), "policies see what was chosen"


def test_any_id_has_text() -> None:
    tokenizer = byte_tokenizer(1000)
    assert tokenizer.encode_text("a boat") == [ord(character) for character in "a boat"]
    assert tokenizer.decode([104, 105, 999]) == "hi t999"
    assert all(tokenizer.token_bytes(token_id) for token_id in range(1000))


def phase(num_alone: int, num_shared: int, chunk_s: float = 0.0) -> Phase:
    """Steps of 10 ms alone and 30 ms shared, one chunk before the last."""
    kinds = [(1, 0, 0.01)] * num_alone + [(1, 1, 0.03)] * num_shared
    steps = [Step(0.0, seconds, chats, riders, 1, True, 0.5) for chats, riders, seconds in kinds]
    if chunk_s:
        steps.append(Step(0.0, chunk_s, 0, 1, 300, False, 0.7))
    times = np.cumsum([0.0, *(step.seconds for step in steps)]).tolist()
    return Phase([Answer(0.0, times, times[-1])], [Answer(1.0, [2.0], 4.5)], steps, 100, 40)


def test_the_share_is_what_the_chats_tokens_did_not_need() -> None:
    found = figures([phase(100, 0), phase(300, 0)], phase(70, 10, chunk_s=0.2), 0.3)
    assert found["chat_alone_tok_s"] == [100.0, 100.0]
    assert found["chat_beside_tok_s"] == pytest.approx(80 / 1.2, abs=0.001)
    assert found["share_of_step_time"] == pytest.approx(1 - 0.8 / 1.2, abs=0.001)
    assert found["ratio_outside_prefill"] == 0.8
    assert (found["worst_gap_ms"], found["longest_chunk_ms"]) == (200.0, 200.0)
    assert found["most_chunks_between_tokens"] == 1
    assert found["side_call_latency_s_median"] == 3.5
    assert found["decode_ms_by_rows"]["1+1"] == {"steps": 10, "median": 30.0, "p95": 30.0}


@pytest.mark.long
def test_it_runs() -> None:
    settings = "--tiny --layers 4 --slots 48 --seconds 3 --seconds-alone 0.7 --trace-tokens 200 --context 1024"
    found = run(parse([*settings.split(), "--prompt-tokens", "40", "--answer-tokens", "4"]))
    assert found["side_calls_ended"] >= 3
    assert -1 < found["share_of_step_time"] < 1, "a busy machine may make the chat faster"
    assert found["decode_ms_by_rows"]["1+0"]["steps"] > 10
    assert found["longest_chunk_ms"] > 0
    assert found["most_chunks_between_tokens"] <= 1
    assert found["whole_chunk_ms"] > 0
