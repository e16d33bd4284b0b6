"""What a checkpoint says about its model."""

from __future__ import annotations

from dataclasses import dataclass

MAX_HEAD_DIM = 256


@dataclass(frozen=True)
class Config:
    """The numbers of a checkpoint; `context` is the positions of the cache."""

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


@dataclass(frozen=True)
class Experts:
    """The experts of a layer: how many, how many a token takes, and the width of one.

    With renormalize the weights of a token's experts sum to 1.
    """

    count: int
    chosen: int
    ffn: int
    renormalize: bool = True
    shared_ffn: int = 0
