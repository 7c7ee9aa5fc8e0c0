"""Models, fits and downloads in words, the same on the screen and line by line."""

from app.figures import count_text, seconds_text, size_text, tok_s_text
from app.fit import Fit
from app.model_jobs import JobState
from app.model_shelf import EntryState, ModelEntry, ModelShelf
from runtime.downloads.events import DownloadProgressed

STATES: dict[EntryState, str] = {
    "complete": "here",
    "unusable": "here, can't be used",
    "partial": "not complete",
    "absent": "not here",
}


OFFLINE_TEXT = "The Hub is switched off (HF_HUB_OFFLINE): what is here can be used, nothing can be fetched."
SHAPE_UNKNOWN = "shape not known before its config is here"


def machine_text(shelf: ModelShelf) -> str:
    """What there is to fit into: '24 GiB of VRAM free · 60 of 64 GiB of memory free · 410 GiB of disk free'."""
    machine = shelf.machine
    vram = "no GPU" if machine.vram_free_bytes is None else f"VRAM {size_text(machine.vram_free_bytes)} free"
    memory = f"memory {size_text(machine.ram_available_bytes)} of {size_text(machine.ram_total_bytes)} free"
    return f"{vram} · {memory} · disk {size_text(shelf.disk_free_bytes)} free"


def fit_text(fit: Fit | None) -> str:
    """The verdict with its numbers."""
    if fit is None:
        return "Whether it fits is not known before its config is here."
    if not fit.fits:
        return f"Does not fit: {fit.reason}"
    how = "Fits with mapped experts, which stay on the disk" if fit.is_store_mapped else "Fits"
    text = f"{how}: {fit.num_slots} slots, {size_text(fit.total_bytes)} in all"
    return text if fit.speed is None else f"{text}, about {tok_s_text(fit.speed.tok_s)}"


def speed_text(fit: Fit | None) -> str:
    """What the predicted speed assumes; '' where there is none."""
    return "" if fit is None or fit.speed is None else f"Predicted: {fit.speed.why}"


def fit_word(fit: Fit | None) -> str:
    """The verdict alone."""
    return "?" if fit is None else "too big" if not fit.fits else "mapped" if fit.is_store_mapped else "fits"


def size_words(entry: ModelEntry) -> str:
    """What is here and what there is to fetch."""
    whole = entry.download_bytes
    if entry.state == "partial":
        of = f" of about {size_text(whole)}" if whole is not None else ""
        return f"{STATES['partial']}, {size_text(entry.present_bytes)}{of}"
    if entry.state == "absent":
        return f"{STATES['absent']}, " + ("size not known" if whole is None else f"{size_text(whole)} to fetch")
    return f"{STATES[entry.state]}, {size_text(entry.present_bytes)}"


def facts_text(entry: ModelEntry) -> str:
    """Its shape in a line; '' where it is not known."""
    spec = entry.spec
    if spec is None:
        return ""
    return (
        f"{spec.num_layers} layers · {spec.moe.num_experts} experts, {spec.moe.num_experts_per_token} per token · "
        f"{spec.weights.expert_format} · up to {count_text(spec.max_context_tokens)} tokens"
    )


def progress_text(done_bytes: int, total_bytes: int, bytes_per_second: float, seconds_left: float | None) -> str:
    """'43 %, 3.1 GiB of 7.2 GiB, 12 MiB/s, 5 min 3 s left'."""
    percent = 100 * done_bytes // max(1, total_bytes)
    text = f"{percent} %, {size_text(done_bytes)} of {size_text(total_bytes)}"
    if bytes_per_second > 0:
        text += f", {size_text(bytes_per_second)}/s"
    if seconds_left is not None and seconds_left > 0:
        text += f", {seconds_text(seconds_left)} left"
    return text


def event_text(event: DownloadProgressed) -> str:
    """The same of an event."""
    return progress_text(event.done_bytes, event.total_bytes, event.bytes_per_second, event.seconds_left)


def job_word(state: JobState) -> str:
    """How far a job is, for a row that has little room."""
    percent = f"{100 * state.done_bytes // max(1, state.total_bytes)} %"
    match state.phase:
        case "fetching":
            speed = f" {size_text(state.bytes_per_second)}/s" if state.bytes_per_second > 0 else ""
            return f"{percent}{speed}"
        case "checking":
            return f"checking {percent}"
        case "elsewhere":
            return f"{percent} elsewhere"
        case "paused" | "failed" if state.kind == "download" and state.total_bytes:
            return f"{state.phase} at {percent}"
        case "done":
            return "checked" if state.kind == "verify" else "complete"
    return "asking the Hub" if state.phase == "starting" else state.phase


def job_text(state: JobState) -> str:
    """What a job does and how far it is, in one line."""
    progress = progress_text(state.done_bytes, state.total_bytes, state.bytes_per_second, state.seconds_left)
    match state.phase:
        case "starting":
            text = "asking the Hub what there is" if state.kind == "download" else "checking"
        case "elsewhere":
            text = f"downloaded by another Hotslot: {progress}"
        case "fetching":
            text = ("downloading: " if state.kind == "download" else "fetching what was bad: ") + progress
        case "checking":
            text = f"checking every hash: {progress}"
        case "stopping":
            text = "stopping"
        case "paused":
            text = f"paused: {progress}" if state.kind == "download" else "the check was stopped"
        case "failed":
            text = "failed"
        case "done":
            return _end_text(state)
    return f"{text} · {state.note}" if state.note else text


def _end_text(state: JobState) -> str:
    if state.kind == "download":
        return f"complete and checked, {size_text(state.fetched_bytes)} fetched"
    return f"mended: {state.note}; every file is right now" if state.note else "every file is right"


def about_lines(entry: ModelEntry, job: JobState | None, other: DownloadProgressed | None) -> list[str]:
    """What matters of a model, the most urgent first: what goes on, the verdict, its shape. Lines of any length."""
    lines = []
    if job is not None:
        text = job_text(job)
        lines.append(text[:1].upper() + text[1:])
    elif other is not None:
        lines.append(f"Another Hotslot downloads it: {event_text(other)}")
    lines.append(f"Can't be used: {entry.problem}" if entry.state == "unusable" else fit_text(entry.fit))
    lines.append(f"{facts_text(entry) or SHAPE_UNKNOWN} · {licence_text(entry)}")
    return lines


def cancel_question(entry: ModelEntry) -> str:
    """Before a download is given up."""
    return f"Give up the download of {entry.name}, and the {size_text(entry.present_bytes)} it has fetched?"


def remove_question(entry: ModelEntry) -> str:
    """Before a model is removed."""
    return f"Remove {entry.name}, {size_text(entry.present_bytes)}, from the disk?"


def licence_text(entry: ModelEntry) -> str:
    return entry.licence if entry.licence != "unknown" else "licence not stated"


def detail_text(entry: ModelEntry, job: JobState | None) -> str:
    """All that is known of a model, a line per fact; what is not known is said."""
    spec, remote = entry.spec, entry.remote
    repository = "none: a folder of this machine"
    if remote is not None:
        repository = f"{remote.places.repo_id} at {entry.commit or remote.revision or 'the newest commit'}"
    facts = {
        "name": entry.name,
        "repository": repository,
        "state": size_words(entry),
        "folder": str(entry.local.path) if entry.local is not None else "none yet",
        "licence": licence_text(entry),
        "download": "size not stated" if entry.download_bytes is None else size_text(entry.download_bytes),
        "family": spec.family if spec is not None else SHAPE_UNKNOWN,
        "shape": facts_text(entry) or SHAPE_UNKNOWN,
        "fit": fit_text(entry.fit),
        "speed": speed_text(entry.fit),
        "problem": entry.problem,
        "now": job_text(job) if job is not None else "",
    }
    return "\n".join(f"{label:<11} {value}" for label, value in facts.items() if value)
