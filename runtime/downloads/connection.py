"""Bytes of one file of the Hub from an offset on. Follows redirects by itself: the token goes to the endpoint alone."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from threading import Lock
from urllib.parse import quote, urljoin, urlsplit

import httpx2

from runtime.downloads.hub import HubAccess, refused_access
from runtime.downloads.manifest import RemoteFile
from runtime.downloads.retry import Retry, wait_named_by
from runtime.errors import DownloadError

MOST_REDIRECTS = 5
USER_AGENT = "hotslot"


@dataclass(frozen=True)
class ByteStream:
    """An answer whose body begins at `offset` of the file; `etag` is None where it can't be relied on."""

    offset: int
    etag: str | None
    response: httpx2.Response

    def chunks(self) -> Iterator[bytes]:
        """The body as it comes over the wire. Raises Retry where it breaks off."""
        try:
            yield from self.response.iter_raw()
        except (httpx2.TransportError, httpx2.StreamError, OSError) as error:
            raise Retry(f"the connection broke off ({type(error).__name__})") from None


class HubConnection:
    """One pool of connections; safe to use from several threads."""

    def __init__(self, access: HubAccess, connect_timeout_s: float, read_timeout_s: float) -> None:
        self._access = access
        timeout = httpx2.Timeout(read_timeout_s, connect=connect_timeout_s, pool=None)
        self._client = httpx2.Client(timeout=timeout, follow_redirects=False)
        self._live: set[httpx2.Response] = set()
        self._lock = Lock()

    def close(self) -> None:
        self._client.close()

    def abort(self) -> None:
        """Wake every thread that waits for bytes: its stream ends as if the server had hung up."""
        with self._lock:
            live = list(self._live)
        for response in live:
            stream = response.extensions.get("network_stream")
            raw_socket = stream.get_extra_info("socket") if stream is not None else None
            if raw_socket is not None:
                with suppress(OSError):
                    raw_socket.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def open(self, repo_id: str, commit: str, file: RemoteFile, offset: int, etag: str | None) -> Iterator[ByteStream]:
        """Ask for the rest of `file`. Raises DownloadError for what will not pass, Retry for what may."""
        response = self._send(repo_id, commit, file, offset, etag)
        with self._lock:
            self._live.add(response)
        try:
            yield self._classify(repo_id, file, response, offset)
        finally:
            with self._lock:
                self._live.discard(response)
            response.close()

    def _send(self, repo_id: str, commit: str, file: RemoteFile, offset: int, etag: str | None) -> httpx2.Response:
        endpoint = self._access.endpoint
        url = f"{endpoint}/{repo_id}/resolve/{quote(commit, safe='')}/{quote(file.name, safe='')}"
        for _ in range(MOST_REDIRECTS + 1):
            request = self._client.build_request("GET", url, headers=self._headers(url, offset, etag))
            try:
                response = self._client.send(request, stream=True)
            except (httpx2.TransportError, OSError) as error:
                raise Retry(f"{urlsplit(url).hostname} can't be reached ({type(error).__name__})") from None
            if response.status_code not in (301, 302, 303, 307, 308):
                return response
            response.close()
            target = urljoin(url, response.headers.get("location", ""))
            _refuse_redirect(file, url, target)
            url = target
        raise DownloadError(f"{file.name}: the Hub redirects in circles; try again later, or another HF_ENDPOINT")

    def _headers(self, url: str, offset: int, etag: str | None) -> dict[str, str]:
        headers = {"accept-encoding": "identity", "user-agent": USER_AGENT}
        if offset:
            headers["range"] = f"bytes={offset}-"
            if etag is not None:
                headers["if-range"] = etag
        if self._access.token and _origin(url) == _origin(self._access.endpoint):
            headers["authorization"] = f"Bearer {self._access.token}"
        return headers

    def _classify(self, repo_id: str, file: RemoteFile, response: httpx2.Response, offset: int) -> ByteStream:
        status, headers = response.status_code, response.headers
        if headers.get("content-encoding", "identity") != "identity" and status in (200, 206):
            raise Retry(f"the server sends {file.name} compressed")
        etag = headers.get("etag")
        strong_etag = etag if etag and not etag.startswith("W/") else None
        if status == 200:
            return ByteStream(0, strong_etag, response)
        if status == 206:
            return ByteStream(_range_start(headers.get("content-range", ""), file, offset), strong_etag, response)
        if status == 416:
            # The server's file is shorter than what is here, so what is here is not the start of it.
            return ByteStream(0, None, _without_body(response))
        is_elsewhere = _origin(str(response.url)) != _origin(self._access.endpoint)
        if status in (408, 429) or status >= 500 or (status in (401, 403) and is_elsewhere):
            # Links to other hosts are signed for a while; the next attempt gets a new one.
            raise Retry(f"{response.url.host} answers {status}", wait_named_by(headers))
        if status in (401, 403):
            raise DownloadError(refused_access(self._access, repo_id, status, headers.get("x-error-code")))
        if status in (404, 410):
            raise DownloadError(
                f"{repo_id}: {file.name} is not there any more ({status}); pull again for a new listing"
            )
        raise DownloadError(f"{repo_id}: the server answers {status} for {file.name}; try again later")


def _range_start(content_range: str, file: RemoteFile, offset: int) -> int:
    unit, _, span = content_range.partition(" ")
    start, _, total = span.partition("-")[0], None, span.rpartition("/")[2]
    if unit != "bytes" or start != str(offset) or total not in ("*", str(file.num_bytes)):
        raise Retry(f"the server sends another part than was asked for ({content_range[:60]!a})")
    return offset


def _without_body(response: httpx2.Response) -> httpx2.Response:
    response.close()
    return httpx2.Response(416, content=b"", request=response.request)


def _refuse_redirect(file: RemoteFile, url: str, target: str) -> None:
    parts = urlsplit(target)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise DownloadError(f"{file.name}: the server redirects to {target[:80]!a}; try again later")
    if parts.scheme == "http" and urlsplit(url).scheme == "https":
        raise DownloadError(f"{file.name}: the server redirects from https to http ({parts.hostname}); not followed")


def _origin(url: str) -> tuple[str, str | None, int]:
    parts = urlsplit(url)
    return parts.scheme, parts.hostname, parts.port or (443 if parts.scheme == "https" else 80)
