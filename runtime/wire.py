"""Frames on the pipe between the two processes: pickled protocol messages, and nothing but protocol messages.

Both ends belong to one user and one program. Reading still admits only the protocol's own classes, so that a stray
writer on the descriptor can raise an error but never run code.
"""

import io
import pickle
from multiprocessing.connection import Connection

from runtime import options, protocol

_MODULES = {module.__name__: module for module in (protocol, options)}
_PATH_CLASSES = {"PosixPath", "WindowsPath", "PurePosixPath", "PureWindowsPath"}
MAX_FRAME_BYTES = 1 << 30


class _ProtocolUnpickler(pickle.Unpickler):
    def find_class(self, module_name: str, class_name: str) -> type:
        if module_name in _MODULES and isinstance(getattr(_MODULES[module_name], class_name, None), type):
            found: type = getattr(_MODULES[module_name], class_name)
            return found
        if module_name.split(".")[0] == "pathlib" and class_name in _PATH_CLASSES:
            path_class: type = super().find_class(module_name, class_name)
            return path_class
        raise pickle.UnpicklingError(f"{module_name}.{class_name} is not part of the protocol")


class Wire:
    """One end of the pipe. `receive` blocks; one thread may send while another receives."""

    def __init__(self, descriptor: int) -> None:
        self._connection = Connection(descriptor)

    def send(self, message: object) -> None:
        """Raises OSError when the other end is gone."""
        self._connection.send_bytes(pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL))

    def receive(self) -> object:
        """The next message. Raises EOFError or OSError when the other end is gone."""
        frame = self._connection.recv_bytes(MAX_FRAME_BYTES)
        return _ProtocolUnpickler(io.BytesIO(frame)).load()

    def close(self) -> None:
        self._connection.close()
