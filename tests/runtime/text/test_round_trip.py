"""An answer that was streamed, parsed and stored becomes the same ids again in the next prompt."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.protocol import ChatMessage, ToolSchema
from runtime.text.chat_template import ChatTemplate
from runtime.text.detokenize import Detokenizer
from runtime.text.output_parser import Call, OutputParser, Text
from runtime.text.tokenizer import Tokenizer
from tests.support.tiny_tokenizer import HERMES_TEMPLATE, XML_TEMPLATE, write_tokenizer

USER = ChatMessage("user", "hi")
TOOL = ToolSchema("weather", "", {"properties": {"city": {"type": "string"}, "days": {"type": "array"}}})
XML_CALL = (
    "\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n[1, 2]\n</parameter>\n</function>\n"
)
HERMES_CALL = '\n{"name": "weather", "arguments": {"city": "Paris", "days": [1, 2]}}\n'


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("round-trip")


@pytest.fixture(scope="module")
def xml(home: Path) -> ChatTemplate:
    return load(home / "xml", XML_TEMPLATE)


@pytest.fixture(scope="module")
def tokenizer(home: Path) -> Tokenizer:
    return Tokenizer.load(write_tokenizer(home))


def load(home: Path, source: str) -> ChatTemplate:
    template = ChatTemplate.load(write_tokenizer(home, source), Tokenizer.load(home))
    assert template is not None
    return template


def stored(template: ChatTemplate, tokenizer: Tokenizer, ids: tuple[int, ...], thinking: bool) -> ChatMessage:
    """The message an app keeps of a generated answer."""
    prompt = template.encode([USER], [TOOL], thinking)
    parser, detokenizer = OutputParser(template.tool_style, [TOOL], prompt.opens_reasoning), Detokenizer(tokenizer)
    parts = []
    for token_id in ids:
        name = tokenizer.special_name(token_id)
        parts += parser.push(detokenizer.push(token_id), None if name == "<|im_end|>" else name)
    parts += parser.push(detokenizer.flush()) + parser.finish()
    texts = {
        channel: "".join(part.text for part in parts if isinstance(part, Text) and part.channel == channel)
        for channel in ("text", "reasoning")
    }
    calls = tuple(part.call for part in parts if isinstance(part, Call))
    return ChatMessage("assistant", texts["text"], texts["reasoning"], calls, ids, tokenizer.fingerprint)


def generated(tokenizer: Tokenizer, *pieces: str) -> tuple[int, ...]:
    ids: list[int] = []
    for piece in pieces:
        special = tokenizer.special_ids.get(piece)
        ids += [special] if special is not None else tokenizer.encode_text(piece)
    return tuple(ids)


@pytest.mark.parametrize(
    ("source", "call", "thinking"),
    [(XML_TEMPLATE, XML_CALL, True), (XML_TEMPLATE, XML_CALL, False), (HERMES_TEMPLATE, HERMES_CALL, True)],
)
def test_a_well_formed_answer_is_reused_whole(
    home: Path, tokenizer: Tokenizer, source: str, call: str, thinking: bool
) -> None:
    template = load(home / "any", source)
    opening = ("I th", "ink 😀.\n", "</think>", "\n\n") if thinking and source is XML_TEMPLATE else ()
    gap = "\n\n" if source is XML_TEMPLATE else "\n"
    for tail in ((), (gap, "<tool_call>", *call, "</tool_call>")):
        ids = generated(tokenizer, *opening, "Loo", "king <|im_end|> at", " it", *tail, "<|im_end|>")
        answer = stored(template, tokenizer, ids, thinking)
        assert len(answer.tool_calls) == bool(tail)
        following = template.encode([USER, answer, USER], [TOOL], thinking)
        assert following.num_reused_tokens == len(ids)
        prompt = template.encode([USER], [TOOL], thinking).ids
        assert following.ids[: len(prompt) + len(ids)] == prompt + ids


def test_an_answer_cut_short_keeps_its_ids(xml: ChatTemplate, tokenizer: Tokenizer) -> None:
    for pieces in (("I th", "ink"), ("Hm.\n", "</think>", "\n\nAns", "wer is")):
        ids = generated(tokenizer, *pieces)
        answer = stored(xml, tokenizer, ids, True)
        assert xml.encode([USER, answer, USER], [TOOL], True).num_reused_tokens == len(ids)


PIECES = st.lists(
    st.sampled_from(["</think>", "\n", "\n\n", " a", "b", " \n", "<think>", "<tool_call>", XML_CALL, "</tool_call>"])
)


@settings(deadline=None, max_examples=150)
@given(PIECES, st.booleans())
def test_whatever_was_generated_the_prompt_reads_as_the_template_renders_it(
    xml: ChatTemplate, tokenizer: Tokenizer, pieces: list[str], thinking: bool
) -> None:
    answer = stored(xml, tokenizer, generated(tokenizer, *pieces, "<|im_end|>"), thinking)
    plain = ChatMessage(answer.role, answer.content, answer.reasoning, answer.tool_calls)
    with_ids = xml.encode([USER, answer, USER], [TOOL], thinking)
    without = xml.encode([USER, plain, USER], [TOOL], thinking)
    assert tokenizer.decode(with_ids.ids, keep_special=True) == tokenizer.decode(without.ids, keep_special=True)
    specials = [[i for i in prompt.ids if tokenizer.special_name(i)] for prompt in (with_ids, without)]
    assert specials[0] == specials[1]
