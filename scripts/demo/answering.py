"""Owns how evaluation gets its answers: from the trainable model in batches, or from the real engine one by one."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from demo.data.conversation import Call, Conversation, Turn, render_call

Answer = Callable[[list[Conversation], int], list[str]]
"""Conversations that end with the user or a tool, the most tokens of an answer -> answers as the model wrote them."""


def from_student(model, tokenizer, batch_tokens: int = 49152) -> Answer:
    from demo.data.conversation import render_prompt
    from demo.generation import generate

    def answer(conversations: list[Conversation], max_tokens: int) -> list[str]:
        prompts = [render_prompt(conversation) for conversation in conversations]
        longest = max(len(encoded.ids) for encoded in tokenizer.encode_batch(prompts))
        batch = max(1, batch_tokens // (longest + max_tokens))
        parts = [prompts[first : first + batch] for first in range(0, len(prompts), batch)]
        return [text for part in parts for text in generate(model, tokenizer, part, max_tokens)]

    return answer


@contextmanager
def from_engine(folder: Path) -> Iterator[Answer]:
    """Greedy answers through a local engine process, thinking off."""
    from runtime.client import EngineClient
    from runtime.options import EngineOptions, SamplingOptions
    from runtime.protocol import Failed, Finished, Generate

    def one(client: EngineClient, conversation: Conversation, max_tokens: int, number: int) -> str:
        messages, tools = in_protocol(conversation)
        sampling = SamplingOptions(temperature=0.0, max_tokens=max_tokens)
        last = None
        for last in client.generate(Generate(f"evaluate-{number}", messages, sampling, tools, thinking=False)):
            if isinstance(last, Failed):
                raise RuntimeError(last)
        assert isinstance(last, Finished)
        calls = "\n".join(render_call(Call(call.name, dict(call.arguments))) for call in last.tool_calls)
        return "\n\n".join(part for part in (last.text.strip(), calls) if part)

    with EngineClient(EngineOptions(folder)) as client:
        client.load()
        yield lambda asked, max_tokens: [one(client, chat, max_tokens, number) for number, chat in enumerate(asked)]


def in_protocol(conversation: Conversation):
    """-> messages and tools of a request."""
    from runtime.protocol import ChatMessage, ToolCall, ToolSchema

    def message(turn: Turn) -> ChatMessage:
        calls = tuple(ToolCall(call.name, call.arguments) for call in turn.calls)
        return ChatMessage(turn.role, turn.content, tool_calls=calls)

    system = (ChatMessage("system", conversation.system),) if conversation.system else ()
    functions = [tool["function"] for tool in conversation.tools]
    schemas = tuple(ToolSchema(f["name"], f["description"], f["parameters"]) for f in functions)
    return (*system, *map(message, conversation.turns)), schemas
