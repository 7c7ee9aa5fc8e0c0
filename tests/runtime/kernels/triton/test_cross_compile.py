"""Every kernel compiles for the cards people have, within what one block may use there.

A kernel's author adds a file `launches_*.py` beside this one; see `tests.support.cross_compile`.
"""

from pathlib import Path

import pytest

from tests.support.cross_compile import SHARED_LIMIT_BYTES, TARGETS, compile_launches

LAUNCH_FILES = sorted(path.stem for path in Path(__file__).parent.glob("launches_*.py"))


@pytest.mark.parametrize("launch_file", LAUNCH_FILES)
def test_launches_compile_for_every_target(launch_file: str) -> None:
    launches = compile_launches(f"tests.runtime.kernels.triton.{launch_file}")
    assert {launch.target for launch in launches} == set(TARGETS)
    for launch in launches:
        assert launch.shared_bytes <= SHARED_LIMIT_BYTES, launch
        assert launch.stack_bytes == 0, launch
        if launch.begins_early:
            # What it reads before is a matter of its code.
            assert launch.awaits, launch
            assert not launch.writes_before, launch
        assert not (launch.awaits and launch.target < 90), launch
