"""Hit rate of the first 20 tokens after a restart: with the experts that had slots brought back, and from empty slots.

Each chat has four turns. An engine answers three of them and ends; the fourth is then asked in a new engine that reads
what the first one left ("warm"), and in one that does not ("cold"). "before" is the hit rate of the first engine's last
64 tokens, "no restart" that of the first 20 tokens of the fourth turn where the engine simply went on. Real engine
processes, the model's own sampling, seeded; the fourth turn is sent the moment the model is loaded.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

# The repository's own packages, wherever the script is started from.
from runtime.client import EngineClient  # noqa: E402
from runtime.options import EngineOptions  # noqa: E402
from runtime.protocol import ChatMessage, Finished, Generate, Loaded  # noqa: E402
from scripts.bench_policy import everyday_chats  # noqa: E402

NUM_TOKENS = 20
LONGEST_ANSWER = 96


@dataclass(frozen=True)
class Figures:
    """Hit rates of one chat."""

    before: float
    no_restart: float
    warm: float
    cold: float


class Chat:
    """One conversation that any engine can go on with."""

    def __init__(self, turns: Sequence[str], seed: int) -> None:
        self._turns, self._seed = turns, seed
        self._history: tuple[ChatMessage, ...] = ()

    def say(self, client: EngineClient, loaded: Loaded, turn: int, max_tokens: int = LONGEST_ANSWER) -> Finished:
        """Ask a turn. What it answers is not yet part of the history."""
        asked = (*self._history, ChatMessage("user", self._turns[turn]))
        sampling = replace(loaded.default_sampling, seed=self._seed + turn, max_tokens=max_tokens)
        *_, last = client.generate(Generate(f"turn-{turn}", asked, sampling, conversation_id="chat", thinking=False))
        if not isinstance(last, Finished):
            raise SystemExit(f"the engine gave no answer: {last}")
        return last

    def keep(self, loaded: Loaded, turn: int, answer: Finished) -> None:
        """Make a turn part of the history."""
        said = ChatMessage(
            "assistant", answer.text, answer.reasoning, answer.tool_calls, answer.generated_ids,
            loaded.tokenizer_fingerprint,
        )  # fmt: skip
        self._history = (*self._history, ChatMessage("user", self._turns[turn]), said)


def measure(options: EngineOptions, turns: Sequence[str], seed: int) -> Figures:
    """All four figures of one chat. `options.cache_dir` must be an empty folder."""
    chat, last = Chat(turns, seed), len(turns) - 1
    with EngineClient(options) as client:
        loaded = client.load()
        for turn in range(last):
            chat.keep(loaded, turn, chat.say(client, loaded, turn))
        before = client.stats().slot_hit_rate
        assert before is not None
    warm = _first_tokens(options, chat, last)
    cold = _first_tokens(replace(options, cache_dir=None), chat, last)
    return Figures(before, _going_on(options, turns, seed), warm, cold)


def _first_tokens(options: EngineOptions, chat: Chat, turn: int) -> float:
    with EngineClient(options) as client:
        return _hit_rate_of(client, client.load(), chat, turn)


def _going_on(options: EngineOptions, turns: Sequence[str], seed: int) -> float:
    """The same chat again, in one engine from its beginning to its end."""
    chat, last = Chat(turns, seed), len(turns) - 1
    with EngineClient(replace(options, cache_dir=None)) as client:
        loaded = client.load()
        for turn in range(last):
            chat.keep(loaded, turn, chat.say(client, loaded, turn))
        return _hit_rate_of(client, loaded, chat, last)


def _hit_rate_of(client: EngineClient, loaded: Loaded, chat: Chat, turn: int) -> float:
    earlier = client.stats()
    # The first token comes from the prompt's last chunk and is decoded by no step.
    chat.say(client, loaded, turn, NUM_TOKENS + 1)
    later = client.stats()
    return 1 - (later.num_missed - earlier.num_missed) / (later.num_routed - earlier.num_routed)


def main() -> None:
    """Parse, measure, print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=REPO / "assets" / "demo-model")
    parser.add_argument("--slots", type=int, default=96)
    parser.add_argument("--policy", choices=("lru", "rule"), default="rule")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--chats", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    found = []
    for number, turns in enumerate(everyday_chats()[: given.chats]):
        with tempfile.TemporaryDirectory() as scratch:
            options = EngineOptions(
                given.model,
                device=given.device,
                num_slots=given.slots,
                policy=given.policy,
                cache_dir=Path(scratch),
            )
            found.append(measure(options, turns, given.seed + number))
        print(json.dumps({"chat": number, **asdict(found[-1])}), flush=True)
    means = {name: round(mean(getattr(figures, name) for figures in found), 4) for name in asdict(found[0])}
    ratio = round(means["warm"] / means["before"], 3)
    print(json.dumps({"slots": given.slots, "policy": given.policy, "mean": means, "warm_to_before": ratio}))


if __name__ == "__main__":
    main()
