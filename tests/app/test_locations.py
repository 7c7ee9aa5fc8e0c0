"""Everything lies under HOTSLOT_HOME where it is set; the environment is read in one file."""

import re
from pathlib import Path

from app.environment import Environment
from app.locations import DEMO_MODEL, Locations, asset_path

APP = Path(__file__).resolve().parents[2] / "app"


def test_home_moves_everything(tmp_path: Path) -> None:
    places = Locations.resolve(Environment.read({"HOTSLOT_HOME": str(tmp_path)}))
    for path in (places.config_file, places.database_file, places.log_dir, places.models_dir, places.cache_dir):
        assert path.is_relative_to(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_without_home_the_system_decides() -> None:
    places = Locations.resolve(Environment.read({}))
    assert places.config_file.is_absolute()
    assert "hotslot" in str(places.database_file)


def test_relative_home_is_made_absolute() -> None:
    home = Environment.read({"HOTSLOT_HOME": "here"}).home
    assert home is not None
    assert home.is_absolute()


def test_colour_is_off_only_with_a_value() -> None:
    assert Environment.read({"NO_COLOR": "1"}).is_colour_off
    assert not Environment.read({"NO_COLOR": ""}).is_colour_off


def test_environment_is_read_in_one_file() -> None:
    readers = [p for p in APP.rglob("*.py") if re.search(r"\bos\.(environ|getenv)", p.read_text(encoding="utf-8"))]
    assert [p.name for p in readers] == ["environment.py"]


def test_assets_are_found() -> None:
    assert asset_path(DEMO_MODEL).name == DEMO_MODEL
    assert not asset_path("no-such-asset").exists()
