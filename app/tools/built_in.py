"""The tools that come with the app. Searching a document and asking aside are added by whoever has them to give."""

from app.tools.calculator import calculator
from app.tools.clock import clock
from app.tools.folders import AllowedFolders
from app.tools.read_tools import read_tools
from app.tools.registry import Tool
from app.tools.run_command import run_command
from app.tools.write_file import write_file


def built_in_tools(folders: AllowedFolders) -> list[Tool]:
    """All that need nothing but folders."""
    return [*read_tools(folders), write_file(folders), run_command(folders), calculator(), clock()]
