"""What every command needs: environment, places, settings of this run, and the plain terminal."""

import argparse
from dataclasses import dataclass
from pathlib import Path

from app.commands.options import apply_options
from app.console import Console
from app.environment import Environment
from app.library import resolve_model
from app.locations import Locations
from app.settings import Settings
from app.settings_file import SettingsFile


@dataclass(frozen=True)
class CommandContext:
    """Built once per run. `settings_notice` is the line about a damaged settings file, if it was."""

    environment: Environment
    locations: Locations
    settings: Settings
    settings_notice: str | None
    console: Console

    @classmethod
    def build(cls, arguments: argparse.Namespace) -> "CommandContext":
        """Read the environment and the settings file; options of the command line win."""
        environment = Environment.read()
        locations = Locations.resolve(environment)
        settings, notice = SettingsFile(locations.config_file).load()
        return cls(
            environment, locations, apply_options(settings, arguments), notice, Console(environment.is_colour_off)
        )

    def tell_settings_notice(self) -> None:
        """Say on stderr what was wrong with the settings file."""
        if self.settings_notice is not None:
            self.console.notice(self.settings_notice)

    def model_path(self) -> Path:
        """The folder of the chosen model. Raises ModelNameError."""
        return resolve_model(self.settings.model, self.locations)
