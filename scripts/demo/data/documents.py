"""Owns document questions: made-up documents of facts, passages of other sentences, and answers that quote them."""

import random
import re
from collections.abc import Callable
from dataclasses import dataclass

from demo.data.conversation import Conversation, Turn, pairs
from demo.data.words import COLORS, DAYS, HOBBIES, JOBS, LANGUAGES, MONTHS, PETS, Fillers, capitalised, with_article
from demo.listing import listed


@dataclass(frozen=True)
class DocumentFact:
    sentence: str
    questions: tuple[str, ...]
    short: str  # the answer in a few words; "" where only the sentence will do


def fact(sentence: str, questions: str, short: str) -> DocumentFact:
    return DocumentFact(sentence, tuple(questions.split(" | ")), short)


def business(fill: Fillers) -> list[DocumentFact]:
    kinds = listed("bakery bookshop cafe restaurant garage hotel pharmacy school library museum gym cinema farm")
    kind, name, owner, town = fill.rng.choice(kinds), fill.word(), fill.full_name(), fill.place()
    year, day, count, price = fill.year(), fill.rng.choice(DAYS), fill.number(), fill.number()
    color, cake, time = fill.rng.choice(COLORS), fill.thing(), fill.clock()
    phone = "".join(fill.rng.choice("0123456789") for _ in range(6))
    opened = fill.rng.choice(("was opened", "opened its doors", "was founded"))
    facts = [
        fact(
            f"The {name} {kind} {opened} in {year}.",
            f"When was the {name} {kind} opened? | When did the {kind} open? | In which year was the {kind} founded?",
            year,
        ),
        fact(
            f"It {fill.rng.choice(('is owned by', 'belongs to', 'is run by'))} {owner}.",
            f"Who owns the {kind}? | Who is the owner of the {name} {kind}? | Who runs the {kind}?",
            owner,
        ),
        fact(
            f"The {kind} {fill.rng.choice(('is located in', 'stands in', 'lies in'))} {town}.",
            f"Where is the {kind}? | Where is the {name} {kind} located? | In which town is the {kind}?",
            town,
        ),
    ]
    more = [
        fact(f"It is closed on {day}s.", f"On which day is the {kind} closed? | When is it closed?", f"on {day}s"),
        fact(f"About {count} people visit it every week.", f"How many people visit the {kind} every week?", count),
        fact(f"The {kind} opens at {time}.", f"What time does the {kind} open? | When does it open?", time),
        fact(
            f"The phone number is {phone}.", f"What is the phone number of the {kind}? | What number do I call?", phone
        ),
        fact(f"The front door is painted {color}.", "What color is the front door?", color),
        fact(
            f"{count} people work there.", f"How many people work at the {kind}? | How many people work there?", count
        ),
        fact(f"It is famous for its {cake}.", f"What is the {kind} famous for? | What is it known for?", f"its {cake}"),
        fact(
            f"A visit costs {price} dollars.",
            "How much does a visit cost? | What does a visit cost?",
            f"{price} dollars",
        ),
    ]
    return facts + fill.rng.sample(more, fill.rng.randint(2, 5))


def person(fill: Fillers) -> list[DocumentFact]:
    first = fill.first_name()
    town, grew_up, date, age = fill.place(), fill.place(), fill.date(), str(fill.rng.randint(18, 90))
    job, pet, pet_name = with_article(fill.rng.choice(JOBS)), fill.rng.choice(PETS), fill.word()
    hobby, language, friend = fill.rng.choice(HOBBIES), fill.rng.choice(LANGUAGES), fill.first_name()
    facts = [
        fact(
            f"{first} {fill.word()} was born on {date}.",
            f"When was {first} born? | What is the birthday of {first}?",
            date,
        ),
        fact(f"{first} lives in {town}.", f"Where does {first} live? | In which town does {first} live?", town),
    ]
    more = [
        fact(f"{first} works as {job}.", f"What does {first} do for a living? | What is the job of {first}?", job),
        fact(
            f"{first} has {with_article(pet)} called {pet_name}.",
            f"What is the name of the {pet}? | What is the {pet} called? | Which pet does {first} have?",
            pet_name,
        ),
        fact(f"{first} likes {hobby} in the evening.", f"What does {first} like to do in the evening?", hobby),
        fact(f"{first} is learning {language}.", f"Which language is {first} learning?", language),
        fact(f"{first} grew up in {grew_up}.", f"Where did {first} grow up?", grew_up),
        fact(f"{first} is {age} years old.", f"How old is {first}? | What is the age of {first}?", f"{age} years"),
        fact(f"The best friend of {first} is {friend}.", f"Who is the best friend of {first}?", friend),
    ]
    return facts + fill.rng.sample(more, fill.rng.randint(2, 5))


def belongings(fill: Fillers) -> list[DocumentFact]:
    facts = []
    for item in fill.rng.sample(fill.things, fill.rng.randint(3, 6)):
        place, owner, color, price = fill.thing(), fill.full_name(), fill.rng.choice(COLORS), fill.number()
        choices = [
            fact(
                f"The {item} is in the {place}.",
                f"Where is the {item}? | Where can I find the {item}?",
                f"in the {place}",
            ),
            fact(f"The {item} belongs to {owner}.", f"Who owns the {item}? | Whose {item} is it?", owner),
            fact(f"The {item} is {color}.", f"What color is the {item}? | Which color does the {item} have?", color),
            fact(
                f"The {item} costs {price} dollars.",
                f"How much is the {item}? | What does the {item} cost?",
                f"{price} dollars",
            ),
            fact(f"{owner} bought the {item}.", f"Who bought the {item}?", owner),
            fact(
                f"The {item} weighs {price} grams.",
                f"How much does the {item} weigh? | How heavy is it?",
                f"{price} grams",
            ),
        ]
        facts.append(fill.rng.choice(choices))
    return facts


def event(fill: Fillers) -> list[DocumentFact]:
    kinds = listed("meeting concert party wedding workshop race market exhibition lesson trip festival conference")
    kind, place, leader = fill.rng.choice(kinds), fill.place(), fill.full_name()
    day = f"{fill.rng.choice(DAYS)}, {fill.rng.randint(1, 28)} {fill.rng.choice(MONTHS)}"
    time, guests, price, item = fill.clock(), fill.number(), fill.number(), with_article(fill.thing())
    facts = [
        fact(f"The {kind} takes place on {day}.", f"When is the {kind}? | On which day is the {kind}?", day),
        fact(f"It starts at {time}.", f"What time does the {kind} start? | When does it start?", time),
        fact(f"The {kind} will be held in {place}.", f"Where is the {kind}? | Where will the {kind} be held?", place),
    ]
    more = [
        fact(f"It is organized by {leader}.", f"Who organizes the {kind}? | Who is the organizer?", leader),
        fact(f"{guests} guests are expected.", "How many guests are expected? | How many guests will come?", guests),
        fact(
            f"A ticket costs {price} dollars.", "How much is a ticket? | What does a ticket cost?", f"{price} dollars"
        ),
        fact(f"Please bring {item}.", "What should I bring? | What should guests bring?", item),
        fact(f"The {kind} was moved because of the weather.", f"Why was the {kind} moved?", "because of the weather"),
        fact(
            f"{leader} will give a talk about {fill.thing()}s.", "Who will give a talk? | What is the talk about?", ""
        ),
    ]
    return facts + fill.rng.sample(more, fill.rng.randint(1, 5))


def machine(fill: Fillers) -> list[DocumentFact]:
    kind = fill.rng.choice(listed("printer engine camera phone robot pump drone laptop radio bicycle boat train oven"))
    name = f"{fill.word()}-{fill.rng.randint(1, 99)}"
    maker, year, weight, price, hours = fill.full_name(), fill.year(), fill.number(), fill.number(), fill.number()
    facts = [
        fact(
            f"The {name} is {with_article(kind)} that was designed by {maker}.",
            f"Who designed the {name}? | Who designed the {kind}? | What is the {name}?",
            "",
        ),
        fact(f"It was first sold in {year}.", f"When was the {name} first sold? | When was it first sold?", year),
    ]
    more = [
        fact(
            f"It weighs {weight} kilograms.",
            f"How much does the {name} weigh? | How heavy is it?",
            f"{weight} kilograms",
        ),
        fact(f"The battery lasts {hours} hours.", "How long does the battery last?", f"{hours} hours"),
        fact(f"The {name} costs {price} dollars.", f"How much is the {name}? | What is the price?", f"{price} dollars"),
        fact(
            f"To reset it, press the {fill.rng.choice(COLORS)} button.",
            f"How do I reset the {kind}? | How can I reset it?",
            "",
        ),
        fact(
            f"The warranty ends after {hours} months.",
            "When does the warranty end? | How long is the warranty?",
            f"after {hours} months",
        ),
        fact(f"The factory is in {fill.place()}.", "Where is the factory? | Where is it made?", ""),
    ]
    return facts + fill.rng.sample(more, fill.rng.randint(2, 4))


def place(fill: Fillers) -> list[DocumentFact]:
    name, year, people, mayor = fill.place(), fill.year(), fill.number(), fill.full_name()
    kind = fill.rng.choice(listed("town village island city lake river mountain forest castle park"))
    river, known, height = fill.word(), fill.thing(), fill.number()
    facts = [
        fact(
            f"{name} is {with_article(kind)} in the north of {fill.word()}.", f"What is {name}? | Where is {name}?", ""
        ),
        fact(f"{name} was first named in {year}.", f"When was {name} first named?", year),
    ]
    more = [
        fact(f"About {people} people live near it.", f"How many people live near {name}?", people),
        fact(f"The {river} river flows past it.", f"Which river flows past {name}?", f"the {river} river"),
        fact(f"It is famous for its {known}.", f"What is {name} famous for? | Why is {name} famous?", f"its {known}"),
        fact(f"The mayor is {mayor}.", f"Who is the mayor of {name}? | Who is the mayor?", mayor),
        fact(f"The highest point is {height} meters high.", "How high is the highest point?", f"{height} meters"),
    ]
    return facts + fill.rng.sample(more, fill.rng.randint(2, 4))


def tale(fill: Fillers) -> list[DocumentFact]:
    first, second = fill.rng.sample([fill.first_name() for _ in range(9)], 2)
    item, animal = fill.thing(), fill.rng.choice(PETS)
    spot = fill.rng.choice(listed("forest kitchen garden market harbor attic school station barn library cave tower"))
    where = fill.rng.choice(("an old chest", "a blue box", "a small drawer", "a leather bag", "a hollow tree"))
    return [
        fact(
            f"{first} went to the {spot} on {fill.rng.choice(DAYS)}.",
            f"Where did {first} go? | When did {first} go there?",
            "",
        ),
        fact(f"There {first} found {with_article(item)}.", f"What did {first} find?", with_article(item)),
        fact(
            f"{first} gave the {item} to {second}.",
            f"Who got the {item}? | To whom did {first} give the {item}?",
            second,
        ),
        fact(f"{second} put the {item} into {where}.", f"Where did {second} put the {item}?", f"into {where}"),
        fact(f"Later {second} saw {with_article(animal)}.", f"What did {second} see?", with_article(animal)),
    ]


SCHEMAS: tuple[Callable[[Fillers], list[DocumentFact]], ...]
SCHEMAS = (business, person, belongings, belongings, event, machine, place, tale)

COMMON = set(
    listed(
        "the a an of to in and is are was were be been it its this that these those with for on as by at "
        "from or can will has have had not also they their them you your i we our he she his her which "
        "who when where what how than then there into such one two may most more many some other used use "
        "using people like just about it's that's"
    )
)


def split_sentences(text: str) -> list[str]:
    parts = re.split(r"(?<=[.!?])\s+", text.replace("\n", " "))
    return [
        p.strip() for p in parts if 4 <= len(p.split()) <= 26 and p[:1].isupper() and p[-1:] == "." and '"' not in p
    ]


def content_words(sentence: str) -> list[str]:
    words = re.findall(r"[A-Za-z][a-z]+|\d[\d,.]*\d|\d", sentence)
    return [word for word in words if word.lower() not in COMMON and len(word) > 2]


class Passages:
    """Sentences of the teacher, their nouns and numbers changed so that only the text has the answer."""

    def __init__(self, texts: list[str], things: tuple[str, ...]) -> None:
        split = [split_sentences(text) for text in texts]
        self.groups = [sentences for sentences in split if len(sentences) >= 3]
        self.singles = [sentences[0] for sentences in split if 0 < len(sentences) < 3]
        self.things = things
        self.nouns = set(things)

    def draw(self, rng: random.Random) -> list[str]:
        kind = rng.random()
        if kind < 0.45:
            return list(rng.choice(self.groups))[:8]
        if kind < 0.8:
            return rng.sample(self.singles, rng.randint(3, 6))
        return list(rng.choice(self.groups))[:4] + rng.sample(self.singles, 2)

    def altered(self, rng: random.Random, sentence: str) -> str:
        if rng.random() < 0.5:
            return sentence
        nouns = [word for word in content_words(sentence) if word in self.nouns]
        for noun in rng.sample(nouns, min(len(nouns), rng.choice((1, 1, 2)))):
            other = rng.choice(self.things)
            sentence = re.sub(rf"\b([Aa])n? {noun}\b", rf"\1{with_article(other)[1:]}", sentence)
            sentence = re.sub(rf"\b{noun}\b", other, sentence)
        return sentence

    def facts(self, fill: Fillers) -> list[DocumentFact]:
        sentences = [self.altered(fill.rng, sentence) for sentence in self.draw(fill.rng)]
        facts = []
        for index, sentence in enumerate(sentences):
            others = " ".join(sentences[:index] + sentences[index + 1 :]).lower()
            facts.append(DocumentFact(sentence, tuple(sentence_questions(sentence, others)), ""))
        return facts


def sentence_questions(sentence: str, others: str) -> list[str]:
    """Questions made from a sentence by rules; each contains a word that only this sentence has."""
    own = [word for word in content_words(sentence) if word.lower() not in others]
    if not own:
        return []
    key = " ".join(own[:2]) if " ".join(own[:2]) in sentence else own[0]
    questions = [f"What does the text say about {own[-1]}?", f"What does it say about {key}?"]
    questions += [f"Find the sentence about {key}.", f"Where does the text mention {own[0]}?"]
    statement = re.match(r"(.{3,60}?) (is|are|was|were) (.+)\.$", sentence)
    vague = listed("it this they these that he she there you we i here but and")
    if statement and statement[1].lower().split()[0] not in vague and "," not in statement[1]:
        subject = (
            statement[1][0].lower() + statement[1][1:]
            if statement[1].split()[0] in ("The", "A", "An")
            else statement[1]
        )
        questions += [f"What {statement[2]} {subject}?"] * 3
        made_by = re.match(r"(\w+ed|made|built|found|known|given|written|grown) by ", statement[3])
        questions += [f"Who {statement[2]} {subject} {made_by[1]} by?"] * 3 if made_by else []
        located = re.match(r"(\w+ed|found|located|made|held|kept|grown|built) (in|at|on|near)\b", statement[3])
        questions += [f"Where {statement[2]} {subject} {located[1]}?"] * 3 if located else []
    modal = re.match(r"((?:The |A |An )?(?:\w+ ){1,3}?)(can|will|must|should|may) (\w+) (.+)\.$", sentence)
    if modal:
        subject = modal[1].strip()
        subject = subject[0].lower() + subject[1:] if subject.split()[0] in ("The", "A", "An") else subject
        questions += [f"What {modal[2]} {subject} {modal[3]}?", f"What {modal[2]} {subject} do?"] * 2
    because = re.match(r"(.{8,80}?),? (because|since|so that|due to) (.+)\.$", sentence)
    questions += [f"Why is it that {because[1][0].lower() + because[1][1:]}?"] * 2 if because else []
    count = re.search(
        r"\b(\d[\d,.]*|two|three|four|five|six|seven|eight|nine|ten|twelve|hundred) ([a-z]+s)\b", sentence
    )
    questions += [f"How many {count[2]} are mentioned?", f"How many {count[2]} are there?"] * 2 if count else []
    return questions


FRAMES = (
    "Here is a document:\n\n{d}\n\n{q}", "Read this text:\n\n{d}\n\n{q}", "{d}\n\n{q}",
    "Document:\n{d}\n\nQuestion: {q}",
    "Use the document to answer the question.\n\n{d}\n\n{q}", "<document>\n{d}\n</document>\n\n{q}", "{q}\n\n{d}",
    "Text: {d}\n\n{q}", "File notes.txt:\n\n{d}\n\n{q}",
)  # fmt: skip
SYSTEM_FRAMES = (
    "Answer the questions about this document.\n\n{d}",
    "You are a helpful assistant. The user has opened this document:\n\n{d}",
    "Use this document to answer:\n\n<document>\n{d}\n</document>",
)
NOT_THERE = (
    "The document does not say that.",
    "The document does not mention that.",
    "I cannot find that in the document.",
)
QUOTES = ('The document says: "{s}"', 'According to the document: "{s}"', 'The text says: "{s}"', "{s}", "{s}")


@dataclass(frozen=True)
class DocumentItem:
    """A document chat and, for each question, the text its answer must contain ("" when it is not in the document)."""

    conversation: Conversation
    keys: tuple[str, ...]


class DocumentWriter:
    def __init__(self, passages: Passages) -> None:
        self.passages = passages

    def facts(self, fill: Fillers, quoting: float) -> list[DocumentFact]:
        if fill.rng.random() < quoting:
            return self.passages.facts(fill)
        facts = fill.rng.choice(SCHEMAS)(fill)
        return facts + fill.rng.choice(SCHEMAS)(fill) if fill.rng.random() < 0.35 else facts

    def long_facts(self, fill: Fillers, characters: int) -> list[DocumentFact]:
        """Facts up to a length, each question's answer being unique in it."""
        facts: list[DocumentFact] = []
        length = 0
        while length < characters:
            facts += self.facts(fill, quoting=0.4)
            length = sum(len(fact.sentence) + 1 for fact in facts)
        counted = [question for fact in facts for question in set(fact.questions)]
        return [
            DocumentFact(f.sentence, tuple(q for q in f.questions if counted.count(q) == 1), f.short) for f in facts
        ]

    def item(self, fill: Fillers, characters: int = 0, quoting: float = 0.6, missing: float = 0.05) -> DocumentItem:
        rng = fill.rng
        while True:
            facts = self.long_facts(fill, characters) if characters else self.facts(fill, quoting)
            asked = [fact for fact in rng.sample(facts, len(facts)) if fact.questions][: rng.choice((1, 2, 2, 3))]
            if asked and (characters or sum(len(fact.sentence) for fact in facts) < 1500):
                break
        mark = rng.choice(("[line {n}]", "[p.{n}]")) if rng.random() < 0.08 else ""
        text = lay_out(rng, [fact.sentence for fact in facts], mark)
        turns: list[Turn] = []
        keys = []
        in_system = rng.random() < 0.25
        for number, fact in enumerate(asked):
            question, answer, key = rng.choice(fact.questions), quote(rng, fact), fact.short or fact.sentence
            if mark:
                answer = f"{fact.sentence} {mark.format(n=facts.index(fact) + 1)}"
            if rng.random() < missing:
                question, answer, key = self.missing_question(fill, text) or (question, answer, key)
            framed = number == 0 and not in_system
            turns += pairs(rng.choice(FRAMES).format(d=text, q=question) if framed else question, answer)
            keys.append(key)
        system = rng.choice(SYSTEM_FRAMES).format(d=text) if in_system else ""
        return DocumentItem(Conversation("document", tuple(turns), system, answer_loss="double"), tuple(keys))

    def missing_question(self, fill: Fillers, text: str) -> tuple[str, str, str] | None:
        """A question of the same form as others whose answer is not in the text."""
        fact = fill.rng.choice(fill.rng.choice(SCHEMAS)(fill))
        question = fill.rng.choice(fact.questions)
        named = [word for word in content_words(question)[1:] if word.lower() in text.lower()]
        return None if named or fact.sentence in text else (question, fill.rng.choice(NOT_THERE), "")


def quote(rng: random.Random, fact: DocumentFact) -> str:
    if not fact.short or rng.random() < 0.6:
        return rng.choice(QUOTES).format(s=fact.sentence)
    short = capitalised(fact.short)
    return rng.choice((f"{short}.", f"The answer is: {fact.short}.", f'{short}. The document says: "{fact.sentence}"'))


def lay_out(rng: random.Random, sentences: list[str], mark: str) -> str:
    if mark:
        return "\n".join(f"{mark.format(n=number + 1)} {sentence}" for number, sentence in enumerate(sentences))
    style = rng.random()
    if style < 0.6:
        return " ".join(sentences)
    if style < 0.75:
        return "\n".join("- " + sentence for sentence in sentences)
    size = rng.randint(2, 5)
    return "\n\n".join(" ".join(sentences[first : first + size]) for first in range(0, len(sentences), size))
