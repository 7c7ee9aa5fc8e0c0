"""The README's pictures show the screens and fetch nothing."""

import re
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
SCREENS = sorted((REPO / "assets" / "screens").glob("*.svg"))


@pytest.mark.parametrize("path", SCREENS, ids=lambda path: path.stem)
def test_a_picture_names_no_host_and_no_font_file(path: Path) -> None:
    svg = path.read_text(encoding="utf-8")
    assert set(re.findall(r"https?://[^\s\"')]+", svg)) == {"http://www.w3.org/2000/svg"}
    assert "@font-face" not in svg
    assert "<text" in svg
