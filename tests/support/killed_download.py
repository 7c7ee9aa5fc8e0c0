"""A download in a process of its own, for tests that kill it: endpoint, models folder and repository are arguments."""

import sys
from pathlib import Path
from threading import Event

from runtime.downloads.download import Download
from runtime.downloads.hub import HubAccess
from runtime.downloads.places import ModelPlaces

if __name__ == "__main__":
    endpoint, models_dir, repo_id = sys.argv[1:]
    access = HubAccess(endpoint, None, is_offline=False)
    for _ in Download(ModelPlaces.of(Path(models_dir), repo_id), access).run(Event()):
        pass
