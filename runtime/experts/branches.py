"""What of one decode layer runs beside its main sequence: what a layer asks for, wherever it runs.

Layers fork and join by name and know nothing of streams. Without streams a fork is no fork, and everything runs in the
order of its launches.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Literal, Protocol

BranchName = Literal["shared"]
"""The shared expert, beside everything from the router to the last route."""


class Branches(Protocol):
    """Each branch is forked and joined once per layer; no branch is forked inside another."""

    @property
    def is_by_arrival(self) -> bool:
        """Whether routed experts are computed while missing ones are copied, each as soon as its record is there."""
        ...

    def fork(self, branch: BranchName) -> AbstractContextManager[None]:
        """What is launched inside waits for what was launched before this call, and for nothing that is launched after
        it, be it entered at once or later."""
        ...

    def join(self, branch: BranchName) -> None:
        """What is launched from now on waits for the branch."""
        ...

    def call_host(self, call: Callable[[], None]) -> None:
        """`call` runs on the host after what was launched before and may launch what the launches after it need.

        It waits for the device itself. No branch may be open.
        """
        ...


class SerialBranches:
    """No branches: the launches in their order."""

    is_by_arrival = False

    def fork(self, branch: BranchName) -> AbstractContextManager[None]:
        return nullcontext()

    def join(self, branch: BranchName) -> None:
        """Everything has been launched in order."""

    def call_host(self, call: Callable[[], None]) -> None:
        call()
