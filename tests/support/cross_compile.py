"""Compiles Triton kernels for GPUs that are not there, exactly as their wrappers would launch them.

A launch file holds functions named `launch_*` that call kernel wrappers with CPU tensors of the real shapes and types
(uninitialised memory is fine: nothing runs). Every launch is compiled for each target through Triton's own launch path,
so argument types, alignment and constants are those of the wrapper and no signature is written twice.

`compile_launches` starts a fresh process, because the tests' own one interprets kernels.
"""

import importlib
import json
import os
import re
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
TARGETS = (86, 89, 120)
"""RTX 30, 40 and 50."""
SHARED_LIMIT_BYTES = 99 << 10
"""What one block may have on every target."""
_WAIT = "griddepcontrol.wait"


@dataclass(frozen=True)
class CompiledLaunch:
    """One kernel as one wrapper launches it, for one target."""

    case: str
    """Name of the launch function."""
    kernel: str
    target: int
    num_warps: int
    shared_bytes: int
    registers: int
    """Per thread."""
    stack_bytes: int
    """Per thread, in slow local memory: what did not fit into registers."""
    begins_early: bool
    """It is launched while the one before it runs."""
    awaits: bool
    """It waits for that one."""
    writes_before: bool
    """And writes before it does."""


def compile_launches(module: str, targets: tuple[int, ...] = TARGETS) -> list[CompiledLaunch]:
    """Every launch of `module` for every target. Raises AssertionError with the compiler's words."""
    with tempfile.TemporaryDirectory() as cache:
        environment = {**os.environ, "TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": cache}
        command = [sys.executable, "-m", __name__, module, *map(str, targets)]
        run = subprocess.run(command, cwd=REPO, env=environment, capture_output=True, text=True)
    if run.returncode:
        raise AssertionError(f"{module} does not compile:\n{run.stdout[-2000:]}\n{run.stderr[-6000:]}")
    return [CompiledLaunch(**json.loads(line)) for line in run.stdout.splitlines()]


def _compile_here(module: str, targets: list[int]) -> None:
    # Here and not above: the parent process has Triton in its interpreting mode.
    from triton.runtime.jit import JITFunction

    from runtime.kernels.triton_ops import launch_order

    launches = vars(importlib.import_module(module))
    compiled: list[object] = []
    launch = JITFunction.run

    def compile_only(kernel: JITFunction, *args: object, grid: object, warmup: bool, **kwargs: object) -> object:
        result = launch(kernel, *args, grid=grid, warmup=True, **kwargs)
        compiled.append(result)
        return result

    JITFunction.run = compile_only
    for target in targets:
        _pretend_gpu(target)
        launch_order.has_launch_order = lambda device, target=target: target >= 90
        for case in (name for name in launches if name.startswith("launch_")):
            compiled.clear()
            launches[case]()
            # The same constants twice are one kernel.
            for kernel in {id(kernel): kernel for kernel in compiled}.values():
                print(json.dumps(asdict(_describe(case, target, kernel))), flush=True)


def _pretend_gpu(target: int) -> None:
    from triton.backends.compiler import GPUTarget
    from triton.runtime import driver

    class AbsentGpu:
        """What Triton asks of a driver before it compiles; a device number per target keeps their kernels apart."""

        def get_current_device(self) -> int:
            return target

        def get_current_stream(self, device: int) -> int:
            return 0

        def get_current_target(self) -> GPUTarget:
            return GPUTarget("cuda", target, 32)

    driver.set_active(AbsentGpu())


def _describe(case: str, target: int, kernel: object) -> CompiledLaunch:
    from triton import knobs

    with tempfile.NamedTemporaryFile(suffix=".cubin") as cubin:
        cubin.write(kernel.asm["cubin"])
        cubin.flush()
        command = [knobs.nvidia.cuobjdump.path, "-res-usage", cubin.name]
        usage = subprocess.run(command, capture_output=True, text=True, check=True)
    numbers = dict(re.findall(r"(REG|STACK|SHARED):(\d+)", usage.stdout + usage.stderr))
    return CompiledLaunch(
        case,
        kernel.metadata.name,
        target,
        kernel.metadata.num_warps,
        max(kernel.metadata.shared, int(numbers["SHARED"])),
        int(numbers["REG"]),
        int(numbers["STACK"]),
        kernel.metadata.launch_pdl,
        _WAIT in kernel.asm["ptx"],
        bool(re.search(r"\b(st\.global|atom\.|red\.)", kernel.asm["ptx"].partition(_WAIT)[0])),
    )


if __name__ == "__main__":
    _compile_here(sys.argv[1], [int(target) for target in sys.argv[2:]])
