"""A citation names a passage of a document, exactly as it stands there, or nothing."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.documents.blocks import blocks_of, mark_of
from app.documents.citations import CitedPassage, find_citations, resolve
from app.messages import PAGE_BREAK, Attachment

FILLER = "Filler words of a paragraph that is long enough to stand alone. " * 10
REPORT = Attachment(
    "report.pdf",
    PAGE_BREAK.join(["The mill was built in 1820.", f"{FILLER}\nOlga owns the\nred boat.\n{FILLER}", "The end."]),
    "pages",
)
OTHER = Attachment("other.pdf", PAGE_BREAK.join(["Nothing.", "Petra owns the mill."]), "pages")
PARAGRAPH = ["The harbour of Vellmar opens for small boats at seven in the", "morning and closes at nine."]
NOTES = Attachment("notes.txt", "\n".join(["One.", "", *PARAGRAPH, "", "Last line."]))


def cited(answer: str, *documents: Attachment) -> list[CitedPassage | None]:
    return [resolve(citation, answer, documents) for citation in find_citations(answer)]


def only(answer: str, *documents: Attachment) -> CitedPassage:
    [passage] = cited(answer, *documents)
    assert passage is not None
    return passage


def test_the_answer_of_the_demo_model_resolves() -> None:
    found = only('The document says: "The mill was built in 1820." [p.1]', REPORT)
    assert (found.place, found.excerpt) == ("report.pdf, p.1", "The mill was built in 1820.")
    assert found.quote == "The mill was built in 1820."


def test_of_a_page_it_is_the_block_that_is_quoted() -> None:
    found = only("It says: “Olga owns the red boat.” [p.2]", REPORT)
    assert found.quote == "Olga owns the red boat."
    assert "red boat" in found.excerpt
    assert len(found.excerpt) < len(REPORT.text) / 2


def test_a_wrong_quote_is_not_called_exact() -> None:
    found = only('"Olga sold the red boat." [p.2]', REPORT)
    assert (found.quote, "red boat" in found.excerpt) == ("", True)


def test_of_several_documents_it_is_the_one_that_fits() -> None:
    assert only("Petra owns the mill [p.2].", REPORT, OTHER).document is OTHER
    assert only("Olga owns the red boat [p.2].", OTHER, REPORT).document is REPORT
    assert only("Yes [p.3].", OTHER, REPORT).document is REPORT
    copy = Attachment("copy.pdf", REPORT.text, "pages")
    for answer in ('"The mill was built in 1820." [p.1]', "Yes [p.3].", "The mill was built in 1820. [p.3]"):
        assert only(answer, REPORT, copy).document is copy
        assert only(answer, REPORT, copy, REPORT).document is REPORT
    first, second = cited('"The mill was built in 1820." [p.1] "Petra owns the mill." [p.2]', REPORT, OTHER)
    assert first is not None
    assert second is not None
    assert (first.document, second.document) == (REPORT, OTHER)


def test_lines_and_ranges() -> None:
    assert only("[line 3]", NOTES).excerpt == only("[line 4]", NOTES).excerpt == " ".join(PARAGRAPH)
    assert only("[line 1]", NOTES).excerpt == "One."
    assert only("[lines 4-6]", NOTES).excerpt == " ".join(PARAGRAPH) + "\nLast line."
    assert only("[p. 1–3]", REPORT).excerpt.endswith("The end.")
    assert only("[pages 1 to 2]", REPORT).excerpt.startswith("The mill")


def test_exact_words_under_a_wrong_place_are_found_where_they_stand() -> None:
    for answer in (
        '"The mill was built in 1820." [p.3]',
        "The mill was built in 1820. [p.2]",
        "The mill was built in 1820. [p.9]",
    ):
        found = only(answer, REPORT, NOTES)
        assert (found.place, found.quote, found.is_elsewhere) == (
            "report.pdf, p.1",
            "The mill was built in 1820.",
            True,
        )
    found = only("The mill was built in 1820. [line 1]", REPORT, NOTES)
    assert (found.document, found.is_elsewhere) == (REPORT, True)
    assert not only("The mill was built in 1820. [p.1]", REPORT, NOTES).is_elsewhere
    assert cited("The mill was built in 1822. [p.9]", REPORT) == [None]


@pytest.mark.parametrize("answer", ["[p.4]", "[p.0]", "[line 7]", "[line 0]", "[line 9999999]", "[p.3]"])
def test_places_that_are_not_there(answer: str) -> None:
    assert cited(answer, NOTES, OTHER) == [None]


def test_what_is_no_citation() -> None:
    assert find_citations("p.3, [3], [p], [page three], [line], a[0], [p.12345678]") == ()


def test_several_citations_of_one_statement() -> None:
    found = cited('The mill, built in "1820", is the end [p.3] [p.1]', REPORT)
    assert [passage.excerpt for passage in found if passage] == ["The end.", "The mill was built in 1820."]
    assert found[1] is not None
    assert found[1].quote == "1820"


@given(st.text(st.sampled_from('[p.line 1234567890]-to"“” x'), max_size=60))
def test_any_answer_is_read(answer: str) -> None:
    for citation in find_citations(answer):
        assert answer[citation.start] + answer[citation.end - 1] == "[]"
        resolve(citation, answer, [REPORT, NOTES, OTHER])


@given(st.sampled_from([REPORT, NOTES, OTHER]), st.integers(0, 10))
def test_every_mark_of_the_prompt_resolves(document: Attachment, number: int) -> None:
    blocks = blocks_of(document)
    block = blocks[number % len(blocks)]
    found = only(f'"{block.text[:200]}" {mark_of(block.place, document.kind)}', document)
    assert found.excerpt == block.text
