"""Puts text into the user's clipboard, over SSH too (OSC 52), and through tmux, which swallows OSC 52 by default."""

import asyncio
import contextlib
import shutil

from textual.app import App

from app.environment import Environment


async def copy_text(app: App[object], text: str) -> None:
    """Copy exactly this text. A terminal that can't do it stays silent: there is no answer to wait for."""
    app.copy_to_clipboard(text)
    if "tmux" in Environment.read().terminal.split() and (tmux := shutil.which("tmux")):
        # Hands the text to tmux itself, which passes it on to the terminal around it.
        with contextlib.suppress(OSError):
            process = await asyncio.create_subprocess_exec(
                tmux,
                "load-buffer",
                "-w",
                "-",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.DEVNULL,
            )
            await process.communicate(text.encode("utf-8"))
