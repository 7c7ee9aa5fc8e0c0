"""A model's name means one folder, or one line says why not."""

import json
from pathlib import Path

import pytest

from app.errors import ModelNameError
from app.library import DEMO_NAME, describe_model, list_models, require_remote, resolve_model
from app.locations import DEMO_MODEL, Locations, asset_path


@pytest.fixture
def places(own_home: Path) -> Locations:
    locations = Locations.resolve()
    locations.models_dir.mkdir(parents=True)
    return locations


def test_folder_by_path_and_by_name(places: Locations, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (places.models_dir / "kept").mkdir()
    assert resolve_model(str(tmp_path / "mine"), places) == tmp_path / "mine"
    assert resolve_model("kept", places) == places.models_dir / "kept"


def test_demo_is_the_shipped_folder(places: Locations) -> None:
    if not asset_path(DEMO_MODEL).is_dir():
        pytest.skip("the demo model is not in this checkout")
    assert resolve_model("demo", places) == asset_path(DEMO_MODEL)


@pytest.mark.parametrize(
    ("name", "pattern"),
    [
        ("nope", "no model 'nope'.*models list"),
        ("Qwen/Some-Model", "Qwen/Some-Model is not on this machine; get it with: hotslot models pull Qwen/Some-Model"),
        ("qwen3-30b", "get it with: hotslot models pull qwen3-30b"),
        ("", "no model ''"),
        ("  ", "no model"),
        ("a\0b", "no model 'ab'"),
        ("x" * 5000, "no model"),
        ("~no-such-user-here/x", "no model|no folder"),
        ("\x1b]0;t\x07", "no model ']0;t'"),
    ],
)
def test_unknown_name_is_one_line(places: Locations, name: str, pattern: str) -> None:
    with pytest.raises(ModelNameError, match=pattern) as caught:
        resolve_model(name, places)
    assert "\n" not in str(caught.value)
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("name", [DEMO_NAME, "mine"])
def test_what_was_not_downloaded_is_not_called_unknown(places: Locations, name: str) -> None:
    if name == DEMO_NAME and not asset_path(DEMO_MODEL).is_dir():
        pytest.skip("the demo model is not in this checkout")
    (places.models_dir / "mine").mkdir()
    with pytest.raises(ModelNameError, match=f"{name} is here and was not downloaded.*models info {name}"):
        require_remote(name, places)
    with pytest.raises(ModelNameError, match="neither in the catalogue"):
        require_remote(".", places)


def test_file_is_not_a_folder(places: Locations, tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"")
    with pytest.raises(ModelNameError, match="is a file; --model takes the folder"):
        resolve_model(str(tmp_path / "model.safetensors"), places)


def test_list_names_what_is_wrong_with_a_folder(places: Locations) -> None:
    empty = places.models_dir / "empty\x1b[31m"
    empty.mkdir()
    broken = places.models_dir / "broken"
    broken.mkdir()
    (broken / "config.json").write_text("{")
    (broken / "README.md").write_text("---\nlicense: apache-2.0\n---\n# x\n")
    other = places.models_dir / "other"
    other.mkdir()
    (other / "config.json").write_text(json.dumps({"model_type": "gpt2"}))
    models = {model.name: model for model in list_models(places) if model.name != DEMO_NAME}
    assert set(models) == {"empty[31m", "broken", "other"}
    assert all(model.spec is None and model.problem and "\n" not in model.problem for model in models.values())
    assert models["broken"].licence == "apache-2.0"
    assert models["other"].licence == "unknown"


def test_missing_models_folder_is_no_error(tmp_path: Path) -> None:
    assert all(model.name == DEMO_NAME for model in list_models(Locations.resolve()))


def test_demo_facts() -> None:
    folder = asset_path(DEMO_MODEL)
    if not (folder / "config.json").is_file():
        pytest.skip("the demo model is not in this checkout")
    spec = describe_model(DEMO_NAME, folder).spec
    assert spec is not None
    assert spec.family == "qwen4_exp"
