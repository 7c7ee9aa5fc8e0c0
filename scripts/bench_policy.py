"""Traces a model's own routing and replays it: hit rate by slots of lru, rule and Belady's bound.

Two kinds of use with the real engine process, each in an engine of its own: six everyday chats of four turns, and two
documents with five questions each. Texts are those of tests/demo_evaluation; sampling is the model's own, seeded. The
engine must have counted what the replay counts at its slot count, or the script fails. `hotslot bench policy` replays.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

# The repository's own packages, wherever the script is started from.
from dataclasses import replace  # noqa: E402

from app.cli import main as hotslot  # noqa: E402
from runtime.checkpoint.facts import read_facts  # noqa: E402
from runtime.client import EngineClient  # noqa: E402
from runtime.experts.replay import replay  # noqa: E402
from runtime.experts.trace import read_trace  # noqa: E402
from runtime.options import EngineOptions  # noqa: E402
from runtime.protocol import ChatMessage, Finished, Generate, Loaded  # noqa: E402
from tests.demo_evaluation.items import FOLDER, documents  # noqa: E402

LONGEST_ANSWER = 128
NUM_CHATS, TURNS_PER_CHAT, NUM_DOCUMENTS = 6, 4, 2
FOLLOW_UPS = (
    "Who is named in it?",
    "Which numbers does it give?",
    "What is it about?",
    "What comes last in it?",
)

Chat = Sequence[str]
"""What the user says, turn by turn."""


def main() -> None:
    """Parse, trace, replay."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model", type=Path, default=REPO / "assets" / "demo-model")
    parser.add_argument("--traces", type=Path, help="keep the traces in this folder")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = arguments.traces or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        for name, chats in {"everyday": everyday_chats(), "documents": document_chats()}.items():
            trace = folder / f"{name}.trace"
            record(arguments.model, chats, trace, arguments.seed)
            print(f"\n{name}", flush=True)
            hotslot(["bench", "policy", str(trace)])


def everyday_chats() -> Sequence[Chat]:
    """Prompts from all over the list, so that the chats have different topics."""
    prompts = (FOLDER / "everyday.txt").read_text(encoding="utf-8").splitlines()
    starts = range(0, len(prompts) - TURNS_PER_CHAT, len(prompts) // NUM_CHATS)
    return [prompts[start : start + TURNS_PER_CHAT] for start in starts][:NUM_CHATS]


def document_chats() -> Sequence[Chat]:
    """The longest documents, each with its own question first."""
    longest = sorted(documents(), key=lambda item: (-len(item.document), item.id))[:NUM_DOCUMENTS]
    return [(item.prompt, *FOLLOW_UPS) for item in longest]


def record(model: Path, chats: Sequence[Chat], path: Path, seed: int) -> None:
    """All chats one after the other in one engine with slots for half of the experts."""
    spec = read_facts(model)
    options = EngineOptions(model, num_slots=spec.num_layers * spec.moe.num_experts // 2)
    with EngineClient(options) as client:
        loaded = client.load()
        client.start_trace(path)
        for number, chat in enumerate(chats):
            answer_all(client, loaded, f"chat-{number}", chat, seed)
        client.stop_trace()
        stats = client.stats()
    replayed = replay([read_trace(path)], stats.policy, stats.num_slots)
    if (replayed.num_routed, replayed.num_missed) != (stats.num_routed, stats.num_missed):
        raise SystemExit(f"{path}: the replay does not count what the engine counted")


def answer_all(client: EngineClient, loaded: Loaded, name: str, chat: Chat, seed: int) -> None:
    """One chat; each turn sees those before it."""
    history: tuple[ChatMessage, ...] = ()
    for turn, text in enumerate(chat):
        history = (*history, ChatMessage("user", text))
        sampling = replace(loaded.default_sampling, seed=seed + turn, max_tokens=LONGEST_ANSWER)
        *_, last = client.generate(Generate(f"{name}-{turn}", history, sampling, conversation_id=name))
        if not isinstance(last, Finished):
            raise SystemExit(f"the engine gave no answer: {last}")
        answer = ChatMessage(
            "assistant", last.text, last.reasoning, last.tool_calls, last.generated_ids, loaded.tokenizer_fingerprint
        )
        history = (*history, answer)


if __name__ == "__main__":
    main()
