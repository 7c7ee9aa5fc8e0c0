"""Owns the tools: their JSON schemas, and how another author might have named and described the same tool."""

import random
from dataclasses import dataclass
from typing import Any, Literal

from demo.data.conversation import Call

Presence = Literal["required", "optional", "absent"]


@dataclass(frozen=True)
class Parameter:
    """`slot` is its name in the texts; `presence` says what a schema may make of it, the first being the usual."""

    slot: str
    names: tuple[str, ...]
    descriptions: tuple[str, ...]
    kind: Literal["string", "integer", "number"] = "string"
    presence: tuple[Presence, ...] = ("required",)
    default: str = ""


@dataclass(frozen=True)
class Offer:
    """A tool under the names of one schema."""

    tool: "Tool"
    name: str
    names: dict[str, str]  # slot name -> the schema's name, in the schema's order
    required: frozenset[str]
    schema: dict[str, Any]

    def accepts(self, bound: set[str]) -> bool:
        """Whether a request with these parameters can be called."""
        defaults = {parameter.slot for parameter in self.tool.parameters if parameter.default}
        return bound <= set(self.names) and self.required <= bound | defaults

    def completed(self, arguments: dict[str, str]) -> dict[str, str]:
        """With the defaults of the required parameters that the request does not name; in the schema's order."""
        defaults = {parameter.slot: parameter.default for parameter in self.tool.parameters}
        given = {slot: arguments.get(slot, defaults[slot]) for slot in self.names}
        return {slot: value for slot, value in given.items() if slot in arguments or slot in self.required}

    def call(self, arguments: dict[str, str]) -> Call:
        kinds = {parameter.slot: parameter.kind for parameter in self.tool.parameters}
        return Call(self.name, {self.names[slot]: typed(kinds[slot], value) for slot, value in arguments.items()})


@dataclass(frozen=True)
class Tool:
    """The first name and the first descriptions are the application's own."""

    names: tuple[str, ...]
    descriptions: tuple[str, ...]
    parameters: tuple[Parameter, ...] = ()

    @property
    def name(self) -> str:
        return self.names[0]

    @property
    def slots(self) -> tuple[str, ...]:
        return tuple(parameter.slot for parameter in self.parameters)

    def offer(self, rng: random.Random, is_own: bool) -> Offer:
        """`is_own`: exactly the application's schema; else its names, order and descriptions vary."""

        def pick(options: tuple[str, ...]) -> str:
            return options[0] if is_own else rng.choice(options)

        parameters = list(self.parameters) if is_own else rng.sample(self.parameters, len(self.parameters))
        names: dict[str, str] = {}
        required = []
        properties: dict[str, dict[str, str]] = {}
        for parameter in parameters:
            presence = parameter.presence[0] if is_own else rng.choice(parameter.presence)
            if presence == "absent":
                continue
            slot = parameter.slot
            name = pick(tuple(name for name in parameter.names if name not in properties))
            names[slot] = name
            properties[name] = {"type": parameter.kind, "description": pick(parameter.descriptions)}
            required += [slot] if presence == "required" else []
        shape = {"type": "object", "properties": properties, "required": [names[slot] for slot in required]}
        called = self.name if is_own or rng.random() < 0.4 else rng.choice(self.names)
        function = {"name": called, "description": pick(self.descriptions), "parameters": shape}
        return Offer(self, called, names, frozenset(required), {"type": "function", "function": function})


def typed(kind: str, text: str) -> str | int | float:
    if kind == "string":
        return text
    return float(text) if "." in text else int(text)


def named(names: str) -> tuple[str, tuple[str, ...]]:
    """Slot and names of "slot=name other" or, where they are the same, "name other"."""
    slot, _, own = names.partition("=")
    first, *others = own.split() if own else slot.split()
    return (slot if own else first), (first, *others)


def text(names: str, descriptions: str, default: str = "", presence: tuple[Presence, ...] = ("required",)) -> Parameter:
    return Parameter(*named(names), tuple(descriptions.split(" | ")), "string", presence, default)


def number(names: str, descriptions: str, kind: Literal["integer", "number"] = "integer") -> Parameter:
    return Parameter(*named(names), tuple(descriptions.split(" | ")), kind)


def tool(names: str, descriptions: str, *parameters: Parameter) -> Tool:
    return Tool(tuple(names.split()), tuple(descriptions.split(" | ")), parameters)


PATH = text(
    "path file filename file_path name filepath", "Path of the file | The file | Name of the file | Where the file is"
)
FOLDER = "folder directory path dir folder_path"
MAYBE: tuple[Presence, ...] = ("required", "optional", "absent")
OFTEN: tuple[Presence, ...] = ("required", "optional", "optional")
REGISTRY = (
    tool(
        "read_file open_file get_file show_file load_file cat",
        "Read a text file and return its contents. | Read a text file. | Return the text of a file. | Open a file.",
        PATH,
    ),
    tool(
        "list_files list_dir ls list_directory show_folder",
        "List the files and folders in a folder. | List a directory. | Names of files in a folder. | Show a folder.",
        text(FOLDER, "Path of the folder; . is the current one | The folder | Directory to list", ".", OFTEN),
    ),
    tool(
        "search_files grep find_in_files file_search",
        "Find the files in a folder that contain a text. | Search all files for a text. | Find text in files.",
        text("query text pattern q search_term needle", "Text to look for | What to search | The words to find"),
        text(FOLDER, "Path of the folder to search | Where to search | The folder", ".", MAYBE),
    ),
    tool(
        "write_file save_file create_file store_file",
        "Write a text to a file, replacing what it held. | Write a text file. | Save text in a file. | Create a file.",
        PATH,
        text("content text contents data body", "The whole new text | Text to write | What the file will contain"),
    ),
    tool(
        "run_command shell bash execute terminal run",
        "Run a shell command and return its output. | Run a shell command. | Execute a command line.",
        text("command cmd command_line line", "The command line | Command to run | What to execute"),
    ),
    tool(
        "calculator calculate compute math evaluate",
        "Evaluate an arithmetic expression. | Calculate the value of an expression. | Do arithmetic.",
        text(
            "expression expr formula calculation input",
            "The expression, for example (3 + 4) * 2 | What to calculate | The sum",
        ),
    ),
    tool(
        "clock get_time current_time now date_and_time",
        "Return the current date and time. | Tell the current local time. | What time and day it is.",
    ),
    tool(
        "search_document find_passage document_search lookup_in_document",
        "Find passages in the attached document. | Search the open document for a passage. | Look into the document.",
        text("topic=query text topic q words", "Words to look for | What to look for | The topic"),
    ),
    tool(
        "ask_aside side_call ask_separately ask_fresh",
        "Ask a separate question beside the main chat and return the answer. | Ask a question beside the chat.",
        text("question prompt text query", "The complete question | What to ask | The question"),
    ),
)
EVERYDAY = (
    tool(
        "get_weather weather weather_forecast current_weather",
        "Get the weather for a city. | Current weather. | Weather forecast for a place.",
        text("city location place town", "Name of the city | The place | Where"),
    ),
    tool(
        "set_timer start_timer timer countdown",
        "Set a timer. | Start a countdown. | Ring after some minutes.",
        number("minutes duration length minutes_from_now", "Number of minutes | Minutes to wait"),
    ),
    tool(
        "send_message send_text text_contact message",
        "Send a message to a contact. | Text somebody. | Send a short message.",
        text("recipient to contact name person", "Name of the contact | Who gets it"),
        text("line=text message body content", "The message | What to send"),
    ),
    tool(
        "translate translate_text translator",
        "Translate a text. | Translate into another language.",
        text("saying=text phrase sentence source", "The text | What to translate"),
        text("language target target_language to", "Language to translate into | The language"),
    ),
    tool(
        "define_word dictionary lookup_word define",
        "Look up a word in the dictionary. | Definition of a word.",
        text("term=word term entry", "The word | Word to look up"),
    ),
    tool(
        "convert_units unit_converter convert",
        "Convert a value to another unit. | Unit conversion.",
        number("value amount number quantity", "The value | How much", "number"),
        text("from from_unit source_unit unit", "Unit of the value | From which unit"),
        text("to to_unit target_unit", "Unit to convert to | Into which unit"),
    ),
    tool(
        "create_event add_event schedule_event calendar_add",
        "Create a calendar event. | Add an entry to the calendar.",
        text("title name event subject", "Title of the event | What it is"),
        text("date day when", "Day of the event | The date"),
        text("hour=time start start_time", "Time of day | When it starts", "", ("optional",)),
    ),
    tool(
        "play_music play_song play start_music",
        "Play music. | Play a song or an artist.",
        text("song title track", "Name of the song | The title", "", ("optional",)),
        text("artist band by musician", "The artist or style | Who plays it", "", ("optional",)),
    ),
    tool(
        "get_stock_price stock_quote share_price quote",
        "Get the price of a stock. | Share price of a company.",
        text("company symbol stock ticker name", "The company | Name of the company"),
    ),
    tool(
        "find_recipe search_recipe recipe get_recipe",
        "Find a recipe. | Look up how to cook a dish.",
        text("dish query food name meal", "The dish | What to cook"),
    ),
    tool(
        "book_table reserve_table restaurant_booking make_reservation",
        "Book a table in a restaurant. | Reserve a table.",
        text("restaurant place name", "Name of the restaurant | Where"),
        number("people guests party_size seats", "Number of people | How many guests"),
        text("hour=time at when", "Time of day | When"),
    ),
    tool(
        "take_note add_note save_note note",
        "Save a note. | Write down a note for the user.",
        text("line=text note content", "The note | What to write down"),
    ),
    tool(
        "random_number pick_number draw_number random",
        "Draw a random number. | Random integer in a range.",
        number("low=min minimum low start", "Smallest number | Lower end"),
        number("high=max maximum high end", "Largest number | Upper end"),
    ),
    tool(
        "set_alarm alarm wake_up add_alarm",
        "Set an alarm. | Ring at a time of day.",
        text("hour=time at when", "Time of day | When to ring"),
    ),
    tool(
        "web_search search_web internet_search google",
        "Search the web. | Search the internet for pages.",
        text("query q text search_terms", "What to search for | Words to look for"),
    ),
    tool(
        "get_directions directions find_route navigate",
        "Get directions between two places. | Find a route.",
        text("origin from start", "Where to start | The start"),
        text("destination to end goal", "Where to go | The destination"),
        text("transport mode by vehicle", "Means of transport | How to travel", "", ("optional",)),
    ),
    tool(
        "convert_currency exchange currency_converter",
        "Convert an amount of money. | Currency conversion.",
        number("amount value sum", "The amount | How much", "number"),
        text("from from_currency source currency", "Currency of the amount | From which currency"),
        text("to to_currency target", "Currency to convert to | Into which currency"),
    ),
    tool(
        "send_email email mail write_email",
        "Send an email. | Write an email to an address.",
        text("to recipient address receiver", "Email address | Who gets it"),
        text("subject title topic", "The subject | Subject line", "", ("optional",)),
        text("body text content message", "Text of the email | What to write"),
    ),
    tool(
        "get_news news headlines latest_news",
        "Get the news about a subject. | Latest headlines.",
        text("subject topic about category", "The subject | About what"),
    ),
    tool(
        "add_to_list list_add add_item put_on_list",
        "Add an item to a list. | Put something on one of the user's lists.",
        text("item entry thing text", "The item | What to add"),
        text("list list_name name", "Name of the list | Which list"),
    ),
    tool(
        "set_light light switch_light lamp",
        "Switch a light on or off. | Control the lights of a room.",
        text("room place location", "The room | Where"),
        text("state switch status", "on or off"),
    ),
)
TOOLS = REGISTRY + EVERYDAY
