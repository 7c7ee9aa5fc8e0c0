"""The models screen with the real downloader against a Hub on the loopback, and switching between models."""

import threading
from pathlib import Path

import huggingface_hub.constants
import pytest
from textual.pilot import Pilot
from textual.widgets import Input, OptionList

from app.locations import DEMO_MODEL, Locations, asset_path
from app.settings import Settings
from app.settings_file import SettingsFile
from app.tui.app import HotslotApp
from app.tui.screens.dialogs import ConfirmScreen
from app.tui.screens.models import ActionButton, ModelsScreen
from app.tui.screens.text_view import TextScreen
from runtime.downloads.events import DownloadProgressed
from runtime.downloads.hub import HubAccess
from runtime.downloads.places import ModelPlaces
from runtime.downloads.progress_file import end_progress, tell_progress
from runtime.errors import CheckpointError
from runtime.options import EngineOptions
from runtime.protocol import Loaded
from tests.app.tui.conftest import GatedEngine, MakeApp, say, screen_text, settle, until_open, until_shown
from tests.support.hub_server import Fault, HubServer, Repository
from tests.support.scripted_engine import Say, ScriptedEngine
from tests.support.small_repository import REPO_ID, SHARDS


def use_hub(app: HotslotApp, hub: HubServer) -> None:
    app.chat.jobs._access = lambda: HubAccess(hub.endpoint, None, is_offline=False)


async def open_models(pilot: Pilot[None]) -> ModelsScreen:
    await settle(pilot)
    await pilot.press("f2")
    await until_open(pilot, ModelsScreen)
    await until_shown(pilot, "memory")
    assert isinstance(pilot.app.screen, ModelsScreen)
    return pilot.app.screen


async def name_model(pilot: Pilot[None], name: str) -> None:
    """Type a name into the list's own line, and wait until its row is marked."""
    await pilot.press("n")
    pilot.app.screen.query_one(Input).value = name
    await pilot.press("enter")
    await until(pilot, lambda: pilot.app.screen.query_one(OptionList).has_focus, f"{name} is not in the list")


async def until(pilot: Pilot[None], is_so: object, what: str) -> None:
    for _ in range(1000):
        if is_so():  # type: ignore[operator]
            await pilot.pause()
            return
        await pilot.pause(0.01)
    app = pilot.app
    assert isinstance(app, HotslotApp)
    raise AssertionError(f"{what}:\n{screen_text(app)}")


def buttons(screen: ModelsScreen) -> list[str]:
    return [button.action_name for button in screen.query(ActionButton) if button.display]


async def test_what_is_here_what_fits_and_what_is_not_known(make_app: MakeApp, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    app = make_app()
    async with app.run_test(size=(100, 40)) as pilot:
        screen = await open_models(pilot)
        await until_shown(pilot, "The Hub is switched off (HF_HUB_OFFLINE)")
        await until_shown(pilot, "GiB free")
        await until_shown(pilot, "Fits: ")
        assert buttons(screen) == ["model_details"]
        options = screen.query_one(OptionList)
        options.highlighted = options.get_option_index("nvidia/Qwen3.5-122B-A10B-NVFP4")
        await until_shown(pilot, "shape not known before its config is here · licence not stated")
        await until_shown(pilot, "not here, size not known")
        assert buttons(screen) == ["pull_model", "model_details"]
        await pilot.press("enter")
        await until_open(pilot, TextScreen)
        await until_shown(pilot, "nvidia/Qwen3.5-122B-A10B-NVFP4 at the newest commit")


async def test_download_pause_go_on_verify_and_delete(make_app: MakeApp, hub: HubServer, locations: Locations) -> None:
    gate = threading.Event()
    hub.faults[SHARDS[0]] = Fault(block=gate)
    app = make_app()
    use_hub(app, hub)
    places = ModelPlaces.of(locations.models_dir, REPO_ID)
    async with app.run_test(size=(100, 40)) as pilot:
        screen = await open_models(pilot)
        await name_model(pilot, REPO_ID)
        await pilot.press("d")
        await until_shown(pilot, "Downloading: ")
        await until(pilot, lambda: app.chat.jobs.states[REPO_ID].done_bytes > 300_000, "no bytes came")
        await until(pilot, lambda: buttons(screen) == ["pause_model", "cancel_model", "model_details"], "buttons")
        await pilot.press("escape")
        await until_shown(pilot, "↓ ")
        screen = await open_models(pilot)
        await until(pilot, lambda: REPO_ID in screen_text(app), "what was begun is not in the list")
        options = screen.query_one(OptionList)
        options.highlighted = options.get_option_index(REPO_ID)
        await pilot.pause()
        await pilot.click("ActionButton#pause_model")
        await until_shown(pilot, "paused at ")
        gate.set()
        await pilot.press("d")
        await until_shown(pilot, "Complete and checked")
        await until(pilot, lambda: "verify_model" in buttons(screen), "not seen as complete")
        with (places.folder / SHARDS[1]).open("r+b") as stream:
            stream.write(b"\0not what was here")
        await pilot.press("V")
        await until_shown(pilot, f"Mended: {SHARDS[1]} has another hash than the Hub's")
        await pilot.press("delete")
        await until_open(pilot, ConfirmScreen)
        await pilot.press("escape")
        await until_open(pilot, ModelsScreen)
        assert places.folder.is_dir()
        await pilot.press("delete")
        await until_open(pilot, ConfirmScreen)
        await pilot.press("y")
        await until(pilot, lambda: not places.folder.exists(), "not deleted")
        await until_shown(pilot, "freed.")


async def test_a_failed_download_says_why_and_is_tried_again(make_app: MakeApp, hub: HubServer) -> None:
    app = make_app()
    use_hub(app, hub)
    repository = hub.repositories.pop(REPO_ID)
    async with app.run_test(size=(100, 40)) as pilot:
        await open_models(pilot)
        await name_model(pilot, REPO_ID)
        await pilot.press("d")
        await until_shown(pilot, f"Failed · There is no repository {REPO_ID}")
        hub.repositories[REPO_ID] = repository
        await pilot.press("d")
        await until_shown(pilot, "Complete and checked")


async def test_another_process_is_shown(make_app: MakeApp, locations: Locations) -> None:
    app = make_app()
    places = ModelPlaces.of(locations.models_dir, REPO_ID)
    places.staging.mkdir(parents=True)
    async with app.run_test(size=(100, 40)) as pilot:
        screen = await open_models(pilot)
        await until(pilot, lambda: REPO_ID in screen_text(app), "not in the list")
        tell_progress(places, DownloadProgressed(430, 1000, 10.0, 57.0, 1, 3))
        await until_shown(pilot, "43 % elsewhere")
        options = screen.query_one(OptionList)
        options.highlighted = options.get_option_index(REPO_ID)
        await until_shown(pilot, "Another Hotslot downloads it: 43 %, 430 B of 1000 B, 10 B/s, 57 s left")
        end_progress(places)
        await until(pilot, lambda: "elsewhere" not in screen_text(app), "still shown")


async def test_the_hub_is_asked_about_what_is_not_known(
    make_app: MakeApp, hub: HubServer, locations: Locations
) -> None:
    config = (asset_path(DEMO_MODEL) / "config.json").read_bytes()
    hub.repositories["someone/Known"] = Repository({"config.json": config, "model.safetensors": b"0" * 9000})
    hub.repositories["someone/Foreign"] = Repository({"config.json": b'{"model_type": "llama"}', "a.safetensors": b"0"})
    hub.repositories["someone/Empty"] = Repository({"README.md": b"nothing"})
    hub.repositories["someone/Gated"] = Repository({"config.json": config, "a.safetensors": b"0"}, needs_token="x")
    app = make_app()
    use_hub(app, hub)
    async with app.run_test(size=(100, 50)) as pilot:
        await open_models(pilot)
        for name, answer in (
            ("someone/Known", "8 layers · 48 experts"),
            ("someone/Foreign", "config.json has model_type 'llama'"),
            ("someone/Empty", "someone/Empty has no config.json with *.safetensors"),
            ("someone/Gated", "someone/Gated is gated: accept its terms"),
            ("someone/Nobody", "There is no repository someone/Nobody"),
        ):
            await name_model(pilot, name)
            await until_shown(pilot, answer)
        options = app.screen.query_one(OptionList)
        options.highlighted = options.get_option_index("someone/Known")
        await until_shown(pilot, "Fits: ")
        await until_shown(pilot, "apache-2.0")
        fetched = {request.path.rsplit("/", 1)[1] for request in hub.file_requests()}
        assert fetched == {"config.json"}
        assert not locations.models_dir.exists()


@pytest.mark.parametrize(
    "name",
    ["", "no such model", "/no/such/folder", "a/b/c", "[/red]", "x" * 5000, "/etc/passwd"],
)
async def test_names_that_mean_nothing_are_refused(make_app: MakeApp, name: str) -> None:
    app = make_app()
    async with app.run_test(size=(80, 24)) as pilot:
        screen = await open_models(pilot)
        num_rows = screen.query_one(OptionList).option_count
        await pilot.press("n")
        screen.query_one(Input).value = name
        await pilot.press("enter")
        if name:
            await until(pilot, lambda: bool(app._notifications), "nothing was said")
        await pilot.pause()
        assert app.screen is screen
        assert screen.query_one(OptionList).option_count == num_rows
        assert "\x1b" not in screen_text(app)
        assert all("\x1b" not in note.message for note in app._notifications)


async def test_a_folder_that_is_named_is_used(make_app: MakeApp, locations: Locations, tmp_path: Path) -> None:
    folder = tmp_path / "elsewhere"
    folder.symlink_to(asset_path(DEMO_MODEL))
    engine = ScriptedEngine((Say("ok"),))
    app = make_app(engine=engine)
    async with app.run_test(size=(80, 24)) as pilot:
        await open_models(pilot)
        await name_model(pilot, str(folder))
        await pilot.press("enter")
        await settle(pilot)
        await until_shown(pilot, "answers from now on")
        assert engine.starts[-1].model_path == folder
        kept, _ = SettingsFile(locations.config_file).load()
        assert kept.model == str(folder)


class RefusingEngine(GatedEngine):
    """Can't load the demo."""

    async def start(self, options: EngineOptions, on_progress: object = None) -> Loaded:
        if options.model_path == asset_path(DEMO_MODEL):
            self._is_running = False
            raise CheckpointError("demo: a tensor is missing; download it again")
        return await super().start(options)


async def test_a_model_that_cannot_be_loaded_leaves_the_former(make_app: MakeApp, locations: Locations) -> None:
    engine = RefusingEngine((Say("ok"),))
    engine.load_gate.set()
    engine.end_gate.set()
    app = make_app(engine=engine, settings=Settings(tools=False, model="former"))
    async with app.run_test(size=(100, 30)) as pilot:
        former = app.chat.session.model_path
        await open_models(pilot)
        await pilot.press("enter")
        await until_shown(pilot, "a tensor is missing")
        await settle(pilot)
        await until_shown(pilot, "demo was not loaded; former stays.")
        assert app.chat.session.model_path == former
        assert engine.starts[-1].model_path == former
        assert engine.is_running
        assert SettingsFile(locations.config_file).load()[0].model == Settings().model
        await say(pilot, "Hi")
        assert "ok" in screen_text(app)


async def test_loading_another_model_can_be_stopped(make_app: MakeApp) -> None:
    engine = GatedEngine((Say("ok"),))
    engine.load_gate.set()
    app = make_app(engine=engine, settings=Settings(tools=False, model="former"))
    async with app.run_test(size=(100, 30)) as pilot:
        former = app.chat.session.model_path
        await open_models(pilot)
        engine.load_gate.clear()
        await pilot.press("enter")
        await until(pilot, lambda: app.chat.is_busy, "nothing loads")
        await until_shown(pilot, "Esc stops loading")
        await pilot.press("escape")
        engine.load_gate.set()
        await until_shown(pilot, "demo was not loaded; former stays.")
        await settle(pilot)
        assert (app.chat.session.model_path, engine.is_running) == (former, True)


async def test_a_model_chosen_during_an_answer_is_loaded_after_it(make_app: MakeApp) -> None:
    engine = GatedEngine((Say("ok"),))
    engine.load_gate.set()
    app = make_app(engine=engine)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        app.chat.prompt.set_text("Hi")
        await pilot.press("enter")
        await until_shown(pilot, "ok")
        await pilot.press("f2")
        await until_open(pilot, ModelsScreen)
        await until_shown(pilot, "memory")
        await pilot.press("enter")
        await until_shown(pilot, "demo is loaded after this answer.")
        assert len(engine.starts) == 1
        engine.end_gate.set()
        await until_shown(pilot, "demo answers from now on.")
        assert engine.starts[-1].model_path == asset_path(DEMO_MODEL)


async def test_slash_commands_name_a_model(make_app: MakeApp, hub: HubServer, locations: Locations) -> None:
    app = make_app()
    use_hub(app, hub)
    async with app.run_test(size=(100, 30)) as pilot:
        await settle(pilot)
        for text, answer in (
            ("/models pause demo", "demo: it was not downloaded by Hotslot"),
            ("/models pull nothing", "There is no model 'nothing'"),
            (f"/models pull {REPO_ID}", "complete and checked"),
            (f"/model verify {REPO_ID}", "every file is right"),
            (f"/models rm {REPO_ID}", f"Remove {REPO_ID}"),
        ):
            app.chat.prompt.set_text(text)
            await pilot.press("enter")
            await until_shown(pilot, answer)
        await pilot.press("y")
        await until_shown(pilot, "freed.")
        assert not ModelPlaces.of(locations.models_dir, REPO_ID).folder.exists()


@pytest.mark.parametrize("size", [(80, 24), (40, 12), (20, 5), (200, 60)])
async def test_the_list_works_at_every_size(make_app: MakeApp, size: tuple[int, int]) -> None:
    app = make_app()
    async with app.run_test(size=size) as pilot:
        await settle(pilot)
        await pilot.press("f2")
        await until_open(pilot, ModelsScreen)
        await until_shown(pilot, "demo")
        await pilot.press("down", "down", "down", "i")
        await until_open(pilot, TextScreen)
        await pilot.press("escape", "escape")
        await until(pilot, lambda: app.screen is app.chat, "not closed")


async def test_a_narrow_screen_has_rows_too(make_app: MakeApp) -> None:
    app = make_app()
    async with app.run_test(size=(40, 14)) as pilot:
        screen = await open_models(pilot)
        assert screen.query_one(OptionList).size.height >= 6
        await until_shown(pilot, "I Details")
