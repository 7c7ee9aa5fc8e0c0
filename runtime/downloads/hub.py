"""The Hub's side that is not bytes: endpoint and token of this user, and a repository's listing at one commit.

Goes through huggingface_hub, which knows tokens, gated repositories, revisions, mirrors and the offline flag.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runtime.downloads.manifest import RemoteFile
from runtime.downloads.retry import Retry, wait_named_by
from runtime.errors import DownloadError

MAIN = "main"


@dataclass(frozen=True)
class HubAccess:
    """How this user reaches the Hub."""

    endpoint: str
    token: str | None
    is_offline: bool
    cache_dir: Path | None = None
    """The Hub's own cache: files that lie there are not fetched again."""

    @classmethod
    def from_environment(cls) -> "HubAccess":
        """HF_ENDPOINT, HF_TOKEN or the saved token, HF_HUB_OFFLINE, HF_HOME: read by huggingface_hub itself."""
        # Half a second, which only those who download should wait for.
        from huggingface_hub import constants, get_token

        return cls(constants.ENDPOINT, get_token(), constants.is_offline_mode(), Path(constants.HF_HUB_CACHE))


@dataclass(frozen=True)
class Listing:
    """All files of a repository at one commit."""

    commit: str
    licence: str
    files: tuple[RemoteFile, ...]


def list_repository(access: HubAccess, repo_id: str, revision: str) -> Listing:
    """Raises DownloadError with one readable line, or Retry where the server asks for patience."""
    if access.is_offline:
        raise DownloadError(f"{repo_id}: the Hub is switched off (HF_HUB_OFFLINE); unset it to download")
    # Half a second, which only those who download should wait for.
    import httpx2
    from huggingface_hub import HfApi
    from huggingface_hub import errors as hub_errors

    api = HfApi(endpoint=access.endpoint, token=access.token or False)
    try:
        info = api.model_info(repo_id, revision=revision, timeout=20)
        entries = list(api.list_repo_tree(repo_id, recursive=True, revision=info.sha))
    except hub_errors.GatedRepoError:
        raise DownloadError(_gated(access, repo_id)) from None
    except hub_errors.RevisionNotFoundError:
        raise DownloadError(f"{repo_id} has no revision {revision[:80]!a}; leave it away to get the newest") from None
    except hub_errors.RepositoryNotFoundError:
        raise DownloadError(
            f"There is no repository {repo_id}, or it is private; check the name, or set HF_TOKEN"
        ) from None
    except hub_errors.OfflineModeIsEnabled:
        raise DownloadError(f"{repo_id}: the Hub is switched off (HF_HUB_OFFLINE); unset it to download") from None
    except hub_errors.HfHubHTTPError as error:
        raise _http_failure(access, repo_id, error) from None
    except httpx2.TransportError as error:
        raise Retry(f"{access.endpoint} can't be reached ({type(error).__name__})") from None
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Retry(f"{access.endpoint} sends a listing that can't be read ({type(error).__name__})") from None
    return _listing(repo_id, info, entries)


def refused_access(access: HubAccess, repo_id: str, status: int, error_code: str | None) -> str:
    """The line for a 401 or 403."""
    if error_code == "GatedRepo":
        return _gated(access, repo_id)
    what = "the token may not read it" if access.token else "it needs a token: set HF_TOKEN"
    return f"{repo_id}: the Hub refuses access ({status}); {what}"


def _gated(access: HubAccess, repo_id: str) -> str:
    how = "with the account of your token" if access.token else "and set HF_TOKEN"
    return f"{repo_id} is gated: accept its terms at {access.endpoint}/{repo_id} {how}, then pull again"


def _http_failure(access: HubAccess, repo_id: str, error: Any) -> Exception:
    status, headers = error.response.status_code, error.response.headers
    if status in (401, 403):
        return DownloadError(refused_access(access, repo_id, status, headers.get("X-Error-Code")))
    if status in (408, 429) or status >= 500:
        return Retry(f"{access.endpoint} answers {status}", wait_named_by(headers))
    return DownloadError(f"{repo_id}: the Hub answers {status}; check the name, or try again later")


def _listing(repo_id: str, info: Any, entries: list[Any]) -> Listing:
    files = []
    for entry in entries:
        if not hasattr(entry, "blob_id"):
            continue  # A folder.
        size = entry.lfs.size if entry.lfs is not None else entry.size
        sha256 = entry.lfs.sha256 if entry.lfs is not None else None
        files.append(RemoteFile(str(entry.path), int(size), sha256, str(entry.blob_id)))
    if not info.sha:
        raise DownloadError(f"{repo_id}: the Hub names no commit; try again later")
    card = info.card_data
    licence = card.get("license_name") or card.get("license") if card is not None else None
    return Listing(info.sha, str(licence or "unknown"), tuple(files))
