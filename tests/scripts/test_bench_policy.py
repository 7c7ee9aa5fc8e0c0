"""The script that puts hit rates into the README: which chats it has."""

from scripts import bench_policy
from tests.demo_evaluation.items import documents


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
