"""Promises about what a process loads: the app's processes stay free of torch and start fast."""

import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]


def loaded_modules(statement: str) -> set[str]:
    """Names of all modules in a fresh interpreter after `statement`."""
    program = f"{statement}\nimport sys; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], cwd=REPO, capture_output=True, text=True, check=True)
    return set(run.stdout.split())


@pytest.mark.parametrize(
    "statement",
    [
        "import app.tui.app, app.tui.screens",
        "import runtime.memory.budget, runtime.text.chat_template, runtime.checkpoint.facts, runtime.schedule",
    ],
)
def test_planning_and_app_load_no_torch(statement: str) -> None:
    assert not {"torch", "triton", "transformers"} & loaded_modules(statement)


def test_repository_speaks_of_the_product_alone() -> None:
    """Text files name no registry host; the words are split so that this file passes its own test."""
    unwanted = ("files.python" + "hosted.org", "download.py" + "torch.org", "/work" + "/main", "/work" + "/shared")
    tracked = subprocess.run(["git", "ls-files"], cwd=REPO, capture_output=True, text=True, check=True).stdout.split(
        "\n"
    )
    for name in filter(None, tracked):
        if Path(name).suffix in {".safetensors", ".png", ".json"} or not (REPO / name).is_file():
            continue
        text = (REPO / name).read_text(errors="replace")
        assert not [word for word in unwanted if word in text], name
