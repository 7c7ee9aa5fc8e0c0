"""Who answers whom in one conversation: siblings of a message and the newest leaf below it. Holds ids, no texts."""

from collections.abc import Iterable

from app.store.conversations import MessageLink


class MessageTree:
    """Links in the order in which they were made, parents before their children. Adding one twice changes nothing."""

    def __init__(self, links: Iterable[MessageLink] = ()) -> None:
        self._parents: dict[str, str | None] = {}
        self._children: dict[str | None, list[str]] = {}
        for link in links:
            self.add(link)

    def add(self, link: MessageLink) -> None:
        """Put a message below its parent, the newest of its siblings."""
        if link.id not in self._parents:
            self._parents[link.id] = link.parent_id
            self._children.setdefault(link.parent_id, []).append(link.id)

    def siblings(self, message_id: str) -> tuple[str, ...]:
        """The message and all others that follow the same one, oldest first; only itself where it is unknown."""
        if message_id not in self._parents:
            return (message_id,)
        return tuple(self._children[self._parents[message_id]])

    def newest_leaf(self, message_id: str) -> str:
        """The end of the branch through this message that was added to last."""
        below = {message_id}
        newest = message_id
        for child_id, parent_id in self._parents.items():
            if parent_id in below:
                below.add(child_id)
                newest = child_id
        return newest
