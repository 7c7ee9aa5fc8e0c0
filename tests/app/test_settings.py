"""Settings: legal values only, and a file that survives damage."""

import tempfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from app.errors import SettingsError
from app.settings import SETTING_FIELDS, Settings
from app.settings_file import SettingsFile
from runtime.errors import UsageError
from runtime.options import EngineOptions, SamplingOptions
from tests.support.privileges import as_ordinary_user

FIELDS = {setting.name: setting for setting in SETTING_FIELDS}


@pytest.fixture
def file(tmp_path: Path) -> SettingsFile:
    return SettingsFile(tmp_path / "home" / "config.toml")


def write(file: SettingsFile, content: bytes) -> None:
    file.path.parent.mkdir(parents=True, exist_ok=True)
    file.path.write_bytes(content)


def kept_aside(file: SettingsFile) -> list[bytes]:
    return [path.read_bytes() for path in file.path.parent.glob("config.toml.corrupt-*")]


def test_no_file_means_defaults(file: SettingsFile) -> None:
    assert file.load() == (Settings(), None)
    assert not file.path.parent.exists()


def test_what_is_saved_is_loaded(file: SettingsFile) -> None:
    settings = Settings(
        model="/models/x",
        system_prompt='say "hi"\n\\',
        thinking="off",
        temperature=0.0,
        seed=7,
        overlap=False,
        slots=12,
    )
    file.save(settings)
    assert file.load() == (settings, None)
    assert list(file.path.parent.iterdir()) == [file.path]


def test_settings_of_another_version_stay(file: SettingsFile) -> None:
    write(file, b'future = "x"\ntop_k = 3\n[table]\na = 1\n')
    settings, notice = file.load()
    assert settings == Settings(top_k=3)
    assert notice is not None
    assert "'future', 'table', which Hotslot does not know: kept there, not used" in notice
    file.save(replace(settings, top_k=4))
    text = file.path.read_text()
    assert 'future = "x"' in text
    assert "[table]" in text
    assert "top_k = 4" in text


@pytest.mark.parametrize(
    "content",
    [b"\0" * 300, b'model = "de', b"\xff\xfe\x00", b"= =", b"model = 'a'\nmodel = 'b'", b"\x80abc"],
)
def test_damaged_file_is_kept_aside(file: SettingsFile, content: bytes) -> None:
    write(file, content)
    settings, notice = file.load()
    assert settings == Settings()
    assert notice is not None
    assert "\n" not in notice
    assert "damaged" in notice
    assert ".corrupt-" in notice
    assert kept_aside(file) == [content]
    assert file.load() == (Settings(), None)


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b'temperature = "hot"\ntop_k = 5\n', "Temperature"),
        (b"temperature = 11.0\ntop_k = 5\n", "Temperature"),
        (b"temperature = nan\ntop_k = 5\n", "Temperature"),
        (b"seed = true\ntop_k = 5\n", "Seed"),
        (b"model = 5\ntop_k = 5\n", "Model"),
        (b'policy = "fifo"\ntop_k = 5\n', "Slot policy"),
        (b"slots = 0\ntop_k = 5\n", "Expert slots"),
        (b'vram = "lots"\ntop_k = 5\n', "VRAM limit"),
        (b"overlap = []\ntop_k = 5\n", "Overlap"),
    ],
)
def test_wrong_value_costs_only_itself(file: SettingsFile, content: bytes, named: str) -> None:
    write(file, content)
    settings, notice = file.load()
    assert settings == Settings(top_k=5)
    assert notice is not None
    assert named in notice
    assert kept_aside(file) == [content]
    assert file.load() == (Settings(top_k=5), None)


def test_unknown_names_are_told_with_the_nearest_known(file: SettingsFile) -> None:
    content = b'temperatur = 0.5\n"a\\nb" = 1\n'
    write(file, content)
    settings, notice = file.load()
    assert settings == Settings()
    assert notice is not None
    assert "'temperatur' (did you mean temperature?), 'a\\nb', which" in notice
    assert "\n" not in notice
    assert (file.path.read_bytes(), kept_aside(file)) == (content, [])


def test_unknown_theme_is_told_with_the_nearest_known(file: SettingsFile) -> None:
    write(file, b'theme = "hotslot-drak"\n')
    settings, notice = file.load()
    assert settings == Settings()
    assert notice is not None
    assert "not 'hotslot-drak' (did you mean hotslot-dark?)" in notice


def test_a_repaired_file_keeps_unknown_names(file: SettingsFile) -> None:
    write(file, b'futur = "x"\ntop_k = "many"\n')
    _, notice = file.load()
    assert notice is not None
    assert "'futur'" in notice
    assert "Top-k" in notice
    assert file.path.read_text() == 'futur = "x"\n'


def test_a_change_is_added_and_options_of_this_run_are_not_kept(file: SettingsFile) -> None:
    write(file, b'futur = "x"\ntop_k = 3\n')
    before = Settings(top_k=3, seed=5)
    assert file.update(before, replace(before, theme="nord")) is None
    assert file.path.read_text() == 'futur = "x"\ntop_k = 3\ntheme = "nord"\n'


def test_a_file_damaged_meanwhile_loses_nothing_by_a_change_and_is_told(file: SettingsFile) -> None:
    write(file, b"top_k = ")
    before = Settings(top_k=3)
    notice = file.update(before, replace(before, theme="nord"))
    assert notice is not None
    assert "damaged; the old file is kept as" in notice
    assert "the settings of this run were written anew" in notice
    assert kept_aside(file) == [b"top_k = "]
    assert file.load() == (Settings(top_k=3, theme="nord"), None)


def test_a_value_damaged_meanwhile_is_told_by_a_change(file: SettingsFile) -> None:
    write(file, b'top_k = "many"\n')
    notice = file.update(Settings(), Settings(theme="nord"))
    assert notice is not None
    assert "Top-k" in notice
    assert len(kept_aside(file)) == 1
    assert file.load() == (Settings(theme="nord"), None)


def test_a_file_that_can_not_be_read_is_not_replaced_by_a_change() -> None:
    # Not below tmp_path, which only root may enter.
    with tempfile.TemporaryDirectory() as folder:
        file = SettingsFile(Path(folder) / "config.toml")
        file.path.write_bytes(b"top_k = 3\n")
        file.path.chmod(0)
        Path(folder).chmod(0o777)
        with as_ordinary_user(), pytest.raises(SettingsError, match="Permission denied"):
            file.update(Settings(), Settings(theme="nord"))
        file.path.chmod(0o600)
        assert file.path.read_bytes() == b"top_k = 3\n"


def test_file_that_is_a_folder(file: SettingsFile) -> None:
    file.path.mkdir(parents=True)
    settings, notice = file.load()
    assert settings == Settings()
    assert notice is not None
    assert "defaults" in notice
    with pytest.raises(SettingsError, match="HOTSLOT_HOME"):
        file.save(Settings())


def test_home_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "home").write_text("")
    file = SettingsFile(tmp_path / "home" / "config.toml")
    assert file.load() == (Settings(), None)
    with pytest.raises(SettingsError, match="can't be saved"):
        file.save(Settings(top_k=1))


def test_read_only_home() -> None:
    with tempfile.TemporaryDirectory() as home:
        file = SettingsFile(Path(home) / "config.toml")
        file.path.write_bytes(b"\0")
        file.path.chmod(0o644)
        Path(home).chmod(0o555)
        with as_ordinary_user():
            settings, notice = file.load()
            with pytest.raises(SettingsError, match="HOTSLOT_HOME"):
                file.save(Settings())
        assert settings == Settings()
        assert notice is not None
        assert "could not be moved aside" in notice


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("temperature", "0.7", 0.7),
        ("temperature", " 1 ", 1.0),
        ("temperature", "", None),
        ("top_k", "20", 20),
        ("overlap", "false", False),
        ("policy", "lru", "lru"),
        ("vram", "16GiB", "16GiB"),
        ("vram", "", ""),
        ("system_prompt", "Be brief.", "Be brief."),
    ],
)
def test_typed_text_becomes_a_value(name: str, text: str, value: Any) -> None:
    assert FIELDS[name].parse(text) == value


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("temperature", "hot"),
        ("temperature", "-1"),
        ("temperature", "inf"),
        ("top_p", "0"),
        ("top_p", "1.1"),
        ("top_k", "1.5"),
        ("slots", "0"),
        ("overlap", "maybe"),
        ("policy", "fifo"),
        ("vram", "0"),
        ("vram", "much"),
    ],
)
def test_illegal_text_is_refused_with_the_range(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=FIELDS[name].info.label):
        FIELDS[name].parse(text)


def test_every_field_has_words_and_a_legal_default() -> None:
    assert [setting.name for setting in SETTING_FIELDS] == [field.name for field in fields(Settings)]
    for setting in SETTING_FIELDS:
        assert setting.info.label
        assert setting.info.help
        assert setting.check(setting.default) == setting.default


def test_limits_agree_with_the_runtime() -> None:
    """What a setting allows, the engine's options allow."""
    for name in ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "repetition_penalty", "max_tokens"):
        info = FIELDS[name].info
        for edge in (info.minimum, info.maximum):
            if edge is not None and not (info.is_open and edge == info.minimum):
                SamplingOptions(**{name: FIELDS[name].kind(edge)})


def test_unset_sampling_is_the_models_own() -> None:
    own = SamplingOptions(temperature=0.5, top_k=20, top_p=0.95, min_p=0.1)
    assert Settings().sampling_options(own) == own
    assert Settings(temperature=0.0, seed=3).sampling_options(own) == replace(own, temperature=0.0, seed=3)


def test_engine_options() -> None:
    assert Settings().engine_options(Path("/m")) == EngineOptions(Path("/m"))
    options = Settings(vram="2GiB", slots=8, context=100, overlap=False, policy="lru", device="cpu", dtype="fp32")
    assert options.engine_options(Path("/m")) == EngineOptions(
        Path("/m"), "cpu", "fp32", policy="lru", overlap=False, vram_bytes=2**31, num_slots=8, context_tokens=100
    )
    assert Settings(side_call_share=0.2).engine_options(Path("/m")).side_call_share == 0.2
    assert Settings(ram="8GiB").engine_options(Path("/m")).ram_bytes == 8 * 2**30


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_an_impossible_share_of_side_calls_is_refused(share: float) -> None:
    with pytest.raises(UsageError, match="between 0 and 1"):
        EngineOptions(Path("/m"), side_call_share=share)
