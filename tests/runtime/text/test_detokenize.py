"""Pieces are whole characters, come as early as they can, and concatenate to the decoding of everything."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runtime.text.detokenize import Detokenizer
from runtime.text.tokenizer import Tokenizer
from tests.support.tiny_tokenizer import write_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@pytest.fixture(scope="module")
def byte_ids(tokenizer: Tokenizer) -> dict[int, int]:
    return {tokenizer.token_bytes(i)[0]: i for i in range(tokenizer.vocab_size) if len(tokenizer.token_bytes(i)) == 1}


@settings(deadline=None)
@given(st.text() | st.binary().map(lambda raw: raw.decode("latin-1")), st.data())
def test_pieces_concatenate_to_the_decoding(
    tokenizer: Tokenizer, byte_ids: dict[int, int], text: str, data: st.DataObject
) -> None:
    ids = tokenizer.encode_text(text) if data.draw(st.booleans()) else [byte_ids[b] for b in text.encode()]
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.push(token_id) for token_id in ids]
    assert "".join([*pieces, detokenizer.flush()]) == tokenizer.decode(ids)


@settings(deadline=None)
@given(st.binary())
def test_invalid_bytes_become_replacement_characters(
    tokenizer: Tokenizer, byte_ids: dict[int, int], raw: bytes
) -> None:
    detokenizer = Detokenizer(tokenizer)
    text = "".join(detokenizer.push(byte_ids[byte]) for byte in raw) + detokenizer.flush()
    assert text == raw.decode(errors="replace")


def test_a_split_emoji_leaves_with_its_last_byte(tokenizer: Tokenizer, byte_ids: dict[int, int]) -> None:
    detokenizer = Detokenizer(tokenizer)
    pieces = [detokenizer.push(byte_ids[byte]) for byte in "a😀b".encode()]
    assert pieces == ["a", "", "", "", "😀", "b"]


def test_a_special_token_ends_the_character_before_it(tokenizer: Tokenizer, byte_ids: dict[int, int]) -> None:
    detokenizer = Detokenizer(tokenizer)
    assert detokenizer.push(byte_ids["😀".encode()[0]]) == ""
    assert not detokenizer.is_whole
    assert detokenizer.push(tokenizer.special_ids["</think>"]) == "�"
    assert detokenizer.is_whole
    assert detokenizer.push(byte_ids[ord("x")]) == "x"


def test_ids_without_text_change_nothing(tokenizer: Tokenizer, tmp_path: Path) -> None:
    assert Detokenizer(tokenizer).push(tokenizer.vocab_size + 7) == ""
