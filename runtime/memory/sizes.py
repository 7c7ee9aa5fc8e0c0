"""How many bytes each part of a model takes, from its spec alone. Each formula is that of the pool it plans for."""

from runtime.record import RecordLayout, whole_blocks
from runtime.spec import PAGE_TOKENS, DeltaNetSpec, ModelSpec

QUERY_TILE = 32
"""Queries of attention whose scores exist at once."""
DEVICE_QUERY_TILE = 16
"""The same on a GPU, where what they take is slots'."""
EXPERT_SCRATCH_BYTES = 8 << 20
"""Upper bound of the buffers that a few dequantised experts take (one expert is always allowed)."""
LOGITS_TILE_BYTES = 32 << 20
TEXT_BASE_BYTES = 8 << 20
TEXT_BYTES_PER_TOKEN = 600
"""Of a tokenizer's tables per vocabulary entry, as measured with `tokenizers`."""


def experts_bytes(spec: ModelSpec) -> int:
    """Records of all routed experts."""
    return spec.moe.num_experts * sum(layout.record_bytes for layout in RecordLayout.of_layers(spec))


def cached_record_bytes(spec: ModelSpec) -> int:
    """One record in the host cache of a mapped store: whole blocks of a disk."""
    return whole_blocks(spec.weights.record_bytes)


def kv_page_bytes(spec: ModelSpec, element_bytes: int) -> int:
    """Keys and values of one page over all attention layers."""
    per_token = 2 * spec.attention.num_kv_heads * spec.attention.head_dim
    return len(spec.attention_layers) * PAGE_TOKENS * per_token * element_bytes


def index_key_page_bytes(spec: ModelSpec, element_bytes: int) -> int:
    """Index keys of one page over all attention layers: one per block whose last token may lie in the page."""
    if spec.indexer is None:
        return 0
    num_keys = -(-PAGE_TOKENS // spec.indexer.block_tokens)
    return len(spec.attention_layers) * num_keys * spec.indexer.head_dim * element_bytes


def state_row_bytes(spec: ModelSpec, element_bytes: int) -> int:
    """One sequence's state that is not paged: recurrent (fp32), convolutions, n-gram ids, pending index keys."""
    num_bytes = 0
    net, ngram, indexer = spec.delta_net, spec.ngram, spec.indexer
    if net is not None:
        recurrent = 4 * net.num_value_heads * net.key_dim * net.value_dim
        conv = element_bytes * (net.conv_kernel - 1) * net.conv_channels
        num_bytes += len(spec.delta_net_layers) * (recurrent + conv)
    if ngram is not None:
        taps = (ngram.conv_kernel - 1) * ngram.ngram_size
        num_bytes += len(ngram.layer_indices) * taps * spec.residual_width * element_bytes
        num_bytes += 8 * (ngram.ngram_size - 1)
    if indexer is not None:
        num_bytes += len(spec.attention_layers) * (indexer.block_tokens - 1) * indexer.head_dim * element_bytes
    return num_bytes


def residual_params(spec: ModelSpec) -> int:
    """Dense weights of the residual's dtype: hyper-connections, and input projection and decay of delta nets."""
    num_params = 0
    net, connection = spec.delta_net, spec.hyper_connection
    if net is not None:
        rows = net.conv_channels + net.num_value_heads * net.value_dim + 2 * net.num_value_heads
        num_params += len(spec.delta_net_layers) * (rows * spec.hidden_size + net.num_value_heads)
    if connection is not None:
        num_blocks = 2 * spec.num_layers
        mixer_rows, inject_rows = 2 * connection.lowrank, connection.num_streams
        num_params += ((num_blocks + 1) * mixer_rows + num_blocks * inject_rows) * spec.residual_width
    return num_params


def workspace_bytes(
    spec: ModelSpec,
    chunk_tokens: int,
    context_tokens: int,
    element_bytes: int,
    residual_bytes: int,
    query_tile: int = QUERY_TILE,
) -> int:
    """What exists at most beside weights and state while one chunk is computed.

    The sum of: residual streams and their normed and mixed copies; the widest mixer's projections, which have the
    residual's dtype in delta nets; routes (fp32) three times; the experts being dequantised; a tile of logits (fp32),
    twice, since the matrix library keeps about as much for its product; the keys and values of one layer, gathered from
    their pages; a tile of attention scores.
    """
    gathered = context_tokens * 2 * spec.attention.num_kv_heads * spec.attention.head_dim * element_bytes
    scores = scores_bytes(spec, chunk_tokens, context_tokens, query_tile)
    return _chunk_bytes(spec, chunk_tokens, element_bytes, residual_bytes) + gathered + scores


def long_step_bytes(spec: ModelSpec, num_other_tokens: int, residual_bytes: int) -> int:
    """What a step of several chunks holds of those that are not computed at the moment: residual streams, sines and
    cosines."""
    return num_other_tokens * (spec.residual_width * residual_bytes + spec.attention.rotary_dims * 4)


def device_workspace_bytes(spec: ModelSpec, chunk_tokens: int, context_tokens: int) -> int:
    """The same on a GPU, where activations are fp32."""
    return workspace_bytes(spec, chunk_tokens, context_tokens, 4, 4, DEVICE_QUERY_TILE)


def scores_bytes(spec: ModelSpec, chunk_tokens: int, context_tokens: int, query_tile: int = QUERY_TILE) -> int:
    """Of the workspace, one tile of attention scores and their softmax, fp32, of all tokens: sparse attention masks."""
    return 2 * min(query_tile, chunk_tokens) * spec.attention.num_heads * context_tokens * 4


def _chunk_bytes(spec: ModelSpec, chunk_tokens: int, element_bytes: int, residual_bytes: int) -> int:
    """The part of the workspace that is the same for every chunk, wherever in the context it lies."""
    streams = 4 * chunk_tokens * spec.residual_width * residual_bytes
    widest_bytes = spec.attention.num_heads * spec.attention.head_dim * 2 * element_bytes
    if spec.delta_net is not None:
        width = spec.delta_net.conv_channels + spec.delta_net.num_value_heads * spec.delta_net.value_dim
        widest_bytes = max(widest_bytes, width * residual_bytes)
    projections = 4 * chunk_tokens * widest_bytes
    routes = 3 * chunk_tokens * spec.moe.num_experts_per_token * spec.hidden_size * 4
    experts = max(EXPERT_SCRATCH_BYTES, 7 * 3 * spec.hidden_size * spec.moe.intermediate)
    logits = 2 * min(LOGITS_TILE_BYTES, chunk_tokens * spec.vocab_size * 4)
    return streams + projections + routes + experts + logits


def text_bytes(spec: ModelSpec) -> int:
    """Tokenizer and chat template in the engine process."""
    return TEXT_BASE_BYTES + spec.vocab_size * TEXT_BYTES_PER_TOKEN


def dense_bytes(spec: ModelSpec, element_bytes: int, wider_bytes: int = 0, is_fp8: bool = False) -> int:
    """Dense weights of `element_bytes` each; those of the residual's dtype take `wider_bytes` more.

    With `is_fp8` the matrices of `quantised_shapes` are e4m3 with an fp32 scale per row, whatever dtype they had.
    """
    num_plain, num_wider, num_bytes = spec.weights.dense_params, residual_params(spec), 0
    for num_rows, width in quantised_shapes(spec) if is_fp8 else ():
        num_plain -= num_rows * width
        num_bytes += num_rows * (width + 4)
    if is_fp8 and spec.delta_net is not None:
        num_wider -= len(spec.delta_net_layers) * _delta_net_rows(spec.delta_net) * spec.hidden_size
    return num_bytes + num_plain * element_bytes + num_wider * wider_bytes


def quantised_shapes(spec: ModelSpec) -> list[tuple[int, int]]:
    """Rows and width of what `--dense fp8` makes e4m3.

    Not among them: embedding, router, indexer, n-gram projections, gates of delta nets and of shared experts,
    convolutions, norms, hyper-connections.
    """
    hidden, attention, net = spec.hidden_size, spec.attention, spec.delta_net
    query_width = attention.num_heads * attention.head_dim
    in_rows = query_width * (2 if attention.has_output_gate else 1) + 2 * attention.num_kv_heads * attention.head_dim
    shapes = len(spec.attention_layers) * [(in_rows, hidden), (hidden, query_width)]
    if net is not None:
        out = hidden, net.num_value_heads * net.value_dim
        shapes += len(spec.delta_net_layers) * [(_delta_net_rows(net), hidden), out]
    if spec.moe.shared_intermediate is not None:
        shared = spec.moe.shared_intermediate
        shapes += spec.num_layers * [(2 * shared, hidden), (hidden, shared)]
    if not spec.ties_embeddings:
        shapes.append((spec.vocab_size, hidden))
    return shapes


def _delta_net_rows(net: DeltaNetSpec) -> int:
    """Queries, keys, values and output gates of the input projection."""
    return net.conv_channels + net.num_value_heads * net.value_dim


def format_size(num_bytes: int) -> str:
    """'63.3 GiB', for a person."""
    for exponent, name in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if num_bytes >= 1 << exponent:
            return f"{num_bytes / (1 << exponent):.1f} {name}"
    return f"{num_bytes} bytes"
