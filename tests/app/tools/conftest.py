"""A folder the tools may work in, and beside it one they may not."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from app.tools.built_in import built_in_tools
from app.tools.folders import AllowedFolders
from app.tools.registry import ToolError, ToolRegistry

SECRET = "outside-5ecret"


@dataclass
class Workshop:
    """`root` may be touched, `outside` holds secret.txt; `registry` has the built-in tools over the root."""

    root: Path
    outside: Path
    registry: ToolRegistry

    async def attempt(self, name: str, **arguments: str) -> str:
        """Run a call as a turn would, once it is allowed; a refusal is its text."""
        tool = self.registry.get(name)
        assert tool is not None
        try:
            return await tool.run(arguments, await tool.look_at(arguments))
        except ToolError as error:
            return f"Error: {error}"

    def check_outside(self) -> None:
        """Nothing beside the root was touched."""
        assert sorted(entry.name for entry in self.outside.iterdir()) == ["secret.txt"]
        assert (self.outside / "secret.txt").read_text() == SECRET


@pytest.fixture
def workshop(tmp_path: Path) -> Workshop:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "sub").mkdir(parents=True)
    outside.mkdir()
    (outside / "secret.txt").write_text(SECRET)
    (root / "notes.txt").write_text("first line\nneedle here\n")
    (root / "sub" / "deep.txt").write_text("a Needle too")
    return Workshop(root, outside, ToolRegistry(*built_in_tools(AllowedFolders([root]))))
