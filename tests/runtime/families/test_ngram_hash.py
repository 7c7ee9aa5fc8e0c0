"""Hash constants and ids of the published model's n-gram embedding: a golden vector."""

import torch

from runtime.families.ngram_hash import ngram_hash
from runtime.kernels.torch_ops.ngram import ngram_contexts, ngram_ids
from runtime.spec import NgramSpec

SPEC = NgramSpec((1,), 2560, 4, 3, 8, 20_000_000, 128, 128, 1234, 248044)
VOCAB_SIZE = 248_320
TOKENS = [248045, 846, 198, 9707, 248044, 13, 271]
GOLDEN = """
13981229 30076798 49239434 61315716 98540601 111186732 120378863 146384625 173637879 184336749 217808755 222173721 249579227 277180543 299757935 312970430
4908448 36872991 46611251 64451521 83649409 110850044 122402102 159207155 170314019 195445770 214314282 239389039 254862662 271565595 284073139 308659387
4582007 37691206 44255274 65455601 89351473 103985474 135938409 145212418 163775156 199680439 200044921 228961047 240669798 272736434 296838250 317942745
14498898 33339661 52935564 72566389 92432492 112425343 132449694 152547667 167750739 193286118 213284169 220219811 243417129 266655361 281077250 313254563
13256830 36293698 52307262 75760785 91967280 118328464 138769205 154368323 170188935 193004505 205075451 229064096 251797085 275608664 283785543 306467417
5743412 24213785 47190143 75547133 86601023 111083824 138556230 149916042 160372577 197040252 209349399 232720102 253924625 276354930 290770814 304892711
5129529 22831471 51687175 68090399 90726650 118273134 139593745 154689607 174921586 197715969 202791060 228062120 253229200 278755314 280677083 310884469
"""  # noqa: E501


def test_constants() -> None:
    constants = ngram_hash(SPEC, VOCAB_SIZE, 0)
    assert constants.multipliers == (23703573157769, 20109073645365, 8052911324071)
    assert constants.head_sizes[:3] == (20000003, 20000023, 20000033)
    assert constants.head_sizes[-1] == 20000171
    assert constants.head_offsets[-1] == 300001275
    assert constants.table_rows == 320_001_536


def ids_of(history: list[int], tokens: list[int]) -> torch.Tensor:
    constants = ngram_hash(SPEC, VOCAB_SIZE, 0)
    contexts = ngram_contexts(torch.tensor(history), torch.tensor(tokens), SPEC.break_token_id)
    tensors = (torch.tensor(part) for part in (constants.multipliers, constants.head_sizes, constants.head_offsets))
    return ngram_ids(contexts, *tensors)


def test_golden_vector() -> None:
    golden = torch.tensor([[int(item) for item in line.split()] for line in GOLDEN.split("\n") if line])
    assert torch.equal(ids_of([248044, 248044], TOKENS), golden)


def test_ids_do_not_depend_on_where_a_text_is_cut() -> None:
    whole = ids_of([248044, 248044], TOKENS)
    history = [248044, 248044]
    for position, token in enumerate(TOKENS):
        assert torch.equal(ids_of(history, [token])[0], whole[position])
        history = [history[1], token]
