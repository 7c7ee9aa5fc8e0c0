"""Owns the paraphrases stage: the teacher asks every hand-written question in other words."""

import random
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from demo import teacher as teaching
from demo.data.fact_kinds import KINDS, MORE_KINDS
from demo.data.handwritten import Handwritten
from demo.data.known_questions import KnownQuestions, Original, best_wordings
from demo.data.requests import kept_values, read_requests
from demo.data.rewordings import write_rewordings
from demo.data.teacher_text import TURN
from demo.passages_corpus import Writer

TEXT = Path(__file__).parent / "text"
CONTEXT, MAX_WORDING = 512, 36
TEMPERATURE = 0.8  # of one question, several different wordings are wanted
LEAD = "Say this in other words: "
FILE_ORIGINALS = 20_000
SHOTS = (
    ("how do i stop worrying so much", "What can I do against worrying all the time?"),
    ("what does the enter key do in hotslot", "What happens in Hotslot when I press enter?"),
    ("who painted the Night Watch", "Which artist is the painter of the Night Watch?"),
    ("write a short poem about snow", "Compose a few lines of poetry about snow."),
    ("i feel so tired today", "I have no energy at all today, I am really tired."),
    ("Open notes/plan-2.txt, please.", "Can you show me what is in notes/plan-2.txt?"),
    ("what did i say my dog was called", "Which name did I give you for my dog?"),
    ("do you like music", "Is music something you enjoy?"),
    ("why is the sea salty", "What makes the water in the sea salty?"),
    ("any tips for a job interview", "how should I prepare for an interview for a job?"),
)


def originals(folder: Path) -> list[Original]:
    """Questions of chats, fixed or about a word of a list; of recall, for each owner of a fact; requests for tools.

    The same text may come twice, in groups with different answers.
    """
    handwritten = Handwritten(folder)
    groups = [((), block.questions) for topic in handwritten.topics for block in topic]
    groups += [((word,), questions) for word, questions in handwritten.composer.groups()]
    groups += [((), kind.questions(owner)) for kind in (*KINDS, *MORE_KINDS) for owner in kind.owners]
    groups += [(kept_values(request), (request.asked,)) for request in read_requests(folder / "requests.txt")]
    return [Original(text, group, kept) for group, (kept, texts) in enumerate(groups) for text in texts]


def chat_turn(original: str) -> str:
    return f"<|im_start|>user\n{LEAD}{original}<|im_end|>\n<|im_start|>assistant\n"


def prefix() -> str:
    return teaching.SYSTEM + "".join(f"{chat_turn(original)}{text}<|im_end|>\n" for original, text in SHOTS)


@dataclass(frozen=True)
class Reader:
    """Reads what the teacher wrote; called in other processes."""

    known: KnownQuestions

    def __call__(self, text: str) -> tuple[str, str] | None:
        """-> original and another wording, or None for a faulty one."""
        turn = TURN.findall(text)
        if len(turn) < 2:
            return None
        original, wording = turn[0][1].removeprefix(LEAD).strip(), turn[1][1].strip()
        if original not in self.known.groups or self.known.fault(original, wording):
            return None
        return original, self.known.as_typed(original, wording)


def run_paraphrases(gguf: Path, out: Path, seconds: float, rows: int, seed: int) -> None:
    began = time.time()
    torch.manual_seed(seed)
    known = KnownQuestions(originals(TEXT))
    asked = sorted(known.groups)
    random.Random(seed).shuffle(asked)
    writer, turns = Writer(gguf, rows), [chat_turn(text) for text in asked]
    scored = writer.scored(turns, prefix(), CONTEXT, MAX_WORDING, seconds, Reader(known), TEMPERATURE)
    wordings = best_wordings(scored, known)
    save(wordings, out)
    kept, passed = sum(map(len, wordings.values())), len(scored)
    print(f"{passed} passed, {kept} kept for {len(wordings)} of {len(asked)}, {time.time() - began:.0f} s", flush=True)


def save(wordings: dict[str, tuple[str, ...]], out: Path) -> None:
    """Instead of what an earlier run left there."""
    out.mkdir(parents=True, exist_ok=True)
    for path in out.glob("paraphrases-*.jsonl.xz"):
        path.unlink()
    pairs = sorted(wordings.items())
    for number, first in enumerate(range(0, len(pairs), FILE_ORIGINALS)):
        write_rewordings(dict(pairs[first : first + FILE_ORIGINALS]), out / f"paraphrases-{number}.jsonl.xz")
