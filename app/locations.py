"""Where things are: settings, conversations, logs, models, cache, and the assets that travel with the code.

Only names places; creates nothing.
"""

from dataclasses import dataclass
from pathlib import Path

import platformdirs

from app.environment import Environment

DEMO_MODEL = "demo-model"


@dataclass(frozen=True)
class Locations:
    """Every path the app writes to."""

    config_file: Path
    database_file: Path
    log_dir: Path
    models_dir: Path
    cache_dir: Path

    @classmethod
    def resolve(cls, environment: Environment | None = None) -> "Locations":
        """Under HOTSLOT_HOME if it is set, else where the system keeps such things."""
        home = (environment or Environment.read()).home
        if home is not None:
            return cls(home / "config.toml", home / "hotslot.db", home / "logs", home / "models", home / "cache")
        places = platformdirs.PlatformDirs("hotslot", appauthor=False)
        return cls(
            places.user_config_path / "config.toml",
            places.user_data_path / "hotslot.db",
            places.user_log_path,
            places.user_data_path / "models",
            places.user_cache_path,
        )

    @property
    def log_file(self) -> Path:
        return self.log_dir / "hotslot.log"

    @property
    def engine_log_file(self) -> Path:
        return self.log_dir / "engine.log"


def asset_path(name: str) -> Path:
    """`assets/<name>`, in a checkout and in an installed wheel alike; it may not exist."""
    return Path(__file__).resolve().parent.parent / "assets" / name
