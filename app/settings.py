"""Every setting a user can change, typed, with its range and its words for the settings screen. Touches no file."""

import difflib
import types
from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from app.errors import HotslotError, SettingsError
from runtime.options import EngineOptions, SamplingOptions, parse_size
from runtime.protocol import TemplateSwitches

Thinking = Literal["auto", "on", "off"]
ThemeName = Literal[
    "hotslot-dark",
    "hotslot-light",
    "nord",
    "gruvbox",
    "catppuccin-mocha",
    "catppuccin-latte",
    "solarized-light",
    "tokyo-night",
    "ansi-dark",
]


@dataclass(frozen=True)
class FieldInfo:
    """Words and range of one setting; `minimum` is exclusive where `is_open`."""

    group: Literal["chat", "sampling", "tools", "engine", "screen"]
    label: str
    help: str
    minimum: float | None = None
    maximum: float | None = None
    is_open: bool = False
    is_size: bool = False
    """A text like 16GiB; empty means decide for me."""


def _about(*words: Any, **more: Any) -> dict[str, FieldInfo]:
    return {"info": FieldInfo(*words, **more)}


_SWITCH = {"auto": None, "on": True, "off": False}


@dataclass(frozen=True)
class Settings:
    """Everything a user can set. None: the model's or the plan's own value."""

    model: str = field(default="demo", metadata=_about("chat", "Model", "'demo' or a model folder"))
    system_prompt: str = field(
        default="", metadata=_about("chat", "System prompt", "Said to the model before every chat")
    )
    thinking: Thinking = field(
        default="auto", metadata=_about("chat", "Thinking", "Whether the model reasons before it answers")
    )
    reasoning_effort: Literal["auto", "low", "medium", "xhigh"] = field(
        default="auto", metadata=_about("chat", "Reasoning effort", "How long the model reasons, if it can be told")
    )
    preserve_thinking: Thinking = field(
        default="auto",
        metadata=_about("chat", "Keep reasoning", "Whether the model sees its reasoning of earlier turns"),
    )
    temperature: float | None = field(
        default=None, metadata=_about("sampling", "Temperature", "0 always takes the likeliest token", 0.0, 10.0)
    )
    top_k: int | None = field(
        default=None, metadata=_about("sampling", "Top-k", "Choose among the k likeliest; 0 is all", 0)
    )
    top_p: float | None = field(
        default=None,
        metadata=_about("sampling", "Top-p", "Choose among the likeliest that sum to p", 0.0, 1.0, is_open=True),
    )
    min_p: float | None = field(
        default=None, metadata=_about("sampling", "Min-p", "Drop what is less likely than p times the best", 0.0, 1.0)
    )
    presence_penalty: float | None = field(
        default=None, metadata=_about("sampling", "Presence penalty", "Above 0 avoids words already used", -2.0, 2.0)
    )
    repetition_penalty: float | None = field(
        default=None,
        metadata=_about("sampling", "Repetition penalty", "Above 1 avoids repeating", 0.0, 10.0, is_open=True),
    )
    seed: int | None = field(
        default=None, metadata=_about("sampling", "Seed", "The same seed gives the same text", 0, 2**63 - 1)
    )
    max_tokens: int | None = field(
        default=None, metadata=_about("sampling", "Longest answer", "Most tokens of one answer", 1)
    )
    tools: bool = field(
        default=True,
        metadata=_about("tools", "Tools", "Offer the model tools; you are asked before one runs"),
    )
    tool_folders: str = field(
        default="",
        metadata=_about(
            "tools", "Folders for tools", "Separated by a colon; otherwise the folder Hotslot was started in"
        ),
    )
    overlap: bool = field(
        default=True, metadata=_about("engine", "Overlap", "Compute the shared expert while missing experts are copied")
    )
    policy: Literal["lru", "rule"] = field(
        default="rule", metadata=_about("engine", "Slot policy", "Which expert leaves its slot when a new one comes")
    )
    device: Literal["auto", "cpu", "cuda"] = field(
        default="auto", metadata=_about("engine", "Device", "Where the model runs")
    )
    dtype: Literal["auto", "fp32"] = field(
        default="auto",
        metadata=_about(
            "engine", "Precision", "auto: the arithmetic of chat; fp32: slower and exact, to check numerics"
        ),
    )
    dense: Literal["auto", "bf16", "fp8"] = field(
        default="auto",
        metadata=_about(
            "engine", "Dense weights", "fp8: half the memory for a little precision; auto is bf16 on a GPU"
        ),
    )
    kv: Literal["device", "host"] = field(
        default="device",
        metadata=_about("engine", "Keys and values", "host: in main memory, for sparse attention on a GPU; more slots"),
    )
    vram: str = field(
        default="",
        metadata=_about("engine", "VRAM limit", "Like 16GiB; on CPU it limits the expert slots", is_size=True),
    )
    ram: str = field(
        default="",
        metadata=_about(
            "engine",
            "RAM limit",
            "Like 32GiB: as if there were so much main memory; the engine stays below it. Otherwise what is free",
            is_size=True,
        ),
    )
    slots: int | None = field(
        default=None, metadata=_about("engine", "Expert slots", "Exactly this many; otherwise as many as fit", 1)
    )
    context: int | None = field(
        default=None, metadata=_about("engine", "Context", "Most tokens of one chat; otherwise what fits", 1)
    )
    side_call_share: float = field(
        default=0.3,
        metadata=_about(
            "engine", "Side calls", "Most of the engine's time that side calls may take beside a chat", 0.05, 0.9
        ),
    )
    theme: ThemeName = field(default="hotslot-dark", metadata=_about("screen", "Theme", "Colours of the screen"))

    def engine_options(self, model_path: Path) -> EngineOptions:
        """How the engine loads the model; a change of any of it needs a new start."""
        return EngineOptions(
            model_path=model_path,
            device=self.device,
            dtype=self.dtype,
            dense=self.dense,
            kv=self.kv,
            policy=self.policy,
            overlap=self.overlap,
            vram_bytes=parse_size(self.vram) if self.vram else None,
            ram_bytes=parse_size(self.ram) if self.ram else None,
            num_slots=self.slots,
            context_tokens=self.context,
            side_call_share=self.side_call_share,
        )

    def sampling_options(self, default: SamplingOptions) -> SamplingOptions:
        """The model's own sampling, changed by what is set here."""
        names = (
            "temperature",
            "top_k",
            "top_p",
            "min_p",
            "presence_penalty",
            "repetition_penalty",
            "seed",
            "max_tokens",
        )
        given = {name: value for name in names if (value := getattr(self, name)) is not None}
        return replace(default, **given)

    @property
    def wants_thinking(self) -> bool | None:
        """None leaves it to the model's template."""
        return _SWITCH[self.thinking]

    @property
    def template_switches(self) -> TemplateSwitches:
        """What else the model's template is told."""
        effort = None if self.reasoning_effort == "auto" else self.reasoning_effort
        return TemplateSwitches(effort, _SWITCH[self.preserve_thinking])


@dataclass(frozen=True)
class SettingField:
    """One row of the settings screen. `kind` is the type of a value that is not None."""

    name: str
    kind: type[bool] | type[int] | type[float] | type[str]
    choices: tuple[str, ...]
    is_optional: bool
    default: Any
    info: FieldInfo

    def parse(self, text: str) -> Any:
        """The value a user typed. Raises SettingsError naming the setting and its range."""
        text = text.strip()
        if self.is_optional and not text:
            return None
        try:
            value: Any = {"true": True, "false": False}[text.lower()] if self.kind is bool else self.kind(text)
        except (KeyError, ValueError):
            raise SettingsError(f"{self.info.label}: {self.expectation}, not '{text}'") from None
        return self.check(value)

    def check(self, value: Any) -> Any:
        """The value itself if it is legal. Raises SettingsError naming the setting and its range."""
        if value is None and self.is_optional:
            return None
        if self.kind is float and type(value) is int:
            value = float(value)
        if type(value) is not self.kind or not self._is_in_range(value):
            near = nearest_in_words(value, self.choices) if isinstance(value, str) else ""
            raise SettingsError(f"{self.info.label}: {self.expectation}, not {value!r}{near}")
        return value

    def _is_in_range(self, value: Any) -> bool:
        if self.choices:
            return value in self.choices
        if self.info.is_size:
            return not value or _is_size(value)
        if self.kind not in (int, float):
            return True
        low, high = self.info.minimum, self.info.maximum
        is_above = low is None or (value > low if self.info.is_open else value >= low)
        return is_above and (high is None or value <= high)

    @property
    def expectation(self) -> str:
        """What a legal value is, in words."""
        if self.choices:
            return "one of " + ", ".join(self.choices)
        if self.info.is_size:
            return "a size like 16GiB, or nothing"
        noun = {bool: "true or false", int: "a whole number", float: "a number", str: "a text"}[self.kind]
        low, high = self.info.minimum, self.info.maximum
        if low is not None and high is not None:
            return f"{noun} {'above' if self.info.is_open else 'from'} {_written(low)} to {_written(high)}"
        return noun if low is None else f"{noun}, {_written(low)} or more"


def nearest_in_words(name: str, known: Sequence[str]) -> str:
    """' (did you mean x?)' with the known name most like this one; empty where none is like it."""
    near = difflib.get_close_matches(name, known, 1)
    return f" (did you mean {near[0]}?)" if near else ""


def _written(bound: float) -> str:
    """A bound as a person types it: all digits of a whole number."""
    return str(bound) if isinstance(bound, int) else f"{bound:g}"


def _is_size(text: str) -> bool:
    try:
        return parse_size(text) > 0
    except HotslotError:
        return False


def _setting_field(name: str, hint: Any, default: Any, info: FieldInfo) -> SettingField:
    options = get_args(hint) if get_origin(hint) is types.UnionType else (hint,)
    inner = next(option for option in options if option is not type(None))
    choices = get_args(inner) if get_origin(inner) is Literal else ()
    return SettingField(name, str if choices else inner, choices, type(None) in options, default, info)


def _setting_fields() -> tuple[SettingField, ...]:
    hints = get_type_hints(Settings)
    return tuple(_setting_field(f.name, hints[f.name], f.default, f.metadata["info"]) for f in fields(Settings))


SETTING_FIELDS = _setting_fields()
"""All settings in the order of the screen."""
