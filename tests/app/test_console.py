"""The plain terminal writes control sequences only of its own, and only to a terminal."""

import io

from app.console import Console, format_bytes


class FakeTerminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_pipes_see_no_progress_and_no_colour() -> None:
    out, err = io.StringIO(), io.StringIO()
    console = Console(out=out, err=err)
    console.progress("Loading")
    console.reasoning("hm")
    console.answer("yes")
    console.end_line()
    assert (out.getvalue(), err.getvalue()) == ("yes\n", "hm\n")


def test_terminal_sees_progress_go_and_reasoning_dimmed() -> None:
    out, err = io.StringIO(), FakeTerminal()
    console = Console(out=out, err=err)
    console.progress("Loading 1 %")
    console.progress("Loading 2 %")
    console.reasoning("hm")
    console.answer("yes\n")
    assert err.getvalue() == "\r\x1b[KLoading 1 %\r\x1b[KLoading 2 %\r\x1b[K\x1b[2mhm\x1b[0m\n"
    assert out.getvalue() == "yes\n"


def test_no_colour() -> None:
    err = FakeTerminal()
    Console(is_colour_off=True, out=io.StringIO(), err=err).reasoning("hm\n")
    assert err.getvalue() == "hm\n"


def test_notice_ends_an_open_line() -> None:
    out, err = io.StringIO(), io.StringIO()
    console = Console(out=out, err=err)
    console.answer("par")
    console.notice("two\nlines\x1b[31m")
    assert out.getvalue() == "par\n"
    assert err.getvalue() == "hotslot: two lines[31m\n"


def test_sizes_are_readable() -> None:
    assert [format_bytes(n) for n in (0, 1023, 1024, 1536, 5 * 2**30, 2**41)] == [
        "0 B",
        "1023 B",
        "1.0 KiB",
        "1.5 KiB",
        "5.0 GiB",
        "2.0 TiB",
    ]
