"""Owns chats with tools: the tools, many ways to ask for each, their results and the answers that use them."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from demo.data.conversation import Call, Conversation, Turn, pairs
from demo.data.documents import DocumentFact, DocumentWriter, content_words, quote
from demo.data.handwritten import Handwritten, varied
from demo.data.words import CITIES, DAYS, MONTHS, Fillers, capitalised


@dataclass(frozen=True)
class Use:
    """One request: what the user says, the call, what comes back, the final answer."""

    asked: str
    call: Call
    result: str
    answer: str


@dataclass(frozen=True)
class Tool:
    name: str
    descriptions: tuple[str, ...]
    parameters: dict[str, tuple[str, str]]  # name -> (JSON type, description)
    use: Callable[[Fillers], Use]

    def schema(self, rng: random.Random) -> dict[str, Any]:
        properties = {key: {"type": kind, "description": text} for key, (kind, text) in self.parameters.items()}
        parameters = {"type": "object", "properties": properties, "required": list(self.parameters)}
        function = {"name": self.name, "description": rng.choice(self.descriptions), "parameters": parameters}
        return {"type": "function", "function": function}


SUM_WORDS = {"+": ("plus", "and"), "-": ("minus",), "*": ("times", "multiplied by"), "/": ("divided by", "over")}
SUM_ASKED = (
    "what is {e}", "what's {e}", "calculate {e}", "compute {e}", "how much is {e}", "{e}", "please work out {e}",
    "can you calculate {e} for me", "tell me {e}", "i need the result of {e}", "what does {e} give", "solve {e}",
    "use the calculator: {e}", "what do you get for {e}", "could you compute {e}", "help me with {e}",
    "{e} equals what",
    "what is the value of {e}", "evaluate {e}", "do the math: {e}", "find {e}", "quick, what is {e}", "give me {e}",
    "what would {e} be", "what is the result of {e}", "please calculate {e}", "my homework says {e}",
    "how much would {e} be",
)  # fmt: skip
VERBS = {
    "+": (
        "add {a} and {b}", "sum up {a} and {b}", "what is the sum of {a} and {b}", "add {b} to {a}",
        "if i have {a} and get {b} more, how many do i have",
    ),
    "-": (
        "subtract {b} from {a}", "take {b} away from {a}", "what is the difference between {a} and {b}",
        "if i have {a} and lose {b}, what is left",
    ),
    "*": (
        "multiply {a} by {b}", "could you multiply {a} by {b}", "multiply {a} and {b}",
        "what is the product of {a} and {b}", "i buy {b} boxes with {a} pieces each, how many pieces",
    ),
    "/": (
        "divide {a} by {b}", "how many times does {b} go into {a}", "split {a} into {b} equal parts",
        "share {a} among {b} people",
    ),
}  # fmt: skip


def calculate(fill: Fillers) -> Use:
    rng = fill.rng
    if rng.random() < 0.12:
        return percentage(rng)
    if rng.random() < 0.15:
        return long_sum(rng)
    sign = rng.choice("++--***//")
    a, b = rng.choice(((2, 99), (10, 999), (100, 9999))), rng.choice(((2, 12), (2, 99), (10, 999)))
    left, right = rng.randint(*a), rng.randint(*b)
    if sign == "/":
        left = right * rng.randint(2, 90)
    result = {"+": left + right, "-": left - right, "*": left * right, "/": left // right}[sign]
    expression = f"{left} {sign} {right}"
    if rng.random() < 0.35:
        asked = rng.choice(VERBS[sign]).format(a=left, b=right)
    else:
        words = f"{left} {rng.choice(SUM_WORDS[sign])} {right}"
        shown = rng.choice((expression, words, f"{left}{sign}{right}", expression.replace("*", "x"), words))
        asked = rng.choice(SUM_ASKED).format(e=shown)
    return calculation(rng, asked, expression, str(result))


def percentage(rng: random.Random) -> Use:
    share, whole = rng.choice((5, 10, 15, 20, 25, 30, 40, 50, 60, 75)), rng.randint(2, 60) * 20
    forms = ("what is {p}% of {n}", "how much is {p} percent of {n}", "calculate {p}% of {n}", "{p}% of {n}")
    asked = rng.choice(forms).format(p=share, n=whole)
    return calculation(rng, asked, f"{whole} * {share} / 100", str(whole * share // 100))


def long_sum(rng: random.Random) -> Use:
    numbers = [rng.randint(1, 99) for _ in range(rng.choice((3, 3, 4)))]
    listed = ", ".join(str(n) for n in numbers[:-1]) + f" and {numbers[-1]}"
    signs = " + ".join(str(n) for n in numbers)
    asked = rng.choice((f"add {listed}", f"what is the sum of {listed}", f"sum up {listed}", f"what is {signs}", signs))
    return calculation(rng, asked, signs, str(sum(numbers)))


def calculation(rng: random.Random, asked: str, expression: str, result: str) -> Use:
    answer = rng.choice((f"{expression} = {result}.", f"The result is {result}.", f"{expression} is {result}."))
    return Use(varied_number(rng, asked), Call("calculator", {"expression": expression}), result, answer)


def varied_number(rng: random.Random, asked: str) -> str:
    """Variation of the question that leaves its numbers alone."""
    is_question = asked.startswith(("what", "how", "can", "could", "if", "i buy"))
    text = capitalised(asked) if rng.random() < 0.6 else asked
    return text + ("?" if is_question else rng.choice(("", ".", ""))) if rng.random() < 0.75 else text


TIME_ASKED = (
    "what time is it", "what is the time", "can you tell me the time", "do you know what time it is", "time please",
    "what's the time", "tell me the time", "how late is it", "is it late already", "i need to know the current time",
    "current time", "what time is it now", "please check the clock", "could you look at the clock", "time?",
    "do you have the time", "what hour is it", "is it already evening", "is it time for lunch",
    "look at the clock please",
)  # fmt: skip
DATE_ASKED = (
    "what day is it today", "what is the date today", "what is today's date", "which day is it", "what's the date",
    "tell me the date", "what day of the week is it", "today's date please", "which month is it", "what year is it",
    "do you know today's date", "what is the date", "is it monday today", "what date do we have", "is today a weekday",
)  # fmt: skip


def look_at_clock(fill: Fillers) -> Use:
    rng = fill.rng
    day = f"{rng.choice(DAYS)}, {rng.randint(1, 28)} {rng.choice(MONTHS)} {rng.randint(2024, 2029)}"
    time = f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}"
    wants_time = rng.random() < 0.6
    asked = varied(rng, rng.choice(TIME_ASKED if wants_time else DATE_ASKED))
    result = rng.choice((f"{day} {time}", f"{time}, {day}", f"{day}, {time}"))
    return Use(asked, Call("clock", {}), result, f"It is {time}." if wants_time else f"Today is {day}.")


def file_name(fill: Fillers) -> str:
    stem = fill.rng.choice((fill.thing(), f"{fill.thing()}_{fill.thing()}", fill.word().lower()))
    folder = fill.rng.choice(("", "", "", "docs/", "notes/", "src/"))
    return folder + stem.replace(" ", "_") + fill.rng.choice((".txt", ".md", ".txt", ".py", ".csv"))


READ_ASKED = (
    "open {f}", "read {f}", "what is in {f}", "what does {f} say", "show me {f}", "please read the file {f}",
    "what is in the file {f}", "can you open {f}", "read {f} to me", "look into {f}", "display {f}", "print {f}",
    "show the content of {f}", "what's inside {f}", "tell me what {f} says", "i want to see {f}", "check {f}",
    "open the file {f} please", "could you read {f}", "give me the text of {f}", "what can you find in {f}",
)  # fmt: skip


def note(fill: Fillers) -> str:
    return fill.rng.choice(
        (
            f"Buy a {fill.thing()} and two {fill.thing()}s.",
            f"Call {fill.first_name()} on {fill.rng.choice(DAYS)}.",
            f"The meeting is at {fill.clock()}.",
            f"The code is {fill.rng.randint(1000, 9999)}.",
            f"{fill.full_name()} lives in {fill.place()}.",
        )
    )


def read_file(fill: Fillers) -> Use:
    name, text = file_name(fill), note(fill)
    asked = varied_number(fill.rng, fill.rng.choice(READ_ASKED).format(f=name))
    return Use(asked, Call("read_file", {"path": name}), text, f"The file {name} says: {text}")


LIST_ASKED = (
    "list the files in {d}", "which files are in {d}", "what is in the folder {d}", "show me the folder {d}",
    "show the files in {d}", "what files do i have in {d}", "list {d}", "look into the folder {d}", "ls {d}",
    "can you list the files in {d}", "what does the folder {d} contain", "give me all files in {d}",
)  # fmt: skip


def list_files(fill: Fillers) -> Use:
    folder = fill.rng.choice((fill.thing(), fill.word().lower(), "docs", "notes", "src", "photos")).replace(" ", "_")
    names = [file_name(fill).split("/")[-1] for _ in range(fill.rng.randint(1, 4))]
    asked = varied_number(fill.rng, fill.rng.choice(LIST_ASKED).format(d=folder))
    answer = f"The folder {folder} contains: {', '.join(names)}."
    return Use(asked, Call("list_files", {"path": folder}), "\n".join(names), answer)


FIND_ASKED = (
    "search my files for {w}", "which files mention {w}", "find {w} in my files", "look for {w} in all files",
    "search for {w} in the files", "where in my files is {w}", "grep {w}", "which file contains {w}",
    "is {w} in any file", "find the file about {w}",
)  # fmt: skip


def search_files(fill: Fillers) -> Use:
    word = fill.rng.choice((fill.thing(), fill.word(), fill.first_name(), f"{fill.thing()} {fill.thing()}"))
    name = file_name(fill)
    shown = fill.rng.choice((word, f"'{word}'", f'"{word}"'))
    asked = varied_number(fill.rng, fill.rng.choice(FIND_ASKED).format(w=shown))
    result = f"{name}:{fill.rng.randint(1, 90)}: {word}"
    return Use(asked, Call("search_files", {"query": word}), result, f"{capitalised(word)} is mentioned in {name}.")


WRITE_ASKED = (
    'write "{t}" to {f}', 'save "{t}" in {f}', 'create {f} with the text "{t}"', 'put "{t}" into the file {f}',
    'make a file {f} that says "{t}"', 'store "{t}" as {f}', 'note in {f}: "{t}"', 'please write "{t}" into {f}',
)  # fmt: skip


def write_file(fill: Fillers) -> Use:
    name, text = file_name(fill), note(fill)
    asked = varied_number(fill.rng, fill.rng.choice(WRITE_ASKED).format(f=name, t=text))
    call = Call("write_file", {"path": name, "content": text})
    return Use(asked, call, "ok", f"I have written the text to {name}.")


RUN_ASKED = ("run {c}", "please run {c}", "execute {c}", "run the command {c}", "can you run {c}", "start {c}")
COMMANDS = (
    "ls -l",
    "git status",
    "pwd",
    "python main.py",
    "make test",
    "df -h",
    "git log",
    "whoami",
    "date",
    "uname -a",
)


def run_command(fill: Fillers) -> Use:
    command = fill.rng.choice(COMMANDS)
    shown = fill.rng.choice((command, f"`{command}`", f"'{command}'"))
    asked = varied_number(fill.rng, fill.rng.choice(RUN_ASKED).format(c=shown))
    result = fill.rng.choice(
        ("done", f"{fill.number()} files", f"/home/{fill.first_name().lower()}", "all tests passed")
    )
    return Use(asked, Call("run_command", {"command": command}), result, f"The command printed: {result}")


WEATHER_ASKED = (
    "what is the weather in {c}", "will it rain in {c} today", "how is the weather in {c}", "weather in {c}",
    "is it cold in {c}", "do i need an umbrella in {c}", "what's the weather like in {c}", "is the sun shining in {c}",
    "tell me the weather in {c}", "how warm is it in {c}", "check the weather for {c}", "weather forecast for {c}",
)  # fmt: skip


def weather(fill: Fillers) -> Use:
    city = fill.rng.choice(CITIES) if fill.rng.random() < 0.6 else fill.word()
    result = f"{fill.rng.choice(('sunny', 'cloudy', 'rainy', 'windy', 'snowy'))}, {fill.rng.randint(-5, 33)} degrees"
    asked = varied_number(fill.rng, fill.rng.choice(WEATHER_ASKED).format(c=city))
    return Use(asked, Call("get_weather", {"city": city}), result, f"The weather in {city} is {result}.")


TIMER_ASKED = (
    "set a timer for {n} minutes", "start a timer of {n} minutes", "remind me in {n} minutes", "wake me in {n} minutes",
    "timer {n} minutes", "i need a timer for {n} minutes", "please set a {n} minute timer", "count down {n} minutes",
    "tell me when {n} minutes are over", "{n} minute timer please",
)  # fmt: skip


def timer(fill: Fillers) -> Use:
    minutes = fill.rng.randint(1, 90)
    asked = varied_number(fill.rng, fill.rng.choice(TIMER_ASKED).format(n=minutes))
    return Use(asked, Call("set_timer", {"minutes": minutes}), "ok", f"I have set a timer for {minutes} minutes.")


MESSAGES = ("I will be late", "dinner is ready", "happy birthday", "see you tomorrow", "thank you", "call me back")
MESSAGE_ASKED = ("send {p} the message: {t}", "write to {p}: {t}", "text {p} {t}", "tell {p}: {t}", "message {p}: {t}")


def message(fill: Fillers) -> Use:
    name, text = fill.first_name(), fill.rng.choice(MESSAGES)
    asked = varied_number(fill.rng, fill.rng.choice(MESSAGE_ASKED).format(p=name, t=text))
    call = Call("send_message", {"recipient": name, "text": text})
    return Use(asked, call, "sent", f"I have sent your message to {name}.")


ASIDE_ASKED = ("ask aside: {q}", "ask in a side call: {q}", "use ask_aside for this: {q}")


def ask_aside(fill: Fillers) -> Use:
    question = f"What is {fill.thing()}?"
    asked = fill.rng.choice(ASIDE_ASKED).format(q=question)
    return Use(
        capitalised(asked), Call("ask_aside", {"question": question}), "An everyday thing.", "It is an everyday thing."
    )


TOOLS = (
    Tool(
        "calculator",
        ("Evaluate an arithmetic expression.", "Calculate the value of an expression.", "Do arithmetic."),
        {"expression": ("string", "The expression, for example 2 + 3 * 4")},
        calculate,
    ),
    Tool("clock", ("Get the current date and time.", "Tell the current local time."), {}, look_at_clock),
    Tool(
        "read_file",
        ("Read a text file.", "Return the text of a file."),
        {"path": ("string", "Path of the file")},
        read_file,
    ),
    Tool("list_files", ("List the files of a folder.",), {"path": ("string", "Path of the folder")}, list_files),
    Tool("search_files", ("Search all files for a text.",), {"query": ("string", "Text to look for")}, search_files),
    Tool(
        "write_file",
        ("Write a text file.",),
        {"path": ("string", "Path of the file"), "content": ("string", "Text to write")},
        write_file,
    ),
    Tool("run_command", ("Run a shell command.",), {"command": ("string", "The command line")}, run_command),
    Tool("get_weather", ("Get the weather for a city.",), {"city": ("string", "Name of the city")}, weather),
    Tool("set_timer", ("Set a timer.",), {"minutes": ("integer", "Number of minutes")}, timer),
    Tool(
        "send_message",
        ("Send a message to a contact.",),
        {"recipient": ("string", "Name of the contact"), "text": ("string", "The message")},
        message,
    ),
    Tool("ask_aside", ("Ask a question beside the chat.",), {"question": ("string", "The question")}, ask_aside),
)
SEARCH_SCHEMA = {
    "type": "function",
    "function": {
        "name": "search_document",
        "description": "Search the open document for a passage.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What to look for"}},
            "required": ["query"],
        },
    },
}
SEARCH_ASKED = ("{q}", "{q} Look in the document.", "Look in the document: {q}", "Search the document: {q}")
DENIED = "The user did not allow this call."
AFTER_DENIAL = (
    "I was not allowed to use that tool, so I cannot tell you.",
    "The call was not allowed, so I do not know the answer.",
)


class ToolWriter:
    def __init__(self, documents: DocumentWriter, handwritten: Handwritten) -> None:
        self.documents, self.handwritten = documents, handwritten

    def chat(self, fill: Fillers) -> Conversation:
        """One to four requests under one list of tools; some need no tool."""
        rng = fill.rng
        core = list(TOOLS[:2])
        offered = (
            core + rng.sample(TOOLS[2:], rng.choice((0, 1, 1, 2, 3))) if rng.random() < 0.75 else rng.sample(TOOLS, 2)
        )
        schemas = [tool.schema(rng) for tool in offered]
        can_search = rng.random() < 0.3
        schemas += [SEARCH_SCHEMA] if can_search else []
        rng.shuffle(schemas)
        turns: list[Turn] = []
        for _ in range(rng.choice((1, 2, 2, 3, 4))):
            kind = rng.random()
            if kind < 0.22:
                turns += (
                    pairs(*self.handwritten.exchange(rng))
                    if rng.random() < 0.8
                    else pairs("Thanks!", "You are welcome!")
                )
            elif kind < 0.4 and can_search:
                turns += self.search(fill)
            else:
                turns += self.request(fill, rng.choice(offered))
        return Conversation("tool", tuple(turns), tools=tuple(schemas), answer_loss="double")

    def request(self, fill: Fillers, tool: Tool) -> tuple[Turn, ...]:
        use = tool.use(fill)
        if fill.rng.random() < 0.03:
            end = (Turn("tool", DENIED), Turn("assistant", fill.rng.choice(AFTER_DENIAL)))
            return (Turn("user", use.asked), Turn("assistant", calls=(use.call,)), *end)
        if fill.rng.random() < 0.06:
            return self.two_calls(fill, tool, use)
        answered = (Turn("tool", use.result), Turn("assistant", use.answer))
        return (Turn("user", use.asked), Turn("assistant", calls=(use.call,)), *answered)

    @staticmethod
    def two_calls(fill: Fillers, tool: Tool, first: Use) -> tuple[Turn, ...]:
        second = tool.use(fill)
        asked = first.asked.rstrip(".?! ") + " and " + second.asked[0].lower() + second.asked[1:]
        called = Turn("assistant", calls=(first.call, second.call))
        answer = Turn("assistant", f"{first.answer} {second.answer}")
        return Turn("user", asked), called, Turn("tool", first.result), Turn("tool", second.result), answer

    def search(self, fill: Fillers) -> tuple[Turn, ...]:
        facts: list[DocumentFact] = []
        while not facts:
            facts = [fact for fact in self.documents.facts(fill, quoting=0.3) if fact.questions]
        index = fill.rng.randrange(len(facts))
        fact = facts[index]
        question = fill.rng.choice(fact.questions)
        query = " ".join(content_words(question)[-3:])
        found = " ".join(other.sentence for other in facts[max(0, index - 1) : index + 2])
        return (
            Turn("user", fill.rng.choice(SEARCH_ASKED).format(q=question)),
            Turn("assistant", calls=(Call("search_document", {"query": query}),)),
            Turn("tool", found),
            Turn("assistant", quote(fill.rng, fact)),
        )
