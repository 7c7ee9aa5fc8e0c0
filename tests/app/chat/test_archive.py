"""Export and import: the same bytes again, every branch, and one readable line for every hostile file."""

import contextlib
import json
import os
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.chat.archive import export_json, import_json
from app.chat.chat_files import export_chat, import_chat
from app.chat.markdown_export import export_markdown
from app.errors import ArchiveError
from app.messages import Attachment, Conversation, MalformedCall, Message, Reading
from app.sanitize import clean
from app.store.conversations import Store
from runtime.protocol import ToolCall

TEXTS = st.text(max_size=40).map(clean)
PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)
CALLS = st.builds(ToolCall, TEXTS, st.dictionaries(TEXTS, PLAIN, max_size=3))
TIMES = st.floats(0, 4e9)
BOUNDS = st.lists(st.integers(0, 30), unique=True, max_size=5).map(sorted)
READINGS = st.builds(
    Reading,
    st.sampled_from(["whole", "passages", "all"]),
    BOUNDS.map(lambda bounds: tuple(zip(bounds[::2], bounds[1::2], strict=False))),
    TEXTS,
    st.booleans(),
)
DOCUMENTS = st.builds(Attachment, TEXTS, TEXTS, st.sampled_from(["text", "code", "pages"]), st.none() | READINGS)


@st.composite
def chats(draw: st.DrawFn) -> tuple[Conversation, list[Message], str]:
    """A conversation of any tree, with what messages may hold; the head is any of them."""
    conversation = Conversation("c", draw(TEXTS), draw(TIMES), 2.0, None, draw(TEXTS))
    messages: list[Message] = []
    for number in range(draw(st.integers(1, 7))):
        parent = draw(st.none() | st.sampled_from(messages)) if messages else None
        roles = ["user", "assistant"] if parent is None or parent.role == "user" else ["user", "assistant", "tool"]
        messages.append(
            Message(
                "c",
                parent.id if parent else None,
                draw(st.sampled_from(roles)),  # type: ignore[arg-type]
                draw(TEXTS),
                id=f"m{number}",
                reasoning=draw(TEXTS),
                tool_calls=tuple(draw(st.lists(CALLS, max_size=2))),
                attachments=tuple(draw(st.lists(DOCUMENTS, max_size=2))),
                generated_ids=(1, 2, 3),
                tokenizer_fingerprint="abc",
                status=draw(st.sampled_from(["complete", "cancelled", "failed", "length"])),
                created_at=draw(TIMES),
                model_name=draw(TEXTS),
                malformed_calls=tuple(draw(st.lists(st.builds(MalformedCall, TEXTS, TEXTS), max_size=1))),
                tool_name=draw(TEXTS),
                tool_status=draw(st.sampled_from(["", "done", "denied"])),
                full_result=draw(TEXTS),
            )
        )
    return conversation, messages, draw(st.sampled_from([message.id for message in messages]))


@settings(max_examples=60)
@given(chats())
def test_exporting_an_import_gives_the_same_bytes(chat: tuple[Conversation, list[Message], str]) -> None:
    conversation, messages, head_id = chat
    # Titles and models are lines.
    conversation = replace(conversation, title=" ".join(conversation.title.split()), model="demo")
    first, second = Store.in_memory(), Store.in_memory()
    first.write_conversation(conversation, messages, head_id)
    exported = export_json(first, "c")
    for store in (first, second):
        imported = import_json(store, exported)
        assert imported.id != "c"
        assert export_json(store, imported.id) == exported
        store.check_integrity()
    hidden = {"id": "", "conversation_id": "", "parent_id": None, "generated_ids": (), "tokenizer_fingerprint": ""}
    assert [replace(message, **hidden) for message in first.messages("c")] == [
        replace(message, **hidden) for message in second.messages(imported.id)
    ]
    assert all(message.generated_ids == () for message in second.messages(imported.id))


def stored_chat(store: Store) -> Conversation:
    conversation = store.create_conversation("demo", "Cats & dogs?")
    user = Message(conversation.id, None, "user", "Hello", attachments=(Attachment("a.txt", "abc"),), created_at=10.0)
    call = Message(
        conversation.id, user.id, "assistant", "", tool_calls=(ToolCall("clock", {"zone": "UTC"}),), created_at=11.0
    )
    result = Message(
        conversation.id, call.id, "tool", "noon ```", tool_name="clock", tool_status="done", created_at=12.0
    )
    answer = Message(
        conversation.id, result.id, "assistant", "It is **noon**.", reasoning="Look.", status="length", created_at=13.0
    )
    store.append_messages([user, call, result, answer])
    return store.conversation(conversation.id)


def test_markdown_has_all_of_the_branch() -> None:
    store = Store.in_memory()
    conversation = stored_chat(store)
    text = export_markdown(store, conversation.id)
    head, _, body = text.partition("\n\n## ")
    assert head.startswith("# Cats & dogs?\n\n20")
    assert body == (
        "You\n\nAttached: a.txt (3 characters)\n\nHello\n\n"
        '## Answer\n\nCalled clock:\n\n```json\n{\n "zone": "UTC"\n}\n```\n\n'
        "## Result of clock\n\n````\nnoon ```\n````\n\n"
        "## Answer\n\n<details>\n<summary>Reasoning</summary>\n\nLook.\n\n</details>\n\nIt is **noon**.\n\n"
        "*(cut at its limit of tokens)*\n"
    )


# ---- files


def test_files_are_made_read_and_never_overwritten(tmp_path: Path) -> None:
    store = Store.in_memory()
    conversation = stored_chat(store)
    markdown = export_chat(store, conversation.id, tmp_path)
    assert markdown == tmp_path / "Cats-dogs.md"
    archive = export_chat(store, conversation.id, tmp_path / "kept.json")
    imported = import_chat(store, archive)
    assert [m.content for m in store.branch(imported.head_id)] == [
        m.content for m in store.branch(conversation.head_id)
    ]
    for path in (tmp_path, archive):
        with pytest.raises(ArchiveError, match="exists already"):
            export_chat(store, conversation.id, path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["Cats-dogs.md", "kept.json"]


@pytest.mark.parametrize("name", ["x.txt", "no/such/folder.md", "x.json\0"])
def test_a_place_that_takes_no_file_is_named(tmp_path: Path, name: str) -> None:
    store = Store.in_memory()
    with pytest.raises(ArchiveError) as caught:
        export_chat(store, stored_chat(store).id, tmp_path / name)
    assert "\n" not in str(caught.value)


def test_no_file_that_could_hang_or_is_missing_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path, tmp_path / "missing.json", Path("/dev/zero"), tmp_path / "a\0b"):
        with pytest.raises(ArchiveError):
            import_chat(Store.in_memory(), path)


# ---- hostile files


def good() -> dict[str, Any]:
    store = Store.in_memory()
    return json.loads(export_json(store, stored_chat(store).id))  # type: ignore[no-any-return]


def changed(path: str, value: Any) -> bytes:
    """The good file with one value replaced; '-' as value removes it."""
    archive = good()
    *way, last = [int(step) if step.isdigit() else step for step in path.split(".")]
    place: Any = archive
    for step in way:
        place = place[step]
    if value == "-":
        del place[last]
    else:
        place[last] = value
    return json.dumps(archive).encode()


HOSTILE = {
    "empty": b"",
    "binary": bytes(range(256)),
    "utf-16": '{"format": 1}'.encode("utf-16"),
    "list": b"[]",
    "null": b"null",
    "other format": b'{"format": "x"}',
    "deep list": b'{"format":' + b"[" * 100_000,
    "deep arguments": changed("messages.1.tool_calls.0.arguments.zone", "@").replace(
        b'"@"', b"[" * 50_000 + b"]" * 50_000
    ),
    "many values": b'{"format": [' + b"[]," * 2_200_000 + b"1]}",
    "huge number": changed("created_at", "@").replace(b'"@"', b"9" * 10_000),
    "infinite": changed("created_at", "@").replace(b'"@"', b"1e999"),
    "large integer time": changed("created_at", 10**400),
    "NaN": changed("created_at", float("nan")),
    "infinite argument": changed("messages.1.tool_calls.0.arguments.zone", "@").replace(b'"@"', b"-1e999"),
    "time": changed("messages.0.created_at", -1),
    "far time": changed("messages.0.created_at", 1e18),
    "no messages": changed("messages", []),
    "messages object": changed("messages", {"0": {}}),
    "message text": changed("messages.0", "hello"),
    "title number": changed("title", 5),
    "long title": changed("title", "x" * 10_000_000),
    "no title": changed("title", "-"),
    "extra field": changed("pinned_at", 5),
    "role": changed("messages.0.role", "system"),
    "odd role": changed("messages.0.role", "root"),
    "role list": changed("messages.0.role", ["user"]),
    "content": changed("messages.0.content", None),
    "no content": changed("messages.0.content", "-"),
    "status": changed("messages.3.status", True),
    "own parent": changed("messages.1.parent", 1),
    "later parent": changed("messages.1.parent", 3),
    "negative parent": changed("messages.1.parent", -1),
    "true parent": changed("messages.1.parent", True),
    "text parent": changed("messages.1.parent", "0"),
    "no parent": changed("messages.1.parent", "-"),
    "head": changed("head", 99),
    "head text": changed("head", "messages"),
    "given id": changed("messages.0.id", "m"),
    "given conversation": changed("messages.0.conversation_id", "c"),
    "token ids": changed("messages.3.generated_ids", [1, 2]),
    "fingerprint": changed("messages.3.tokenizer_fingerprint", "abc"),
    "call without name": changed("messages.1.tool_calls.0.name", "-"),
    "arguments list": changed("messages.1.tool_calls.0.arguments", []),
    "calls object": changed("messages.1.tool_calls", {}),
    "attachment": changed("messages.0.attachments.0.text", 1),
    "reading": changed("messages.0.attachments.0.reading", {"mode": "none"}),
    "reading blocks": changed("messages.0.attachments.0.reading", {"mode": "passages", "blocks": [[1, 2, 3]]}),
    "blocks again": changed("messages.0.attachments.0.reading", {"mode": "passages", "blocks": [[0, 9], [0, 9]]}),
    "blocks backwards": changed("messages.0.attachments.0.reading", {"mode": "passages", "blocks": [[9, 1]]}),
    "blocks below": changed("messages.0.attachments.0.reading", {"mode": "passages", "blocks": [[-3, -1]]}),
    "reading block": changed("messages.0.attachments.0.reading", {"mode": "passages", "blocks": [[1, 2.5]]}),
    "tool without call": changed("messages.2.parent", 0),
    "version": changed("version", 2),
    "true version": changed("version", "1"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_readable_line_and_stores_nothing(name: str) -> None:
    store = Store.in_memory()
    with pytest.raises(ArchiveError) as caught:
        import_json(store, HOSTILE[name])
    line = str(caught.value)
    assert 20 < len(line) < 200
    assert line.isprintable()
    assert store.list_conversations() == []


def test_texts_of_a_file_are_cleaned() -> None:
    store = Store.in_memory()
    dirty = "a\x1b]0;x\x07\u202eb\ud800"
    archive = good()
    archive["title"] = dirty + "\n\tend"
    archive["messages"][0]["content"] = archive["messages"][0]["attachments"][0]["name"] = dirty
    archive["messages"][1]["tool_calls"][0]["arguments"] = {dirty: [dirty]}
    imported = import_json(store, json.dumps(archive).encode())
    assert imported.title == "a]0;xb  end"
    user, call, *_ = store.messages(imported.id)
    assert user.content == user.attachments[0].name == "a]0;xb"
    assert call.tool_calls[0].arguments == {"a]0;xb": ["a]0;xb"]}


def test_damaged_files_never_raise_anything_else() -> None:
    rng = random.Random(7)
    whole = export_json(store := Store.in_memory(), stored_chat(store).id)
    for _ in range(1500):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 5)] = bytes(
                rng.choices(b'{}[]",:0123456789truefalsnul\\\xff', k=rng.randint(0, 4))
            )
        with contextlib.suppress(ArchiveError):
            import_json(store, bytes(data))
    store.check_integrity()
