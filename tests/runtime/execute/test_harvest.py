"""Ids become text, reasoning and calls; stop ids and stop texts end the answer and are no part of it."""

import pytest

from runtime.execute.harvest import Harvest, HarvestEvent
from runtime.protocol import TextProduced
from runtime.text.output_parser import OutputParser
from runtime.text.stop_rules import StopRules
from runtime.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def tokenizer(demo_folder: object) -> Tokenizer:
    return Tokenizer.load(demo_folder)  # type: ignore[arg-type]


def make(tokenizer: Tokenizer, stop_texts: tuple[str, ...] = (), opens_reasoning: bool = False) -> Harvest:
    rules = StopRules([tokenizer.special_ids["<|im_end|>"]], stop_texts)
    return Harvest("r", tokenizer, rules, OutputParser("xml", (), opens_reasoning))


def push_all(harvest: Harvest, ids: list[int]) -> list[HarvestEvent]:
    events: list[HarvestEvent] = []
    for token_id in ids:
        if harvest.is_stopped:
            break
        events += harvest.push(token_id)
    return events


def test_pieces_concatenate_and_characters_stay_whole(tokenizer: Tokenizer) -> None:
    harvest = make(tokenizer)
    text = "Grüße, 世界 👩‍🚀!"
    events = push_all(harvest, tokenizer.encode_text(text)) + harvest.finish()
    assert "".join(event.text for event in events if isinstance(event, TextProduced)) == text
    assert harvest.text == text


def test_reasoning_and_stop_id(tokenizer: Tokenizer) -> None:
    harvest = make(tokenizer, opens_reasoning=True)
    special = tokenizer.special_ids
    ids = [*tokenizer.encode_text("let me see\n"), special["</think>"], *tokenizer.encode_text("\n\nYes.")]
    push_all(harvest, [*ids, special["<|im_end|>"]])
    assert (harvest.reasoning, harvest.text) == ("let me see", "Yes.")
    assert harvest.is_stopped


def test_spelled_special_is_text(tokenizer: Tokenizer) -> None:
    harvest = make(tokenizer, opens_reasoning=True)
    push_all(harvest, tokenizer.encode_text("a </think> b <|im_end|> c"))
    harvest.finish()
    assert harvest.reasoning == "a </think> b <|im_end|> c"
    assert not harvest.is_stopped


def test_stop_text_across_tokens_ends_the_answer(tokenizer: Tokenizer) -> None:
    harvest = make(tokenizer, stop_texts=("STOP here",))
    push_all(harvest, tokenizer.encode_text("one two STOP here three"))
    assert (harvest.text, harvest.stopped_by, harvest.is_stopped) == ("one two ", "STOP here", True)


def test_text_held_for_a_stop_text_comes_at_the_end(tokenizer: Tokenizer) -> None:
    harvest = make(tokenizer, stop_texts=("STOP here",))
    push_all(harvest, tokenizer.encode_text("one STOP"))
    harvest.finish()
    assert (harvest.text, harvest.is_stopped) == ("one STOP", False)
