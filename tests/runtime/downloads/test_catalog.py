"""The catalogue says of each model what its family's published shapes say."""

from pathlib import Path

import pytest

from runtime.downloads.catalog import read_catalog
from runtime.errors import DownloadError
from runtime.families.registry import read_spec
from scripts.checkpoints.geometries import PUBLISHED, config_json

CATALOG = Path(__file__).resolve().parents[3] / "assets" / "catalog.toml"


def test_every_family_has_its_published_shapes() -> None:
    seen = set()
    for model in read_catalog(CATALOG):
        if model.spec is None:
            continue
        seen.add(model.spec.family)
        published = read_spec(config_json(model.spec.family, "full", None), model.name)
        fields = set(published.__dataclass_fields__) - {"weights"}
        assert {name: getattr(model.spec, name) for name in fields} == {
            name: getattr(published, name) for name in fields
        }
    assert seen == set(PUBLISHED)


def test_flagship_sizes_add_up_to_the_download() -> None:
    """What is planned is the published checkpoint without its vision tower, MTP and headers."""
    flagship = next(model for model in read_catalog(CATALOG) if model.name == "qwen3.8-flash-next")
    assert flagship.spec is not None
    weights = flagship.spec.weights
    assert weights.record_bytes * 24_576 == pytest.approx(67_948_314_624, rel=1e-3)
    assert weights.ngram_table_bytes == pytest.approx(51_200_245_760, rel=1e-3)
    parts = weights.record_bytes * 24_576 + weights.ngram_table_bytes + 2 * weights.dense_params
    assert flagship.download_bytes is not None
    assert 0.94 * flagship.download_bytes < parts < flagship.download_bytes


@pytest.mark.parametrize("text", ["", "models = 3", "[[models]]\nname = 'x'", "\0"])
def test_damaged_catalogue_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "catalog.toml").write_text(text)
    with pytest.raises(DownloadError, match="install Hotslot again") as caught:
        read_catalog(tmp_path / "catalog.toml")
    assert "\n" not in str(caught.value)
