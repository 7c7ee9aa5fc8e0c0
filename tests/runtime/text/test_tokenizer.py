"""Plain text never becomes a special token, ids agree with the reference library, and bytes come back."""

import json
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as BpeTokenizer

from runtime.errors import CheckpointError
from runtime.text.tokenizer import Tokenizer
from tests.support.tiny_tokenizer import MARKUP, SPECIALS, tokenizer_json, write_tokenizer

NASTY = st.lists(st.sampled_from([*SPECIALS, *MARKUP, "<|im_", "end|>", "<", "a", " ", "é", "😀", "\n", "\0"])).map(
    "".join
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    return Tokenizer.load(write_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@settings(deadline=None)
@given(NASTY | st.text())
def test_text_never_becomes_a_special_token_and_comes_back(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode_text(text)
    assert not set(ids) & set(tokenizer.special_ids.values())
    normalized = BpeTokenizer.from_str(tokenizer_json()).normalizer.normalize_str(text)
    assert tokenizer.decode(ids) == normalized


@settings(deadline=None)
@given(NASTY | st.text() | st.text("K\u212a\u1fbe\u0308\u0301\u1100\u1161\u11a8 a"))
def test_no_text_has_fewer_tokens_than_the_bound(tokenizer: Tokenizer, text: str) -> None:
    assert tokenizer.least_tokens(text) <= len(tokenizer.encode_text(text))


def test_the_bound_is_met_by_the_longest_token(tokenizer: Tokenizer) -> None:
    plain = [
        tokenizer.token_bytes(number) for number in range(tokenizer.vocab_size) if not tokenizer.special_name(number)
    ]
    longest = max(plain, key=len).decode()
    assert tokenizer.least_tokens(longest) == 1
    assert tokenizer.least_tokens(longest + "a") == 2
    # Three bytes that are normalized to one.
    assert tokenizer.least_tokens("\u212a" * 1000) == tokenizer.least_tokens("K" * 1000)


@settings(deadline=None)
@given(st.text())
def test_text_without_specials_has_the_ids_of_the_reference(tokenizer: Tokenizer, text: str) -> None:
    assume(not any(special in text for special in (*SPECIALS, *MARKUP)))
    assert tokenizer.encode_text(text) == BpeTokenizer.from_str(tokenizer_json()).encode(text).ids
    assert tokenizer.encode_texts([text, "and more"])[0] == tokenizer.encode_text(text)


def test_special_tokens_are_known_by_name_whatever_the_file_calls_them(tokenizer: Tokenizer) -> None:
    assert set(tokenizer.special_ids) == {*SPECIALS, *MARKUP}
    think = tokenizer.special_ids["<think>"]
    assert tokenizer.special_name(think) == "<think>"
    assert tokenizer.token_bytes(think) == b"<think>"
    assert tokenizer.decode([think, *tokenizer.encode_text("hi")], keep_special=True) == "<think>hi"
    assert tokenizer.decode([think, *tokenizer.encode_text("hi")]) == "hi"


def test_ids_past_the_vocabulary_have_no_text(tokenizer: Tokenizer) -> None:
    assert tokenizer.token_bytes(tokenizer.vocab_size) == b""
    assert tokenizer.token_bytes(tokenizer.vocab_size - 1) != b""


def test_lone_surrogates_become_replacement_characters_and_pairs_join(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(tokenizer.encode_text("a\ud83d b")) == "a� b"
    assert tokenizer.decode(tokenizer.encode_text("\ud83d\ude00")) == "😀"


def test_added_tokens_of_the_config_count_and_a_vocabulary_entry_can_be_special(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    document = json.loads((tmp_path / "tokenizer.json").read_text())
    document["model"]["vocab"] |= {entry["content"]: entry["id"] for entry in document["added_tokens"]}
    document["model"]["ignore_merges"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(document))
    extra = {"added_tokens_decoder": {"9000": {"content": "<extra>"}}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(extra))
    tokenizer = Tokenizer.load(tmp_path)
    assert tokenizer.special_ids["<extra>"] == 9000
    assert not set(tokenizer.encode_text("<think><extra>")) & set(tokenizer.special_ids.values())


def test_fingerprint_follows_the_file(tmp_path: Path, tokenizer: Tokenizer) -> None:
    write_tokenizer(tmp_path)
    assert Tokenizer.load(tmp_path).fingerprint == tokenizer.fingerprint
    path = tmp_path / "tokenizer.json"
    path.write_text(path.read_text() + "\n")
    assert Tokenizer.load(tmp_path).fingerprint != tokenizer.fingerprint


BAD_FILES = [
    None,
    "",
    "{",
    "[]",
    "{}",
    '{"added_tokens": []}',
    '{"added_tokens": [], "model": {"type": "Unigram"}, "decoder": {}}',
    "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n",
    tokenizer_json().replace('"ByteLevel"', '"Metaspace"'),
    tokenizer_json().replace('"Ġ', '"\u20ac'),
]


@pytest.mark.parametrize("content", BAD_FILES)
def test_a_bad_file_is_one_line_that_names_it(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(CheckpointError) as caught:
        Tokenizer.load(tmp_path)
    assert "tokenizer.json" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("broken", ["{", "[]", '{"added_tokens_decoder": {"x": {"content": "a"}}}', "[" * 99_999])
def test_a_broken_configuration_is_blamed_on_its_own_file(tmp_path: Path, broken: str) -> None:
    folder = write_tokenizer(tmp_path)
    (folder / "tokenizer_config.json").write_text(broken)
    with pytest.raises(CheckpointError, match=r"tokenizer_config\.json is not") as caught:
        Tokenizer.load(folder)
    assert "tokenizer.json" not in str(caught.value)
    assert "\n" not in str(caught.value)
