"""The real engine and the demo model read a PDF and a DOCX of several pages: an answer cites the page of its fact, and
a second question computes little more than itself.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from pathlib import Path

import pytest

from app.chat.attachments import read_document
from app.chat.events import DocumentPlanned, TurnEnded
from app.chat.session import ChatSession
from app.documents.citations import find_citations, resolve
from app.documents.rendering import fenced
from app.engine import LocalEngine
from app.locations import DEMO_MODEL, asset_path
from app.messages import Attachment
from app.settings import Settings
from app.store.conversations import Store
from tests.support.command_line import run_hotslot
from tests.support.documents import make_docx, make_pdf
from tests.support.terminal import HOTSLOT, Terminal

TOWN = (
    "The old mill stands beside the river. It was built in 1820. Anna Weber bought the mill in 1904. The mill has three"
    " floors and a red roof. Visitors may see the wheel on Sundays. A small cafe sells cake in the yard. The"
    " stones came from a quarry near the lake. The last miller was called Jacob.",
    "The railway station is at the end of Harbor Street. Trains leave every hour. The first train leaves at five in the"
    " morning. The waiting room has a piano. Bicycles travel for free. The clock above the door is five minutes fast. A"
    " taxi to the square takes ten minutes. The station was painted green in 1988.",
    "The theater shows a new play every month. Linda Moore leads the theater. The hall has ninety seats. Students pay"
    " half of the price. Coats are kept at the entrance. The curtain is made of blue velvet. The next play is about a"
    " lost dog. Coffee is sold in the break.",
    "The library opens at nine in the morning. Children may borrow five books at a time. The library is closed on"
    " Mondays. Peter Hall is the head of the library. There are two rooms for reading. The oldest book is an atlas. A"
    " lost card costs two dollars. The stairs are made of stone.",
    "The market takes place on the square every Saturday. Farmers sell apples, cheese and honey there. The market began"
    " in 1956. Most visitors come by bus. The bakery brings fresh bread at eight. Music is allowed until noon. The fee"
    " for a table is ten dollars. Dogs must be kept on a leash.",
    "The swimming pool is open from May to September. A ticket costs four dollars. The pool is 50 meters long. Dogs are"
    " not allowed in the water. Lessons for children begin in June. The water is heated by the sun. Lockers need a"
    " coin. The cafe at the pool sells ice cream.",
)
QUESTIONS = {
    "How long is the pool?": "50 meters",
    "When is the library closed?": "on Mondays",
    "Who bought the mill?": "Anna Weber",
    "When did the market begin?": "1956",
}


@pytest.fixture
async def session() -> AsyncIterator[ChatSession]:
    settings = Settings(temperature=0.0, max_tokens=80, thinking="off")
    session = ChatSession(LocalEngine(), Store.in_memory(), settings, asset_path(DEMO_MODEL))
    yield session
    await session.close()


async def ask(session: ChatSession, question: str, *documents: Attachment) -> tuple[TurnEnded, list[DocumentPlanned]]:
    plans = []
    async with aclosing(session.send(question, documents)) as events:
        async for event in events:
            if isinstance(event, DocumentPlanned):
                plans.append(event)
            elif isinstance(event, TurnEnded):
                end = event
    assert (end.outcome, end.error) == ("stop", "")
    return end, plans


def is_right(session: ChatSession, fact: str) -> bool:
    """The last answer has the fact, and cites the page with it."""
    answer = session.messages[-1].content
    cited = [resolve(citation, answer, session.documents) for citation in find_citations(answer)]
    return fact in answer and any(
        passage is not None and fact in passage.excerpt and not passage.is_elsewhere for passage in cited
    )


@pytest.mark.parametrize("form", ["pdf", "docx"])
async def test_answers_cite_pages_and_the_document_is_read_once(session: ChatSession, form: str) -> None:
    data = make_pdf(TOWN) if form == "pdf" else make_docx(TOWN)
    document, _ = read_document(data, f"town.{form}", f"town.{form}")
    first: TurnEnded | None = None
    right = []
    for question, fact in QUESTIONS.items():
        end, plans = await ask(session, question, *([] if first else [document]))
        if first is None:
            assert [plan.mode for plan in plans] == ["whole"]
            assert end.usage.cached_tokens == 0
            first = end
        else:
            assert plans == []
            computed = end.usage.prompt_tokens - end.usage.cached_tokens
            assert computed < 0.1 * first.usage.prompt_tokens
        if is_right(session, fact):
            right.append(question)
    assert right, [message.content for message in session.messages[1::2]]


def test_the_command_line_reads_a_document(tmp_path: Path) -> None:
    (tmp_path / "town.pdf").write_bytes(make_pdf(TOWN))
    options = ["--no-think", "--temperature", "0", "--max-tokens", "40", "--json"]
    ended = run_hotslot("ask", *options, "--file", str(tmp_path / "town.pdf"), "How long is the pool?")
    answer = json.loads(ended.out)
    assert (ended.status, ended.is_clean) == (0, True)
    assert "town.pdf: read whole, " in ended.err
    assert answer["usage"]["prompt_tokens"] > 400
    assert answer["text"]


async def test_a_document_larger_than_the_context_is_searched(session: ChatSession) -> None:
    pages = [
        f"Harbor number {number} is kept by keeper {number * 7919}. " + "Small boats come and go. " * 20
        for number in range(150)
    ]
    document, _ = read_document(make_pdf(pages), "harbors.pdf", "harbors.pdf")
    end, [plan] = await ask(session, "Who keeps harbor number 77?", document)
    assert plan.mode == "passages"
    assert plan.document_tokens > 8192 > end.usage.prompt_tokens > plan.num_tokens
    [shown] = session.messages[0].attachments
    assert "[p.78] Harbor number 77 is kept by keeper 609763." in fenced(shown)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    settings = 'temperature = 0.0\nthinking = "off"\nmax_tokens = 80\n'
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.toml").write_text(settings)
    terminal = Terminal(HOTSLOT, columns=140, rows=40, env={"HOTSLOT_HOME": str(tmp_path / "home")})
    yield terminal
    terminal.close()


def test_a_pdf_and_a_docx_in_a_real_terminal(terminal: Terminal, tmp_path: Path) -> None:
    """A path that is pasted and one that is typed; both are read whole, and every question is answered."""
    (tmp_path / "my town.pdf").write_bytes(make_pdf(TOWN))
    (tmp_path / "town.docx").write_bytes(make_docx(TOWN[:3]))
    terminal.wait_for("slots")
    terminal.send(f"\x1b[200~'{tmp_path}/my town.pdf'\x1b[201~")
    terminal.wait_for("⊕ my town.pdf")
    terminal.send("How long is the pool?\r")
    terminal.wait_for("my town.pdf: read whole, ")
    terminal.wait_for(lambda screen: screen.count("· first after") == 1)
    terminal.send(f"/attach {tmp_path}/town.docx\r")
    terminal.wait_for("⊕ town.docx")
    terminal.send("Who bought the mill?\r")
    terminal.wait_for("town.docx: read whole, ")
    terminal.wait_for(lambda screen: screen.count("· first after") == 2)
    terminal.send("\x11")
    assert terminal.wait_for_exit() == 0
    store = Store.open(tmp_path / "home" / "hotslot.db")
    [conversation] = store.list_conversations()
    messages = store.branch(conversation.head_id)
    assert [message.role for message in messages] == ["user", "assistant"] * 2
    assert [[file.name for file in message.attachments] for message in messages[::2]] == [
        ["my town.pdf"],
        ["town.docx"],
    ]
    assert all(message.content for message in messages)
    store.check_integrity()
