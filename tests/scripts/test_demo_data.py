"""The demo's training text must be what its chat template writes, and its NVFP4 rounding what the format says."""

import json
import random
import sys
from pathlib import Path

import pytest
import torch

jinja2 = pytest.importorskip("jinja2")
ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from demo.data.conversation import Call, Conversation, Turn, pairs, render, render_prompt  # noqa: E402
from demo.data.handwritten import Handwritten, normalised  # noqa: E402
from demo.nvfp4 import CODE_VALUES, dequantise, global_scale, quantise  # noqa: E402

TEMPLATE = ROOT / "assets" / "demo-model" / "chat_template.jinja"
TOOL = {
    "type": "function",
    "function": {"name": "add", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}},
}
ANSWERED = (
    Turn("user", "Add two numbers, é too."),
    Turn(
        "assistant", "Gladly.", reasoning="I need add.", calls=(Call("add", {"n": 3}), Call("add", {"n": "four\nfive"}))
    ),
    Turn("tool", "3"),
    Turn("tool", "4"),
    Turn("assistant", "Done."),
)
CONVERSATIONS = (
    Conversation("chat", pairs("Hello", "Hi!", "Bye", "See you.")),
    Conversation("chat", pairs("Hello", "Hi!"), system="Be brief."),
    Conversation("tool", ANSWERED, tools=(TOOL,)),
    Conversation("tool", ANSWERED, system="Be brief.", tools=(TOOL, TOOL)),
)


def render_with_jinja(conversation: Conversation, **options) -> str:
    def refuse(message: str) -> None:
        raise ValueError(message)

    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    environment.globals["raise_exception"] = refuse
    messages = [{"role": "system", "content": conversation.system}] if conversation.system else []
    for turn in conversation.turns:
        calls = [{"function": {"name": call.name, "arguments": call.arguments}} for call in turn.calls]
        message = {"role": turn.role, "content": turn.content, "reasoning_content": turn.reasoning, "tool_calls": calls}
        messages.append(message)
    template = environment.from_string(TEMPLATE.read_text(encoding="utf-8"))
    return template.render(messages=messages, tools=list(conversation.tools) or None, **options)


@pytest.mark.parametrize("conversation", CONVERSATIONS)
def test_training_text_is_the_templates_text(conversation):
    ours = "".join(segment.text for segment in render(conversation))
    assert ours == render_with_jinja(conversation)


@pytest.mark.parametrize("thinking", [True, False])
def test_generation_prompt_is_the_templates(thinking):
    question = Conversation("chat", (Turn("user", "Hello"),))
    theirs = render_with_jinja(question, add_generation_prompt=True, enable_thinking=thinking)
    assert render_prompt(question, thinking) == theirs


def test_template_refuses_an_unknown_role():
    with pytest.raises(ValueError, match="narrator"):
        render_with_jinja(Conversation("chat", (Turn("narrator", "Once"),)))


def test_nvfp4_keeps_what_it_can_represent():
    steps = torch.tensor(CODE_VALUES)[torch.arange(64).reshape(4, 16) % 8] * torch.tensor([1.0, -1.0]).repeat(8)
    weight = steps * 448.0
    assert torch.equal(dequantise(quantise(weight, global_scale(weight))), weight)


def test_nvfp4_error_is_small_and_the_second_scale_helps():
    weight = torch.randn(64, 128, generator=torch.Generator().manual_seed(0))
    error = (dequantise(quantise(weight, global_scale(weight))) - weight).norm() / weight.norm()
    assert error < 0.095


def test_every_hand_written_question_has_an_answer_and_fits_its_slots():
    texts = Handwritten(ROOT / "scripts" / "demo" / "text")
    assert all(block.answers and block.questions for topic in texts.topics for block in topic)
    rng = random.Random(0)
    for _ in range(2000):
        question, answer = texts.exchange(rng)
        assert normalised(question) or question.strip()
        assert not set("{}") & set(question + answer)
