"""`hotslot chat`: line by line, for pipes, SSH and screen readers. The same chat core and store as the screen."""

import argparse
import asyncio
import os
from dataclasses import replace
from pathlib import Path

from app.chat.session import ChatSession
from app.commands.context import CommandContext
from app.commands.inputs import read_files
from app.commands.options import add_chat_options, add_engine_options, add_model_option
from app.commands.tool_options import add_tool_options, tool_rules
from app.engine import LocalEngine
from app.errors import HotslotError
from app.store.conversations import Store


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "A message per line; lines that begin with / are commands, /help lists them."
    add_model_option(parser)
    parser.add_argument("--file", action="append", default=[], metavar="F", help="a document for the first message")
    add_tool_options(parser)
    add_chat_options(parser)
    add_engine_options(parser)
    parser.set_defaults(run=run)


def run(context: CommandContext, arguments: argparse.Namespace) -> int:
    context.tell_settings_notice()
    model_path = context.model_path()
    store, notice = Store.open_or_in_memory(context.locations.database_file)
    if notice:
        context.console.notice(notice)
    try:
        return asyncio.run(_chat(context, arguments, store, model_path))
    finally:
        store.close()


async def _chat(context: CommandContext, arguments: argparse.Namespace, store: Store, model_path: Path) -> int:
    # Only now: tools and documents would slow the start of every other command.
    from app.chat.toolset import ToolSet
    from app.lines.line_base import LineState
    from app.lines.line_chat import LineChat
    from app.lines.line_input import LineInput

    settings = context.settings
    if arguments.root:
        settings = replace(settings, tool_folders=os.pathsep.join(arguments.root))
    engine = LocalEngine(context.locations.engine_log_file, context.locations.cache_dir)
    session = ChatSession(engine, store, settings, model_path, names_chats=not store.is_in_memory)
    toolset = ToolSet(session, store, tool_rules(arguments))
    lines = LineInput(context.console.notice)
    state = LineState(session, store, context.locations, context.console, lines, toolset)
    state.attachments += read_files(arguments.file, context.console, may_be_stdin=False)
    try:
        try:
            toolset.apply(settings)
        except HotslotError as error:
            context.console.notice(f"no tools are offered: {error}.")
        return await LineChat(state).run()
    finally:
        await session.close()
        toolset.close()
