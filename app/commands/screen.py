"""Bare `hotslot`: opens the chat screen."""

import argparse
import sys

from app.commands.context import CommandContext
from runtime.errors import UsageError


def run(context: CommandContext, arguments: argparse.Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("The chat screen needs a terminal; in pipes and scripts use: hotslot ask PROMPT")
    model_path = context.model_path()
    # Textual takes a quarter of a second to import, and no other command needs it.
    from app.tui.app import run_app

    return run_app(context, model_path)
