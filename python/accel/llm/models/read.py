"""What the families share in reading a configuration."""

from __future__ import annotations

from ..errors import format_error, unsupported
from ..keys import Keys
from .config import Config
from .rope import Rope, read_rope

MAX_LAYERS = MAX_EXPERTS = 2**14  # far above any model: what a corrupt file can make of a list
FULL, SLIDING, LINEAR = "full_attention", "sliding_attention", "linear_attention"


def hf_sizes(keys: Keys, *, derived: bool = False, eps: float = 1e-6) -> dict:
    """The sizes of a config.json, by the names of Config.

    With derived=True the number of key and value heads and the size of a head may be left out.
    """
    hidden, heads = keys.integer("hidden_size"), keys.integer("num_attention_heads")
    return {
        "layers": keys.integer("num_hidden_layers", most=MAX_LAYERS),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": keys.integer("num_key_value_heads", *([heads] if derived else [])),
        "head_dim": keys.integer("head_dim", *([max(1, hidden // heads)] if derived else [])),
        "vocab": keys.integer("vocab_size"),
        "context": keys.integer("max_position_embeddings"),
        "eps": float(keys.real("rms_norm_eps", eps)),
    }


def hf_rope(keys: Keys, sizes: dict, base: float, share: float = 1.0) -> Rope:
    """rope_parameters, or the older rope_theta, partial_rotary_factor and rope_scaling."""
    base = float(keys.real("rope_theta", base))
    share = float(keys.real("partial_rotary_factor", share))
    part = keys.part("rope_parameters") or keys.part("rope_scaling")
    return read_rope(part, base, sizes["head_dim"], sizes["context"], share)


def hf_config(keys: Keys, sizes: dict, rope: Rope, tied: bool = False, **more) -> Config:
    return Config(
        **sizes,
        ffn=more.pop("ffn", None) or keys.integer("intermediate_size"),
        architecture=keys.text("model_type"),
        rope_base=rope.base,
        rotary_dim=rope.dim,
        tied=keys.flag("tie_word_embeddings", tied),
        bos=None,
        eos=None,
        quantization="none",
    )


def layer_types(keys: Keys, layers: int, default: list[str], known: tuple[str, ...]) -> list[str]:
    """One word a layer: what it mixes positions with."""
    found = keys.words("layer_types", default)
    if len(found) != layers:
        raise format_error(
            keys.path, f"key 'layer_types' has {len(found)} entries and must have {layers}"
        )
    for kind in found:
        if kind not in known:
            names = " or ".join(repr(k) for k in known)
            raise unsupported(f"{keys.path}: layer type is {kind!r} and must be {names}")
    return found


def gguf_sizes(keys: Keys, vocab: int) -> dict:
    hidden, heads = keys.integer("embedding_length"), keys.integer("attention.head_count")
    head_dim = keys.integer("attention.key_length", max(1, hidden // heads))
    value = keys.integer("attention.value_length", head_dim)
    if value != head_dim:
        must = f"must be the key length {head_dim}"
        raise unsupported(f"{keys.path}: value length is {value} and {must}")
    sizes = {
        "layers": keys.integer("block_count", most=MAX_LAYERS),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": keys.integer("attention.head_count_kv", heads),
        "head_dim": head_dim,
        "vocab": keys.integer("vocab_size", vocab),
        "context": keys.integer("context_length"),
        "eps": float(keys.real("attention.layer_norm_rms_epsilon")),
    }
    if sizes["vocab"] != vocab:
        raise format_error(
            keys.path, f"vocab_size is {sizes['vocab']} and the tokenizer has {vocab} tokens"
        )
    keys.value("tensor_data_layout", None)
    return sizes


def gguf_rope(keys: Keys, head_dim: int) -> Rope:
    base = float(keys.real("rope.freq_base", 10000.0))
    return Rope(base, keys.integer("rope.dimension_count", head_dim))


def gguf_config(keys: Keys, sizes: dict, rope: Rope, architecture: str, tied: bool, **more):
    return Config(
        **sizes,
        ffn=more.pop("ffn", None) or keys.integer("feed_forward_length"),
        architecture=architecture,
        rope_base=rope.base,
        rotary_dim=rope.dim,
        tied=tied,
        bos=None,
        eos=None,
        quantization="none",
    )
