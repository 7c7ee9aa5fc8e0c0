"""`hotslot models` end to end, as processes against a Hub on the loopback."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from app.fit import FitJudge
from app.library import list_remotes
from app.locations import Locations
from runtime.memory.budget import Machine, plan
from runtime.options import EngineOptions
from tests.support.command_line import REPO, Ended, run_hotslot
from tests.support.hub_server import COMMIT, Fault, HubServer, demo_repository, running_hub

REPO_ID = "someone/Demo"
GIB = 2**30
Run = Callable[..., Ended]


@pytest.fixture
def hub() -> Iterator[HubServer]:
    with running_hub() as server:
        server.repositories[REPO_ID] = demo_repository()
        yield server


@pytest.fixture
def environment(hub: HubServer, tmp_path: Path) -> dict[str, str]:
    return hub.variables(tmp_path / "hf")


@pytest.fixture
def models(environment: dict[str, str]) -> Run:
    def run(*arguments: str, **variables: str) -> Ended:
        ended = run_hotslot("models", *arguments, env={**environment, **variables})
        assert ended.is_clean, ended
        return ended

    return run


def test_pull_verify_repair_and_remove(models: Run, hub: HubServer, own_home: Path) -> None:
    pulled = models("pull", REPO_ID, "--json")
    assert pulled.status == 0, pulled.err
    report = json.loads(pulled.out)
    folder = Path(report["path"])
    assert (report["state"], report["commit"], report["is_usable"]) == ("complete", COMMIT, True)
    assert folder == own_home / "models" / "someone--Demo"
    assert f"{REPO_ID} at {COMMIT[:8]}:" in pulled.err

    facts = json.loads(models("info", REPO_ID, "--json").out)
    assert (facts["state"], facts["family"], facts["fits"]) == ("complete", "qwen4_exp", True)
    listed = {model["name"]: model for model in json.loads(models("list", "--json").out)}
    assert listed[REPO_ID]["is_usable"]
    assert listed["qwen3-30b"]["state"] == "absent"

    # Right size, wrong bytes, in the middle of the weights.
    weights = folder / "model.safetensors"
    with weights.open("r+b") as stream:
        stream.seek(weights.stat().st_size // 2)
        stream.write(b"\xff\x00\xff\x00 not what was here")
    named = models("verify", REPO_ID, "--no-fetch")
    assert named.status == 1
    assert "model.safetensors has another hash than the Hub's" in named.err
    hub.requests.clear()
    repaired = models("verify", REPO_ID, "--json")
    assert repaired.status == 0, repaired.err
    assert json.loads(repaired.out)["bad"] == [
        {"file": "model.safetensors", "problem": "has another hash than the Hub's"}
    ]
    assert {request.path.rsplit("/", 1)[1] for request in hub.requests} == {"model.safetensors"}
    right = models("verify", REPO_ID, HF_HUB_OFFLINE="1")
    assert (right.status, right.out) == (0, f"{REPO_ID}: every file is right\n")

    assert models("rm", REPO_ID).status == 2
    removed = models("rm", REPO_ID, "--yes", "--json")
    assert json.loads(removed.out)["freed_bytes"] > 40_000_000
    assert not folder.exists()
    again = models("rm", REPO_ID, "--yes")
    assert (again.status, again.err.count("\n")) == (1, 1)


def test_failures_are_one_line(models: Run, hub: HubServer, own_home: Path) -> None:
    ended = models("pull", "nobody/Nothing")
    assert (ended.status, ended.out) == (1, "")
    assert "no repository nobody/Nothing" in ended.err
    assert ended.err.count("\n") == 1
    offline = models("pull", REPO_ID, HF_HUB_OFFLINE="1")
    assert offline.status == 1
    assert "HF_HUB_OFFLINE" in offline.err
    assert "neither in the catalogue nor a repository" in models("pull", "nope").err
    assert "so no hashes are known; pull it first" in models("verify", REPO_ID).err
    hub.repositories[REPO_ID].needs_token = "hf_right"
    assert "is gated" in models("pull", REPO_ID).err
    assert models("pull", REPO_ID, HF_TOKEN="hf_right").status == 0
    manifest = own_home / "models" / "someone--Demo" / "hotslot-download.json"
    manifest.write_bytes(b"\0" * 100)
    assert "is damaged; remove the model" in models("pull", REPO_ID).err
    assert models("rm", REPO_ID, "--yes").status == 0
    folder = own_home / "models" / "my--own"
    folder.mkdir()
    assert "delete that folder yourself" in models("rm", "my/own", "--yes").err
    assert folder.is_dir()


def test_interrupt_keeps_what_is_there(environment: dict[str, str], hub: HubServer, models: Run) -> None:
    hub.on_bytes = lambda: time.sleep(0.01)
    pulling = subprocess.Popen(
        [sys.executable, "-m", "app", "models", "pull", REPO_ID],
        env={**os.environ, "PYTHONPATH": str(REPO), **environment},
        stderr=subprocess.PIPE,
    )
    while hub.sent_bytes < 5_000_000:
        time.sleep(0.01)
    pulling.send_signal(signal.SIGINT)
    _, err = pulling.communicate(timeout=20)
    assert pulling.returncode == 130
    assert b"Traceback" not in err
    facts = json.loads(models("info", REPO_ID, "--json").out)
    assert facts["state"] == "partial"
    assert facts["present_bytes"] > 4_000_000
    listed = models("list")
    assert f"{REPO_ID} is not complete; go on with: hotslot models pull {REPO_ID}" in listed.err
    asked = run_hotslot("ask", "--model", REPO_ID, "hi", env=environment)
    assert asked.status == 1
    assert "is not complete; go on with: hotslot models pull" in asked.err
    hub.on_bytes = lambda: None
    hub.faults["model.safetensors"] = Fault(cut_every=10_000_000)
    assert models("pull", REPO_ID).status == 0


def test_two_processes_pull_and_one_fetches(environment: dict[str, str], hub: HubServer, models: Run) -> None:
    """Started together: whoever comes second shows the other's progress, and both end complete."""
    total = sum(len(data) for name, data in hub.repositories[REPO_ID].files.items() if name != "everyday.md")
    gate = threading.Event()
    hub.faults["model.safetensors"] = Fault(block=gate)
    variables = {**os.environ, "PYTHONPATH": str(REPO), **environment}
    command = [sys.executable, "-m", "app", "models", "pull", REPO_ID, "--json"]
    pulling = [
        subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    said: list[list[str]] = [[], []]

    def listen(number: int) -> None:
        for line in pulling[number].stderr or ():
            said[number].append(line)
            # The one that fetches is half way and waits for the other to have said so.
            if line.startswith("another Hotslot downloads it: "):
                gate.set()

    listeners = [threading.Thread(target=listen, args=(number,)) for number in range(2)]
    for listener in listeners:
        listener.start()
    reports = [json.loads(process.stdout.read()) for process in pulling if process.stdout is not None]
    for listener in listeners:
        listener.join(60)
    assert [process.wait(60) for process in pulling] == [0, 0], said
    assert [report["state"] for report in reports] == ["complete", "complete"]
    assert sorted(report["fetched_bytes"] for report in reports) == [0, total]
    assert hub.sent_bytes == total
    waited, fetched = sorted(range(2), key=lambda number: int(reports[number]["fetched_bytes"]))
    assert any(line.startswith("another Hotslot downloads it: ") for line in said[waited])
    assert not any("another Hotslot" in line for line in said[fetched])
    assert f"{REPO_ID} at {COMMIT[:8]}:" in "".join(said[fetched])
    assert models("verify", REPO_ID, "--no-fetch").status == 0


def test_a_process_takes_over_from_one_that_was_killed(environment: dict[str, str], hub: HubServer) -> None:
    """The one that waits goes on where the other was."""
    hub.on_bytes = lambda: time.sleep(0.004)
    variables = {**os.environ, "PYTHONPATH": str(REPO), **environment}
    command = [sys.executable, "-m", "app", "models", "pull", REPO_ID, "--json"]
    first = subprocess.Popen(command, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while hub.sent_bytes < 2_000_000:
        time.sleep(0.005)
    second = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert second.stderr is not None
    while b"another Hotslot downloads it: " not in second.stderr.readline():
        pass
    first.kill()
    first.wait()
    hub.on_bytes = lambda: None
    out, _ = second.communicate(timeout=60)
    report = json.loads(out)
    assert (second.returncode, report["state"]) == (0, "complete")
    assert hub.sent_bytes <= 1.02 * report["present_bytes"]
    assert report["fetched_bytes"] < report["present_bytes"]


NO_SOCKETS = """
import socket, sys
def refuse(*_, **__):
    sys.stderr.write("a socket was used\\n")
    raise SystemExit(99)
socket.socket.connect = socket.socket.connect_ex = socket.socket.sendto = refuse
socket.getaddrinfo = socket.gethostbyname = socket.create_connection = refuse
from app.__main__ import main
sys.exit(main())
"""


def test_offline_commands_use_no_socket(models: Run, environment: dict[str, str], own_home: Path) -> None:
    """Under HF_HUB_OFFLINE nothing connects and no name is looked up, whether the model is here or not."""

    def offline(*arguments: str) -> subprocess.CompletedProcess[str]:
        variables = {**os.environ, "PYTHONPATH": str(REPO), **environment, "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-c", NO_SOCKETS, "models", *arguments]
        return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)

    absent = offline("pull", REPO_ID)
    assert absent.returncode == 1
    assert "HF_HUB_OFFLINE" in absent.stderr
    online = offline_guard_works(environment)
    assert online.returncode == 99, online.stderr
    assert models("pull", REPO_ID).status == 0
    for arguments in (("pull", REPO_ID), ("verify", REPO_ID), ("info", REPO_ID), ("list",)):
        ended = offline(*arguments)
        assert ended.returncode == 0, ended.stderr
    (own_home / "models" / "someone--Demo" / "config.json").unlink()
    damaged = offline("pull", REPO_ID)
    assert damaged.returncode == 1
    assert "is damaged, and the Hub is switched off" in damaged.stderr


def offline_guard_works(environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    """The same guard with the Hub switched on: it must bite."""
    variables = {**os.environ, "PYTHONPATH": str(REPO), **environment, "HF_HUB_OFFLINE": "0"}
    command = [sys.executable, "-c", NO_SOCKETS, "models", "pull", REPO_ID]
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("is_disabled", ["1", "0"])
def test_xet_is_never_asked(models: Run, hub: HubServer, is_disabled: str) -> None:
    """A repository that is on Xet comes over plain HTTP, whatever HF_HUB_DISABLE_XET says."""
    hub.repositories[REPO_ID].is_on_xet = True
    ended = models("pull", REPO_ID, HF_HUB_DISABLE_XET=is_disabled)
    assert ended.status == 0, ended.err
    assert not [request for request in hub.requests if "xet" in request.path]


@pytest.mark.parametrize(("vram", "ram"), [(12, 32), (16, 64), (16, 128), (24, 64), (32, 192)])
def test_verdicts_are_the_planners(vram: int, ram: int) -> None:
    """For every model of the catalogue whose shapes are known; the flagship's experts alone take more than 64 GiB."""
    machine = Machine("cuda", vram * GIB, ram * GIB, (ram - 2) * GIB, 8)
    options = EngineOptions(Path(), device="cuda")
    verdicts = {}
    for remote in list_remotes(Locations.resolve()):
        if remote.spec is not None:
            fit = FitJudge(machine, options).judge(remote.spec)
            verdicts[remote.name] = fit.verdict
            budget = plan(remote.spec, machine, options)
            assert (fit.fits, fit.is_store_mapped) == (budget.fits, budget.is_store_mapped)
            assert (fit.verdict == "no") != fit.fits
            assert bool(fit.reason) != fit.fits
    assert verdicts["qwen3-30b"] == "yes"
    expected = "yes" if ram >= 128 else "with mapped experts"
    assert verdicts["qwen3.8-flash-next"] == expected
