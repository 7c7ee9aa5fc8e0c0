"""Work of one decode layer that runs beside its main sequence: what a layer asks for, wherever it runs.

Layers fork and join by name and know nothing of streams. Without streams a fork is no fork, and everything runs in the
order of its launches.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol

BranchName = Literal["shared", "resident"]
"""The shared expert, beside everything from the router to the last route; the routes whose experts are resident,
beside the copy of the missing ones."""


class Branches(Protocol):
    """Each branch is forked and joined once per layer; no branch is forked inside another."""

    def forks(self, branch: BranchName) -> bool:
        """Whether the branch runs beside the main sequence."""
        ...

    def fork(self, branch: BranchName) -> AbstractContextManager[None]:
        """What is launched inside waits for what was launched before, and for nothing that is launched after it."""
        ...

    def join(self, branch: BranchName) -> None:
        """What is launched from now on waits for the branch."""
        ...


class SerialBranches:
    """No branches: the launches in their order."""

    def forks(self, branch: BranchName) -> bool:
        return False

    def fork(self, branch: BranchName) -> AbstractContextManager[None]:
        return nullcontext()

    def join(self, branch: BranchName) -> None:
        """Everything has been launched in order."""
