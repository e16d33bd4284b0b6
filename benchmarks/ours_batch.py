"""One batched decode of accel over pages: prints one JSON object. Started by the benchmark.

Each step decodes one token of every sequence, whose caches are pages of one pool, and chooses the
likeliest. The step is recorded from the model's layers with the public operators, as a server does.
"""

import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

import accel
import numpy as np
from accel import bench, llm
from accel import tensor as T
from batches import decode
from reference import arguments

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests/conformance"), str(ROOT / "tests/ops")]
from runner import Graph, scalar_values  # noqa: E402
from smollm2 import SmolLM2  # noqa: E402

BLOCK = 16  # positions of a page
INT4 = ("codes", "scales", "biases")
STEP = ("ids", "slots", "positions", "lengths", "pages")  # ports that a step fills


class Narrow(SmolLM2):
    """The model with an activations option in each of its quantized products."""

    def __init__(self, path: str, activations: str | None):
        super().__init__(path)
        self.options = {} if activations is None else {"activations": activations}

    def product(self, g: Graph, x, name: str):
        planes = self.arrays[name]
        fields = {f: g.port(f"{name}.{f}", planes[f], "weight") for f in INT4}
        weight = T.Int4(**fields, weights=planes["weights"], group=planes["group"])
        return T.int4_matmul(x, weight, w_order="nk", **self.options)

    def head(self, g: Graph, x):
        x = T.rms_norm(x, self.dense(g, "output_norm.weight"), eps=self.eps)
        return T.quant_matmul(x, self.table, w_order="nk", **self.options)


def record(runtime, model: Narrow, sequences: int, pages: int) -> Graph:
    """One token of each sequence, over caches of `pages` pages each."""
    g = Graph(runtime, "batch")
    caches = model.caches(sequences * pages * BLOCK)
    k, v = (g.port(n, np.zeros_like(a), "state") for n, a in caches.items())
    rows = {n: g.port(n, np.zeros(sequences, np.uint32)) for n in STEP[:-1]}
    options = {
        "query_extents": g.port("extents", np.ones(sequences, np.uint32)),
        "pages": g.port("pages", np.zeros((sequences, pages), np.uint32)),
        "block": BLOCK,
    }
    model.scalars(g)
    x = model.embed(g, rows["ids"])
    x = model.layers(g, x, k, v, (rows["slots"], rows["positions"], rows["lengths"]), options)
    g.output("tokens", T.argmax(model.head(g, x)))
    return g


class Batch:
    """Sequences of one length, decoded together: prepared bindings over device memory."""

    def __init__(self, model: Narrow, device, sequences: int, positions: int):
        pages = -(-positions // BLOCK)
        pool = T.BlockPool(sequences * pages, BLOCK)
        self.held = np.array([pool.grow(None, positions) for _ in range(sequences)], np.uint32)
        self.runtime = accel.Runtime(device)
        self.graph = record(self.runtime, model, sequences, pages)
        self.plan = self.graph.builder.compile()
        self.buffers = {}
        for port in self.plan.ports():
            buffer = device.new_buffer(port.dtype, port.shape.elements(), port.name)
            if port.name in self.graph.ports:
                given = np.ascontiguousarray(self.graph.ports[port.name])
                buffer.numpy().view(np.uint8)[:] = given.reshape(-1).view(np.uint8)
            self.buffers[port.name] = buffer
        self.bound = self.plan.bind(self.buffers, scalar_values(self.graph))
        self.cells = {name: self.buffers[name].numpy() for name in STEP}
        self.tokens = self.buffers["tokens"].numpy()
        self.cells["pages"].reshape(self.held.shape)[:] = self.held

    def step(self, ids, at: int) -> tuple[list[int], float]:
        """The next token of each sequence, whose token at position `at` is given; the seconds."""
        begin = time.perf_counter()
        self.cells["ids"][:] = ids
        self.cells["positions"][:] = at
        self.cells["slots"][:] = self.held[:, at // BLOCK] * BLOCK + at % BLOCK
        self.cells["lengths"][:] = at + 1
        self.plan.submit(self.bound).wait()
        return self.tokens.tolist(), time.perf_counter() - begin

    def products_share(self, ids: list[int], at: int) -> float:
        """The part of a step that its products take, from a trace of a few steps."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            with self.plan.trace(path):
                for _ in range(4):
                    self.step(ids, at)
            return share_of(json.loads(path.read_text())["traceEvents"])


def share_of(events: list[dict]) -> float:
    nodes = [e for e in events if e.get("cat") == "node"]
    products = [e for e in nodes if is_product(e["args"]["kernel"])]
    return sum(e["dur"] for e in products) / sum(e["dur"] for e in nodes)


def is_product(kernel: str) -> bool:
    return "matmul" in kernel or "matvec" in kernel or "int4" in kernel


def check(path: str, device, activations, prompts, made: list[list[int]]) -> tuple[int, float]:
    """Each sequence made the tokens of its solo run. Gives operations and seconds of one token."""
    context = len(prompts[0]) + len(made)
    with llm.load(path, device=device, context=context, activations=activations) as model:
        for i, prompt in enumerate(prompts):
            alone, _, _ = bench.timed_run(model, prompt, bench.CHECKED)
            if alone != [row[i] for row in made[: bench.CHECKED]]:
                sys.exit(f"ours_batch: sequence {i} made other tokens than alone")
        _, _, step = bench.timed_run(model, prompts[0], len(made))
        return 2 * sum(bench.work(model)), step


def main() -> None:
    options = arguments(__doc__)
    path, prompts, tokens = options.model, options.ids, options.tokens
    device = accel.open_cpu(threads=options.threads)
    model = Narrow(path, options.activations)
    batch = Batch(model, device, len(prompts), len(prompts[0]) + tokens)
    made, seconds = decode(batch.step, prompts, tokens)
    ops, alone_s = check(path, device, options.activations, prompts, made)
    result = {
        "engine": "accel",
        "step_s": statistics.median(seconds[1:]),
        "ops": ops * len(prompts),
        "weight_bytes": sum(
            a.nbytes for n, a in batch.graph.ports.items() if n not in ("k", "v", *STEP)
        ),
        "products_share": batch.products_share(made[-1], len(prompts[0]) + tokens - 1),
        "alone_s": alone_s,
    }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
