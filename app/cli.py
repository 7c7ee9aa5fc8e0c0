"""The command line: parses, runs one command, and turns every way it can end into an exit status.

0 done, 1 failed with one readable line, 2 wrong usage, 130 interrupted, 141 when the reader of a pipe has gone.
"""

import argparse
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from typing import Any, NoReturn

from app.commands import screen
from app.commands.context import CommandContext
from app.commands.options import add_chat_options, add_engine_options, add_model_option
from app.console import silence_stdout
from app.errors import HotslotError, OutputError
from app.failure_log import log_failure
from app.locations import Locations
from app.sanitize import clean_line
from app.version import package_version
from runtime.errors import UsageError

FAILED, WRONG_USAGE, INTERRUPTED, PIPE_GONE = 1, 2, 130, 141
COMMANDS = {
    "ask": "ask one question and print the answer",
    "chat": "chat line by line: for pipes, SSH and screen readers",
    "score": "log-probabilities of given tokens",
    "plan": "show what a model needs and whether it fits",
    "models": "models here and on the Hub: list, get, check, remove",
    "bench": "measure the runtime",
    "doctor": "check this installation",
}
"""Each is the module of its name in `app.commands`."""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line. A command's own parser gets its arguments once the command is named."""

    module_name: str | None = None
    """Where the arguments come from; None: they are here."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self.module_name is not None:
            # Only now: a command does not wait for the modules of all others.
            module, self.module_name = import_module(self.module_name), None
            module.add_arguments(self)
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message.removeprefix('argument ')}; see: {self.prog} --help")


class _ShowVersion(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> NoReturn:
        print(f"hotslot {package_version('hotslot') or 'from a checkout'}")
        parser.exit()


def build_parser() -> argparse.ArgumentParser:
    """All commands and options of this release."""
    parser = _Parser(
        prog="hotslot",
        description="Chat with mixture-of-experts models that are bigger than the GPU. Without a command: the screen.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
    add_model_option(parser)
    add_chat_options(parser)
    add_engine_options(parser)
    parser.set_defaults(run=screen.run)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    for name, help_text in COMMANDS.items():
        commands.add_parser(name, help=help_text, allow_abbrev=False).module_name = f"app.commands.{name}"
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Never raises but for `--help` and `--version`, which exit with status 0."""
    try:
        return _run(argv)
    except UsageError as error:
        return _end_with(str(error), WRONG_USAGE)
    except OutputError as error:
        silence_stdout()
        return _end_with(str(error), FAILED)
    except HotslotError as error:
        return _end_with(str(error), FAILED)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        silence_stdout()
        return PIPE_GONE
    except Exception as error:
        return _end_with(_report(error), FAILED)


def _run(argv: Sequence[str] | None) -> int:
    arguments = build_parser().parse_args(argv)
    status: int = arguments.run(CommandContext.build(arguments), arguments)
    return status


def _end_with(line: str, status: int) -> int:
    with suppress(OSError):  # Nobody may be left to read it.
        if sys.stderr is not None:
            print(f"hotslot: {clean_line(line)}", file=sys.stderr, flush=True)
    return status


def _report(error: Exception) -> str:
    """The line for an error nobody foresaw; its traceback goes to the log."""
    log_file = Locations.resolve().log_file
    kind = type(error).__name__
    if log_failure(log_file, error):
        return f"Something unexpected went wrong ({kind}); please report it with {log_file}."
    return f"Something unexpected went wrong ({kind}: {error}); please report it."
