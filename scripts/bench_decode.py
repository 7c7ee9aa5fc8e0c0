"""Decode and prefill speed of a model through the real engine process, beside what the machine could do. Prints JSON.

Two prompts: 95 tokens of prose, and a 200-line code fence. Half of the experts are resident. The floor is a plain
torch matmul that reads as many bytes and does as many operations as the model's weights need: fp32 for the dense
weights, which the engine holds in fp32, and for the experts of each token, which it dequantises to fp32.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

# The repository's own packages, wherever the script is started from.
from runtime.client import EngineClient  # noqa: E402
from runtime.options import EngineOptions, SamplingOptions  # noqa: E402
from runtime.protocol import ChatMessage, Finished, Generate, Score  # noqa: E402

PROSE = (
    "The harbour was quiet that morning. A light mist lay over the water, and the fishing boats rocked gently against "
    "the stone wall. An old man sat on a crate, mending a net with slow and careful hands, while his grandson counted "
    "the gulls on the roof of the hall. They did not talk much. When the sun came through at last, the boy asked "
    "how far it was to the island, and the old man smiled. Tell me what happened next on that day."
)


def code_fence(num_lines: int) -> str:
    """A message with a fenced block of that many lines of Python."""
    lines = [
        f"value_{line} = compute(value_{line - 1}, scale={line % 7}, name='item {line}')"
        for line in range(1, num_lines + 1)
    ]
    return "What does this do?\n\n```python\n" + "\n".join(lines) + "\n```\n"


def main() -> None:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=REPO / "assets" / "demo-model")
    parser.add_argument("--tokens", type=int, default=128, help="tokens of each answer")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--slots", type=int, help="default: half of the experts")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--policy", choices=("lru", "rule"), default="rule")
    arguments = parser.parse_args()
    print(json.dumps(run(arguments), indent=2))


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """All figures of one engine start."""
    from runtime.checkpoint.facts import read_facts

    spec = read_facts(arguments.model)
    num_experts = spec.num_layers * spec.moe.num_experts
    options = EngineOptions(
        arguments.model,
        num_slots=arguments.slots or num_experts // 2,
        num_threads=arguments.threads,
        policy=arguments.policy,
    )
    started_s = time.monotonic()
    client = EngineClient(options)
    try:
        client.start()
        loaded = client.load()
        ready_s = time.monotonic() - started_s
        prompts = {"prose": prose_of(client, 95), "code": code_fence(200)}
        measured = {name: measure(client, name, text, arguments) for name, text in prompts.items()}
        stats = client.stats()
    finally:
        client.close()
    return {
        "model": loaded.model_name,
        "slots": loaded.num_slots,
        "experts": num_experts,
        "policy": arguments.policy,
        "start_and_load_s": round(ready_s, 3),
        "engine_rss_bytes": stats.engine_rss_bytes,
        "slot_hit_rate": stats.slot_hit_rate,
        **measured,
        "floor": floor(spec, arguments.threads),
    }


def prose_of(client: EngineClient, num_tokens: int) -> str:
    """Prose of just so many tokens."""
    words = PROSE.split(" ")
    while len(words) > 1:
        text = " ".join(words)
        if len(client.score(Score("count", text=text)).token_ids) <= num_tokens:
            return text
        words.pop()
    return PROSE


def measure(client: EngineClient, name: str, text: str, arguments: argparse.Namespace) -> dict[str, Any]:
    """Medians over repeats; every repeat has a prompt that no cached prefix helps."""
    results = [
        answer(client, f"{name}-{repeat}", f"{repeat}. {text}", arguments.tokens) for repeat in range(arguments.repeats)
    ]
    return {
        "prompt_tokens": results[0].usage.prompt_tokens,
        "decode_tok_s": round(statistics.median(result.stats.decode_tok_s for result in results), 2),
        "prefill_tok_s": round(statistics.median(result.stats.prefill_tok_s for result in results), 1),
        "ttft_s": round(statistics.median(result.stats.ttft_s for result in results), 4),
    }


def answer(client: EngineClient, request_id: str, text: str, num_tokens: int) -> Finished:
    """One answer, sampled hot so that it runs on rather than stopping early."""
    sampling = SamplingOptions(temperature=1.5, seed=1, max_tokens=num_tokens)
    request = Generate(request_id, (ChatMessage("user", text),), sampling, conversation_id=request_id)
    *_, last = client.generate(request)
    if not isinstance(last, Finished):
        raise SystemExit(f"the engine gave no answer: {last}")
    return last


def floor(spec: Any, num_threads: int | None) -> dict[str, float]:
    """Tokens per second of matmuls over the same weights: one token at a time, and 256 at once."""
    import torch

    if num_threads:
        torch.set_num_threads(num_threads)
    hidden = spec.hidden_size
    expert_params = 3 * hidden * spec.moe.intermediate
    active_params = spec.num_layers * spec.moe.num_experts_per_token * expert_params
    weight = torch.randn((spec.weights.dense_params + active_params) // hidden, hidden)

    def rate(num_tokens: int) -> float:
        tokens = torch.randn(num_tokens, hidden)
        seconds = []
        for _ in range(20):
            started_s = time.perf_counter()
            torch.nn.functional.linear(tokens, weight)
            seconds.append(time.perf_counter() - started_s)
        return round(num_tokens / min(seconds), 1)

    with torch.inference_mode():
        return {"decode_tok_s": rate(1), "prefill_tok_s": rate(256)}


if __name__ == "__main__":
    main()
