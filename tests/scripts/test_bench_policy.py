"""The script that puts hit rates into the README: which chats it has, and its table."""

from pathlib import Path

from runtime.experts.trace import TraceFacts
from scripts import bench_policy
from tests.demo_evaluation.items import documents
from tests.support.random_traces import record


def test_chats_are_of_different_prompts_and_documents() -> None:
    everyday, about_documents = bench_policy.everyday_chats(), bench_policy.document_chats()
    prompts = [prompt for chat in everyday for prompt in chat]
    assert len(everyday) == 6
    assert len(set(prompts)) == len(prompts) == 24
    assert all(prompts)
    longest = max(len(item.document) for item in documents())
    assert [len(chat) for chat in about_documents] == [5, 5]
    assert len(about_documents[0][0]) > longest
    assert about_documents[0][0] != about_documents[1][0]


def test_the_table_has_a_row_per_policy_and_never_beats_the_bound(tmp_path: Path) -> None:
    trace = record(tmp_path / "a.trace", TraceFacts("tiny", 4, 16, 2), 1, 60, 0)
    header, rule, *rows = bench_policy.table(trace)
    assert header == "| slots of 64 | 8 | 16 | 24 | 32 | 48 |"
    assert rule.count("|") == header.count("|")
    names, rates = zip(*((row.split("|")[1].strip(), row.split("|")[2:-1]) for row in rows), strict=True)
    assert names == ("lru", "rule", "belady")
    lru, by_rule, bound = ([float(rate.strip(" %")) for rate in row] for row in rates)
    assert all(best >= max(pair) for best, *pair in zip(bound, lru, by_rule, strict=True))
    assert bound == sorted(bound)
