"""Bare `hotslot`: opens the chat screen."""

import argparse
import sys

from app.commands.context import CommandContext
from runtime.errors import UsageError


def run(context: CommandContext, arguments: argparse.Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError("The chat screen needs a terminal; in pipes and scripts use: hotslot ask PROMPT")
    # Textual takes longer to import than everything else together, and no other command needs it.
    from app.tui.app import run_tui

    notices = () if context.settings_notice is None else (context.settings_notice,)
    return run_tui(context.locations, context.settings, notices)
