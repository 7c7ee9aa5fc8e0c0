"""Trains the demo model: corpus, passages, tokenizer, pack, train, quantise, evaluate.

`STAGE --help` lists the inputs of a stage.

Every stage is seeded, reads the files that the stages before it left in the work folder, and can be run again.
`train` may start beside `pack`: it compiles first and then waits for the rows.
"""

import argparse
import json
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = Path(__file__).parent / "demo" / "text"
MODEL_FOLDER = ROOT / "assets" / "demo-model"
VOCAB_SIZE = 8192
SCORES = ("preview", "facts", "missing", "long_documents", "app", "natural", "expert_load", "indexer")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, default=Path("/tmp/demo"), help="folder of all intermediate files")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    stages = parser.add_subparsers(dest="stage", required=True)

    corpus = stages.add_parser("corpus", help="the teacher writes chats (one GPU)")
    corpus.add_argument("--gguf", type=Path, required=True, help="SmolLM2-135M-Instruct")
    corpus.add_argument("--seconds", type=float, default=320)
    corpus.add_argument("--rows", type=int, default=8192)

    passages = stages.add_parser("passages", help="the teacher writes passages and questions about them (one GPU)")
    passages.add_argument("--gguf", type=Path, required=True, help="SmolLM2-135M-Instruct")
    passages.add_argument("--seconds", type=float, default=180)
    passages.add_argument("--rows", type=int, default=8192)

    stages.add_parser("tokenizer", help="byte-level BPE on a sample of the mix (CPU, a minute)")

    pack = stages.add_parser("pack", help="draw all conversations and pack them into rows (CPU)")
    pack.add_argument("--mix", choices=("short", "long", "finding", "deep"), default="short")
    pack.add_argument("--length", type=int, default=1024, help="tokens per row")
    pack.add_argument("--share", type=float, default=1, help="of the mix's conversations")
    pack.add_argument("--packed", default="packed", help="name of the rows' folder")

    train = stages.add_parser("train", help="train on the packed rows (one GPU, or several with torchrun)")
    train.add_argument("--length", type=int, default=1024)
    train.add_argument("--seconds", type=float, default=520, help="of this piece, set-up included")
    train.add_argument("--span", type=float, help="of training over all pieces; the default is one piece")
    train.add_argument("--ends", type=float, help="instead of --span: the epoch second when the last piece ends")
    train.add_argument("--peak", type=float, default=1.0, help="factor on the learning rates")
    train.add_argument(
        "--indexer-rows", type=int, default=4, help="rows of each step that train the indexer, of all GPUs"
    )
    train.add_argument("--budget", type=int, help="sparse attention with this budget while training")
    train.add_argument("--budget-after", type=float, default=0.0, help="share of the whole span without the budget")
    train.add_argument("--start", type=Path, help="folder of a trained model to go on from")
    train.add_argument("--step-tokens", type=int, default=65536, help="tokens of one step, of all GPUs together")
    train.add_argument("--packed", default="packed", help="name of the rows' folder")
    train.add_argument("--resume", type=int, help="wait for the piece with rows of this length, and go on from it")
    train.add_argument("--snapshot", type=float, default=300, help="seconds between two snapshots of the weights")
    train.add_argument("--attention", type=int, nargs="*", default=[], help="layers of it that get attention instead")

    quantise = stages.add_parser("quantise", help="round the experts to NVFP4 and write the model folder")
    quantise.add_argument("--folder", type=Path, default=MODEL_FOLDER)
    quantise.add_argument("--packed", default="packed", help="name of the folder with the validation rows")

    evaluate = stages.add_parser("evaluate", help="score a model folder on held-out questions")
    evaluate.add_argument("--folder", type=Path, default=MODEL_FOLDER)
    evaluate.add_argument("--only", nargs="*", choices=SCORES, default=list(SCORES), help="parts to compute")
    evaluate.add_argument("--engine", action="store_true", help="ask the real engine instead of the trainable model")
    evaluate.add_argument("--wait", action="store_true", help="read the sources, then wait for the model folder")
    evaluate.add_argument("--items", type=int, default=100, help="questions per score")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    stages = {
        "corpus": corpus,
        "passages": passages,
        "tokenizer": tokenizer,
        "pack": pack,
        "train": train,
        "quantise": quantise,
        "evaluate": evaluate,
    }
    stages[arguments.stage](arguments)


# Each stage imports what it needs and no more: the GGUF reader, torch and the text sources are slow or not everywhere.


def corpus(arguments: argparse.Namespace) -> None:
    from demo.corpus import run_corpus

    run_corpus(arguments.gguf, arguments.work / "corpus", arguments.seconds, arguments.rows, arguments.seed)


def passages(arguments: argparse.Namespace) -> None:
    from demo.passages_corpus import run_passages

    run_passages(arguments.gguf, arguments.work / "corpus", arguments.seconds, arguments.rows, arguments.seed)


def load_tokenizer(arguments: argparse.Namespace):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(str(arguments.work / "tokenizer" / "tokenizer.json"))


def load_generators(arguments: argparse.Namespace):
    from demo.data.mixture import Generators

    return Generators(TEXT, arguments.work / "corpus", arguments.work / "wordnet")


def tokenizer(arguments: argparse.Namespace) -> None:
    from demo.architecture import Architecture
    from demo.bpe import save_tokenizer, train_tokenizer
    from demo.data.mixture import sample_texts

    trained = train_tokenizer(sample_texts(load_generators(arguments), arguments.seed), VOCAB_SIZE)
    save_tokenizer(trained, arguments.work / "tokenizer", Architecture().max_position_embeddings)


def pack(arguments: argparse.Namespace) -> None:
    from demo.data.mixture import MIXES
    from demo.packing import run_pack

    run_pack(
        load_generators(arguments),
        load_tokenizer(arguments),
        MIXES[arguments.mix],
        arguments.length,
        arguments.work / arguments.packed,
        arguments.seed,
        arguments.share,
    )


def train(arguments: argparse.Namespace) -> None:
    began = time.time()
    import torch
    from demo.checkpoint import read_folder
    from demo.export import architecture_for
    from demo.growth import with_attention
    from demo.model.student import Student
    from demo.replicas import Replicas
    from demo.training import TrainingFiles, TrainingPlan, run_train

    replicas = Replicas.start(arguments.device)
    torch.manual_seed(arguments.seed)
    start = arguments.start
    model = read_folder(start) if start else Student(architecture_for(load_tokenizer(arguments)))
    if arguments.attention:
        model = with_attention(model, tuple(arguments.attention))
    plan = TrainingPlan(
        arguments.seconds,
        span=arguments.span,
        ends=arguments.ends,
        tokens_per_step=arguments.step_tokens,
        peak=arguments.peak,
        budget=arguments.budget,
        budget_after=arguments.budget_after,
        indexer_rows=arguments.indexer_rows,
        seed=arguments.seed,
        snapshot_s=arguments.snapshot,
    )
    states = [arguments.work / f"training-{arguments.seed}-{n}.pt" for n in (arguments.resume, arguments.length)]
    files = TrainingFiles(states[bool(not arguments.resume)], states[1], arguments.work / "trained.safetensors")
    packed = arguments.work / arguments.packed
    figures = run_train(model.train(), plan, packed, arguments.length, arguments.device, files, began, replicas)
    replicas.end()
    if figures is not None:
        (arguments.work / f"train-{arguments.length}.json").write_text(json.dumps(figures), encoding="utf-8")


def quantise(arguments: argparse.Namespace) -> None:
    from demo.export import run_quantise

    figures = run_quantise(
        arguments.work / "trained.safetensors",
        load_tokenizer(arguments),
        MODEL_FOLDER / "chat_template.jinja",
        arguments.work / arguments.packed / "validation.npz",
        arguments.folder,
        arguments.device,
    )
    (arguments.work / "quantise.json").write_text(json.dumps(figures), encoding="utf-8")


def evaluate(arguments: argparse.Namespace) -> None:
    sys.path.insert(0, str(ROOT))
    from demo.evaluation import run_evaluate
    from demo.training import wait_for

    generators = load_generators(arguments)
    if arguments.wait:
        wait_for(arguments.folder / "tokenizer_config.json")  # what the quantise stage writes after the weights
    run_evaluate(
        arguments.folder,
        generators,
        TEXT,
        arguments.work,
        arguments.device,
        arguments.seed,
        arguments.items,
        arguments.only,
        arguments.engine,
    )


if __name__ == "__main__":
    main()
