"""`hotslot score`: how likely a model finds given tokens; the way numerics are checked from outside.

So it computes in fp32's check mode unless the command line says --dtype auto; the settings have no say in that.
"""

import argparse
import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.chat.attachments import decode_text, read_file
from app.chat.engine_start import LoadEstimate
from app.commands.context import CommandContext
from app.commands.options import add_engine_options, add_model_option, parse_output_path
from app.console import Console
from app.engine import LocalEngine
from app.errors import AttachmentError
from app.messages import new_id
from app.sanitize import clean_line
from runtime.errors import UsageError
from runtime.options import DtypeName, EngineOptions
from runtime.protocol import LoadProgressed, Score, Scored

_DEFAULT_DTYPE: DtypeName = "fp32"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_model_option(parser)
    parser.add_argument("--ids", metavar="FILE.json", help="a JSON list of token ids")
    parser.add_argument("text_file", metavar="FILE.txt", nargs="?", help="a text file")
    parser.add_argument("--chunk", type=_positive, metavar="N", help="tokens of one prefill step")
    parser.add_argument("--decode", action="store_true", help="feed token by token through the decode step")
    parser.add_argument("--logits-out", metavar="F", help="write fp32 logits [tokens, vocabulary] as safetensors")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_engine_options(parser, _DEFAULT_DTYPE)
    parser.set_defaults(run=run)


def run(context: CommandContext, arguments: argparse.Namespace) -> int:
    context.tell_settings_notice()
    if (arguments.ids is None) == (arguments.text_file is None):
        raise UsageError("Give either --ids FILE.json or a text file.")
    logits_path = parse_output_path("--logits-out", arguments.logits_out)
    request = Score(
        new_id(),
        token_ids=_read_ids(Path(arguments.ids)) if arguments.ids is not None else None,
        text=_read_text(Path(arguments.text_file), context.console) if arguments.text_file is not None else None,
        chunk_tokens=arguments.chunk,
        by_decode=arguments.decode,
        logits_path=None if logits_path is None else str(logits_path),
    )
    options = context.settings.engine_options(context.model_path())
    options = replace(options, dtype=getattr(arguments, "dtype", _DEFAULT_DTYPE))
    scored = asyncio.run(_score(context, options, request))
    if arguments.json:
        context.console.print_json(_to_json(scored, arguments.logits_out))
    else:
        _print_scored(context.console, scored)
    return 0


async def _score(context: CommandContext, options: EngineOptions, request: Score) -> Scored:
    # What a score reports must not depend on earlier runs.
    engine = LocalEngine(context.locations.engine_log_file, context.locations.cache_dir, starts_warm=False)

    estimate = LoadEstimate()

    def show(progress: LoadProgressed) -> None:
        context.console.progress(f"Loading the model ({progress.phase}) {estimate.describe(progress)}")

    try:
        loaded = await engine.start(options, show)
        if loaded.notice:
            context.console.notice(loaded.notice)
        context.console.progress("Scoring")
        return await engine.score(request)
    finally:
        await engine.close()
        context.console.end_line()


def _positive(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise argparse.ArgumentTypeError(f"must be a whole number, 1 or more, not '{clean_line(text)}'")
    return int(text)


def _read_ids(path: Path) -> tuple[int, ...]:
    try:
        ids = json.loads(read_file(path, clean_line(str(path))))
    except (ValueError, RecursionError):
        ids = None
    if not isinstance(ids, list) or not ids or not all(type(item) is int and item >= 0 for item in ids):
        raise AttachmentError(f"{clean_line(str(path))} must hold a JSON list of token ids, like [1, 2, 3].")
    return tuple(ids)


def _read_text(path: Path, console: Console) -> str:
    """The text as it is: scoring cleans nothing."""
    name = clean_line(str(path))
    text, notice = decode_text(read_file(path, name), name)
    if notice:
        console.notice(notice)
    return text


def _to_json(scored: Scored, logits_out: str | None) -> dict[str, Any]:
    return {
        "token_ids": scored.token_ids,
        "logprobs": scored.logprobs,
        "argmax": scored.argmax,
        "mean_nll": scored.mean_nll,
        "perplexity": scored.perplexity,
        "tokens": len(scored.token_ids),
        "seconds": scored.seconds,
        "slots": scored.stats.num_slots,
        "slot_hit_rate": scored.stats.slot_hit_rate,
        "overlap": scored.stats.overlap_level,
        "policy": scored.stats.policy,
        "model": scored.stats.model_name,
        "logits_out": logits_out,
    }


def _print_scored(console: Console, scored: Scored) -> None:
    rows = [("position", "token", "log-probability", "argmax before")]
    rows += [
        (str(i + 1), str(token), f"{logprob:.6f}", str(best))
        for i, (token, logprob, best) in enumerate(
            zip(scored.token_ids[1:], scored.logprobs, scored.argmax, strict=False)
        )
    ]
    console.print_table(rows, right=(0, 1, 2, 3))
    console.print(f"mean NLL {scored.mean_nll:.6f}  perplexity {scored.perplexity:.4f}  {scored.seconds:.2f} s")
