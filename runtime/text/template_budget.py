"""What one rendering of a chat template may still do: steps, characters in one text, and work in all.

Work is counted in characters and items that operations go through or make. It bounds time, and because what is made is
counted even where it is kept, it bounds memory.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Any

import jinja2
from jinja2.runtime import Context

OWN_STEPS = 200_000
"""Loop rounds and calls a template may make, besides one per character of its content."""
OWN_CHARACTERS = 1_000_000
MAX_GROWTH = 8
"""Characters a template may write, besides so many times its content."""
OWN_WORK = 20_000_000
WORK_PER_CHARACTER = 64
"""Work a template may do, besides so much for each character of its content."""
_WORK_PER_ITEM = 16
"""An item of a list takes about as much memory, and looking at it as much time, as so many characters."""
_KEY = " budget"
"""Context key of the render's budget; the space keeps it out of a template's reach."""


class TemplateLimitError(jinja2.TemplateError):
    """The template does not end or writes without bound."""


class Budget:
    """Counts down; raises TemplateLimitError where nothing is left."""

    def __init__(self, num_content_characters: int) -> None:
        self._steps = OWN_STEPS + num_content_characters
        self._work = OWN_WORK + WORK_PER_CHARACTER * num_content_characters
        self._max_characters = OWN_CHARACTERS + MAX_GROWTH * num_content_characters

    @classmethod
    def of(cls, context: Context) -> "Budget":
        """The budget of the rendering that `context` belongs to."""
        return context.parent[_KEY]

    def as_variable(self) -> dict[str, "Budget"]:
        """What the template's variables need beside their own."""
        return {_KEY: self}

    def step(self) -> None:
        """One loop round or call."""
        self._steps -= 1
        if self._steps < 0:
            raise TemplateLimitError("it does not come to an end")

    def check_size(self, num_characters: int) -> None:
        """Before a text of that size is made."""
        if num_characters > self._max_characters:
            raise TemplateLimitError("it writes without end")

    def spend(self, work: int) -> None:
        """Characters or items that are gone through."""
        self._work -= work
        if self._work < 0:
            raise TemplateLimitError("it does not come to an end")

    def read(self, value: Any, indent: int = 0) -> int:
        """Spend what going through all of a value costs, shared parts as often as they occur; says how much it was.

        `indent` is what is written before every item, once for each level.
        """
        before = self._work
        if not isinstance(value, list | tuple | Mapping):
            self.spend(_WORK_PER_ITEM + (len(value) if isinstance(value, str) else 0))
            return before - self._work
        self.spend(_WORK_PER_ITEM)
        level, depth = [value], 0
        while level:
            self.spend(sum(len(item) for item in level if isinstance(item, str)))
            depth += 1
            parts = [_parts(item) for item in level if isinstance(item, list | tuple | Mapping)]
            self.spend((_WORK_PER_ITEM + indent * depth) * sum(map(len, parts)))
            level = list(chain.from_iterable(parts))
        return before - self._work

    def made(self, value: Any) -> Any:
        """Spend what a new value costs, and hand it on. Its parts were there before."""
        self.spend(surface(value))
        if isinstance(value, str):
            self.check_size(len(value))
        return value


def surface(value: Any) -> int:
    """Work of going over a value without looking into its parts."""
    if isinstance(value, list | tuple | Mapping):
        return 1 + _WORK_PER_ITEM * len(value)
    return 1 + (len(value) if isinstance(value, str) else 0)


def _parts(value: Any) -> Sequence[Any]:
    return [*value, *value.values()] if isinstance(value, Mapping) else value
