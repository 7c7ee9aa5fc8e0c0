"""Dense tensors of a model: every name with the shape its spec gives it. Data, no torch."""

from runtime.families.names import FINAL_RESIDUAL, MIXER_RESIDUAL, MOE_RESIDUAL, NameMap, ResidualBlock
from runtime.spec import ModelSpec, NgramSpec

_Shapes = dict[str, tuple[int, ...]]


def dense_tensors(spec: ModelSpec, names: NameMap) -> _Shapes:
    """Name and shape of every dense tensor the decoder needs: all but routed experts and n-gram tables.

    Integer hash buffers of the n-gram layers are included; a tied lm_head is not.
    """
    shapes: _Shapes = {names.of_model("embed_tokens.weight"): (spec.vocab_size, spec.hidden_size)}
    if not spec.ties_embeddings:
        shapes[names.lm_head] = (spec.vocab_size, spec.hidden_size)
    shapes |= {names.of_model(part): shape for part, shape in _residual_shapes(spec, FINAL_RESIDUAL).items()}
    for layer in range(spec.num_layers):
        shapes |= {names.of_layer(layer, part): shape for part, shape in _layer_shapes(spec, layer).items()}
    return shapes


def _residual_shapes(spec: ModelSpec, block: ResidualBlock) -> _Shapes:
    hyper, width = spec.hyper_connection, spec.residual_width
    if hyper is None:
        return {f"{block.norm}.weight": (spec.hidden_size,)}
    shapes: _Shapes = {
        f"{block.hyper_connection}.hc_norm.weight": (width,),
        f"{block.hyper_connection}.input_mix_weight_down.weight": (hyper.lowrank, width),
        f"{block.hyper_connection}.input_mix_weight_up.weight": (width, hyper.lowrank),
    }
    if block is not FINAL_RESIDUAL:
        shapes[f"{block.hyper_connection}.block_inject_weight.weight"] = (hyper.num_streams, width)
    return shapes


def _layer_shapes(spec: ModelSpec, layer: int) -> _Shapes:
    shapes = _residual_shapes(spec, MIXER_RESIDUAL) | _residual_shapes(spec, MOE_RESIDUAL)
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
    projections = {
        "linear_attn.in_proj_qkv.weight": (net.conv_channels, hidden),
        "linear_attn.in_proj_z.weight": (value_width, hidden),
        "linear_attn.in_proj_b.weight": (net.num_value_heads, hidden),
        "linear_attn.in_proj_a.weight": (net.num_value_heads, hidden),
    }
    if net.is_grouped:
        projections = {
            "linear_attn.in_proj_qkvz.weight": (net.conv_channels + value_width, hidden),
            "linear_attn.in_proj_ba.weight": (2 * net.num_value_heads, hidden),
        }
    return {
        **projections,
        "linear_attn.conv1d.weight": (net.conv_channels, 1, net.conv_kernel),
        "linear_attn.A_log": (net.num_value_heads,),
        "linear_attn.dt_bias": (net.num_value_heads,),
        "linear_attn.norm.weight": (net.value_dim,),
        "linear_attn.out_proj.weight": (hidden, value_width),
    }


def _attention_shapes(spec: ModelSpec) -> _Shapes:
    attention, indexer, hidden = spec.attention, spec.indexer, spec.hidden_size
    query_width, kv_width = attention.num_heads * attention.head_dim, attention.num_kv_heads * attention.head_dim
    shapes: _Shapes = {
        "self_attn.q_proj.weight": (query_width * (2 if attention.has_output_gate else 1), hidden),
        "self_attn.k_proj.weight": (kv_width, hidden),
        "self_attn.v_proj.weight": (kv_width, hidden),
        "self_attn.o_proj.weight": (hidden, query_width),
        "self_attn.q_norm.weight": (attention.head_dim,),
        "self_attn.k_norm.weight": (attention.head_dim,),
    }
    if indexer is not None:
        shapes |= {
            "self_attn.indexer.index_qk_proj.weight": ((indexer.num_heads + 1) * indexer.head_dim, hidden),
            "self_attn.indexer.q_layernorm.weight": (indexer.head_dim,),
            "self_attn.indexer.k_layernorm.weight": (indexer.head_dim,),
        }
    return shapes


def _moe_shapes(spec: ModelSpec) -> _Shapes:
    hidden, shared = spec.hidden_size, spec.moe.shared_intermediate
    shapes: _Shapes = {"mlp.gate.weight": (spec.moe.num_experts, hidden)}
    if shared is not None:
        shapes |= {
            "mlp.shared_expert.gate_proj.weight": (shared, hidden),
            "mlp.shared_expert.up_proj.weight": (shared, hidden),
            "mlp.shared_expert.down_proj.weight": (hidden, shared),
            "mlp.shared_expert_gate.weight": (1, hidden),
        }
    return shapes


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
