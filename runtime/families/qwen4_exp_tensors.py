"""Dense tensors of family qwen4_exp: every name with the shape its config gives it. Data, no torch."""

from runtime.families.names import NameMap
from runtime.spec import ModelSpec, NgramSpec

_Shapes = dict[str, tuple[int, ...]]


def dense_tensors(spec: ModelSpec, names: NameMap) -> _Shapes:
    """Name and shape of every dense tensor the decoder needs: all but routed experts and n-gram tables.

    Integer hash buffers of the n-gram layers are included; a tied lm_head is not.
    """
    shapes: _Shapes = {names.of_model("embed_tokens.weight"): (spec.vocab_size, spec.hidden_size)}
    if not spec.ties_embeddings:
        shapes[names.lm_head] = (spec.vocab_size, spec.hidden_size)
    mixer = _hyper_connection_shapes(spec, has_inject=False)
    shapes |= {names.of_model(f"hyper_connection_mixer.{part}"): shape for part, shape in mixer.items()}
    for layer in range(spec.num_layers):
        shapes |= {names.of_layer(layer, part): shape for part, shape in _layer_shapes(spec, layer).items()}
    return shapes


def _hyper_connection_shapes(spec: ModelSpec, has_inject: bool) -> _Shapes:
    assert spec.hyper_connection is not None
    width, lowrank = spec.residual_width, spec.hyper_connection.lowrank
    shapes: _Shapes = {
        "hc_norm.weight": (width,),
        "input_mix_weight_down.weight": (lowrank, width),
        "input_mix_weight_up.weight": (width, lowrank),
    }
    if has_inject:
        shapes["block_inject_weight.weight"] = (spec.hyper_connection.num_streams, width)
    return shapes


def _layer_shapes(spec: ModelSpec, layer: int) -> _Shapes:
    shapes: _Shapes = {}
    hyper = _hyper_connection_shapes(spec, has_inject=True)
    for block in ("attn_hyper_connection", "mlp_hyper_connection"):
        shapes |= {f"{block}.{part}": shape for part, shape in hyper.items()}
    is_linear = spec.layer_kinds[layer] == "linear_attention"
    shapes |= _delta_net_shapes(spec) if is_linear else _attention_shapes(spec)
    shapes |= _moe_shapes(spec)
    if spec.ngram is not None and layer in spec.ngram.layer_indices:
        shapes |= _ngram_shapes(spec, spec.ngram)
    return shapes


def _delta_net_shapes(spec: ModelSpec) -> _Shapes:
    net, hidden = spec.delta_net, spec.hidden_size
    assert net is not None
    value_width = net.num_value_heads * net.value_dim
    return {
        "linear_attn.in_proj_qkv.weight": (net.conv_channels, hidden),
        "linear_attn.in_proj_z.weight": (value_width, hidden),
        "linear_attn.in_proj_b.weight": (net.num_value_heads, hidden),
        "linear_attn.in_proj_a.weight": (net.num_value_heads, hidden),
        "linear_attn.conv1d.weight": (net.conv_channels, 1, net.conv_kernel),
        "linear_attn.A_log": (net.num_value_heads,),
        "linear_attn.dt_bias": (net.num_value_heads,),
        "linear_attn.norm.weight": (net.value_dim,),
        "linear_attn.out_proj.weight": (hidden, value_width),
    }


def _attention_shapes(spec: ModelSpec) -> _Shapes:
    attention, indexer, hidden = spec.attention, spec.indexer, spec.hidden_size
    assert indexer is not None
    query_width, kv_width = attention.num_heads * attention.head_dim, attention.num_kv_heads * attention.head_dim
    return {
        "self_attn.q_proj.weight": (2 * query_width, hidden),
        "self_attn.k_proj.weight": (kv_width, hidden),
        "self_attn.v_proj.weight": (kv_width, hidden),
        "self_attn.o_proj.weight": (hidden, query_width),
        "self_attn.q_norm.weight": (attention.head_dim,),
        "self_attn.k_norm.weight": (attention.head_dim,),
        "self_attn.indexer.index_qk_proj.weight": ((indexer.num_heads + 1) * indexer.head_dim, hidden),
        "self_attn.indexer.q_layernorm.weight": (indexer.head_dim,),
        "self_attn.indexer.k_layernorm.weight": (indexer.head_dim,),
    }


def _moe_shapes(spec: ModelSpec) -> _Shapes:
    hidden, shared = spec.hidden_size, spec.moe.shared_intermediate
    assert shared is not None
    return {
        "mlp.gate.weight": (spec.moe.num_experts, hidden),
        "mlp.shared_expert.gate_proj.weight": (shared, hidden),
        "mlp.shared_expert.up_proj.weight": (shared, hidden),
        "mlp.shared_expert.down_proj.weight": (hidden, shared),
        "mlp.shared_expert_gate.weight": (1, hidden),
    }


def _ngram_shapes(spec: ModelSpec, ngram: NgramSpec) -> _Shapes:
    width = spec.residual_width
    return {
        "ple.key_proj.weight": (width, ngram.embed_dim),
        "ple.value_proj.weight": (spec.hidden_size, ngram.embed_dim),
        "ple.norm_key.weight": (width,),
        "ple.norm_query.weight": (width,),
        "ple.norm_conv.weight": (width,),
        "ple.conv1d.weight": (width, 1, ngram.conv_kernel),
        "ple.ple_embedding.layer_multipliers": (ngram.ngram_size,),
        "ple.ple_embedding.ngram_heads_vocab_sizes": (ngram.num_heads,),
        "ple.ple_embedding.ngram_heads_offsets": (ngram.num_heads,),
    }
