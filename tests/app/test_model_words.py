"""What is said of a model is what is known of it."""

from pathlib import Path

import pytest

from app.fit import Fit, FitJudge
from app.library import RemoteModel, find_remote, list_remotes
from app.locations import Locations
from app.model_jobs import JobState
from app.model_words import fit_text, fit_word, job_text, job_word, speed_text
from runtime.downloads.events import (
    DownloadFinished,
    DownloadPaused,
    DownloadProgressed,
    FileChecked,
    FileRetried,
    RepositoryListed,
    VerifyProgressed,
)
from runtime.memory.budget_plan import Machine
from runtime.options import EngineOptions

MIB = 2**20


@pytest.mark.parametrize(
    ("fit", "word", "text"),
    [
        (None, "?", "Whether it fits is not known before its config is here."),
        (Fit(True, "", 192, 3 * MIB, False), "fits", "Fits: 192 slots, 3.0 MiB in all"),
        (
            Fit(True, "", 192, 3 * MIB, True),
            "mapped",
            "Fits with mapped experts, which stay on the disk: 192 slots, 3.0 MiB in all",
        ),
        (Fit(False, "it needs more.", 0, 0, False), "too big", "Does not fit: it needs more."),
    ],
)
def test_verdicts(fit: Fit | None, word: str, text: str) -> None:
    assert (fit_word(fit), fit_text(fit)) == (word, text)


@pytest.fixture
def remote() -> RemoteModel:
    found = find_remote("someone/Model", Locations.resolve())
    assert found is not None
    return found


def test_a_job_says_how_far_it_is(remote: RemoteModel) -> None:
    state = JobState(remote, "download")
    assert (job_word(state), job_text(state)) == ("asking the Hub", "asking the Hub what there is")
    state = state.after(RepositoryListed("someone/Model", "c", 3, 100 * MIB, 10 * MIB))
    assert job_text(state) == "downloading: 10 %, 10 MiB of 100 MiB"
    state = state.after(DownloadProgressed(43 * MIB, 100 * MIB, 2.0 * MIB, 28.5, 1, 3))
    assert job_text(state) == "downloading: 43 %, 43 MiB of 100 MiB, 2.0 MiB/s, 28 s left"
    assert job_word(state) == "43 % 2.0 MiB/s"
    retried = state.after(FileRetried("a\x1b[31m.safetensors", "the server answers 503", 4.2))
    assert job_text(retried) == (
        "downloading: 43 %, 43 MiB of 100 MiB, 28 s left · a[31m.safetensors: the server answers 503; next try in 4 s"
    )
    assert retried.after(DownloadProgressed(44 * MIB, 100 * MIB, 1.0, None, 1, 3)).note == ""
    other = state.after(DownloadProgressed(1, 4, 0.0, None, 0, 1, is_elsewhere=True))
    assert (job_word(other), other.is_running) == ("25 % elsewhere", True)
    paused = state.after(DownloadPaused(43 * MIB, 100 * MIB))
    assert (job_word(paused), job_text(paused)) == ("paused at 43 %", "paused: 43 %, 43 MiB of 100 MiB")
    done = state.after(DownloadFinished(remote.places.folder, "c", 57 * MIB))
    assert (job_text(done), done.is_running) == ("complete and checked, 57 MiB fetched", False)


def test_a_check_says_what_it_found(remote: RemoteModel) -> None:
    state = JobState(remote, "verify").after(VerifyProgressed(1, 2))
    assert (job_word(state), job_text(state)) == ("checking 50 %", "checking every hash: 50 %, 1 B of 2 B")
    bad = state.after(FileChecked("a", 1)).after(FileChecked("b", 1, "is missing"))
    assert bad.after(DownloadProgressed(1, 2, 9.0, 1.0, 0, 1)).note == "b is missing"
    ended = bad.after(DownloadFinished(remote.places.folder, "c", 1))
    assert job_text(ended) == "mended: b is missing; every file is right now"


def test_a_predicted_speed_is_said_with_what_it_assumes() -> None:
    [spec] = [remote.spec for remote in list_remotes(Locations.resolve()) if remote.name == "qwen3-30b"]
    assert spec is not None
    machine = Machine("cpu", None, 64 << 30, 60 << 30, 8)
    fit = FitJudge(machine, EngineOptions(Path(), device="cpu")).judge(spec)
    assert fit.speed is not None
    assert fit_text(fit).endswith(f"GiB in all, about {fit.speed.tok_s:.1f} tok/s")
    assert "typical of 8 cores, not measured here" in speed_text(fit)
    assert speed_text(None) == speed_text(Fit(False, "it needs more.", 0, 0, False)) == ""
