"""Owns the shape of a training conversation and its text, exactly as the demo's chat_template.jinja writes it."""

import json
import re
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Loss = Literal["none", "light", "full", "double", "heavy"]
DECIDING_WORDS = 3
DECISION = re.compile(r' (The sentence says: "|No sentence of )')  # in a thought about a document
TOOLS_HEAD = "# Tools\n\nYou can call these tools:\n<tools>"
TOOLS_TAIL = (
    "\n</tools>\n\nTo call a tool, write:\n<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n"
    "</function>\n</tool_call>"
)


@dataclass(frozen=True)
class Call:
    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True)
class Turn:
    role: Literal["user", "assistant", "tool"]
    content: str = ""
    reasoning: str = ""
    calls: tuple[Call, ...] = ()


@dataclass(frozen=True)
class Conversation:
    """`answer_loss` weighs the assistant's text; `learns_questions` adds a light loss on the user's.

    With `learns_choices` the words that choose a sentence weigh more, and those that go on with it less.
    """

    kind: str
    turns: tuple[Turn, ...]
    system: str = ""
    tools: tuple[dict[str, Any], ...] = ()
    answer_loss: Loss = "full"
    learns_questions: bool = False
    learns_choices: bool = False


@dataclass(frozen=True)
class Segment:
    text: str
    loss: Loss = field(default="none")


def pairs(*texts: str) -> tuple[Turn, ...]:
    """User and assistant turns in alternation."""
    return tuple(Turn("assistant" if index % 2 else "user", text) for index, text in enumerate(texts))


def with_reasoning(conversation: Conversation, reasons: list[str]) -> Conversation:
    """Gives the assistant turns their reasoning, in order."""
    left = iter(reasons)
    turns = [replace(turn, reasoning=next(left)) if turn.role == "assistant" else turn for turn in conversation.turns]
    return replace(conversation, turns=tuple(turns))


def render(conversation: Conversation) -> list[Segment]:
    segments = render_system(conversation)
    for index, turn in enumerate(conversation.turns):
        if turn.role == "assistant":
            segments += render_answer(turn, conversation.answer_loss, conversation.learns_choices)
        elif turn.role == "user":
            loss: Loss = "light" if conversation.learns_questions else "none"
            segments += [Segment("<|im_start|>user\n"), Segment(turn.content + "<|im_end|>\n", loss)]
        else:
            first = index == 0 or conversation.turns[index - 1].role != "tool"
            last = index + 1 == len(conversation.turns) or conversation.turns[index + 1].role != "tool"
            wrapped = f"\n<tool_response>\n{turn.content}\n</tool_response>"
            segments.append(Segment(("<|im_start|>user" if first else "") + wrapped + ("<|im_end|>\n" if last else "")))
    return segments


def render_system(conversation: Conversation) -> list[Segment]:
    parts = []
    if conversation.tools:
        lines = "".join("\n" + json.dumps(tool, ensure_ascii=False) for tool in conversation.tools)
        parts.append(TOOLS_HEAD + lines + TOOLS_TAIL)
    if conversation.system:
        parts.append(conversation.system)
    return [Segment("<|im_start|>system\n" + "\n\n".join(parts) + "<|im_end|>\n")] if parts else []


def render_answer(turn: Turn, loss: Loss, learns_choices: bool = False) -> list[Segment]:
    calls = "\n".join(render_call(call) for call in turn.calls)
    body = "\n\n".join(part for part in (turn.content, calls) if part) + "<|im_end|>\n"
    said = render_choice(body) if learns_choices else [Segment(body, loss)]
    if not turn.reasoning:
        return [Segment("<|im_start|>assistant\n<think>\n\n</think>\n\n"), *said]
    thought = f"{turn.reasoning}\n</think>\n\n"
    decision = DECISION.search(turn.reasoning) if learns_choices else None
    begins = decision.start() if decision else len(thought)
    decided = render_choice(thought[begins:]) if decision else []
    return [Segment("<|im_start|>assistant\n<think>\n"), Segment(thought[:begins], loss), *decided, *said]


def render_choice(body: str) -> list[Segment]:
    """The opening and the first words of the quotation decide the answer; the rest of it is copied.

    Segments end before a space, where the tokenizer splits too.
    """
    quotation = body.find('"') + 1
    ends = [space.start() for space in re.finditer(" ", body[quotation:])]
    if len(ends) <= DECIDING_WORDS:
        return [Segment(body, "heavy")]
    end = quotation + ends[DECIDING_WORDS - 1]
    return [Segment(body[:end], "heavy"), Segment(body[end:], "full")]


def render_call(call: Call) -> str:
    values = {key: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) for key, v in call.arguments.items()}
    parameters = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in values.items())
    return f"<tool_call>\n<function={call.name}>\n{parameters}</function>\n</tool_call>"


def render_prompt(conversation: Conversation, thinking: bool = False) -> str:
    """The conversation so far and the generation prompt."""
    text = "".join(segment.text for segment in render(conversation))
    return text + "<|im_start|>assistant\n<think>\n" + ("" if thinking else "\n</think>\n\n")
