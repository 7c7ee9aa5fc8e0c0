"""What a chat template sees of messages and tools: transformers' shapes (`reasoning_content`, tools as functions).

Whatever a user, a model or a tool wrote passes `protect` on its way; roles and the words of JSON Schema do not, since
templates compare with them.
"""

import json
from collections.abc import Callable, Sequence
from typing import Any

from runtime.protocol import ChatMessage, ToolSchema

SCHEMA_WORDS = frozenset({
    *("type", "properties", "required", "description", "items", "enum", "default", "title", "format", "const", "$ref"),
    *("anyOf", "oneOf", "allOf", "string", "number", "integer", "boolean", "object", "array", "null"),
})  # fmt: skip
Protect = Callable[..., Any]
"""`SpellingGuard.protect` with its breaker chosen: (value, own_words=…) to the value as the template may see it."""


def show_message(message: ChatMessage, protect: Protect) -> dict[str, Any]:
    """One entry of the template's `messages`; what a message does not have is left out."""
    shown: dict[str, Any] = {"role": message.role, "content": protect(message.content)}
    if message.reasoning:
        shown["reasoning_content"] = protect(message.reasoning)
    if message.tool_calls:
        calls = [{"name": protect(call.name), "arguments": protect(call.arguments)} for call in message.tool_calls]
        shown["tool_calls"] = [{"type": "function", "function": call} for call in calls]
    return shown


def show_tool(tool: ToolSchema, protect: Protect) -> dict[str, Any]:
    """One entry of the template's `tools`."""
    function = {
        "name": protect(tool.name),
        "description": protect(tool.description),
        "parameters": protect(tool.parameters, own_words=SCHEMA_WORDS),
    }
    return {"type": "function", "function": function}


def all_text(messages: Sequence[ChatMessage], tools: Sequence[ToolSchema]) -> str:
    """Everything the template is given, in one text."""
    texts = [text for message in messages for text in (message.content, message.reasoning)]
    calls = [(call.name, call.arguments) for message in messages for call in message.tool_calls]
    offers = [(tool.name, tool.description, tool.parameters) for tool in tools]
    return "".join([*texts, json.dumps([calls, offers], ensure_ascii=False)])
