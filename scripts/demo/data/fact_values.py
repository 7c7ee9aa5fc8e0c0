"""Owns what the facts are that users tell: names, places, codes and days, and whose they are ("sister", "dog").

Evaluation draws its own half of each list; training also draws made-up values, so that they have to be copied.
"""

from collections.abc import Callable

from demo.data.strings import ACCENTED, compound, path
from demo.data.words import (
    CITIES,
    COLORS,
    DAYS,
    FOODS,
    HOBBIES,
    JOBS,
    LANGUAGES,
    MONTHS,
    PETS,
    Fillers,
    capitalised,
)  # fmt: skip
from demo.listing import listed

MADE_SHARE = 0.5  # of the values that a list has, in training
CODE_LETTERS = "ABCDEFGHJKLMNPQRSTUVWXYZ"
CARS = ("Volvo", "Toyota", "Fiat", "Ford", "Honda", "Mazda", "Skoda", "Opel", "Tesla", "Renault", "Kia", "Jeep", "Audi")
PLANS = (
    "visit an aunt", "go hiking", "paint the kitchen", "bake a cake", "go to the zoo", "clean the garage",
    "see a movie", "plant tomatoes", "repair a bike", "go to a concert", "sleep a lot", "play tennis",
    "go to the beach", "read a novel", "cook for some friends", "go fishing",
)  # fmt: skip
ALLERGIES = ("nuts", "milk", "cats", "eggs", "pollen", "fish", "dust", "apples", "wheat", "strawberries", "soy", "bees")
BOOKS = (
    "Emma",
    "The Hobbit",
    "Dracula",
    "Momo",
    "Treasure Island",
    "Moby Dick",
    "Pinocchio",
    "Peter Pan",
    "Oliver Twist",
)
DRINKS = ("coffee", "green tea", "lemonade", "apple juice", "hot chocolate", "cola", "milk", "mint tea", "orange juice")
SPORTS = ("tennis", "football", "swimming", "volleyball", "judo", "rowing", "basketball", "boxing", "golf", "hockey")
RELATIVES = ("sister", "brother", "best friend", "wife", "husband", "son", "daughter", "boss", "neighbor", "teacher")
SUBJECTS = ("biology", "history", "physics", "music", "art", "geography", "chemistry", "economics", "medicine", "law")
PLACES = (
    "in the kitchen drawer", "under the bed", "in the car", "on the top shelf", "behind the door", "in my blue bag",
    "next to the lamp", "in the cellar", "on the window sill", "in the left pocket of my coat", "at the office",
    "beside the sofa", "in the bathroom", "under the stairs", "on the fridge", "in a box in the garage",
    "at my parents' house", "on the desk", "in the garden shed", "between two books",
)  # fmt: skip
BELONGINGS = listed(
    "key keys phone wallet passport umbrella guitar charger bag bike ladder drill camera tent map flute hat coat watch "
    "ring violin scarf hammer notebook"
)
LOCKED = (
    "door",
    "garage",
    "locker",
    "safe",
    "suitcase",
    "bike lock",
    "phone",
    "gate",
    "alarm",
    "office",
    "tablet",
    "diary",
)
NAMED = (
    "car",
    "boat",
    "house",
    "guitar",
    "robot",
    "bike",
    "team",
    "band",
    "computer",
    "plant",
    "bear",
    "doll",
    "garden",
)
FAVORITES = (
    "song", "movie", "animal", "flower", "band", "fruit", "game",
    "city", "tree", "singer", "team", "toy", "bird", "dessert"
)  # fmt: skip
EVENTS = (
    "meeting", "lesson", "interview", "exam", "flight", "train", "party", "concert", "call", "class", "match", "dinner"
)  # fmt: skip
BOUGHT = (
    "bike",
    "coat",
    "laptop",
    "sofa",
    "lamp",
    "table",
    "guitar",
    "camera",
    "tent",
    "phone",
    "bed",
    "desk",
    "watch",
)


def any_name(fill: Fillers) -> str:
    """A name, a made-up word or now and then a thing's word, as pets have."""
    kind = fill.rng.random()
    if kind < 0.5:
        return fill.first_name()
    return fill.word() if kind < 0.92 or not fill.things else capitalised(fill.rng.choice(fill.half(list(fill.things))))


def one_of(words: list[str] | tuple[str, ...], made: Callable[[Fillers], str]) -> Callable[[Fillers], str]:
    """A word of the list; in training half the time a made one, so that the value has to be copied."""

    def draw(fill: Fillers) -> str:
        if fill.held_out or fill.rng.random() > MADE_SHARE:
            return fill.rng.choice(fill.half(list(words)))
        value = made(fill)
        return draw(fill) if value in words else value

    return draw


def any_thing(fill: Fillers) -> str:
    return fill.rare(fill.rng.choice(fill.half(list(fill.things))))


def made_place(fill: Fillers) -> str:
    near = ("in the", "under the", "behind the", "on the", "next to the", "near the", "inside the", "below my", "on my")
    return f"{fill.rng.choice(near)} {any_thing(fill)}"


def made_plan(fill: Fillers) -> str:
    things = ("paint a", "repair the", "buy a", "build a", "look for a", "sell the", "draw a", "clean the")
    kind = fill.rng.random()
    if kind < 0.3:
        return fill.rng.choice(("visit ", "meet ", "have lunch with ", "help ")) + fill.first_name()
    if kind < 0.5:
        return fill.rng.choice(("go to ", "drive to ", "take a train to ")) + fill.place()
    return f"{fill.rng.choice(things)} {any_thing(fill)}"


def made_day(fill: Fillers) -> str:
    day = fill.rng.choice(fill.half(DAYS))
    return fill.rng.choice((f"next {day}", f"{day} at {fill.clock()}", fill.day_of_year(), f"{day} morning"))


def made_book(fill: Fillers) -> str:
    word, thing = fill.word(), capitalised(any_thing(fill))
    return fill.rng.choice((word, f"The {thing}", f"The {thing} of {word}", f"{word} and the {thing}"))


def code(fill: Fillers) -> str:
    """Digits; in training letters too."""
    number = str(fill.integer(*fill.rng.choice(((100, 999), (1000, 9999), (100000, 999999)))))
    if fill.held_out or fill.rng.random() < 0.6:
        return number
    letters = "".join(fill.rng.choice(CODE_LETTERS) for _ in range(fill.rng.choice((1, 2, 3))))
    return fill.rng.choice((letters + number, f"{number}-{letters}", f"{letters}-{number}", fill.word().lower()))


def hour(fill: Fillers) -> str:
    usual = f"{fill.rng.randint(1, 23)}:{fill.integer(10, 59)}"
    return usual if fill.held_out or fill.rng.random() < 0.6 else fill.clock()


def town(fill: Fillers) -> str:
    return fill.place() if fill.rng.random() < 0.6 else fill.rng.choice(fill.half(CITIES))


DRAWS: dict[str, Callable[[Fillers], str]] = {
    "name": any_name,
    "home": town,
    "color": one_of(COLORS, any_thing),
    "food": one_of(FOODS, any_thing),
    "pet": any_name,
    "relative": any_name,
    "job": one_of(JOBS, any_thing),
    "age": lambda fill: str(fill.integer(7, 95)),
    "birthday": lambda fill: f"{fill.integer(1, 30)} {fill.rng.choice(MONTHS[::2] if fill.held_out else MONTHS)}",
    "hobby": one_of([hobby for hobby in HOBBIES if hobby.endswith("ing")], any_thing),
    "language": one_of(LANGUAGES, Fillers.word),
    "car": one_of(CARS, Fillers.word),
    "plan": one_of(PLANS, made_plan),
    "allergy": one_of(ALLERGIES, any_thing),
    "number": Fillers.number,
    "book": one_of(BOOKS, made_book),
    "drink": one_of(DRINKS, any_thing),
    "sport": one_of(SPORTS, any_thing),
    "subject": one_of(SUBJECTS, any_thing),
    "appointment": one_of(DAYS, made_day),
    "secret": code,
    "called": any_name,
    "favorite": any_name,
    "kept": one_of(PLACES, made_place),
    "trip": lambda fill: fill.rng.choice(fill.half(CITIES)) if fill.rng.random() < 0.4 else fill.word(),
    "time": hour,
    "price": Fillers.number,
    "friend": lambda fill: fill.full_name() if fill.rng.random() < 0.5 else any_name(fill),
}
# What the facts of text/recall_more.txt are, which training alone draws.
VALUES: dict[str, Callable[[Fillers], str]] = {
    "name": lambda fill: fill.rng.choice(ACCENTED) if fill.rng.random() < 0.15 else any_name(fill),
    "person": Fillers.full_name,
    "town": town,
    "number": Fillers.number,
    "code": lambda fill: compound(fill) if fill.rng.random() < 0.4 else code(fill),
    "path": path,
    "hour": hour,
    "date": Fillers.day_of_year,
    "day": made_day,
    "year": Fillers.year,
    "thing": lambda fill: fill.word().lower() if fill.rng.random() < 0.15 else any_thing(fill),
    "word": Fillers.word,
    "title": made_book,
    "place": one_of(PLACES, made_place),
    "plan": one_of(PLANS, made_plan),
}
OWNERS = {
    "pet": tuple(pet for pet in PETS if pet[0] not in "aeiou"),
    "relative": RELATIVES,
    "secret": LOCKED,
    "called": NAMED,
}
OWNERS |= {"favorite": FAVORITES, "kept": tuple(BELONGINGS), "time": EVENTS, "price": BOUGHT}
