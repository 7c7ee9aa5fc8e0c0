"""Watches what interpreted kernels touch: only storages of the tensors that were passed to the launch.

It knows storages, not tensors: an access beyond a view that stays inside its storage passes, and so does one that
leaves a storage and lands in another argument's.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch


@dataclass(frozen=True, order=True)
class StorageRange:
    """Addresses [begin, end) of an argument's storage, in bytes."""

    begin: int
    end: int
    name: str

    def bytes_outside(self, address: int, num_bytes: int) -> int:
        """How far an access reaches out of the range; 0 inside."""
        return max(self.begin - address, address + num_bytes - self.end, 0)


_NOWHERE = StorageRange(np.iinfo(np.int64).min, np.iinfo(np.int64).min, "")


class OutsideStorageError(AssertionError):
    """A kernel touched memory that no argument of its launch owns."""


class LaunchMemory:
    """The storages of one launch's arguments."""

    def __init__(self, kernel: str, arguments: Iterable[tuple[str, Any]]) -> None:
        self._kernel = kernel
        self._ranges = sorted(_ranges(arguments))
        # Whatever lies below all storages belongs to a range without bytes.
        every = [_NOWHERE, *self._ranges]
        self._begins = [storage.begin for storage in every]
        # Storages may share memory (`torch.from_numpy`): one that lies in another ends nothing.
        self._ends = np.maximum.accumulate([storage.end for storage in every])

    def check(self, access: str, addresses: np.ndarray, mask: np.ndarray | None, num_bytes: int) -> None:
        """Raises OutsideStorageError unless `num_bytes` at each address of the mask are inside one storage."""
        # The interpreter's masks may be integers, which would choose places.
        touched = addresses if mask is None else addresses[mask.astype(bool, copy=False)]
        # Signed, so that no address wraps: the system hands out those below 2**63.
        touched = touched.view(np.int64)
        if touched.size == 0:
            return
        # Nearly every access stays in one storage, whose ends say all.
        place = bisect_right(self._begins, int(touched.min())) - 1
        if int(touched.max()) + num_bytes > self._ends[place]:
            self._check_each(access, touched.ravel(), num_bytes)

    def _check_each(self, access: str, touched: np.ndarray, num_bytes: int) -> None:
        places = np.searchsorted(self._begins, touched, side="right") - 1
        outside = touched[touched + num_bytes > self._ends[places]]
        if outside.size:
            raise OutsideStorageError(self._fault(access, outside, touched.size, num_bytes))

    def _fault(self, access: str, outside: np.ndarray, num_touched: int, num_bytes: int) -> str:
        fault = f"{self._kernel}: {access} of {num_bytes} bytes outside every argument's storage"
        fault += f" ({outside.size} of {num_touched} addresses)"
        if not self._ranges:
            return fault
        address = int(outside[0])
        nearest = min(self._ranges, key=lambda storage: storage.bytes_outside(address, num_bytes))
        side = "before the begin" if address < nearest.begin else "past the end"
        return f"{fault}: {nearest.bytes_outside(address, num_bytes)} bytes {side} of {nearest.name}"


def _ranges(arguments: Iterable[tuple[str, Any]]) -> Iterator[StorageRange]:
    for name, argument in arguments:
        if isinstance(argument, torch.Tensor):
            storage = argument.untyped_storage()
            yield StorageRange(storage.data_ptr(), storage.data_ptr() + storage.nbytes(), name)
        elif isinstance(argument, tuple):
            yield from _ranges((f"{name}[{index}]", part) for index, part in enumerate(argument))


def _root_cause(error: BaseException) -> BaseException:
    """Each function of a kernel wraps what comes out of those that it calls."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


class InterpreterMemory:
    """Puts the check between Triton 3.6's interpreter and memory, for every launch after `install`."""

    def __init__(self) -> None:
        self._launch = LaunchMemory("no kernel", ())

    def install(self) -> None:
        """Once a process."""
        # Here and not above: importing Triton fixes its mode.
        from triton.runtime import interpreter

        self._watch_launches(interpreter.GridExecutor, interpreter.InterpreterError)
        # The only functions of the interpreter that follow a pointer; its builder finds them under this name.
        interpreter._interpreter = self._checked(interpreter._interpreter)

    def _watch_launches(self, executor: Any, wrapped_error: type[Exception]) -> None:
        place_arguments, call = executor._init_args_hst, executor.__call__

        def place_and_note(launch: Any, args: Any, kwargs: dict[str, Any]) -> Any:
            placed, placed_by_name = place_arguments(launch, args, kwargs)
            arguments = [*zip(launch.arg_names, placed, strict=False), *placed_by_name.items()]
            self._launch = LaunchMemory(launch.fn.__name__, arguments)
            return placed, placed_by_name

        def call_and_unwrap(launch: Any, *args: Any, **kwargs: Any) -> None:
            try:
                call(launch, *args, **kwargs)
            except wrapped_error as error:
                cause = _root_cause(error)
                if isinstance(cause, OutsideStorageError):
                    raise cause from None
                raise

        executor._init_args_hst, executor.__call__ = place_and_note, call_and_unwrap

    def _checked(self, native: Any) -> SimpleNamespace:
        def load(addresses: Any, mask: Any, other: Any, dtype: Any) -> Any:
            self._launch.check("load", addresses, mask, dtype.itemsize)
            return native.load(addresses, mask, other, dtype)

        def store(addresses: Any, values: Any, mask: Any) -> Any:
            self._launch.check("store", addresses, mask, values.itemsize)
            return native.store(addresses, values, mask)

        def atomic_rmw(operation: Any, addresses: Any, values: Any, mask: Any, order: Any) -> Any:
            self._launch.check("atomic", addresses, mask, values.itemsize)
            return native.atomic_rmw(operation, addresses, values, mask, order)

        def atomic_cas(addresses: Any, expected: Any, values: Any, order: Any) -> Any:
            self._launch.check("atomic", addresses, None, values.itemsize)
            return native.atomic_cas(addresses, expected, values, order)

        return SimpleNamespace(load=load, store=store, atomic_rmw=atomic_rmw, atomic_cas=atomic_cas)
