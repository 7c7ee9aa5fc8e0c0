"""Command line options that several commands share, and how they change the settings of one run.

They are absent from the namespace unless given, so that one given before the command is not undone by the command's own
default.
"""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import Any

from app.errors import SettingsError
from app.sanitize import clean, clean_line
from app.settings import SETTING_FIELDS, Settings
from runtime.errors import UsageError
from runtime.options import DtypeName, parse_size

_FIELDS = {setting.name: setting for setting in SETTING_FIELDS}
_SAMPLING = ("temperature", "top_k", "top_p", "min_p", "presence_penalty", "repetition_penalty", "seed", "max_tokens")
_METAVARS = {"top_k": "K", "top_p": "P", "min_p": "P", "temperature": "T", "seed": "N", "max_tokens": "N"}


def add_model_option(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", metavar="M", default=argparse.SUPPRESS, help="'demo', a name in the models folder, or a model folder"
    )


def add_chat_options(parser: argparse.ArgumentParser) -> None:
    """System prompt, thinking and sampling."""
    chat = parser.add_argument_group("chat")
    chat.add_argument(
        "--system",
        dest="system_prompt",
        metavar="S",
        default=argparse.SUPPRESS,
        help=_FIELDS["system_prompt"].info.help,
    )
    thinking = chat.add_mutually_exclusive_group()
    thinking.add_argument(
        "--think",
        dest="thinking",
        action="store_const",
        const="on",
        default=argparse.SUPPRESS,
        help="reason before answering",
    )
    thinking.add_argument(
        "--no-think",
        dest="thinking",
        action="store_const",
        const="off",
        default=argparse.SUPPRESS,
        help="answer at once",
    )
    _add_setting(chat, "reasoning_effort")
    _add_setting(chat, "preserve_thinking")
    sampling = parser.add_argument_group("sampling (default: what the model's authors recommend)")
    for name in _SAMPLING:
        _add_setting(sampling, name, metavar=_METAVARS.get(name, "X"))


def add_engine_options(parser: argparse.ArgumentParser, default_dtype: DtypeName = "auto") -> None:
    """How the model is loaded; `default_dtype` is what the help calls the default."""
    engine = parser.add_argument_group("engine")
    _add_setting(engine, "overlap", choices=("on", "off"))
    _add_setting(engine, "policy")
    add_memory_options(engine)
    _add_setting(engine, "slots", metavar="N")
    _add_setting(engine, "dtype", help=f"{_FIELDS['dtype'].info.help}; default: {default_dtype}")


def add_memory_options(parser: "argparse.ArgumentParser | argparse._ArgumentGroup") -> None:
    """What bounds the plan."""
    _add_setting(parser, "vram", type=parse_size_option, metavar="SIZE")
    _add_setting(parser, "ram", type=parse_size_option, metavar="SIZE")
    _add_setting(parser, "context", metavar="N")
    _add_setting(parser, "device")
    _add_setting(parser, "dense")
    _add_setting(parser, "kv")


def add_disk_option(parser: argparse.ArgumentParser) -> None:
    """For a judgement of models that are not here yet."""
    parser.add_argument(
        "--disk", type=parse_size_option, metavar="SIZE", help="judge by so much free disk; otherwise what is free"
    )


def parse_size_option(text: str) -> str:
    """A size as it was written, if it is one above 0."""
    try:
        is_legal = parse_size(text) > 0
    except UsageError as error:
        raise argparse.ArgumentTypeError(clean_line(str(error))) from None
    if not is_legal:
        raise argparse.ArgumentTypeError("a size must be above 0, like 16GiB")
    return text


def parse_output_path(option: str, name: str | None) -> Path | None:
    """Where a file can be made or replaced. Raises UsageError naming the option."""
    if name is None:
        return None
    path = Path(name).absolute()
    if not path.parent.is_dir() or (path.exists() and not path.is_file()):
        raise UsageError(f"{option} {clean_line(name)}: give a file in a folder that exists.")
    return path


def apply_options(settings: Settings, arguments: argparse.Namespace) -> Settings:
    """The settings with what was given on the command line."""
    given = {name: value for name in _FIELDS if (value := getattr(arguments, name, None)) is not None}
    if "system_prompt" in given:
        given["system_prompt"] = clean(given["system_prompt"])
    if "overlap" in given:
        given["overlap"] = given["overlap"] == "on"
    return replace(settings, **given)


def _add_setting(parser: "argparse.ArgumentParser | argparse._ArgumentGroup", name: str, **differs: Any) -> None:
    """The option of a setting: takes what the setting does, but for what `differs`."""
    setting = _FIELDS[name]
    choices = differs.pop("choices", setting.choices)
    takes = {"choices": choices} if choices else {"type": _setting_type(name)}
    how = {"default": argparse.SUPPRESS, "help": setting.info.help} | takes | differs
    parser.add_argument(f"--{name.replace('_', '-')}", **how)


def _setting_type(name: str) -> Any:
    """An argparse type that accepts what the setting accepts."""
    setting = _FIELDS[name]

    def parse(text: str) -> Any:
        try:
            return setting.check(setting.kind(text))
        except (SettingsError, ValueError):
            raise argparse.ArgumentTypeError(f"must be {setting.expectation}, not '{clean_line(text)}'") from None

    return parse
