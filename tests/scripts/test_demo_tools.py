"""Tool chats: arguments come from the request, calls fit their schemas, and evaluation shares nothing with training."""

import json
import random
import re
import sys
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

from demo.data.conversation import render, render_call  # noqa: E402
from demo.data.handwritten import Handwritten, gist  # noqa: E402
from demo.data.tool_texts import slot_names  # noqa: E402
from demo.data.tool_words import ONES  # noqa: E402
from demo.data.tools import TOOLS, ToolWriter  # noqa: E402
from demo.data.topics import DocumentFact  # noqa: E402
from demo.data.words import Fillers, read_common_words  # noqa: E402
from demo.questions import is_call, is_well_formed, uses_result  # noqa: E402

TEXT = ROOT / "scripts" / "demo" / "text"
THINGS = read_common_words(TEXT)["things"]
TYPES = {"string": str, "integer": int, "number": (int, float)}


class OneFact:
    """A document of one sentence."""

    def facts(self, fill: Fillers, quoting: float) -> list[DocumentFact]:
        name = fill.word()
        return [DocumentFact(f"{name} was opened in {fill.year()}.", (f"When was {name} opened?",), "")]


@pytest.fixture(scope="module")
def writer() -> ToolWriter:
    return ToolWriter(OneFact(), Handwritten(TEXT))


def filler(seed: int, held_out: bool = False) -> Fillers:
    return Fillers(random.Random(seed), THINGS, held_out)


def cases(writer: ToolWriter, held_out: bool, rounds: int = 12):
    return [writer.case(filler(seed, held_out), tool) for seed in range(rounds) for tool in TOOLS]


def digits(text: str) -> Counter:
    words = "|".join(ONES)
    numbers = re.sub(rf"\b({words})\b", lambda word: str(ONES.index(word[0].lower())), text, flags=re.I)
    return Counter(re.findall(r"\d+(?:\.\d+)?", numbers.replace(",", "")))


@pytest.mark.parametrize("held_out", [False, True])
def test_arguments_are_in_the_request_or_follow_its_rule(writer, held_out):
    for case in cases(writer, held_out):
        use, name = case.use, case.use.offer.tool.name
        for slot, value in use.arguments.items():
            if name == "calculator":
                constants = Counter(str(n) for n in (2, 3, 4, 7, 10, 12, 60, 100))
                missing = Counter(re.findall(r"\d+(?:\.\d+)?", value)).keys() - digits(use.asked).keys()
                assert missing <= constants.keys(), (use.asked, value)
            elif (name, slot) in {("set_light", "state"), ("write_file", "content"), ("search_files", "folder")}:
                assert value in use.asked or value in ("on", "off", "", "."), (use.asked, value)
            elif value.replace(".", "", 1).isdigit():
                derived = {"set_timer": {"30", "60", "15", "90"}, "random_number": {"1", "6"}}.get(name, set())
                assert value in digits(use.asked) or value in derived, (use.asked, value)
            elif name not in ("list_files", "run_command") or value not in (".", "pytest"):
                assert value in use.asked, (use.asked, value)


@pytest.mark.parametrize("held_out", [False, True])
def test_calls_fit_their_schemas(writer, held_out):
    for seed in range(300):
        chat = writer.chat(filler(seed, held_out))
        schemas = {schema["function"]["name"]: schema["function"]["parameters"] for schema in chat.tools}
        assert len(schemas) == len(chat.tools)
        for call in (call for turn in chat.turns for call in turn.calls):
            properties = schemas[call.name]["properties"]
            assert set(schemas[call.name]["required"]) <= set(call.arguments) <= set(properties)
            for key, value in call.arguments.items():
                assert isinstance(value, TYPES[properties[key]["type"]])
            assert is_well_formed(render_call(call))


def test_the_applications_own_schemas_are_offered(writer):
    own = json.loads((ROOT / "tests" / "demo_evaluation" / "tools.json").read_text(encoding="utf-8"))
    chats = [writer.chat(filler(seed)) for seed in range(200)]
    assert sum(all(tool in own for tool in chat.tools) for chat in chats) > 50
    assert sum(len(chat.tools) == len(own) for chat in chats) > 20


def test_no_slot_is_left_and_results_are_used(writer):
    for case in cases(writer, False):
        use = case.use
        assert not re.search(r"\{[a-z_]+\d?\}", use.asked + use.result + use.answer + render_call(use.call))
        assert uses_result(use.keys)(use.answer), (use.result, use.answer)
        assert is_call(use.call)(render_call(use.call))


def test_a_wrong_answer_does_not_use_the_result(writer):
    known = [case.use for case in cases(writer, False, 3) if case.use.keys]
    assert len(known) > 40
    assert not any(uses_result(use.keys)("I do not know.") for use in known)


def test_held_out_phrasings_are_not_trained(writer):
    texts = writer.uses.texts
    for section, options in texts.phrasings.items():
        trained = {filler(seed).phrasing(options).template for seed in range(200)}
        held_out = {filler(seed, True).phrasing(options).template for seed in range(200)}
        assert len(options) < 5 or not trained & held_out, section


def test_more_ways_to_ask_are_for_training_only(writer):
    texts = writer.uses.texts
    for section, ways in texts.more_phrasings.items():
        more = {phrasing.template for way in ways for phrasing in way}
        assert not more & {texts.phrasing(filler(seed, True), section).template for seed in range(100)}
        assert more & {texts.phrasing(filler(seed), section).template for seed in range(100)}
        examined = {phrasing.template.lower() for phrasing in filler(0, True).own_phrasings(texts.phrasings[section])}
        assert not examined & {template.lower() for template in more}
    assert all(tool.name in texts.more_phrasings for tool in TOOLS)


@pytest.mark.parametrize("tool", TOOLS, ids=lambda tool: tool.name)
def test_frames_say_each_tools_deeds_in_sixty_ways(writer, tool):
    texts = writer.uses.texts
    lines = {texts.framed(filler(seed), tool.name).template for seed in range(400)}
    assert len(lines) > 60
    assert not any(re.search(r"\{(do|what|it)\}", line, re.I) for line in lines)
    held_out = Fillers(random.Random(0), (), held_out=True).own_phrasings(texts.phrasings[tool.name])
    assert not {gist(line) for line in lines} & {gist(phrasing.template) for phrasing in held_out}


def test_frames_and_their_names_are_for_training_only(writer):
    texts = writer.uses.texts
    framed = {texts.framed(filler(seed), "read_file").template for seed in range(3000)}
    usual = {phrasing.template for phrasing in texts.phrasings["read_file"]}
    assert framed & {texts.phrasing(filler(seed), "read_file").template for seed in range(100)}
    assert not (framed - usual) & {texts.phrasing(filler(seed, True), "read_file").template for seed in range(100)}


def test_more_outcomes_are_for_training_only_and_use_the_result(writer):
    texts = writer.uses.texts
    known = {slot: "it" for tool in TOOLS for slot in tool.slots} | {"expression": "7 * 6", "name": "clock"}
    for section, outcomes in texts.more_outcomes.items():
        assert not set(outcomes) & {texts.outcome(filler(seed, True), section) for seed in range(100)}
        for outcome in outcomes:
            slots = writer.uses.slots(filler(len(section)), known)
            said = [slots.text(outcome.result), *map(slots.text, outcome.answers)]
            assert not any(re.search(r"\{([a-z_]+\d?|\d+-\d+)\}", text) for text in said), said
            used = {name for answer in outcome.answers for name in slot_names(answer)}
            shown = {"listed" if name.endswith("listing") else name for name in slot_names(outcome.result)}
            assert not shown or section.endswith(("errors", "denied", "no tool")) or used & shown, outcome


def test_held_out_words_are_not_trained(writer):
    vocabulary = writer.uses.vocabulary
    for name in ("stemword", "dirword", "noun", "term", "simple_command", "program"):
        trained = {vocabulary.draw(filler(seed), name) for seed in range(200)}
        assert not trained & {vocabulary.draw(filler(seed, True), name) for seed in range(200)}


def test_same_seed_same_chat(writer):
    assert all(render(writer.chat(filler(seed))) == render(writer.chat(filler(seed))) for seed in range(60))


def test_every_tool_has_many_phrasings_and_results(writer):
    texts = writer.uses.texts
    for number, tool in enumerate(TOOLS):
        assert len(set(texts.lines[tool.name])) >= (60 if number < 9 else 40), tool.name
        assert texts.outcomes[f"{tool.name} results"]
        assert texts.outcomes[f"{tool.name} errors"]


def test_dates_in_digits_have_digits(writer):
    dates = [writer.uses.vocabulary.draw(filler(seed), "isodate") for seed in range(50)]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", date) for date in dates)
