"""Whether running sequences can all come to their end with the pages there are. Pure; knows no cache and no queue.

Sequences take pages as they grow, so that a long allowance nobody uses costs nothing. What keeps them from blocking
each other is an order in which they could be finished one after the other (Dijkstra's banker): each must get along
with the pages that neither it nor a later one holds.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Holding:
    """Pages of one running sequence."""

    page_ids: Collection[int]
    write_page: int | None
    """The one that its next token falls into; None where that is a page it does not have yet."""
    num_needed: int
    """Pages it may hold in the end."""


def spare_pages(num_pages: int, holdings: Sequence[Holding]) -> list[int]:
    """For each holding, in the order in which they could end: pages left over if it then takes all it may need.

    A negative number says that it could get stuck. A page that two hold is given back with the later one, and the one
    that writes to it first needs a copy.
    """
    held_from_here: set[int] = set()
    spare = []
    for holding in reversed(holdings):
        held_from_here.update(holding.page_ids)
        others = (other for other in holdings if other is not holding)
        needs_copy = any(holding.write_page in other.page_ids for other in others)
        num_missing = holding.num_needed - len(holding.page_ids) + needs_copy
        spare.append(num_pages - len(held_from_here) - num_missing)
    return spare[::-1]
