"""The built-in tools are exactly those the demo model was trained with."""

import sys
from pathlib import Path

from app.tools.built_in import built_in_tools
from app.tools.folders import AllowedFolders
from app.tools.given_tools import ask_aside_tool, search_document_tool
from app.tools.registry import ORDER, ToolRegistry
from tests.demo_evaluation.items import tool_schemas

REPO = Path(__file__).resolve().parents[3]


async def nothing(_: str) -> str:
    return ""


def test_names_parameters_and_descriptions_are_the_trained_ones() -> None:
    registry = ToolRegistry(*built_in_tools(AllowedFolders([])), search_document_tool(nothing), ask_aside_tool(nothing))
    offered = {schema.name: schema for schema in registry.schemas}
    assert offered == {name: schema for name, schema in tool_schemas().items() if name in offered}
    assert tuple(tool_schemas()) == ORDER


def test_training_says_the_same() -> None:
    sys.path.insert(0, str(REPO / "scripts"))
    from demo.data.tool_schemas import REGISTRY

    assert tuple(tool.name for tool in REGISTRY) == ORDER
