"""A request that can't be served is refused before anything is computed."""

from pathlib import Path

import pytest

from runtime.errors import RequestError
from runtime.execute.admission import Admission
from runtime.options import SamplingOptions
from runtime.protocol import ChatMessage, CountTokens, Generate, Score
from runtime.text.chat_template import ChatTemplate
from runtime.text.tokenizer import Tokenizer
from tests.support.tiny_tokenizer import write_tokenizer

REQUEST = Generate("one", (ChatMessage("user", "hello"),), SamplingOptions())
PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"


def admission_of(folder: Path, source: str, vocab_size: int | None = None) -> Admission:
    tokenizer = Tokenizer.load(write_tokenizer(folder))
    template = ChatTemplate(source, "chat_template.jinja", tokenizer, {})
    return Admission(tokenizer, template, frozenset(), 100, vocab_size or tokenizer.vocab_size)


def test_a_prompt_that_can_not_fit_is_refused_before_it_is_encoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admission = admission_of(tmp_path, PLAIN)
    with pytest.raises(RequestError, match=r"The prompt has 300 tokens, but the context holds 100 with"):
        admission.answer(Generate("exact", (ChatMessage("user", "1 " * 150),), SamplingOptions()), 0.0)
    monkeypatch.setattr(Tokenizer, "encode_texts", lambda *_: pytest.fail("it was encoded"))
    with pytest.raises(
        RequestError, match=r"The prompt has at least \d{2},\d{3} tokens, but the context holds 100 with"
    ):
        admission.answer(Generate("hopeless", (ChatMessage("user", "a word " * 50_000),), SamplingOptions()), 0.0)
    with pytest.raises(RequestError, match=r"The prompt has at least \d{2},\d{3} tokens"):
        admission.count_tokens(CountTokens("counted", (ChatMessage("user", "a word " * 50_000),)))
    with pytest.raises(
        RequestError, match=r"There are at least \d{2},\d{3} tokens to score, but the context holds 100; "
    ):
        admission.scoring(Score("scored", text="a word " * 50_000), 0.0)


def test_what_is_encoded_soon_is_counted_and_refused_with_its_exact_number(tmp_path: Path) -> None:
    admission = admission_of(tmp_path, PLAIN)
    assert admission.count_tokens(CountTokens("counted", (ChatMessage("user", "1 " * 150),))) == 300
    with pytest.raises(RequestError, match=r"There are 300 tokens to score, but the context holds 100; "):
        admission.scoring(Score("scored", text="1 " * 150), 0.0)


@pytest.mark.parametrize("source", ["", "{# nothing #}", "{{ mesages }}"])
def test_a_template_that_renders_nothing_is_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(RequestError, match="empty prompt"):
        admission_of(tmp_path, source).answer(REQUEST, 0.0)


def test_tokens_the_model_does_not_have_are_refused(tmp_path: Path) -> None:
    assert admission_of(tmp_path, PLAIN).answer(REQUEST, 0.0).sequence.prompt_ids
    with pytest.raises(RequestError, match=r"vocabulary size 3; tokenizer\.json belongs to another model"):
        admission_of(tmp_path, PLAIN, vocab_size=3).answer(REQUEST, 0.0)
