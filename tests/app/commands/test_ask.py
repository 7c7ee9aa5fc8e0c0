"""`ask` over a scripted engine: which words go to which stream, the JSON object, the exit status."""

import io
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from app.cli import main
from app.commands import ask
from runtime.errors import CheckpointError
from runtime.protocol import TemplateSwitches
from tests.support.documents import make_pdf
from tests.support.scripted_engine import CRASH_MESSAGE, BadCall, Call, Crash, End, Refuse, Say, ScriptedEngine, Step


@pytest.fixture
def run_ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `hotslot ask` in this process: (status, stdout, stderr, engine)."""

    def run(
        script: tuple[Step, ...], *arguments: str, then: Sequence[tuple[Step, ...]] = (), **engine_options: Any
    ) -> tuple[int, str, str, ScriptedEngine]:
        engine = ScriptedEngine(script, *then, **engine_options)
        monkeypatch.setattr(ask, "LocalEngine", lambda *_: engine)
        status = main(["ask", "--model", str(tmp_path), *arguments])
        captured = capsys.readouterr()
        return status, captured.out, captured.err, engine

    return run


ANSWER = (Say("Hm. ", is_reasoning=True), Say("Well.\n", is_reasoning=True), Say("It is "), Say("blue."))


def test_answer_to_stdout_reasoning_to_stderr(run_ask: Any) -> None:
    assert run_ask(ANSWER, "why?")[:3] == (0, "It is blue.\n", "Hm. Well.\n")


def test_json_has_the_stable_fields(run_ask: Any) -> None:
    script = (*ANSWER, Call("clock", {"zone": "\x9bUTC"}))
    status, out, err, _ = run_ask(script, "--json", "why?")
    assert (status, err) == (0, "")
    answer = json.loads(out)
    assert out.count("\n") == 1
    assert out.isascii()
    assert answer["text"] == "It is blue."
    assert answer["reasoning"] == "Hm. Well.\n"
    assert answer["tool_calls"] == [{"name": "clock", "arguments": {"zone": "\x9bUTC"}}]
    assert answer["finish_reason"] == "tool_calls"
    assert set(answer["usage"]) == {"prompt_tokens", "cached_tokens", "completion_tokens"}
    wanted = {"ttft_s", "prefill_tok_s", "decode_tok_s", "slot_hit_rate", "slots", "vram_used_bytes"}
    assert wanted | {"vram_headroom_bytes", "overlap"} <= set(answer["stats"])
    assert answer["model"] == "scripted"


@pytest.mark.parametrize("flags", [[], ["--json"]])
def test_engine_death_is_one_line(run_ask: Any, flags: list[str]) -> None:
    status, out, err, _ = run_ask((Say("par"), Crash()), *flags, "go")
    assert status == 1
    assert err == f"hotslot: {CRASH_MESSAGE}\n"
    assert out == ("" if flags else "par\n")


def test_refused_prompt(run_ask: Any) -> None:
    status, out, err, _ = run_ask((Refuse("The prompt has 9 tokens, the context 8."),), "go")
    assert (status, out, err) == (1, "", "hotslot: The prompt has 9 tokens, the context 8.\n")


def test_model_that_fails_to_load(run_ask: Any) -> None:
    error = CheckpointError("model.safetensors: the file ends early; download it again.")
    status, out, err, _ = run_ask(ANSWER, "go", start_error=error)
    assert (status, out, err) == (1, "", f"hotslot: {error}\n")


def test_unfinished_answer_says_so(run_ask: Any) -> None:
    status, out, err, _ = run_ask((Say("and"), End("length")), "go")
    assert (status, out) == (0, "and\n")
    assert "token limit" in err


def test_hostile_output_reaches_no_stream(run_ask: Any) -> None:
    hostile = "a\x1b]52;c;aGk=\x07\x9b31m\u202e\0[/red][@click=app.quit]b"
    script = (Say(hostile, is_reasoning=True), Say(hostile), BadCall(hostile, hostile), Call(hostile, {"x": hostile}))
    _, out, err, _ = run_ask(script, "go")
    assert out == "a]52;c;aGk=31m[/red][@click=app.quit]b\n"
    assert not set(out + err) & set("\x1b\x07\x9b\u202e\0")


def test_options_reach_the_engine(run_ask: Any) -> None:
    flags = "--system Brief --no-think --temperature 0 --top-k 5 --top-p 0.5 --min-p 0.2 --presence-penalty -1"
    flags += " --repetition-penalty 1.5 --seed 7 --max-tokens 9 --overlap off --policy lru --vram 2GiB --slots 12"
    flags += " --context 99 --device cpu --dtype fp32 --reasoning-effort low --preserve-thinking off"
    *_, engine = run_ask(ANSWER, *flags.split(), "go")
    request, options = engine.requests[0], engine.starts[0]
    assert [(m.role, m.content) for m in request.messages] == [("system", "Brief"), ("user", "go")]
    assert request.thinking is False
    assert request.switches == TemplateSwitches("low", False)
    sampling = request.sampling
    assert (sampling.temperature, sampling.top_k, sampling.top_p, sampling.min_p) == (0.0, 5, 0.5, 0.2)
    assert (sampling.presence_penalty, sampling.repetition_penalty) == (-1.0, 1.5)
    assert (sampling.seed, sampling.max_tokens) == (7, 9)
    assert (options.overlap, options.policy, options.vram_bytes, options.num_slots) == (False, "lru", 2**31, 12)
    assert (options.context_tokens, options.device, options.dtype) == (99, "cpu", "fp32")


CALCULATION = (Call("calculator", {"expression": "23*19"}),)


def test_allowed_tool_runs_and_the_answer_uses_it(run_ask: Any) -> None:
    status, out, err, engine = run_ask(CALCULATION, "--allow", "calculator", "what is 23*19?", then=[(Say("437."),)])
    assert (status, out) == (0, "437.\n")
    assert err == 'hotslot: tool done: calculator(expression="23*19") -> 437\n'
    assert [tool.name for tool in engine.requests[0].tools] == ["calculator"]
    assert engine.requests[1].messages[-1].content == "437"


def test_allowed_aside_asks_a_fresh_context(run_ask: Any) -> None:
    script = (Call("ask_aside", {"question": "Can penguins fly?"}),)
    status, out, _, engine = run_ask(script, "--allow", "ask_aside", "ask aside", then=[(Say("No."),)])
    assert (status, out) == (0, "No.\n")
    assert [tool.name for tool in engine.requests[0].tools] == ["ask_aside"]
    assert [request.messages[0].content for request in engine.side_requests] == ["Can penguins fly?"]
    assert engine.requests[1].messages[-1].content.startswith("Error: the question got no answer")


@pytest.mark.parametrize("flags", [["--deny", "calculator"], ["--allow", "all", "--deny", "calculator"]])
def test_tool_that_is_not_allowed_is_denied(run_ask: Any, flags: list[str]) -> None:
    status, out, err, engine = run_ask(CALCULATION, *flags, "what is 23*19?", then=[(Say("No."),)])
    assert (status, out) == (0, "No.\n")
    assert "tool denied" in err
    assert engine.requests[1].messages[-1].content == "The user did not allow this call."


def test_without_options_no_tool_is_offered_or_run(run_ask: Any) -> None:
    status, _, err, engine = run_ask(CALCULATION, "what is 23*19?")
    assert (status, engine.requests[0].tools, len(engine.requests)) == (0, (), 1)
    assert "which is not run" in err


def test_json_has_the_calls_of_all_rounds(run_ask: Any) -> None:
    script = (Say("So: "), *CALCULATION)
    _, out, err, _ = run_ask(script, "--json", "--allow", "calculator", "what is 23*19?", then=[(Say("437."),)])
    answer = json.loads(out)
    assert err == ""
    assert (answer["text"], answer["finish_reason"]) == ("So: \n\n437.", "stop")
    assert answer["tool_calls"] == [{"name": "calculator", "arguments": {"expression": "23*19"}}]


def test_file_tools_work_below_the_roots_only(run_ask: Any, tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    (root / "a.txt").write_text("inside")
    (tmp_path / "b.txt").write_text("outside")
    script = (Call("read_file", {"path": "a.txt"}), Call("read_file", {"path": str(tmp_path / "b.txt")}))
    flags = ["--allow", "read_file", "--root", str(root)]
    *_, engine = run_ask(script, *flags, "go", then=[(Say("Read."),)])
    first, second = (message.content for message in engine.requests[1].messages[-2:])
    assert first == "inside"
    assert "outside the allowed folders" in second


@pytest.mark.parametrize("flags", [["--root", "."], ["--allow", "read_file", "--root", "/no/such/folder"]])
def test_root_without_use_is_wrong_usage(run_ask: Any, flags: list[str]) -> None:
    status, out, err, _ = run_ask(CALCULATION, *flags, "go")
    assert (status, out) == (2, "")
    assert err.count("\n") == 1


def test_unknown_tool_is_wrong_usage(run_ask: Any) -> None:
    status, out, err, _ = run_ask(CALCULATION, "--allow", "rm", "go")
    assert (status, out) == (2, "")
    assert "calculator" in err


def test_sampling_is_the_models_own_unless_given(run_ask: Any) -> None:
    *_, engine = run_ask(ANSWER, "go")
    assert (engine.requests[0].sampling.temperature, engine.requests[0].sampling.top_k) == (0.5, 20)
    assert engine.requests[0].thinking is None
    assert engine.requests[0].switches == TemplateSwitches()


def test_settings_file_holds_for_the_command_line_too(run_ask: Any, own_home: Path) -> None:
    own_home.mkdir()
    (own_home / "config.toml").write_text('seed = 5\npolicy = "lru"\n')
    *_, engine = run_ask(ANSWER, "--seed", "6", "go")
    assert (engine.requests[0].sampling.seed, engine.starts[0].policy) == (6, "lru")


def test_a_file_given_twice_is_sent_once(run_ask: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    _, _, err, engine = run_ask(ANSWER, *["--file", str(tmp_path / "a.txt")] * 2, "go")
    assert engine.requests[0].messages[0].content == "File a.txt:\n```\nalpha\n```\n\ngo"
    assert err.count("a.txt is attached already; it is sent once.") == 1


def test_files_go_before_the_prompt(run_ask: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("alpha")
    (tmp_path / "b.txt").write_bytes("Grüße".encode("latin-1"))
    files = ["--file", str(tmp_path / "a.txt"), "--file", str(tmp_path / "b.txt")]
    _, _, err, engine = run_ask(ANSWER, *files, "go")
    assert (
        engine.requests[0].messages[0].content == "File a.txt:\n```\nalpha\n```\n\nFile b.txt:\n```\nGrüße\n```\n\ngo"
    )
    assert "b.txt is not UTF-8; it was read as Latin-1." in err


def test_documents_are_planned_on_stderr(run_ask: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("first line\nsecond line\n")
    _, out, err, _ = run_ask(ANSWER, "--file", str(tmp_path / "a.txt"), "--reading", "whole", "go")
    assert "a.txt: read whole, 30 tokens, 0% of the context (as chosen)." in err
    assert out == "It is blue.\n"


def test_what_does_not_fit_is_searched(run_ask: Any, tmp_path: Path) -> None:
    lines = [f"Harbour {number} is kept by Petra{number}." for number in range(3000)]
    (tmp_path / "a.txt").write_text("\n".join(lines))
    files = ["--file", str(tmp_path / "a.txt")]
    status, _, err, engine = run_ask(ANSWER, *files, "Who is Petra77?")
    assert (status, "a.txt: passages" in err) == (0, True)
    assert "[line 78] Harbour 77 is kept by Petra77." in engine.requests[0].messages[0].content
    status, out, err, _ = run_ask(ANSWER, *files, "--reading", "whole", "Who is Petra77?")
    assert (status, out) == (1, "")
    assert err.startswith("hotslot: a.txt has ")


def test_a_document_from_stdin(run_ask: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryFile() as stdin:
        stdin.write(make_pdf(["The keeper is Petra."]))
        stdin.seek(0)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(stdin))
        *_, engine = run_ask(ANSWER, "--file", "-", "Who?")
    content = engine.requests[0].messages[0].content
    assert content.startswith("File stdin:\n```\n[p.1] The keeper is Petra.\n```\n\n")
    assert content.endswith("\n\nWho?")


def test_the_model_may_search_the_document(run_ask: Any, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Olga is old.\nThe boat is red.\n")
    script = (Call("search_document", {"query": "boats"}), End("tool_calls"))
    arguments = ["--allow", "search_document", "--file", str(tmp_path / "a.txt"), "go"]
    *_, engine = run_ask(script, *arguments)
    assert [tool.name for tool in engine.requests[0].tools] == ["search_document"]
    assert engine.requests[1].messages[-1].content == "[line 1] Olga is old.\n[line 2] The boat is red."


def test_stdin_is_read_once(run_ask: Any) -> None:
    for arguments in (["--file", "-", "-"], ["--file", "-", "--file", "-", "go"]):
        status, _, err, _ = run_ask(ANSWER, *arguments)
        assert (status, "stdin can be read once only" in err) == (2, True)


def test_nothing_is_kept(run_ask: Any, own_home: Path) -> None:
    run_ask(ANSWER, "go")
    assert not own_home.exists()


def test_unforeseen_error_is_one_line_and_logged(run_ask: Any, own_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(*_: object, **__: object) -> None:
        raise KeyError(" ".join(["secret", "words"]))

    monkeypatch.setattr(ask, "read_files", explode)
    status, _, err, _ = run_ask(ANSWER, "go")
    assert status == 1
    assert err.count("\n") == 1
    assert "KeyError" in err
    log = (own_home / "logs" / "hotslot.log").read_text()
    assert "explode" in log
    assert "secret words" not in log
