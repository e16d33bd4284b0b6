"""The Llama family as a graph of public operators, and the checks that a checkpoint is of it."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

import accel
from accel import tensor
from accel.tensor import ScalarKind

from .errors import format_error, unsupported
from .gguf import GGUF
from .tokenizer import Tokenizer
from .weights import Declared

DEFAULT_CONTEXT = 8192
PADDING = 2**32 - 1  # a position that scatter_rows writes nowhere
MAX_HEAD_DIM = 256

# Keys of the architecture that are read here. Another one may change what the model computes.
_KEYS = {
    "block_count", "context_length", "embedding_length", "feed_forward_length", "vocab_size",
    "attention.head_count", "attention.head_count_kv", "attention.layer_norm_rms_epsilon",
    "attention.key_length", "attention.value_length", "rope.dimension_count", "rope.freq_base",
    "tensor_data_layout",
}  # fmt: skip


@dataclass(frozen=True)
class Config:
    """What the checkpoint says; `context` is the positions of the cache."""

    architecture: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    context: int
    rope_base: float
    rotary_dim: int
    eps: float
    tied: bool
    bos: int | None
    eos: int | None
    quantization: str


class _Keys:
    """Reads the architecture's keys with their types checked."""

    def __init__(self, file: GGUF, architecture: str):
        self._file, self._prefix = file, architecture + "."
        for key in file.metadata:
            short = key[len(self._prefix) :]
            if key.startswith(self._prefix) and short not in _KEYS:
                raise unsupported(f"{file.path}: key {key!r} is not supported")

    def integer(self, key: str, default: int | None = None) -> int:
        value = self._file.metadata.get(self._prefix + key, default)
        if type(value) is not int or value <= 0:
            raise self._bad(key, value, "a positive integer")
        return value

    def real(self, key: str, default: float | None = None) -> float:
        value = self._file.metadata.get(self._prefix + key, default)
        if type(value) is not float or not (0 < value < math.inf):
            raise self._bad(key, value, "a positive number")
        return value

    def _bad(self, key: str, value: object, must: str):
        name = self._prefix + key
        return format_error(self._file.path, f"key {name!r} is {value!r} and must be {must}")


def read_config(file: GGUF, tokenizer: Tokenizer) -> Config:
    """The checkpoint's configuration; every tensor of the file is one that the graph uses."""
    architecture = file.metadata.get("general.architecture")
    if architecture != "llama":
        raise unsupported(f"{file.path}: architecture is {architecture!r} and must be 'llama'")
    keys = _Keys(file, architecture)
    hidden, heads = keys.integer("embedding_length"), keys.integer("attention.head_count")
    head_dim = keys.integer("attention.key_length", max(1, hidden // heads))
    config = Config(
        architecture=architecture,
        layers=keys.integer("block_count"),
        hidden=hidden,
        ffn=keys.integer("feed_forward_length"),
        heads=heads,
        kv_heads=keys.integer("attention.head_count_kv", heads),
        head_dim=head_dim,
        vocab=keys.integer("vocab_size", tokenizer.vocab),
        context=keys.integer("context_length"),
        rope_base=keys.real("rope.freq_base", 10000.0),
        rotary_dim=keys.integer("rope.dimension_count", head_dim),
        eps=keys.real("attention.layer_norm_rms_epsilon"),
        tied="output.weight" not in file.tensors,
        bos=tokenizer.bos,
        eos=tokenizer.eos,
        quantization=_common_type(file),
    )
    _check_numbers(file, config, keys.integer("attention.value_length", head_dim), tokenizer)
    _check_tensors(file, config)
    return config


def _common_type(file: GGUF) -> str:
    types = Counter(t.type_name for t in file.tensors.values() if len(t.shape) == 2)
    return types.most_common(1)[0][0] if types else "none"


def _check_numbers(file: GGUF, c: Config, value_length: int, tokenizer: Tokenizer) -> None:
    def bad(message: str):
        return format_error(file.path, message)

    if c.vocab != tokenizer.vocab:
        raise bad(f"llama.vocab_size is {c.vocab} and the tokenizer has {tokenizer.vocab} tokens")
    if c.layers > len(file.tensors):
        raise bad(f"llama.block_count is {c.layers} and the file has {len(file.tensors)} tensors")
    if c.heads % c.kv_heads:
        raise bad(f"{c.heads} heads do not share {c.kv_heads} key and value heads evenly")
    if value_length != c.head_dim:
        raise unsupported(
            f"{file.path}: value length is {value_length} and must be the key length {c.head_dim}"
        )
    if c.head_dim % 8 or c.head_dim > MAX_HEAD_DIM:
        raise unsupported(
            f"{file.path}: head dimension is {c.head_dim} and must be a multiple of 8 up to "
            f"{MAX_HEAD_DIM}"
        )
    if c.rotary_dim % 2 or c.rotary_dim > c.head_dim:
        raise bad(f"llama.rope.dimension_count is {c.rotary_dim} of a head of {c.head_dim}")


def _expected(c: Config) -> dict[str, tuple[int, ...]]:
    """Name and shape of every tensor of the graph."""
    q, kv = c.heads * c.head_dim, c.kv_heads * c.head_dim
    shapes = {"token_embd.weight": (c.vocab, c.hidden), "output_norm.weight": (c.hidden,)}
    if not c.tied:
        shapes["output.weight"] = (c.vocab, c.hidden)
    layer = {
        "attn_norm": (c.hidden,), "attn_q": (q, c.hidden), "attn_k": (kv, c.hidden),
        "attn_v": (kv, c.hidden), "attn_output": (c.hidden, q), "ffn_norm": (c.hidden,),
        "ffn_gate": (c.ffn, c.hidden), "ffn_up": (c.ffn, c.hidden), "ffn_down": (c.hidden, c.ffn),
    }  # fmt: skip
    for i in range(c.layers):
        shapes |= {f"blk.{i}.{name}.weight": shape for name, shape in layer.items()}
    return shapes


def _check_tensors(file: GGUF, config: Config) -> None:
    expected = _expected(config)
    for name, shape in expected.items():
        t = file.tensors.get(name)
        if t is None:
            raise format_error(file.path, f"tensor {name!r} is missing")
        if t.shape != shape:
            raise format_error(
                file.path, f"tensor {name!r} is {list(t.shape)} and must be {list(shape)}"
            )
        if len(shape) == 1 and t.type_name != "F32":
            raise unsupported(
                f"{file.path}: tensor {name!r} is stored as {t.type_name} and must be F32"
            )
    extra = sorted(set(file.tensors) - set(expected))
    if extra:
        raise unsupported(f"{file.path}: tensor {extra[0]!r} has no place in a llama graph")
    table = file.tensors["token_embd.weight"]
    if table.type_name in ("Q4_0", "Q4_1", "Q4_K"):
        raise unsupported(
            f"{file.path}: tensor {table.name!r} is stored as {table.type_name}, which is held in "
            "int4, and must be of a type which rows can be gathered from"
        )


@dataclass(frozen=True)
class Step:
    """What one plan does: `tokens` rows, and logits of the "last", of "all" or of "none"."""

    tokens: int
    head: str


class Recording:
    """One recording of the model. Ports besides the weights:

    tokens, positions u32 [tokens] (a padding row has position PADDING), length u32 [1], the
    positions in use after this step; states keys and values [layers, context, kv_heads, head_dim].
    With more than one token: scalar base, the first position; with head "last" also last and
    last_position u32 [1].
    Outputs: logits, and next u32 [1] for head "last".
    """

    def __init__(self, builder, config: Config, held: dict, kv, step: Step):
        self.b, self.c, self.kv, self.step = builder, config, kv, step
        self.w = Declared(builder, held)

    def record(self) -> None:
        b, c, n = self.b, self.c, self.step.tokens
        tokens = b.input("tokens", accel.U32, [n])
        self.positions = b.input("positions", accel.U32, [n])
        cache = [c.layers, c.context, c.kv_heads, c.head_dim]
        self.keys, self.values = b.state("keys", self.kv, cache), b.state("values", self.kv, cache)
        b.scalar("rope_base", ScalarKind.F32)
        if c.layers > 1 or self.step.head != "none":  # else nothing attends
            b.scalar("scale", ScalarKind.F32)
            self.length = b.input("length", accel.U32, [1])
        x = self.w.rows("token_embd.weight", tokens)
        for i in range(c.layers - 1):
            x = self._layer(x, i)
        x = self._last_layer(x, c.layers - 1)
        if x is not None:
            self._head(x)

    def _layer(self, x, i: int):
        h = self._norm(x, f"blk.{i}.attn_norm")
        k, v = self._write(h, i)
        n = self.step.tokens
        attended = self._attend(h, k, v, i, n, self.positions, whole=n > 1)
        return self._ffn(tensor.add(x, attended), i)

    def _last_layer(self, x, i: int):
        """Like the others, for the rows whose logits are wanted; None if there are none."""
        n, head = self.step.tokens, self.step.head
        if head == "all" or (head == "last" and n == 1):
            return self._layer(x, i)
        h = self._norm(x, f"blk.{i}.attn_norm")
        k, v = self._write(h, i)
        if head == "none":
            return None
        last = self.b.input("last", accel.U32, [1])
        position = self.b.input("last_position", accel.U32, [1])
        h, x = tensor.gather_rows(h, last), tensor.gather_rows(x, last)
        return self._ffn(tensor.add(x, self._attend(h, k, v, i, 1, position, whole=False)), i)

    def _norm(self, x, name: str):
        return tensor.rms_norm(x, self.w.gain(name + ".weight"), eps=self.c.eps)

    def _write(self, h, i: int):
        """Puts this step's keys and values into the layer's cache."""
        shape = [self.step.tokens, self.c.kv_heads, self.c.head_dim]
        k = tensor.reshape(self.w.product(h, f"blk.{i}.attn_k.weight"), shape)
        v = tensor.reshape(self.w.product(h, f"blk.{i}.attn_v.weight"), shape)
        k = self._rope(k, self.positions)
        states = tensor.layer_state(self.keys, i), tensor.layer_state(self.values, i)
        return tuple(
            tensor.scatter_rows(state, tensor.cast(rows, self.kv), self.positions)
            for state, rows in zip(states, (k, v), strict=True)
        )

    def _rope(self, x, positions):
        # A llama file stores the rows of q and k so that adjacent elements are a pair.
        return tensor.rope(
            x, positions, rotary_dim=self.c.rotary_dim, base_name="rope_base", pairing="adjacent"
        )

    def _attend(self, h, k, v, i: int, n: int, positions, *, whole: bool):
        """Attention of n rows; `whole` is the prefill form, else the row at position length - 1."""
        c = self.c
        q = tensor.reshape(self.w.product(h, f"blk.{i}.attn_q.weight"), [n, c.heads, c.head_dim])
        q = self._rope(q, positions)
        if whole:
            o = tensor.attention(
                q, k, v, lengths=self.length, scale_name="scale", base_name=self._base()
            )
        else:
            q = tensor.reshape(q, [c.heads, c.head_dim])
            o = tensor.attention(q, k, v, lengths=self.length, scale_name="scale")
        o = tensor.reshape(o, [n, c.heads * c.head_dim])
        return self.w.product(o, f"blk.{i}.attn_output.weight")

    def _base(self) -> str:
        if not hasattr(self, "_base_name"):
            self._base_name = self.b.scalar("base", ScalarKind.U32)
        return self._base_name

    def _ffn(self, x, i: int):
        h = self._norm(x, f"blk.{i}.ffn_norm")
        gate = self.w.product(h, f"blk.{i}.ffn_gate.weight")
        up = self.w.product(h, f"blk.{i}.ffn_up.weight")
        down = self.w.product(tensor.swiglu(gate, up), f"blk.{i}.ffn_down.weight")
        return tensor.add(x, down)

    def _head(self, x) -> None:
        h = self._norm(x, "output_norm")
        logits = self.w.product(h, "token_embd.weight" if self.c.tied else "output.weight")
        self.b.output("logits", logits)
        if self.step.head == "last":
            self.b.output("next", tensor.argmax(logits))
