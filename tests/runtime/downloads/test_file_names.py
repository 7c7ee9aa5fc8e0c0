"""Nothing is written outside the model's folder, whatever a repository calls its files."""

from contextlib import suppress
from pathlib import Path

import pytest

from runtime.downloads.events import RepositoryListed
from runtime.downloads.file_names import is_repo_id, needed_names
from runtime.downloads.places import ModelPlaces
from runtime.errors import DownloadError, UsageError
from tests.runtime.downloads.conftest import Pulling


@pytest.mark.parametrize(
    "name",
    [
        "../evil.safetensors",
        "a/../../evil.safetensors",
        "/etc/evil.safetensors",
        "..\\evil.safetensors",
        "C:evil.safetensors",
        "a//b.safetensors",
        "nul.safetensors",
        "COM1.safetensors",
        "com¹.x.safetensors",
        ".hidden.safetensors",
        "-rf.safetensors",
        "a\nb.safetensors",
        "a\u202eb.safetensors",
        "e\u0301.safetensors",
        "x" * 200 + ".safetensors",
        "a:b.safetensors",
    ],
)
def test_harmful_name_is_refused_in_one_line(pulling: Pulling, name: str, tmp_path: Path) -> None:
    pulling.repository.files[name] = b"evil"
    before = {path for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(DownloadError, match=r"someone/Small-Model: .*choose another repository") as caught:
        pulling.pull()
    assert str(caught.value).isprintable()
    new = {path for path in tmp_path.rglob("*") if path.is_file()} - before
    assert {path.suffix for path in new} <= {".lock"}


def test_names_that_one_folder_cannot_hold_together() -> None:
    with pytest.raises(DownloadError, match="would be one file"):
        needed_names("a/b", ["Model.safetensors", "model.safetensors"])


def test_ten_thousand_files_and_unicode(pulling: Pulling) -> None:
    files = pulling.repository.files
    for i in range(10_000):
        files[f"extra/часть-{i}.bin"] = b""
    pulling.pull()
    pulling.assert_complete()
    assert len(list(pulling.places.folder.iterdir())) == 7


def test_listing_in_pages_is_read_whole(pulling: Pulling) -> None:
    files = pulling.repository.files
    del files["model.safetensors.index.json"]
    for i in range(400):
        files[f"重み-{i:05}.safetensors"] = b"x%d" % i
    pulling.repository.tree_page = 100
    listed = next(event for event in pulling.pull() if isinstance(event, RepositoryListed))
    assert listed.num_files == 406
    pulling.assert_complete()


def test_repository_without_a_model(pulling: Pulling) -> None:
    pulling.repository.files = {"README.md": b"hello", "model.gguf": b"x"}
    with pytest.raises(DownloadError, match=r"no config.json with \*.safetensors"):
        pulling.pull()


def test_index_that_names_what_is_not_there(pulling: Pulling) -> None:
    del pulling.repository.files["model-00001-of-00002.safetensors"]
    with pytest.raises(DownloadError, match=r"index names 'model-00001-of-00002\.safetensors'"):
        pulling.pull()


@pytest.mark.parametrize("name", ["a", "a/b/c", "../b", "a/..", "a--x/b", "a/b--c", "/b", "a/", "a b/c", "é/x"])
def test_repository_names(name: str, tmp_path: Path) -> None:
    assert not is_repo_id(name)
    with pytest.raises(UsageError, match="owner/name"):
        ModelPlaces.of(tmp_path, name)


@pytest.mark.parametrize("what", ["folder", "staging", "manifest", "file", "models"])
def test_links_lead_nothing_outside(pulling: Pulling, what: str, tmp_path: Path) -> None:
    """A link where a part of the model goes: whether that ends complete or in a line, nothing outside changes.

    The models folder itself may be a link: that is the user's own disk.
    """
    outside = tmp_path / "outside"
    outside.mkdir()
    precious = outside / "config.json"
    precious.write_bytes(b"precious")
    places = pulling.places
    places.staging.mkdir(parents=True)
    if what == "folder":
        places.folder.symlink_to(outside)
    elif what == "staging":
        places.staging.rmdir()
        places.staging.symlink_to(outside)
    elif what == "manifest":
        (places.staging / "hotslot-download.json").symlink_to(precious)
    elif what == "file":
        (places.staging / "config.json").symlink_to(precious)
    else:
        elsewhere = tmp_path / "other-disk"
        places.models_dir.rename(elsewhere)
        places.models_dir.symlink_to(elsewhere)
    with suppress(DownloadError):
        pulling.pull()
    assert precious.read_bytes() == b"precious"
    assert [path.name for path in outside.iterdir()] == ["config.json"]
    if what in ("manifest", "file", "models"):
        pulling.assert_complete()
