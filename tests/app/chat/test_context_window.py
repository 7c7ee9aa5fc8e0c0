"""The model is shown everything that was answered, and files can't break out of their fence."""

from hypothesis import given
from hypothesis import strategies as st

from app.chat.context_window import build_context, compose_content
from app.chat.titles import MAX_TITLE_CHARS, first_words
from app.messages import Attachment, Message, MessageStatus


def message(role: str, content: str, status: MessageStatus = "complete") -> Message:
    return Message("c", None, role, content, status=status)  # type: ignore[arg-type]


def test_nothing_but_unanswered_messages_is_left_out() -> None:
    branch = [
        message("user", "a", "failed"),
        message("user", "b"),
        message("assistant", "c", "cancelled"),
        message("user", "d"),
        message("assistant", "e", "failed"),
        message("user", "f", "failed"),
    ]
    assert [m.content for m in build_context(branch)] == ["b", "c", "d", "e", "f"]


def test_blank_system_prompt_is_none() -> None:
    assert build_context([message("user", "a")], "  \n")[0].role == "user"


@given(st.text("`~\na", max_size=40))
def test_no_file_closes_its_own_fence(text: str) -> None:
    content = compose_content("question", [Attachment("f", text)])
    lines = content.split("\n")
    fence = lines[1]
    closing = len(lines) - 3
    assert set(fence) == {"`"}
    assert lines[closing] == fence
    assert not any(line.startswith(fence) for line in lines[2:closing])


def test_citations_are_asked_for_where_there_are_marks() -> None:
    page, line, bare = Attachment("a.pdf", "x", "pages"), Attachment("b", "x\ny"), Attachment("c", "x")
    assert "such as [p.3].\n\nWho?" in compose_content("Who?", [page, bare], asks_for_citations=True)
    assert "such as [p.3] or [line 12].\n\nWho?" in compose_content("Who?", [line, page], asks_for_citations=True)
    assert compose_content("Who?", [bare], asks_for_citations=True) == compose_content("Who?", [bare])
    assert "such as" not in compose_content("Who?", [page, line])


@given(st.text(max_size=300))
def test_title_is_one_short_line(text: str) -> None:
    title = first_words(text)
    assert 0 < len(title) <= MAX_TITLE_CHARS
    assert "\n" not in title


def test_title_is_cut_between_words() -> None:
    assert first_words("word " * 40) == ("word " * 11).strip() + "…"
    assert first_words("  \n ") == "New chat"
    assert first_words("how\nare   you") == "how are you"
