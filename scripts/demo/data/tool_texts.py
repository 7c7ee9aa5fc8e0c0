"""Owns the reading of text/tools_*.txt: ways to ask for each tool, results, and the answers that use them.

Of tools_more.txt (each line with its variants, "[your/the]"), tools_frames.txt (deeds "do", questions "what" and things
"it" of each tool, and frames to say them in) and tools_outcomes.txt evaluation uses nothing.

A line "request => name=value; name=value" states the arguments; without it they are the slots that are parameters'
names. A value without a name is the first parameter's. " + => " parts the arguments of two calls.
"""

import random
import re
from dataclasses import dataclass
from pathlib import Path

from demo.data.composed import alternatives
from demo.data.handwritten import gist
from demo.data.tool_words import SLOT
from demo.data.words import Fillers, capitalised

NAMED = re.compile(r"(\w+)=(.*)", re.S)
FILES = ("tools_files.txt", "tools_sums.txt", "tools_talk.txt", "tools_everyday.txt", "tools_context.txt")
LISTINGS = {"listed": "listing"}
MORE_SHARE, FRAMED_SHARE = 0.35, 0.25  # of the requests in training
MORE_OUTCOMES_SHARE = 0.5  # of the results in training
OUTCOMES = (" results", " errors", "denied", "missing", "no tool")


def slot_names(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(slot[1] for slot in SLOT.finditer(text) if slot[1]))


@dataclass(frozen=True)
class Phrasing:
    """A request; one binding of parameters to templates for each call, none where the slots say it."""

    template: str
    bindings: tuple[dict[str, str], ...] = ()

    def bound(self, call: int, parameters: tuple[str, ...]) -> dict[str, str]:
        """Parameter -> template of its argument."""
        if len(self.bindings) > call:
            return {name or parameters[0]: value for name, value in self.bindings[call].items()}
        return {name: f"{{{name}}}" for name in slot_names(self.template) if name in parameters}

    def needs(self) -> set[str]:
        """All slots of the request and of its arguments."""
        stated = [value for binding in self.bindings for value in binding.values()]
        return {name for text in (self.template, *stated) for name in slot_names(text)}


@dataclass(frozen=True)
class Outcome:
    result: str
    answers: tuple[str, ...]

    @property
    def keys(self) -> tuple[str, ...]:
        """Slots of the result that every answer uses."""
        used = [{LISTINGS.get(name, name) for name in slot_names(answer)} for answer in self.answers]
        return tuple(name for name in slot_names(self.result) if all(name in names for names in used))


def parse_binding(text: str) -> dict[str, str]:
    named = [NAMED.fullmatch(part) for part in text.split("; ")]
    return {match[1]: match[2] for match in named if match} if all(named) else {"": text}


def parse_phrasing(line: str) -> Phrasing:
    template, *stated = line.split(" => ")
    return Phrasing(template, tuple(parse_binding(text.removesuffix(" +")) for text in stated))


def parse_outcome(line: str) -> Outcome:
    result, answers = line.split(" => ")
    return Outcome(result.replace("\\n", "\n"), tuple(answers.split(" | ")))


def in_frame(mark: str, frame: str, core: str) -> str:
    """A line of the texts: the core where the frame has "{do}", or with a capital where it has "{Do}"."""
    text, *stated = core.split(" => ")
    said = frame.replace(f"{{{mark}}}", text).replace(f"{{{capitalised(mark)}}}", capitalised(text))
    return " => ".join((said, *stated))


def read_sections(path: Path) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    section = ""
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("# ") and line[2:3].islower():
            section = line[2:]
        else:
            sections.setdefault(section, []).append(line)
    return sections


class ToolTexts:
    def __init__(self, folder: Path) -> None:
        self.lines: dict[str, list[str]] = {}
        for name in FILES:
            for section, lines in read_sections(folder / name).items():
                self.lines.setdefault(section, []).extend(lines)
        self.outcomes: dict[str, list[Outcome]] = {}
        self.phrasings: dict[str, list[Phrasing]] = {}
        for section, lines in self.lines.items():
            if section.endswith(OUTCOMES):
                self.outcomes[section] = [parse_outcome(line) for line in lines]
            else:
                self.phrasings[section] = [parse_phrasing(line) for line in lines]
        self.examined = {name: {gist(template(line)) for line in held_out(lines)} for name, lines in self.lines.items()}
        others = read_sections(folder / "tools_outcomes.txt")
        self.more_outcomes = {section: [parse_outcome(line) for line in lines] for section, lines in others.items()}
        framed = read_sections(folder / "tools_frames.txt")
        self.frames = {mark: framed.pop(f"frames {mark}") for mark in ("do", "what", "it")}
        self.cores = {tool: [line.split(" ", 1) for line in lines] for tool, lines in framed.items()}

        more = read_sections(folder / "tools_more.txt")
        self.more = {section: self.ways(section, lines) for section, lines in more.items()}
        self.more_phrasings = {
            section: [tuple(map(parse_phrasing, way)) for way in ways]
            for section, ways in self.more.items()
            if section in self.phrasings
        }

    def ways(self, section: str, lines: list[str]) -> list[list[str]]:
        """The variants of each line, without those that evaluation uses in other order or with other small words."""
        examined = self.examined[section]
        ways = [[text for text in alternatives(line) if gist(template(text)) not in examined] for line in lines]
        return [way for way in ways if way]

    def phrasing(self, fill: Fillers, section: str) -> Phrasing:
        kind = 1.0 if fill.held_out else fill.rng.random()
        more = self.more_phrasings.get(section)
        if more and kind < MORE_SHARE:
            return fill.rng.choice(fill.rng.choice(more))
        if section in self.cores and kind < MORE_SHARE + FRAMED_SHARE:
            return self.framed(fill, section)
        return fill.phrasing(self.phrasings[section])

    def framed(self, fill: Fillers, section: str) -> Phrasing:
        """Never one that evaluation uses in other order or with other small words."""
        while True:
            mark, core = fill.rng.choice(self.cores[section])
            line = in_frame(mark, fill.rng.choice(self.frames[mark]), core)
            if gist(template(line)) not in self.examined[section]:
                return parse_phrasing(line)

    def outcome(self, fill: Fillers, section: str) -> Outcome:
        more = self.more_outcomes.get(section)
        if more and not fill.held_out and fill.rng.random() < MORE_OUTCOMES_SHARE:
            return fill.rng.choice(more)
        return fill.phrasing(self.outcomes[section])

    def line(self, fill: Fillers, section: str) -> str:
        if section in self.more and not fill.held_out and fill.rng.random() < MORE_SHARE:
            return fill.rng.choice(fill.rng.choice(self.more[section]))
        return fill.phrasing(self.lines[section])

    def has(self, section: str) -> bool:
        return section in self.lines


def template(line: str) -> str:
    return line.split(" => ")[0]


def held_out(lines: list[str]) -> list[str]:
    return Fillers(random.Random(0), (), held_out=True).own_phrasings(lines)
