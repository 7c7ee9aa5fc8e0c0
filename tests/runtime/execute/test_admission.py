"""A request that can't be served is refused before anything is computed."""

from pathlib import Path

import pytest

from runtime.errors import RequestError
from runtime.execute.admission import Admission
from runtime.options import SamplingOptions
from runtime.protocol import ChatMessage, Generate
from runtime.text.chat_template import ChatTemplate
from runtime.text.tokenizer import Tokenizer
from tests.support.tiny_tokenizer import write_tokenizer

REQUEST = Generate("one", (ChatMessage("user", "hello"),), SamplingOptions())
PLAIN = "{% for message in messages %}{{ message.content }}{% endfor %}"


def admission_of(folder: Path, source: str, vocab_size: int | None = None) -> Admission:
    tokenizer = Tokenizer.load(write_tokenizer(folder))
    template = ChatTemplate(source, "chat_template.jinja", tokenizer, {})
    return Admission(tokenizer, template, frozenset(), 100, vocab_size or tokenizer.vocab_size)


@pytest.mark.parametrize("source", ["", "{# nothing #}", "{{ mesages }}"])
def test_a_template_that_renders_nothing_is_refused(tmp_path: Path, source: str) -> None:
    with pytest.raises(RequestError, match="empty prompt"):
        admission_of(tmp_path, source).answer(REQUEST, 0.0)


def test_tokens_the_model_does_not_have_are_refused(tmp_path: Path) -> None:
    assert admission_of(tmp_path, PLAIN).answer(REQUEST, 0.0).sequence.prompt_ids
    with pytest.raises(RequestError, match=r"vocabulary size 3; tokenizer\.json belongs to another model"):
        admission_of(tmp_path, PLAIN, vocab_size=3).answer(REQUEST, 0.0)
