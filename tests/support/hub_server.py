"""A Hub on the loopback: model info, tree and resolve with LFS metadata. It misbehaves on demand, and counts bytes.

`Fault` describes how one file (or all) is served; the default is a Hub that behaves.
"""

import hashlib
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote, unquote, urlsplit

from app.locations import DEMO_MODEL, asset_path

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@dataclass(frozen=True)
class Fault:
    """What is wrong with answers to requests for a file's bytes. Zero and '' mean nothing is."""

    cut_every: int = 0
    """Hang up after this many bytes of a body."""
    ignores_range: bool = False
    """200 and the whole file to a Range."""
    statuses: tuple[int, ...] = ()
    """The first requests are answered with these."""
    retry_after: str = ""
    error_code: str = ""
    """X-Error-Code beside a status, as the Hub names its refusals."""
    serves: bytes | None = None
    """Other bytes than the listing's."""
    serves_times: int = 10**9
    """So many requests get those; later ones the right ones."""
    changes_etag: bool = False
    """Another ETag at every request."""
    range_status: int = 0
    """Answered to every request with a Range."""
    wrong_length: int = 0
    """Added to Content-Length."""
    drip_s: float = 0.0
    """Seconds between single bytes."""
    redirect_to: str = ""
    """A server (scheme://host:port) that serves the bytes."""
    block: threading.Event | None = None
    """Bodies stop half way until it is set."""


@dataclass
class Repository:
    """Files by name. Those named in `small` are not LFS."""

    files: dict[str, bytes]
    small: frozenset[str] = frozenset({"config.json", "tokenizer.json", "README.md", "model.safetensors.index.json"})
    commit: str = COMMIT
    licence: str = "apache-2.0"
    listing_statuses: list[int] = field(default_factory=list)
    listing_error_code: str = ""
    listing_retry_after: str = ""
    listing_wait: threading.Event | None = None
    """The listing is answered once it is set."""
    tree_page: int = 1000
    needs_token: str = ""
    is_on_xet: bool = False
    """Answers name a content-addressed store beside the file, as the Hub's do."""


@dataclass(frozen=True)
class Request:
    """One request as it came."""

    host: str
    path: str
    range: str | None
    if_range: str | None
    authorization: str | None


class HubServer:
    """Owns the listening socket and its threads; `running_hub` starts and ends it."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.faults: dict[str, Fault] = {}
        self.requests: list[Request] = []
        self.sent_bytes = 0
        """Of bodies of files."""
        self.lock = threading.Lock()
        self.piece_bytes = 64 * 1024
        """Of bodies, sent at once."""
        self.on_bytes: Callable[[], None] = lambda: None
        self._counts: dict[str, int] = {}
        server = self

        class Handler(_Handler):
            hub = server

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        # Bytes that wait in this machine's buffers were not fetched, so few of them may wait there.
        self._http.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 16 * 1024)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self._http.server_address[1]}"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()

    def count(self, name: str) -> int:
        """How many requests for `name` came before this one."""
        with self.lock:
            self._counts[name] = self._counts.get(name, 0) + 1
            return self._counts[name] - 1

    def file_requests(self) -> list[Request]:
        return [request for request in self.requests if "/resolve/" in request.path]

    def variables(self, cache: Path) -> dict[str, str]:
        """The environment of a process that asks this Hub; `cache` is what it takes for the Hub's own."""
        return {"HF_ENDPOINT": self.endpoint, "HF_HUB_OFFLINE": "0", "HF_HOME": str(cache), "HF_TOKEN": ""}


def demo_repository() -> Repository:
    """The demo model as a repository."""
    return Repository({path.name: path.read_bytes() for path in asset_path(DEMO_MODEL).iterdir() if path.is_file()})


@contextmanager
def running_hub() -> Iterator[HubServer]:
    hub = HubServer()
    try:
        yield hub
    finally:
        hub.close()


def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        pass

    def do_GET(self) -> None:
        headers = self.headers
        with self.hub.lock:
            self.hub.requests.append(
                Request(
                    headers.get("host", ""),
                    self.path,
                    headers.get("range"),
                    headers.get("if-range"),
                    headers.get("authorization"),
                )
            )
        url = urlsplit(self.path)
        parts = unquote(url.path).strip("/").split("/")
        try:
            if parts[:2] == ["api", "models"]:
                self._listing("/".join(parts[2:4]), parts[4:], parse_qs(url.query))
            elif len(parts) >= 5 and parts[2] == "resolve":
                self._file("/".join(parts[:2]), parts[3], "/".join(parts[4:]))
            else:
                self._json(404, {"error": "no such page"})
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _listing(self, repo_id: str, rest: list[str], query: dict[str, list[str]]) -> None:
        repository = self.hub.repositories.get(repo_id)
        if repository is None:
            return self._json(401, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
        if repository.listing_wait is not None:
            repository.listing_wait.wait(60)
        with self.hub.lock:
            status = repository.listing_statuses.pop(0) if repository.listing_statuses else 200
        if status != 200:
            extra = {"X-Error-Code": repository.listing_error_code, "Retry-After": repository.listing_retry_after}
            return self._json(status, {"error": "refused"}, {key: value for key, value in extra.items() if value})
        revision = rest[1] if len(rest) > 1 else "main"
        if revision not in ("main", repository.commit):
            return self._json(404, {"error": "no such revision"}, {"X-Error-Code": "RevisionNotFound"})
        if rest[:1] == ["tree"]:
            return self._tree(repo_id, repository, query)
        return self._json(
            200,
            {
                "id": repo_id,
                "modelId": repo_id,
                "sha": repository.commit,
                "cardData": {"license": repository.licence},
                "siblings": [{"rfilename": name} for name in repository.files],
                "tags": [],
                "private": False,
                "downloads": 0,
                "likes": 0,
            },
        )

    def _tree(self, repo_id: str, repository: Repository, query: dict[str, list[str]]) -> None:
        first = int(query.get("cursor", ["0"])[0])
        names = sorted(repository.files)
        entries = []
        for name in names[first : first + repository.tree_page]:
            data = repository.files[name]
            entry: dict[str, Any] = {"type": "file", "path": name, "size": len(data), "oid": git_sha1(data)}
            if name not in repository.small:
                entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
                if repository.is_on_xet:
                    entry["xetHash"] = hashlib.sha256(data).hexdigest()
            entries.append(entry)
        headers = {}
        if first + repository.tree_page < len(names):
            cursor = f"?recursive=true&cursor={first + repository.tree_page}"
            url = f"{self.hub.endpoint}/api/models/{repo_id}/tree/{repository.commit}{cursor}"
            headers["Link"] = f'<{url}>; rel="next"'
        self._json(200, entries, headers)

    def _file(self, repo_id: str, commit: str, name: str) -> None:
        repository = self.hub.repositories.get(repo_id)
        fault = self.hub.faults.get(name, self.hub.faults.get("*", Fault()))
        number = self.hub.count(name)
        if repository is None or commit != repository.commit or name not in repository.files:
            return self._json(404, {"error": "no such file"}, {"X-Error-Code": "EntryNotFound"})
        if repository.needs_token and self.headers.get("authorization") != f"Bearer {repository.needs_token}":
            return self._json(401, {"error": "gated"}, {"X-Error-Code": "GatedRepo"})
        if number < len(fault.statuses):
            extra = {"Retry-After": fault.retry_after, "X-Error-Code": fault.error_code}
            return self._json(fault.statuses[number], {}, {key: value for key, value in extra.items() if value})
        data = repository.files[name]
        if fault.redirect_to:
            self.send_response(302)
            self.send_header("Location", f"{fault.redirect_to}/{repo_id}/resolve/{commit}/{quote(name)}")
            self.send_header("X-Linked-ETag", hashlib.sha256(data).hexdigest())
            self.send_header("Content-Length", "0")
            return self.end_headers()
        if fault.serves is not None and number < fault.serves_times:
            data = fault.serves
        xet: dict[str, str] = {}
        if repository.is_on_xet:
            token_url = f"{self.hub.endpoint}/api/models/{repo_id}/xet-read-token/{commit}"
            xet = {"X-Xet-Hash": hashlib.sha256(data).hexdigest(), "Link": f'<{token_url}>; rel="xet-auth"'}
        return self._body(data, replace(fault, redirect_to=""), number, xet)

    def _body(self, data: bytes, fault: Fault, number: int, headers: dict[str, str]) -> None:
        etag = f'"{hashlib.sha256(data).hexdigest()[:32]}{number if fault.changes_etag else ""}"'
        asked, start = self.headers.get("range"), 0
        if_range = self.headers.get("if-range")
        if asked and fault.range_status:
            return self._json(fault.range_status, {})
        if asked and not fault.ignores_range and if_range in (None, etag):
            start = int(asked.removeprefix("bytes=").split("-")[0])
            if start >= len(data):
                return self._json(416, {}, {"Content-Range": f"bytes */{len(data)}"})
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        self.send_header("ETag", etag)
        self.send_header("Accept-Ranges", "bytes")
        for key, text in headers.items():
            self.send_header(key, text)
        self.send_header("Content-Length", str(max(0, len(data) - start + fault.wrong_length)))
        self.end_headers()
        body = data[start : start + fault.cut_every] if fault.cut_every else data[start:]
        self._send(body, fault)
        if len(body) < len(data) - start or fault.wrong_length:
            self.close_connection = True
        return None

    def _send(self, body: bytes, fault: Fault) -> None:
        piece = 1 if fault.drip_s else self.hub.piece_bytes
        for at in range(0, len(body), piece):
            if fault.block is not None and at >= len(body) // 2:
                self.wfile.flush()
                fault.block.wait(30)
            sent = body[at : at + piece]
            self.wfile.write(sent)
            with self.hub.lock:
                self.hub.sent_bytes += len(sent)
            self.hub.on_bytes()
            if fault.drip_s:
                self.wfile.flush()
                time.sleep(fault.drip_s)

    def _json(self, status: int, value: Any, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        self.send_response(status)
        for key, text in (headers or {}).items():
            self.send_header(key, text)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
