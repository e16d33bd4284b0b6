"""A layer of experts: each row goes to a few of them, chosen by a router."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from accel import tensor

from ..errors import format_error
from ..weights import Part
from .config import Experts
from .decoder import Decoder, Names
from .graph import Graph


def with_names(names: Names, more: dict[str, str]) -> Names:
    return Names(names.layer, {**names.of, **more})


def stack(names: Names, name: str, shape: tuple[int, ...], i: int, **options) -> Part:
    text = names(name, i)
    each = tuple(text.format(e=e) for e in range(shape[0])) if "{e}" in text else (text,)
    return Part(f"{i}.{name}", shape, each, **options)


def expert_parts(model: Decoder, x: Experts, i: int) -> Iterator[Part]:
    hidden = model.config.hidden
    yield model.gain("ffn_norm", hidden, i)
    yield model.part("router", (x.count, hidden), i)
    for name in ("gate_exps", "up_exps"):
        yield stack(model.names, name, (x.count, x.ffn, hidden), i)
    yield stack(model.names, "down_exps", (x.count, hidden, x.ffn), i)
    if x.shared_ffn:
        yield model.part("shared_gate", (x.shared_ffn, hidden), i)
        yield model.part("shared_up", (x.shared_ffn, hidden), i)
        yield model.part("shared_down", (hidden, x.shared_ffn), i)
        yield model.part("shared_router", (1, hidden), i)


def mixture(g: Graph, h, router: str, x: Experts, expert: Callable):
    """The weighted sum of what expert(rows, counts) gives for each row's chosen experts."""
    logits = g.product(h, router)
    if x.renormalize:  # a softmax over the chosen is the whole one, scaled to sum to 1
        chosen, ids = tensor.top_k(logits, x.chosen)
        weights = tensor.softmax(chosen)
    else:
        weights, ids = tensor.top_k(tensor.softmax(logits), x.chosen)
    rows, counts, inverse = tensor.route(ids, experts=x.count)
    return tensor.combine(expert(tensor.gather_rows(h, rows), counts), inverse, weights)


def swiglu_experts(g: Graph, h, x: Experts, i: int):
    def expert(rows, counts):
        gate = g.grouped(rows, f"{i}.gate_exps", counts)
        up = g.grouped(rows, f"{i}.up_exps", counts)
        return g.grouped(tensor.swiglu(gate, up), f"{i}.down_exps", counts)

    return mixture(g, h, f"{i}.router", x, expert)


def shared_expert(model: Decoder, g: Graph, h, i: int):
    """An expert that every row takes, weighted by a sigmoid of its own."""
    y = model.gated(g, h, f"{i}.shared_gate", f"{i}.shared_up", f"{i}.shared_down")
    weight = tensor.sigmoid(g.product(h, f"{i}.shared_router"))
    return tensor.mul(y, tensor.contiguous(tensor.broadcast(weight, y.shape)))


def check_experts(path: str, x: Experts) -> None:
    if x.chosen > x.count:
        raise format_error(path, f"a row takes {x.chosen} of {x.count} experts")
