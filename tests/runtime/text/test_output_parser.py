"""However the stream is cut, the same parts come out; only special tokens are markup; nothing gets lost."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.protocol import ToolCall, ToolSchema
from runtime.text.output_parser import Call, MalformedCall, OutputParser, Part, Text

SPECIALS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<|vision_start|>")
XML_BODY = (
    "\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n<parameter=days>\n3\n</parameter>\n</function>\n"
)
WEATHER = ToolSchema("weather", "", {"properties": {"city": {"type": "string"}, "days": {"type": "integer"}}})
CALL = Call(ToolCall("weather", {"city": "Paris", "days": 3}))
Stream = list[tuple[str, bool]]
"""Runs of text (False) and special tokens (True)."""


def joined(parts: list[Part]) -> list[Part]:
    """Neighbouring pieces of one channel as one."""
    whole: list[Part] = []
    for part in parts:
        last = whole[-1] if whole else None
        if isinstance(part, Text) and isinstance(last, Text) and last.channel == part.channel:
            whole[-1] = Text(part.channel, last.text + part.text)
        else:
            whole.append(part)
    return whole


def parse(stream: Stream, cuts: list[int] | None = None, opens: bool = False, style: str = "xml") -> list[Part]:
    """Feed the stream; `cuts` are lengths of text pieces, used in turn (None: whole runs)."""
    parser = OutputParser("xml" if style == "xml" else "hermes", [WEATHER], opens)
    parts: list[Part] = []
    sizes = iter(cuts or ())
    for text, is_special in stream:
        if is_special:
            parts += parser.push("", text)
            continue
        while text:
            size = next(sizes, len(text)) or 1
            parts += parser.push(text[:size], None)
            text = text[size:]
    return joined(parts + parser.finish())


def stream(*runs: str) -> Stream:
    return [(run, run in SPECIALS) for run in runs]


def test_reasoning_text_and_calls() -> None:
    whole = stream("They ask.\n", "</think>", "\n\nLet me look.\n\n", "<tool_call>", XML_BODY, "</tool_call>", "\n")
    whole += stream("<tool_call>", XML_BODY, "</tool_call>")
    expected = [Text("reasoning", "They ask."), Text("text", "Let me look."), CALL, CALL]
    assert parse(whole, opens=True) == expected
    assert parse(whole, [1] * 1000, opens=True) == expected


def test_a_model_that_opens_its_reasoning_itself() -> None:
    assert parse(stream("<think>", "\nhm\n", "</think>", "\n\nyes")) == [Text("reasoning", "hm"), Text("text", "yes")]


def test_spelled_markup_is_text() -> None:
    spelled = f"</think> <tool_call>{XML_BODY}</tool_call> <think>"
    assert parse([(spelled, False)], [1] * 1000) == [Text("text", spelled)]
    assert parse([(spelled, False)], [1] * 1000, opens=True) == [Text("reasoning", spelled)]


def test_a_call_mentioned_in_reasoning_stays_reasoning() -> None:
    whole = stream("I could ", "<tool_call>", XML_BODY, "</tool_call>", " but no.\n", "</think>", "\n\nNo.")
    expected = f"I could <tool_call>{XML_BODY}</tool_call> but no."
    assert parse(whole, opens=True) == [Text("reasoning", expected), Text("text", "No.")]


def test_special_tokens_without_meaning_are_shown() -> None:
    assert parse(stream("a", "</think>", "b", "<|vision_start|>", "</tool_call>")) == [
        Text("text", "a</think>b<|vision_start|></tool_call>")
    ]


@pytest.mark.parametrize("style", ["xml", "hermes"])
def test_a_bad_call_is_kept_whole_and_the_answer_goes_on(style: str) -> None:
    parts = parse(stream("a ", "<tool_call>", "not ", "<think>", "a call", "</tool_call>", "\nb"), style=style)
    assert isinstance(parts[1], MalformedCall)
    assert parts[1].raw == "<tool_call>not <think>a call</tool_call>"
    assert parts[1].reason
    assert [parts[0], parts[2]] == [Text("text", "a "), Text("text", "b")]


def test_an_unfinished_call_is_malformed() -> None:
    assert parse(stream("<tool_call>", "\n<function=wea")) == [
        MalformedCall("<tool_call>\n<function=wea", "the answer ends inside the call")
    ]
    first, second = parse(stream("<tool_call>", "half", "<tool_call>", XML_BODY, "</tool_call>"))
    assert first == MalformedCall("<tool_call>half", "another call begins inside the call")
    assert second == CALL


def test_hermes_call() -> None:
    body = '\n{"name": "weather", "arguments": {"city": "Paris", "days": 3}}\n'
    assert parse(stream("<tool_call>", body, "</tool_call>"), style="hermes") == [CALL]


def test_text_streams_at_once_and_line_breaks_at_the_end_are_kept() -> None:
    parser = OutputParser("xml", [], False)
    assert parser.push("Hello") == [Text("text", "Hello")]
    assert parser.push(" \n") == [Text("text", " ")]
    assert parser.push("\n") == []
    assert parser.push("x\n") == [Text("text", "\n\nx")]
    assert parser.finish() == [Text("text", "\n")]


def test_the_spelling_may_be_passed_with_the_special_token() -> None:
    parser = OutputParser("xml", [], True)
    assert parser.push("rest", "</think>") == [Text("reasoning", "rest")]
    assert parser.push("<think>", "<think>") == []
    assert parser.push("x") == [Text("reasoning", "x")]


RUNS = st.lists(st.sampled_from([*SPECIALS, "a", "\n", "\n\n", " b\n", XML_BODY, "<function=x>", "</think>x"]))


@settings(deadline=None)
@given(RUNS, st.lists(st.integers(1, 9)), st.booleans(), st.sampled_from(["xml", "hermes"]))
def test_every_split_gives_the_same_parts(runs: list[str], cuts: list[int], opens: bool, style: str) -> None:
    whole = stream(*runs)
    assert parse(whole, cuts, opens, style) == parse(whole, None, opens, style)


@settings(deadline=None)
@given(RUNS, st.booleans())
def test_only_line_breaks_and_markup_are_dropped(runs: list[str], opens: bool) -> None:
    parts = parse(stream(*runs), opens=opens)
    bodies = [part.call.arguments and XML_BODY if isinstance(part, Call) else "" for part in parts]
    shown = "".join(
        part.text if isinstance(part, Text) else part.raw if isinstance(part, MalformedCall) else body
        for part, body in zip(parts, bodies, strict=True)
    )
    written = "".join(runs)
    for markup in SPECIALS[:4]:
        shown, written = shown.replace(markup, ""), written.replace(markup, "")
    drop = str.maketrans("", "", "\n")
    if not any("<function=x>" in run for run in runs):
        assert shown.translate(drop) == written.translate(drop)
