"""Owns strings that nobody can guess: odd file names, paths, searches, texts, commands and sums, to be copied exactly.

For training alone, where a tool's argument has to be taken from the request letter by letter. Made-up words follow the
rule of `Fillers.word`, and numbers that of `Fillers.integer`, so none of them is one of evaluation's.
"""

from collections.abc import Callable

from demo.data.words import CONSONANTS, FIRST_NAMES, HELD_OUT_NUMBERS, HELD_OUT_PHRASINGS, VOWELS, Fillers, capitalised
from demo.listing import listed

ACCENTED = listed(
    "Zoë Łukasz Søren Jürgen Núria Åsa Çelik Żaneta Dvořák Šárka Ødegård Þór Ngọc Ílhan Gülşen Beyoğlu Müller Sørensen "
    "Guðrún Håkon Mónica Rubén Iñaki João Conceição Renée Benoît Hélène François Anaïs Léo Øystein Väinö Jiří Božena "
    "Tomáš Žižek Kovač Đorđe Nguyễn Trần Peña Ibáñez Muñoz Öztürk Yılmaz Ştefan Ioană Mihăiță Márton Erzsébet Győző "
    "Małgorzata Wójcik Ångström Bjørn Æsa Sinéad Niamh Seán Eòghan Māra Jānis Ģirts Ūla Šarūnas Žemaitė Zürich "
    "Köln Málaga Łódź Tromsø Århus Reykjavík Besançon Córdoba Bogotá Brașov Plzeň Győr Ürgüp Liège Nîmes São Olhão"
)
ENDINGS = listed(
    ".txt .md .py .csv .json .log .toml .yaml .html .js .rs .tex .sh .c .xml .ini .conf .rst .yml .css .ts .go .java "
    ".sql .cfg .tar.gz .bak .tmp .test.js .d.ts .ipynb .h .cpp .hpp .kt .lua .pl .rb .R .svg .env .lock .out .orig .1"
)
ROOTS = ("", "", "", "", "./", "../", "../../", "~/", "/", "/tmp/", "/home/", "/var/log/", "src/", "C:/")
JOINTS = ("-", "_", ".", "", " ", "--", "__")
NAME_JOINTS = ("-", "_", ".", "", "-", "_")
TOOLS = listed("grep find awk sed sort head tail wc cut tr xargs rg fd jq diff stat cat less tee od file")
SHAPES: tuple[Callable[[str], str], ...] = (str, str, str, str.lower, str.upper, capitalised, str.swapcase)
GLUE = listed("the of for to in with and a not over under near my from by")
OPERATORS = listed("+ - * / + - * / % // **")
FUNCTIONS = listed("sqrt round abs floor ceil")


def digits(fill: Fillers, count: int) -> str:
    """So many digits, none a number that is left to evaluation."""
    while True:
        text = "".join(fill.rng.choice("0123456789") for _ in range(count))
        if int(text) % HELD_OUT_NUMBERS:
            return text


def letters(fill: Fillers) -> str:
    """Letters in an order that may not even be sayable; their sum says whether they are left to evaluation."""
    pick, shape = fill.rng.choice, fill.rng.random()
    while True:
        if shape < 0.4:
            word = fill.letters(pick((1, 2, 2, 3)))
        elif shape < 0.8:
            word = "".join(pick(CONSONANTS + "qx" + VOWELS) for _ in range(fill.rng.randint(2, 7)))
        else:
            word = fill.word().lower()
        if sum(map(ord, word)) % HELD_OUT_PHRASINGS:
            return word


def piece(fill: Fillers) -> str:
    """A known word, parts of two, letters, a name of another language or a number, in some case."""
    rng, kind = fill.rng, fill.rng.random()
    if kind < 0.25:
        word = rng.choice(fill.lexicon or fill.half(list(fill.things)))
    elif kind < 0.4 and fill.lexicon:
        word = rng.choice(fill.lexicon)[: rng.randint(2, 5)] + rng.choice(fill.lexicon)[-rng.randint(2, 5) :]
    elif kind < 0.7:
        word = letters(fill)
    elif kind < 0.8:
        return rng.choice(ACCENTED)
    elif kind < 0.9:
        return digits(fill, rng.choice((1, 2, 2, 3, 4, 6, 8, 11)))
    else:
        word = letters(fill) + digits(fill, rng.choice((1, 2, 3)))
    return rng.choice(SHAPES)(word if capitalised(word) not in FIRST_NAMES else word + digits(fill, 1))


def compound(fill: Fillers, joints: tuple[str, ...] = NAME_JOINTS) -> str:
    """One to four pieces with one joint between them."""
    return fill.rng.choice(joints).join(piece(fill) for _ in range(fill.rng.choice((1, 1, 1, 1, 2, 2, 2, 3, 4))))


def file_name(fill: Fillers) -> str:
    kind = fill.rng.random()
    if kind < 0.06:
        return "." + letters(fill) + fill.rng.choice(("", "rc", "ignore"))
    stem = compound(fill, (*NAME_JOINTS, " ", " ") if kind < 0.4 else NAME_JOINTS)
    return stem + (fill.rng.choice(ENDINGS) if kind < 0.9 else "")


def folder(fill: Fillers) -> str:
    """One to five parts below some root; now and then with a slash at the end."""
    count = fill.rng.choice((1, 1, 2, 2, 3, 4, 5))
    parts = "/".join(compound(fill) if count < 3 else piece(fill) for _ in range(count))
    return fill.rng.choice(ROOTS) + parts + fill.rng.choice(("", "", "", "", "/"))


def path(fill: Fillers) -> str:
    if fill.rng.random() < 0.35:
        return file_name(fill)
    return f"{folder(fill).rstrip('/')}/{file_name(fill)}"


def words(fill: Fillers, most: int) -> str:
    """Up to so many words, small ones of English among the pieces."""
    count = fill.rng.randint(1, most)
    every = [piece(fill) for _ in range(count)]
    return " ".join(
        f"{fill.rng.choice(GLUE)} {word}" if number and fill.rng.random() < 0.3 else word
        for number, word in enumerate(every)
    )


def query(fill: Fillers) -> str:
    kind = fill.rng.random()
    if kind < 0.3:
        return compound(fill, JOINTS)
    if kind < 0.6:
        return words(fill, 5)
    inner, other = letters(fill), piece(fill)
    shapes = (
        f"{inner}()", f"def {inner}", f"{inner}[{other}]", f"{inner}>{other}", f"{inner}::{other}",
        f"@{inner}", f"#{other}", f"{inner}->{other}", f"${inner.upper()}", f"{inner}: {other}", f"{inner}/{other}",
        f"{inner}@{other}", f"{inner}*", f"{inner} ({other})", f"{inner}, {other}", f"{inner} & {other}",
        f"0x{digits(fill, 4)}", f"{inner} = {other}",
    )  # fmt: skip
    return fill.rng.choice(shapes)


def sentence(fill: Fillers) -> str:
    """Words, an entry, a list or a line of code; some end with a mark."""
    rng, kind = fill.rng, fill.rng.random()
    if kind < 0.4:
        return capitalised(words(fill, 9)) + rng.choice((".", "!", "", ""))
    if kind < 0.55:
        return ", ".join(piece(fill) for _ in range(rng.randint(2, 5)))
    if kind < 0.7:
        return f"{piece(fill)}{rng.choice((': ', '=', ' = ', ' -> ', ';', ' | '))}{words(fill, 3)}"
    if kind < 0.85:
        return f"{letters(fill)}('{piece(fill)}', {digits(fill, 2)})"
    return f"{words(fill, 4)} ({piece(fill)}) {rng.choice(('-', '/', '+', '&'))} {words(fill, 2)}"


def question(fill: Fillers) -> str:
    one, other = words(fill, 2), piece(fill)
    shapes = (
        f"What does {one} mean?", f"Who was {one} of {other}?", f"Is {one} the same as {other}?", f"How far is {one}?",
        f"Which {other} has the most {one}?", f"Why do people call it {one}?", f"When did {one} leave {other}?",
        f"How is {one} spelled?", f"What is {one}, in one line?", f"Where does the word {other} come from?",
        f"Translate {one} into plain English.", f"Name three things that go with {one}.", f"Can {one} eat {other}?",
        f"What would {one} say about {other}?", f"Compare {one} with {other}.", f"Give me a rhyme on {other}.",
    )  # fmt: skip
    return fill.rng.choice(shapes)


def command(fill: Fillers) -> str:
    """With options, quotes, pipes and redirections."""
    rng, tool = fill.rng, fill.rng.choice(TOOLS)
    name, count = letters(fill), digits(fill, rng.choice((1, 2, 3)))
    place = path(fill).replace(" ", "_")
    shapes = (
        f"{tool} {place}", f"{tool} -{name[0]} {place}", f"{tool} --{name} {place}", f"{tool} --{name}={count} {place}",
        f"./{name}.sh {place}", f"python -m {name} --{letters(fill)} {count}", f"git checkout {name}-{count}",
        f"grep -rn '{words(fill, 3)}' {place}", f"{tool} {place} | {rng.choice(TOOLS)} -n {count}",
        f"echo {piece(fill)} > {place}", f"make {name} -j{count}", f"pip install {name}=={count}.{digits(fill, 1)}",
        f"{name.upper()}={count} {tool} {place}", f"cd {place} && {tool} -{name[0]}", f"mv {place} {name}.old",
        f"docker run --rm {name}:{count}", f"pytest -k {name}_{letters(fill)} -x", f"find {place} -name '*.{name}'",
        f"curl -s localhost:{digits(fill, 4)}/{name}", f"{tool} {place} 2>&1", f"kill -9 {digits(fill, 5)}", name,
    )  # fmt: skip
    return rng.choice(shapes)


def number(fill: Fillers) -> str:
    rng = fill.rng
    whole = str(fill.integer(*rng.choice(((2, 99), (2, 99), (10, 999), (1000, 99999), (10**6, 10**12)))))
    return f"{whole}.{digits(fill, rng.choice((1, 2, 2, 3)))}" if rng.random() < 0.25 else whole


def small(fill: Fillers) -> str:
    return str(fill.rng.choice((2, 3, 4, 5, 6)))


def term(fill: Fillers, depth: int) -> str:
    """A number, a sum in brackets or a function of one."""
    kind = fill.rng.random()
    if depth and kind < 0.3:
        return f"({expression(fill, depth - 1)})"
    if depth and kind < 0.36:
        return f"{fill.rng.choice(FUNCTIONS)}({number(fill)})"
    return number(fill)


def expression(fill: Fillers, depth: int = 2) -> str:
    """As the calculator takes it, brackets up to `depth`; powers and what divides stay small."""
    text = term(fill, depth)
    for _ in range(fill.rng.choice((1, 1, 2, 3))):
        sign = fill.rng.choice(OPERATORS)
        if sign == "**":
            text = f"{fill.integer(2, 99)} ** {small(fill)} {fill.rng.choice('+-')} {text}"
        else:
            text += f" {sign} {small(fill) if sign in ('/', '//', '%') else term(fill, depth)}"
    return text


ODD: dict[str, Callable[[Fillers], str]] = {
    "file": file_name,
    "dir": compound,
    "path": path,
    "hit": path,
    "folder": folder,
    "query": query,
    "topic": lambda fill: words(fill, 4),
    "content": sentence,
    "filetext": sentence,
    "line": lambda fill: words(fill, 7),
    "first_name": lambda fill: fill.rng.choice(ACCENTED),
    "question": question,
    "command": command,
    "saying": lambda fill: words(fill, 4),
    "title": lambda fill: words(fill, 3),
    "song": lambda fill: words(fill, 3),
    "artist": lambda fill: words(fill, 3),
    "company": lambda fill: words(fill, 2),
    "restaurant": lambda fill: words(fill, 3),
    "dish": lambda fill: words(fill, 3),
    "item": lambda fill: words(fill, 3),
    "place": piece,
    "term": letters,
}


def odd(fill: Fillers) -> str:
    """Any of them."""
    draw = fill.rng.choice((file_name, folder, path, path, query, sentence, command, number, expression, compound))
    return draw(fill)
