"""Owns single uses of tools: the request as a person types it, the call, the result and the answer."""

import re
from dataclasses import dataclass, replace
from pathlib import Path

from demo.data.conversation import Call, Turn
from demo.data.tool_schemas import Offer
from demo.data.tool_texts import Outcome, Phrasing, ToolTexts
from demo.data.tool_words import Slots, Vocabulary
from demo.data.words import Fillers

TEXT = Path(__file__).parents[1] / "text"
ENDS = (".", "?", "!")
CARRIED = {"folder", "first", "last", "hit", "result", "path"}  # what a later call may take from a result
JOINING = {"and", "then", "also,", "that,", "way,"}  # what comes after them starts small
SLOT_OR_TEXT = re.compile(r"(\{\w+\})")


@dataclass(frozen=True)
class Use:
    """What the user says, the call, what comes back, the answer, and what of the result the answer must have."""

    offer: Offer
    asked: str
    call: Call
    arguments: dict[str, str]  # by slot name
    slots: Slots
    result: str = ""
    answer: str = ""
    keys: tuple[str, ...] = ()


def called(
    offer: Offer, asked: str, slots: Slots, phrasing: Phrasing, number: int = 0, kept: dict | None = None
) -> Use:
    """The use whose arguments are those of the phrasing's call `number`, and others kept from before."""
    bound = {key: slots.text(value) for key, value in phrasing.bound(number, offer.tool.slots).items()}
    if "path" in bound:
        bound["path"] = bound["path"].replace("//", "/")
    arguments = offer.completed({**(kept or {}), **bound})
    slots.values.update(arguments)
    if "expression" in arguments:
        slots.values.pop("result", None)
    return Use(offer, asked, offer.call(arguments), arguments, slots)


def ended(use: Use, outcome: Outcome) -> Use:
    slots = use.slots
    result, answer = slots.text(outcome.result), slots.text(slots.fill.rng.choice(outcome.answers))
    keys = [name for key in outcome.keys for name in (slots.names if key == "listing" else (slots.value(key),))]
    return replace(use, result=result, answer=answer, keys=tuple(keys))


def turns_of(*uses: Use) -> tuple[Turn, ...]:
    """One request with its calls, results and answer."""
    calls = Turn("assistant", calls=tuple(use.call for use in uses))
    results = [Turn("tool", use.result) for use in uses]
    return Turn("user", uses[0].asked), calls, *results, Turn("assistant", " ".join(use.answer for use in uses))


def decapitalised(template: str) -> str:
    is_name = template.startswith(("I ", "I'", "Hotslot", "{"))
    return template if is_name else template[0].lower() + template[1:]


def lowered(template: str) -> str:
    return "".join(part if part.startswith("{") else part.lower() for part in SLOT_OR_TEXT.split(template))


class Uses:
    """Draws uses from the texts."""

    def __init__(self) -> None:
        self.texts, self.vocabulary = ToolTexts(TEXT), Vocabulary(TEXT / "tools_words.txt")
        closed = {
            name: [p for p in of_tool if p.template.endswith(ENDS)] for name, of_tool in self.texts.phrasings.items()
        }
        self.closed = {name for name, of_tool in closed.items() if 2 * len(of_tool) > len(self.texts.phrasings[name])}

    def slots(self, fill: Fillers, values: dict[str, str] | None = None) -> Slots:
        return Slots(self.vocabulary, fill, values)

    def use(self, fill: Fillers, offer: Offer) -> Use:
        phrasing, slots = self.phrasing(fill, offer.tool.name, (offer,)), self.slots(fill)
        return called(offer, self.asked(slots, phrasing.template), slots, phrasing)

    def phrasing(self, fill: Fillers, section: str, offers: tuple[Offer, ...], kept: tuple[str, ...] = ()) -> Phrasing:
        """One whose parameters the schemas have."""
        while True:
            phrasing = self.texts.phrasing(fill, section)
            bound = [{*phrasing.bound(number, offer.tool.slots), *kept} for number, offer in enumerate(offers)]
            if all(offer.accepts(names) for offer, names in zip(offers, bound, strict=True)):
                return phrasing

    def asked(self, slots: Slots, template: str) -> str:
        """With a sentence before or after, an opening, without capitals or full stop."""
        fill, style, typing = slots.fill, slots.fill.rng.random(), slots.fill.rng.random()
        before = after = ""
        is_closed = template.endswith(ENDS)
        if template.endswith("that {line}"):
            slots.values["line"] = self.vocabulary.draw(fill, "clause")
            template += fill.rng.choice((".", ""))
        if style < 0.1:
            before, template = self.texts.line(fill, "opening"), decapitalised(template)
        elif style < 0.22:
            before = self.texts.line(fill, "before")
        elif style < 0.32 and is_closed:
            after = self.texts.line(fill, "after")
        elif style < 0.45 and is_closed:
            template = template[:-1]
        elif style > 0.85 and not fill.held_out:
            before = self.texts.line(fill, "before")
            after = self.texts.line(fill, "after") if is_closed else ""
        template = lowered(template) if typing < 0.1 else decapitalised(template) if typing < 0.17 else template
        before, after = (self.vocabulary.expand(fill, text) for text in (before, after))
        return " ".join(part for part in (before, slots.shown(template), after) if part)

    def answered(self, use: Use, section: str = "results") -> Use:
        return ended(use, self.texts.outcome(use.slots.fill, f"{use.offer.tool.name} {section}"))

    def denied(self, use: Use) -> Use:
        use.slots.values["name"] = use.call.name
        return ended(use, self.texts.outcome(use.slots.fill, "denied"))

    def follower(self, fill: Fillers, use: Use, offers: list[Offer]) -> Use | None:
        """A short request that leans on the one before: on its arguments ("again") or on its result (">")."""
        name = use.offer.tool.name
        ways = [(use.offer, f"{name} again")] + [(offer, f"{name} > {offer.tool.name}") for offer in offers]
        ways = [(offer, section) for offer, section in ways if section in self.texts.phrasings]
        if not ways:
            return None
        offer, section = fill.rng.choice(ways)
        is_again = section.endswith("again")
        kept = use.arguments if is_again else {}
        phrasing = self.phrasing(fill, section, (offer,), tuple(kept))
        known = use.slots.values
        if not is_again and not CARRIED & phrasing.needs() <= set(known):
            return None
        fresh = phrasing.needs() if is_again else set()
        carried = kept if is_again else {key: known[key] for key in sorted(CARRIED & set(known))}
        slots = self.slots(fill, {key: value for key, value in carried.items() if key not in fresh})
        return self.answered(called(offer, slots.shown(phrasing.template), slots, phrasing, kept=kept))

    def twice(self, fill: Fillers, offer: Offer) -> tuple[Use, ...]:
        """Two calls of one tool in one turn; none where no phrasing asks for two."""
        section = f"{offer.tool.name} twice"
        if section not in self.texts.phrasings:
            return ()
        phrasing, slots = self.phrasing(fill, section, (offer, offer)), self.slots(fill)
        asked = self.asked(slots, phrasing.template)
        others = {name[:-1]: value for name, value in slots.values.items() if name.endswith("2")}
        second = self.slots(fill, {**slots.values, **others})
        uses = [called(offer, asked, part, phrasing, number) for number, part in enumerate((slots, second))]
        return tuple(self.answered(use) for use in uses)

    def joined(self, fill: Fillers, one: Offer, other: Offer) -> tuple[Use, ...]:
        """Two requests said in one breath, the first of them a closed sentence; none where its tool has no such."""
        if one.tool.name not in self.closed:
            return ()
        before, between = self.texts.line(fill, "joined").removesuffix("{b}").split("{a}")
        tries = (self.phrasing(fill, one.tool.name, (one,)) for _ in range(20))
        first = next((phrasing for phrasing in tries if phrasing.template.endswith(ENDS)), None)
        if first is None:
            return ()
        second = self.phrasing(fill, other.tool.name, (other,))
        follows = between.split()[-1].lower() in JOINING
        slots = self.slots(fill), self.slots(fill)
        asked = before + slots[0].shown(decapitalised(first.template) if before else first.template)[:-1] + between
        asked += slots[1].shown(decapitalised(second.template) if follows else second.template)
        uses = called(one, asked, slots[0], first), called(other, asked, slots[1], second)
        return tuple(self.answered(use) for use in uses)

    def chained(self, fill: Fillers, offers: list[Offer]) -> tuple[Use, ...]:
        """A request whose second call needs the result of the first."""
        by_name = {offer.tool.name: offer for offer in offers}
        chains = [section for section in self.texts.phrasings if " + " in section]
        chains = [section for section in chains if set(section.split(" + ")) <= set(by_name)]
        if not chains:
            return ()
        section = fill.rng.choice(chains)
        one, other = (by_name[name] for name in section.split(" + "))
        phrasing, slots = self.phrasing(fill, section, (one, other)), self.slots(fill)
        asked = self.asked(slots, phrasing.template)
        first = self.answered(called(one, asked, slots, phrasing))
        if not CARRIED & phrasing.needs() <= set(slots.values):
            return ()
        return first, self.answered(called(other, asked, slots, phrasing, number=1))
