"""Argmax and the sampling chain over one vocabulary of logits, alternated with torch."""

import sys

import accel
import alternate
import numpy as np
import torch
from accel import tensor as T

sys.path[:0] = [str(alternate.ROOT / "tests"), str(alternate.ROOT / "tests/ops")]
from runner import Graph, equal_bits, oracle, run, scalar_values  # noqa: E402

VOCAB = 49152
TEMPERATURE, TOP_K, TOP_P = 0.8, 40, 0.95
DRAW = 0.37


def logits() -> np.ndarray:
    """A peaked row, as a language model gives: some forty entries hold nearly all of it."""
    rng = np.random.default_rng(4)
    return (rng.standard_normal(VOCAB) * 2.5 + rng.gumbel(size=VOCAB)).astype(np.float32)


def argmax_graph(g: Graph, x: np.ndarray) -> None:
    g.output("out", T.argmax(g.port("x", x)))


def chain_graph(g: Graph, x: np.ndarray, top_k: int = TOP_K, top_p: float = TOP_P) -> None:
    options = T.SamplingOptions(temperature=TEMPERATURE, top_k=top_k, top_p=top_p, exact=True)
    T.declare_sampling_scalars(g.builder, options, "s")
    g.scalars["s.invT"] = ("f32", np.float32(1) / np.float32(TEMPERATURE))
    draws = g.port("draws", np.array([DRAW], np.float32))
    g.output("out", T.sample(g.port("x", x), draws, options=options, prefix="s"))


def rows_graph(g: Graph, x: np.ndarray) -> None:
    fields = {
        "factor": np.array([1 / TEMPERATURE], np.float32),
        "top_k": np.array([TOP_K], np.uint32),
        "top_p": np.array([TOP_P], np.float32),
    }
    policy = T.RowSampling(**{name: g.port(name, a) for name, a in fields.items()})
    draws = g.port("draws", np.array([DRAW], np.float32))
    g.output("out", T.sample_rows(g.port("x", x[None]), draws, policy))


def draw_graph(g: Graph, x: np.ndarray) -> None:
    chain_graph(g, x, top_k=0, top_p=0)


class Ours:
    """A graph whose result has been compared with the walk of the registered orders."""

    def __init__(self, threads: int, graph, x: np.ndarray) -> None:
        self.runtime = accel.Runtime(accel.open_cpu(threads=threads))
        g = Graph(self.runtime, graph.__name__)
        graph(g, x)
        self.plan = g.builder.compile()
        got = run(self.runtime.device, g, self.plan)["out"]
        level = "base" if self.runtime.device.info.isa == "base" else "fma"
        equal_bits(got, oracle(g, level)["out"][0], graph.__name__)
        self.token = int(np.ravel(got)[0])
        buffers = {}
        for port in self.plan.ports():
            count = port.shape.elements()
            buffers[port.name] = self.runtime.device.new_buffer(port.dtype, count)
            if port.name in g.ports:
                buffers[port.name].numpy()[:] = np.ravel(g.ports[port.name])
        self.bound = self.plan.bind(buffers, scalar_values(g))

    def __call__(self) -> None:
        self.plan.submit(self.bound).wait()


def torch_short(x: torch.Tensor) -> torch.Tensor:
    """The k largest first: everything behind works on them alone."""
    values, indices = torch.topk(x, TOP_K)
    p = torch.softmax(values / TEMPERATURE, -1)
    p = p.masked_fill(torch.cumsum(p, -1) - p > TOP_P, 0.0)
    return indices[torch.multinomial(p, 1)]


def torch_warpers(x: torch.Tensor) -> torch.Tensor:
    """The form of the usual warpers: each step over the whole vocabulary, with a full sort."""
    x = x / TEMPERATURE
    x = x.masked_fill(x < torch.topk(x, TOP_K)[0][-1], -torch.inf)
    values, indices = torch.sort(x)
    below = torch.softmax(values, -1).cumsum(-1) <= 1 - TOP_P
    x = x.masked_fill(torch.zeros_like(below).scatter(0, indices, below), -torch.inf)
    return torch.multinomial(torch.softmax(x, -1), 1)


def torch_draw(x: torch.Tensor) -> torch.Tensor:
    return torch.multinomial(torch.softmax(x / TEMPERATURE, -1), 1)


def check_support(x: np.ndarray, theirs) -> None:
    """What torch draws is among the k largest entries."""
    allowed = set(np.argsort(-x)[:TOP_K].tolist())
    assert all(int(theirs(torch.from_numpy(x))) in allowed for _ in range(20)), theirs.__name__


def rows(threads: int, only: str = "") -> list[dict]:
    torch.set_num_threads(threads)
    x = logits()
    peer = torch.from_numpy(x)
    check_support(x, torch_short)
    check_support(x, torch_warpers)
    cases = [
        ("argmax", argmax_graph, torch.argmax, "torch.argmax"),
        ("top-k 40, top-p, draw: sample", chain_graph, torch_short, "torch, k largest first"),
        ("top-k 40, top-p, draw: sample_rows", rows_graph, torch_short, "torch, k largest first"),
        ("top-k 40, top-p, draw: sample", chain_graph, torch_warpers, "torch, full sort"),
        ("softmax, draw", draw_graph, torch_draw, "torch, softmax, multinomial"),
    ]
    found = []
    for name, graph, theirs, label in cases:
        if only not in name:
            continue
        ours = Ours(threads, graph, x)
        if graph is argmax_graph:
            assert ours.token == int(torch.argmax(peer))
        elif graph is not draw_graph:
            assert ours.token in np.argsort(-x)[:TOP_K]
        with torch.inference_mode():
            times = alternate.alternate({"accel": ours, label: lambda f=theirs: f(peer)})
        found.append(alternate.row(name, times, label, x.nbytes, 0, None))
    return found


if __name__ == "__main__":
    alternate.main(__doc__, rows)
