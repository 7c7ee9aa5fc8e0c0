"""A model's way through the whole app in a real terminal: named, downloaded, killed half way, gone on with, used."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hub_server import HubServer, demo_repository, running_hub
from tests.support.terminal import HOTSLOT, Terminal

REPO_ID = "someone/Demo"
F2, CTRL_Q, DOWN = "\x1bOQ", "\x11", "\x1b[B"


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with running_hub() as server:
        server.repositories[REPO_ID] = demo_repository()
        yield server


def open_models(hub: HubServer, tmp_path: Path) -> Terminal:
    terminal = Terminal(HOTSLOT, env=hub.variables(tmp_path / "hf"))
    terminal.wait_for("Write a message")
    terminal.send(F2)
    terminal.wait_for("disk")
    return terminal


def test_downloaded_in_two_lives_and_used_in_the_third(hub: HubServer, own_home: Path, tmp_path: Path) -> None:
    hub.on_bytes = lambda: time.sleep(0.01)
    first = open_models(hub, tmp_path)
    try:
        first.send("n")
        first.wait_for("Enter looks it up")
        first.send(f"{REPO_ID}\r")
        first.wait_for(lambda screen: f"  {REPO_ID} " in screen)
        first.send("d")
        first.wait_for("Downloading: ")
        while hub.sent_bytes < 10_000_000:
            first.read(0.05)
        first.wait_for("MiB/s")
    finally:
        first.process.send_signal(signal.SIGKILL)
        first.close()
    sent_bytes = hub.sent_bytes
    hub.on_bytes = lambda: None

    second = open_models(hub, tmp_path)
    try:
        second.wait_for("not complete, ")
        second.send(DOWN)
        second.wait_for("D Download")
        second.send("d")
        second.wait_for("Complete and checked")
        total_bytes = sum(path.stat().st_size for path in (own_home / "models" / "someone--Demo").iterdir())
        assert hub.sent_bytes - sent_bytes < 1.02 * total_bytes - 8_000_000, "what was here was fetched again"
        second.wait_for("Fits: ")
        second.send("\r")
        second.wait_for(f"{REPO_ID} answers from now on.")
        second.send("Hello there, who are you?\r")
        second.wait_for(lambda screen: "first after" in screen)
        second.send(CTRL_Q)
        assert second.wait_for_exit() == 0
    finally:
        second.close()
    assert f'model = "{REPO_ID}"' in (own_home / "config.toml").read_text()
