"""The demo's training forward must equal transformers' Qwen4ExpForCausalLM, packed rows included."""

import sys
from pathlib import Path

import pytest
import torch

transformers = pytest.importorskip("transformers", minversion="5.23")
sys.path.insert(0, str(Path(__file__).parents[2] / "scripts"))

from demo.architecture import text_config  # noqa: E402
from demo.model.attention import BLOCK, SparseAttention, common_blocks, seen  # noqa: E402
from demo.model.student import Student  # noqa: E402

from tests.support.tiny_student import TINY, some_documents  # noqa: E402


@pytest.fixture(scope="module")
def models():
    torch.manual_seed(0)
    student = Student(TINY).eval()
    for parameter in student.parameters():
        if parameter.ndim == 1:
            torch.nn.init.normal_(parameter, mean=float(parameter.detach().mean()), std=0.1)
    fields = text_config(TINY)
    fields.pop("model_type")
    fields["dtype"] = "float32"
    oracle = transformers.Qwen4ExpForCausalLM(transformers.Qwen4ExpTextConfig(**fields)).eval()
    missing = oracle.load_state_dict(student.state_dict(), strict=False)
    assert not missing.unexpected_keys
    assert set(missing.missing_keys) <= {"lm_head.weight"}
    oracle.tie_weights()
    return student, oracle


def relative_error(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    return float((ours - theirs).abs().max() / theirs.abs().max())


@torch.no_grad()
@pytest.mark.parametrize("budget", [None, TINY.indexer_budget])
def test_logits_equal_transformers(models, budget):
    student, oracle = models
    length = 130 if budget else 32
    tokens = torch.randint(4, 300, (2, length), generator=torch.Generator().manual_seed(1))
    student.set_budget(budget)
    assert relative_error(student.logits(tokens), oracle(tokens).logits) < 1e-4


@torch.no_grad()
def test_packed_documents_do_not_see_each_other(models):
    student, _ = models
    student.set_budget(TINY.indexer_budget)
    generator = torch.Generator().manual_seed(2)
    documents = [torch.randint(4, 300, (1, length), generator=generator) for length in (63, 59, 39)]
    ends = [torch.full((1, count), TINY.eos_token_id) for count in (1, 1, 1)]
    packed = torch.cat([part for pair in zip(documents, ends, strict=True) for part in pair], 1)
    together = student.logits(packed)
    first = 0
    for document in documents:
        alone = student.logits(document)
        assert relative_error(together[:, first : first + document.shape[1]], alone) < 1e-4
        first += document.shape[1] + 1


def test_blocks_that_see_nothing_are_left_out_and_no_others():
    document = some_documents(3, 8 * BLOCK, longest=160)
    seeing = seen(document).unflatten(1, (-1, BLOCK)).unflatten(3, (-1, BLOCK)).any(4).any(2)
    assert torch.equal(common_blocks(document), seeing)
    assert seeing.float().mean() < 0.4


@torch.no_grad()
def test_attention_by_blocks_reads_what_attention_reads():
    """Its gradients, and that pairs of blocks are skipped, need a GPU: tests/gpu/test_demo_training.py."""
    torch.manual_seed(4)
    attention = SparseAttention(TINY)
    document = some_documents(2, 2 * BLOCK, longest=160)
    x = torch.randn(2, 2 * BLOCK, TINY.hidden_size)
    places = (*Student(TINY).rotary(2 * BLOCK, x.device, x.dtype), document)
    plain = attention(x, *places)
    attention.is_blockwise = True
    assert relative_error(attention(x, *places), plain) < 1e-5
