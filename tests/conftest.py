"""Every test has a home of its own and no network beyond the loopback."""

import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.support.triton_mode import interpret_without_gpu

# Two test processes on two cores: torch threads of both would wait for each other, spinning.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

interpret_without_gpu()

# A busy machine is slow, not wrong.
settings.register_profile("hotslot", deadline=None)
settings.load_profile("hotslot")

LOOPBACK = ("127.", "::1", "localhost")


@pytest.fixture(autouse=True)
def own_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """HOTSLOT_HOME of this test; child processes inherit it."""
    home = tmp_path / "hotslot-home"
    monkeypatch.setenv("HOTSLOT_HOME", str(home))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    return home


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Connecting anywhere but to this machine fails the test."""
    connect = socket.socket.connect

    def guarded_connect(self: socket.socket, address: Any) -> None:
        if isinstance(address, tuple) and not str(address[0]).startswith(LOOPBACK):
            pytest.fail(f"a test connected to {address}")
        connect(self, address)

    monkeypatch.setattr(socket.socket, "connect", guarded_connect)
