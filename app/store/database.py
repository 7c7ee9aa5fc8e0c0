"""One SQLite database: opened, brought up to date, used in transactions. Knows no table but the schema's version.

Several instances share a file: WAL lets them read while one writes, the busy timeout lets writers wait for each other.
That wait may last seconds, so nothing on an event loop calls the blocking doors: it awaits `run`.
"""

import asyncio
import sqlite3
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from app.errors import StoreError
from app.store.migrations import MIGRATIONS, Migration

BUSY_TIMEOUT_S = 5.0
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


class Database:
    """A connection any thread may use, one at a time. Every failure is a `StoreError`."""

    def __init__(self, connection: sqlite3.Connection | None, name: str, late_path: Path | None = None) -> None:
        """Without a connection, the file at `late_path` is opened by the first use."""
        self.name = name
        self.problem = ""
        """Why a file that was to be opened late is not used, and all of it is in memory."""
        self._opened = connection
        self._late_path = late_path
        self._lock = threading.RLock()
        self._worker = ThreadPoolExecutor(1, "store")

    @classmethod
    def open(cls, path: Path | None, migrations: Sequence[Migration] = MIGRATIONS) -> "Database":
        """Open or create the file and migrate it; None is a database in memory. Raises StoreError."""
        name = str(path) if path else "memory"
        with _readable_errors(name):
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                path or ":memory:", timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False
            )
            connection.row_factory = sqlite3.Row
            database = cls(connection, name)
            try:
                database._prepare(migrations)
            except BaseException:
                connection.close()
                raise
            return database

    @classmethod
    def open_later(cls, path: Path) -> "Database":
        """Opened by its first use, so that nothing waits for it before; in memory where the file can't be used."""
        return cls(None, str(path), path)

    @property
    def _connection(self) -> sqlite3.Connection:
        with self._lock:
            if self._opened is None:
                self._opened = self._open_late()
            return self._opened

    def _open_late(self) -> sqlite3.Connection:
        try:
            return Database.open(self._late_path)._connection
        except StoreError as error:
            self.problem = str(error)
            return Database.open(None)._connection

    def _prepare(self, migrations: Sequence[Migration]) -> None:
        self._connection.execute("PRAGMA foreign_keys = ON")
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        if self._version() != len(migrations):
            with self.transaction():
                self._migrate(migrations)

    def _version(self) -> int:
        return int(self._connection.execute("PRAGMA user_version").fetchone()[0])

    def _migrate(self, migrations: Sequence[Migration]) -> None:
        """Run inside a write transaction, so of two starting instances the second finds nothing left to do."""
        version = self._version()
        if version > len(migrations):
            raise StoreError(
                f"The conversations in {self.name} were written by a newer Hotslot; update it, or set HOTSLOT_HOME."
            )
        for migration in migrations[version:]:
            for statement in migration.statements:
                self._connection.execute(statement)
        self._connection.execute(f"PRAGMA user_version = {len(migrations)}")

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """All or nothing, also when the process dies in the middle."""
        with self._lock, _readable_errors(self.name):
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield self._connection
                self._connection.execute("COMMIT")
            except BaseException:
                # A full disk makes SQLite roll back by itself.
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    def read(self, sql: str, *values: Any) -> list[sqlite3.Row]:
        """All rows of one query."""
        with self._lock, _readable_errors(self.name):
            return self._connection.execute(sql, values).fetchall()

    async def run(
        self, call: Callable[Arguments, Result], /, *args: Arguments.args, **kwargs: Arguments.kwargs
    ) -> Result:
        """What `call` gives, made by the one worker thread: calls run one by one, in the order they were asked in.

        Asked is done: a call runs even if nobody waits for it any more.
        """
        try:
            asked = self._worker.submit(call, *args, **kwargs)
        except RuntimeError:
            raise StoreError(f"The conversations in {self.name} are closed; start Hotslot again.") from None
        return await asyncio.shield(asyncio.wrap_future(asked))

    def close(self) -> None:
        """Close the connection after what was asked; safe to call twice."""
        self._worker.shutdown()
        with self._lock:
            if self._opened is not None:
                self._opened.close()


@contextmanager
def _readable_errors(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"Conversations can't be kept in {name} ({error.strerror}); make it writable or set HOTSLOT_HOME."
        ) from error
    except sqlite3.Error as error:
        raise StoreError(_explain(name, error)) from error


def _explain(name: str, error: sqlite3.Error) -> str:
    code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        return f"The disk with {name} is full or failing ({error}); free some space, then go on."
    if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
        return f"The conversations in {name} are damaged ({error}); move the file away to start a new one."
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return f"Another program holds {name}; close it and try again."
    if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM):
        return f"Conversations can't be kept in {name} ({error}); make it writable or set HOTSLOT_HOME."
    return f"The conversations in {name} can't be used ({error}); see the log, or set HOTSLOT_HOME to start anew."
