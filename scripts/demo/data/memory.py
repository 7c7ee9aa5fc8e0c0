"""Owns chats in which the user tells something about themselves and asks for it later.

Evaluation (`Fillers.held_out`) draws plain chats, its own values and its own phrasings; training also draws what stands
in lines with "+", made-up values, and chats where a fact is corrected or stands beside those of others.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from demo.data.conversation import Conversation, Turn, pairs
from demo.data.fact_kinds import KINDS, MORE_KINDS, MORE_WEIGHTS, OTHERS, OWNED, WEIGHTS, Fact, Kind
from demo.data.fact_values import any_name, town
from demo.data.handwritten import respoken, varied
from demo.data.words import DAYS, Fillers

FRAMED_SHARE, MORE_ASKED_SHARE, MORE_TOLD_SHARE = 0.3, 0.4, 0.5
STAGED_SHARE = 0.35  # of the chats in training
CHATTER_SHARE = 0.25  # of the facts told in training; not where any name or number could be what is asked for
VAGUE = ("friend", "number")
BEFORE_TELLING = (
    "by the way, ", "you should know that ", "just so you know, ", "for the record, ", "let me tell you something: ",
    "remember this: ", "something about me: ", "and ", "well, ", "i forgot to say, ", "oh, and ", "also, ",
    "before we begin, ", "fun fact: ", "please remember: ",
)  # fmt: skip
CORRECTED = (
    "no, sorry, {t}", "wait, that was wrong: {t}", "correction: {t}", "i made a mistake, {t}", "sorry, i meant {v}",
    "oops, it is {v}, not {w}", "not {w} but {v}", "actually {t}", "i mixed that up, {t}", "no no, {v}, not {w}",
    "forget {w}, it is {v}", "no, i meant {v}", "i meant to say {v}", "{w}? no, {v}", "did i say {w}? it's {v}",
    "my mistake, {v} is right", "please replace {w} by {v}", "new information: {t}", "wrong again, {t}",
    "hold on, {w} was last year, now it's {v}", "let me correct that: {v}", "it changed again, {t}",
    "i said {w}, but {t}", "that has changed: {t}", "hm, {w} is wrong. {t}", "make that {v}",
    "by the way, it is no longer {w} but {v}", "i told you {w}, please change it to {v}", "scratch that, {t}",
)  # fmt: skip
NAMED_CORRECTIONS = (
    "no, sorry, {t}", "correction: {t}", "i made a mistake, {t}", "wait, {t}", "actually {t}", "scratch that, {t}",
    "one of these was wrong: {t}", "that has changed: {t}", "no, i meant: {t}",
)  # fmt: skip
CORRECTED_REPLIES = (
    "Thank you, I will remember {v}.",
    "All right, {v} it is.",
    "Noted: {v}.",
    "Good that you tell me: {v}.",
)
THE_OTHERS = (
    "my sister", "my brother", "my best friend", "my boss", "our neighbor", "my cousin", "my aunt", "my teacher",
    "my flatmate", "the new colleague", "my grandfather", "my daughter",
)  # fmt: skip
VAGUELY_ASKED = ("number", "appointment")  # such as "what number did i say", which could be anybody's
# What may stand around a fact, {n} a name, {t} a town, {d} a day, {i} a number: it is never asked for.
CHATTER = (
    "{n} said that I could ask you anything.", "Today I had a long walk with {n}.", "It is {d}, and I am tired.",
    "I have been awake for {i} hours.", "The train from {t} was late.", "{n} and {n2} are sitting next to me.",
    "My phone rang {i} times this morning.", "A parcel from {t} has come.", "Sorry for the many questions.",
    "I like this app so far.", "You can call that a fact.", "What a day!", "I hope you can remember that.",
    "{n} does not know it yet.", "We will need this later.", "On {d} I am off work.",
    "There are {i} people in front of me.",
    "I just had a sandwich.", "It is loud in here.", "Let me tell you about myself.", "{n} from {t} told me about you.",
    "Keep it in mind, please.", "No need to answer that.", "I thought that you should know.",
)  # fmt: skip
TIED = (
    "{f}, in case you wonder", "{f}, if that is of interest", "{f}, just that you know", "{f}, by the way",
    "{f}, so now you know", "{f}, please keep it in mind", "{f}, as {n} knows well", "{f}, unlike {n}",
    "well, i think {f}", "as you may have guessed, {f}", "it is no secret that {f}", "{n} always laughs because {f}",
    "one thing about me: {f}", "first of all, {f}", "i should add that {f}", "what matters is that {f}",
)  # fmt: skip
UNTOLD = (
    "You have not told me that yet. What is it?",
    "I do not know that, because you have not told me in this chat.",
    "I do not know yet. Please tell me!",
    "You have not told me.",
    "That is something you have not told me.",
    "I can't know that: you told me other things, but not that.",
    "You told me nothing about that so far.",
)


def different_kinds(fill: Fillers, count: int) -> list[Kind]:
    """So many kinds of fact, each with its own questions; training has more of them."""
    kinds, weights = (KINDS, WEIGHTS) if fill.held_out else ((*KINDS, *MORE_KINDS), MORE_WEIGHTS)
    chosen: dict[str, Kind] = {}
    while len(chosen) < count:
        kind = fill.rng.choices(kinds, weights)[0]
        chosen[kind.name] = kind
    return list(chosen.values())


def told(fill: Fillers, fact: Fact) -> str:
    """Sometimes with words before it or around it."""
    is_more = bool(fact.more_told) and fill.rng.random() < MORE_TOLD_SHARE
    text = fill.rng.choice(fact.more_told) if is_more else fill.phrasing(fact.told)
    is_led = fill.rng.random() < 0.15
    if fill.held_out:
        return text
    if fact.kind not in VAGUE and fill.rng.random() < CHATTER_SHARE:
        return with_chatter(fill, fact, text)
    return fill.rng.choice(BEFORE_TELLING) + text if is_led else text


def with_chatter(fill: Fillers, fact: Fact, text: str) -> str:
    """The fact in a longer sentence, or a sentence about other people, places and numbers before or after it."""
    rng, names = fill.rng, {"d": fill.rng.choice(fill.half(DAYS)), "i": fill.number()}
    names |= {key: other_than(fact, draw, fill) for key, draw in (("n", any_name), ("n2", any_name), ("t", town))}
    kind = rng.random()
    if kind < 0.4:
        return rng.choice(TIED).format(f=text, **names)
    chatter = rng.choice(CHATTER).format(**names)
    return f"{chatter} {text}" if kind < 0.7 else f"{text}. {chatter}"


def other_than(fact: Fact, draw: Callable[[Fillers], str], fill: Fillers) -> str:
    while (value := draw(fill)) in fact.key or fact.key in value:
        pass
    return value


def telling(fill: Fillers, fact: Fact) -> tuple[Turn, ...]:
    return pairs(typed(fill, fact, told(fill, fact)), fill.rng.choice(fact.replies))


def typed(fill: Fillers, fact: Fact, text: str) -> str:
    """As some person types it. In training the value stays as it is, but a name may lose its capital."""
    said = varied(fill.rng, text)
    while not fill.held_out and fact.key in text and fact.key not in said:
        if fact.key.istitle() and fact.key.lower() in said:
            break
        said = varied(fill.rng, text)
    return said


def telling_both(fill: Fillers, one: Fact, other: Fact) -> tuple[Turn, ...]:
    """Two facts in one message."""
    joint = fill.rng.choice((" and ", ", and ", ". ", ", also ", " and by the way "))
    return pairs(varied(fill.rng, told(fill, one) + joint + fill.phrasing(other.told)), fill.rng.choice(other.replies))


def asked(fill: Fillers, fact: Fact) -> str:
    """A phrasing, or in training one of the ways that evaluation does not use."""
    text = fill.phrasing(fact.asked)
    if fact.more_asked and fill.rng.random() < MORE_ASKED_SHARE:
        text = respoken(fill.rng, fill.rng.choice(fact.more_asked))
    elif fact.framed and not fill.held_out and fill.rng.random() < FRAMED_SHARE:
        text = respoken(fill.rng, fill.rng.choice(fact.framed))
    return varied(fill.rng, text)


def asking(fill: Fillers, fact: Fact) -> tuple[Turn, ...]:
    return pairs(asked(fill, fact), fill.rng.choice(fact.answers))


def recall_chat(fill: Fillers, fillers: list[tuple[Turn, ...]], between: int) -> tuple[Conversation, list[str]]:
    """Facts are told, `between` other exchanges follow, then each fact is asked -> chat and the keys of its answers."""
    rng = fill.rng
    if fillers and not fill.held_out and rng.random() < STAGED_SHARE:
        return staged_chat(fill, fillers, between)
    facts = [kind.fact(fill) for kind in different_kinds(fill, rng.choice((1, 1, 2, 3)))]
    turns: list[Turn] = [turn for fact in facts for turn in telling(fill, fact)]
    if len(facts) == 2 and not fill.held_out and rng.random() < 0.4:
        turns = list(telling_both(fill, *facts))
    chosen = rng.sample(fillers, between) if between <= len(fillers) else rng.choices(fillers, k=between)
    turns += [turn for exchange in chosen for turn in exchange]
    order = rng.sample(facts, len(facts))
    for fact in order:
        turns += asking(fill, fact)
    return Conversation("recall", tuple(turns), learns_questions=True), [fact.key for fact in order]


def staged_chat(fill: Fillers, fillers: list[tuple[Turn, ...]], between: int) -> tuple[Conversation, list[str]]:
    """As recall_chat, with something that could be mistaken for what is asked."""
    rng = fill.rng
    stage = rng.choice(
        (corrected, corrected_twice, one_of_two_corrected, beside_others, beside_others, owned, in_passing)
    )
    told_first, facts = stage(fill, fillers)
    turns = [*told_first, *(turn for exchange in rng.choices(fillers, k=between) for turn in exchange)]
    order = rng.sample(facts, len(facts))
    for fact in order:
        turns += asking(fill, fact)
    return Conversation("recall", tuple(turns), learns_questions=True), [fact.key for fact in order]


def corrected(fill: Fillers, fillers: list[tuple[Turn, ...]]) -> tuple[list[Turn], list[Fact]]:
    """A fact that the user takes back, at once or later, for another value."""
    kind = different_kinds(fill, 1)[0]
    wrong, right = different_values(fill, [(kind, owner) for owner in [fill.rng.choice(kind.owners)] * 2])
    later = fill.rng.choice(fillers) if fill.rng.random() < 0.3 else ()
    return [*telling(fill, wrong), *later, *correcting(fill, wrong, right)], [right]


def correcting(fill: Fillers, wrong: Fact, right: Fact) -> tuple[Turn, ...]:
    names = {"v": right.key, "w": wrong.key, "t": fill.rng.choice((*right.told, *right.more_told))}
    said = typed(fill, right, fill.rng.choice(CORRECTED).format(**names))
    return pairs(said, fill.rng.choice(CORRECTED_REPLIES).format(**names))


def corrected_twice(fill: Fillers, fillers: list[tuple[Turn, ...]]) -> tuple[list[Turn], list[Fact]]:
    """The newest of three values holds."""
    (kind,) = different_kinds(fill, 1)
    *wrong, right = different_values(fill, [(kind, owner) for owner in [fill.rng.choice(kind.owners)] * 3])
    turns = list(telling(fill, wrong[0]))
    for before, after in pairwise((*wrong, right)):
        turns += [*correcting(fill, before, after), *(fill.rng.choice(fillers) if fill.rng.random() < 0.4 else ())]
    return turns, [right]


def one_of_two_corrected(fill: Fillers, fillers: list[tuple[Turn, ...]]) -> tuple[list[Turn], list[Fact]]:
    """Two facts, one of which is taken back by name; both are asked for."""
    kind, other_kind = different_kinds(fill, 2)
    owner = fill.rng.choice(kind.owners)
    wrong, right, other = different_values(fill, [(kind, owner), (kind, owner), (other_kind, "")])
    first = fill.rng.sample([telling(fill, wrong), telling(fill, other)], 2)
    said = typed(fill, right, fill.rng.choice(NAMED_CORRECTIONS).format(t=fill.rng.choice(right.told)))
    reply = fill.rng.choice(CORRECTED_REPLIES).format(v=right.key)
    return [*first[0], *first[1], *pairs(said, reply)], [right, other]


def beside_others(fill: Fillers, fillers: list[tuple[Turn, ...]]) -> tuple[list[Turn], list[Fact]]:
    """The same of two or three people, the user among them or not; some of it is asked for."""
    rng = fill.rng
    kind = rng.choice(OTHERS)
    people = rng.sample((*THE_OTHERS, *(fill.first_name() for _ in THE_OTHERS)), rng.choice((1, 2, 2)))
    mine = [(own, "") for own in KINDS if own.name == kind.name and own.name not in VAGUELY_ASKED]
    is_told = len(people) < 2 or rng.random() < 0.6
    return told_in_turn(fill, [(kind, person) for person in people] + (mine if is_told else []))


def owned(fill: Fillers, fillers: list[tuple[Turn, ...]]) -> tuple[list[Turn], list[Fact]]:
    """The same of two or three things or people of the user."""
    kind = fill.rng.choice(OWNED)
    turns, facts = told_in_turn(
        fill, [(kind, owner) for owner in fill.rng.sample(kind.owners, fill.rng.choice((2, 3)))]
    )
    return turns, [naming_its_owner(fact) for fact in facts]


def told_in_turn(fill: Fillers, kinds: list[tuple[Kind, str]]) -> tuple[list[Turn], list[Fact]]:
    facts = different_values(fill, kinds)
    facts = fill.rng.sample(facts, len(facts))
    if len(facts) == 2 and fill.rng.random() < 0.4:
        turns = list(telling_both(fill, *facts))
    else:
        turns = [turn for fact in facts for turn in telling(fill, fact)]
    return turns, facts[: fill.rng.choice((1, 2, 3))] if fill.rng.random() < 0.5 else [fill.rng.choice(facts)]


def naming_its_owner(fact: Fact) -> Fact:
    """The fact without questions that could mean another one."""
    kept = [tuple(t for t in texts if fact.owner in t) for texts in (fact.asked, fact.framed, fact.more_asked)]
    return replace(fact, asked=kept[0], framed=kept[1], more_asked=kept[2])


def in_passing(fill: Fillers, fillers: list[tuple[Turn, ...]]) -> tuple[list[Turn], list[Fact]]:
    """A fact told in one breath with a question on something else, which gets the reply."""
    fact = different_kinds(fill, 1)[0].fact(fill)
    question, answer = fill.rng.choice(fillers)[:2]
    said = varied(fill.rng, told(fill, fact)).rstrip(".!")
    return [Turn("user", f"{said}{fill.rng.choice(('. ', ', ', '! ', ' and '))}{question.content}"), answer], [fact]


def different_values(fill: Fillers, kinds: list[tuple[Kind, str]]) -> list[Fact]:
    """A fact for each kind and owner, no two with the same value or one within the other."""
    facts: list[Fact] = []
    while len(facts) < len(kinds):
        kind, owner = kinds[len(facts)]
        fact = kind.fact(fill, owner)
        if not any(fact.key in other.key or other.key in fact.key for other in facts):
            facts.append(fact)
    return facts


def untold_chat(fill: Fillers, fillers: list[tuple[Turn, ...]]) -> Conversation:
    """One fact is told; another one is asked for, or the same of another person."""
    told, other = (kind.fact(fill) for kind in different_kinds(fill, 2))
    if not fill.held_out and fill.rng.random() < 0.5:
        told, other = of_two_people(fill)
    turns = [
        *telling(fill, told),
        *(turn for exchange in fill.rng.choices(fillers, k=fill.rng.choice((1, 1, 2, 4))) for turn in exchange),
    ]
    question = pairs(asked(fill, other), fill.rng.choice(UNTOLD))
    return Conversation("recall", (*turns, *question), learns_questions=True)


def of_two_people(fill: Fillers) -> tuple[Fact, Fact]:
    """The same of two people, one of them the user or not."""
    kind = fill.rng.choice([kind for kind in OTHERS if kind.name not in VAGUELY_ASKED])
    one, other = (kind.fact(fill, owner) for owner in fill.rng.sample(THE_OTHERS, 2))
    (mine,) = (own.fact(fill) for own in KINDS if own.name == kind.name)
    return fill.rng.choice(((one, other), (one, mine), (mine, one)))


def around(fill: Fillers, chat: Conversation, fillers: Sequence[tuple[Turn, ...]] = ()) -> Conversation:
    """The chat, such as one with tools or a document, with a fact or two told before it and asked after it.

    Of `fillers` up to three stand between the facts and the chat, and after it.
    """
    facts = [kind.fact(fill) for kind in different_kinds(fill, fill.rng.choice((1, 1, 2)))]
    before = [turn for fact in facts for turn in telling(fill, fact)]
    talk = [
        [turn for exchange in fill.rng.choices(fillers, k=fill.rng.choice((0, 0, 1, 3))) for turn in exchange]
        for _ in range(2 if fillers else 0)
    ] or [[], []]
    after = [turn for fact in fill.rng.sample(facts, len(facts)) for turn in asking(fill, fact)]
    return replace(chat, turns=(*before, *talk[0], *chat.turns, *talk[1], *after))
