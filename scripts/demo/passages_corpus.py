"""Owns the passages stage: the teacher writes short texts of many kinds, then questions about their sentences."""

import random
import re
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import torch

from demo import teacher as teaching
from demo.corpus import decode_rows
from demo.data.filters import PERSONA, repeats
from demo.data.passages import Passage, content_words, split_sentences, stems, write_passages
from demo.data.teacher_text import TURN
from demo.data.topics import Slots, read_topics
from demo.data.words import Fillers, read_common_words
from demo.teacher import Prompts

TEXT = Path(__file__).parent / "text"
NUM_REQUESTS = 400_000
PASSAGE_CONTEXT, QUESTION_CONTEXT = 384, 384
MAX_PASSAGE, MAX_QUESTION = 260, 30
PASSAGE_SHARE = 0.55  # of the seconds; the rest goes to questions
QUESTIONS_PER_SENTENCE, MOST_QUESTIONS = 2, 600_000
FILE_PASSAGES = 40_000
SHOTS = (
    ("The bakery on Mill Street opens at six in the morning.", "When does the bakery on Mill Street open?"),
    ("Dr. Amara Nwosu has led the clinic since 2011.", "Who has been in charge of the clinic since 2011?"),
    ("The old bridge was closed because its northern pillar had cracked.", "Why was the old bridge closed?"),
    ("Visitors can leave their bags in the lockers behind the ticket desk.", "Where can visitors put their bags?"),
    ("A full set of brushes costs 18 euros.", "How much do I pay for a full set of brushes?"),
    ("Her second novel won the city's literary prize.", "What did her second novel win?"),
)
QUESTION = re.compile(
    r"(When|Who|Why|Where|How|What|Which|Whose|To whom|In which|On which|At what|From|Is|Are|Can|Do)\b"
)


def requests(rng: random.Random, count: int) -> list[str]:
    lists, _ = read_topics(TEXT / "topics.txt")
    lines = (TEXT / "genres.txt").read_text(encoding="utf-8").splitlines()
    fill = Fillers(rng, read_common_words(TEXT)["things"])
    return [Slots(fill, lists, {}).render(rng.choice(lines)) for _ in range(count)]


def passage_of(text: str) -> list[str] | None:
    """The whole sentences of a usable passage, which may have been cut."""
    _, _, answer = text.partition("<|im_start|>assistant\n")
    body = re.sub(r"(\*\*|#+ |^[-*] )", "", answer.split("<|")[0], flags=re.M)
    sentences = split_sentences(body)
    usable = 4 <= len(sentences) <= 14 and not PERSONA.search(body) and "[" not in body and body.isascii()
    if not usable or repeats(re.findall(r"[a-z']+", body.lower())):
        return None
    return sentences


def question_of(text: str) -> tuple[str, str] | None:
    """-> sentence and a question that takes up at least two of its words but does not repeat it."""
    turn = TURN.findall(text)
    if len(turn) < 2:
        return None
    sentence, question = turn[0][1].removeprefix("Sentence: ").strip(), turn[1][1].strip()
    if (
        not QUESTION.match(question)
        or question.count("?") != 1
        or question[-1] != "?"
        or not 4 <= len(question.split()) <= 18
    ):
        return None
    asked, said = stems(question), stems(sentence)
    shared = len(asked & said)
    is_near = shared >= 2 and shared >= 0.5 * len(asked)
    return (sentence, question) if is_near and len(said - asked) >= 1 else None


class Writer:
    """One teacher on one GPU, rebuilt for each kind of stream."""

    def __init__(self, gguf: Path, rows: int) -> None:
        self.tensors, fields = teaching.read_gguf(gguf)
        self.tokenizer, self.rows = teaching.read_tokenizer(fields), rows

    def write(
        self,
        texts: list[str],
        prefix: str,
        context: int,
        max_answer: int,
        seconds: float,
        reads: Callable,
        with_cut: bool = False,
    ) -> list:
        """What `reads` makes of each answer."""
        tags = [self.tokenizer.encode(f"\n<|im_start|>{role}\n").ids for role in ("assistant", "user")]
        model = teaching.Teacher(self.tensors, self.rows, context, "cuda", torch.bfloat16)
        prompts = Prompts.encoded(self.tokenizer, texts, [False] * len(texts), [1] * len(texts))
        streams = teaching.Streams(model, prompts, (tags[0], tags[1]), int(seconds * 70))
        ids = self.tokenizer.encode(prefix).ids
        assert len(ids) + max_answer < context, "the prefix leaves no room for prompts"
        tokens, scores = teaching.generate(model, streams, ids, seconds, max_answer)
        del model, streams
        torch.cuda.empty_cache()
        return decode_rows(self.tokenizer, tokens, scores, reads, with_cut=with_cut)


def run_passages(gguf: Path, out: Path, seconds: float, rows: int, seed: int) -> None:
    """Passages first, then questions about their sentences; adds to the passages that are there."""
    began = time.time()
    torch.manual_seed(seed)
    writer = Writer(gguf, rows)
    rng = random.Random(seed)
    asked = [f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n" for text in requests(rng, NUM_REQUESTS)]
    written = writer.write(
        asked, teaching.SYSTEM, PASSAGE_CONTEXT, MAX_PASSAGE, seconds * PASSAGE_SHARE, passage_of, with_cut=True
    )
    passages = list({sentences[0]: sentences for sentences in written}.values())
    print(f"{len(passages)} passages after {time.time() - began:.0f} s", flush=True)
    sentences = list(dict.fromkeys(s for passage in passages for s in passage if len(content_words(s)) >= 3))
    turns = [f"<|im_start|>user\nSentence: {s}<|im_end|>\n<|im_start|>assistant\n" for s in sentences]
    shots = "".join(
        f"<|im_start|>user\nSentence: {s}<|im_end|>\n<|im_start|>assistant\n{q}<|im_end|>\n" for s, q in SHOTS
    )
    prefix = teaching.SYSTEM + shots
    pairs = writer.write(
        (turns * QUESTIONS_PER_SENTENCE)[:MOST_QUESTIONS],
        prefix,
        QUESTION_CONTEXT,
        MAX_QUESTION,
        seconds * (1 - PASSAGE_SHARE),
        question_of,
    )
    questions = defaultdict(set)
    for sentence, question in pairs:
        questions[sentence].add(question)
    save(passages, questions, out, rng)
    print(f"{len(pairs)} questions on {len(questions)} sentences after {time.time() - began:.0f} s", flush=True)


def save(passages: list[list[str]], questions: dict[str, set[str]], out: Path, rng: random.Random) -> None:
    """Passages with a question on at least two sentences."""
    kept = [Passage(tuple(p), tuple(tuple(sorted(questions.get(s, ()))) for s in p)) for p in passages]
    kept = [passage for passage in kept if sum(map(bool, passage.questions)) >= 2]
    rng.shuffle(kept)
    out.mkdir(parents=True, exist_ok=True)
    already = len(list(out.glob("passages-*.jsonl.xz")))  # the first file's beginning is left to evaluation
    for number, first in enumerate(range(0, len(kept), FILE_PASSAGES), already):
        write_passages(kept[first : first + FILE_PASSAGES], out / f"passages-{number}.jsonl.xz")
