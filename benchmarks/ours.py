"""One run of accel on a checkpoint: prints one JSON object. Started by the benchmark."""

import json
import statistics
import sys

import accel
from accel import bench, llm
from reference import arguments, plain_prompt

RUNS = 2
CHECKED = 16  # tokens of the reference, which f32 activations repeat


def check_reference(model, activations: str | None) -> None:
    """Greedy tokens of the recorded prompt: all for f32 activations, for others the first."""
    ids, want = plain_prompt()
    want = want[: CHECKED if activations is None else 1]
    got = [t.id for t in model.generate(ids, len(want), ignore_eos=True)]
    if got != want:
        sys.exit(f"ours: the reference prompt gives {got} and must give {want}")


def main() -> None:
    options = arguments(__doc__)
    ids = options.ids
    device = accel.open_cpu(threads=options.threads)
    context = max(len(ids) + options.tokens, 64)
    with llm.load(
        options.model, device=device, context=context, activations=options.activations
    ) as model:
        if options.reference:
            check_reference(model, options.activations)
        want, _, _ = bench.timed_run(model, ids, bench.CHECKED)
        runs = [bench.timed_run(model, ids, options.tokens) for _ in range(RUNS)]
        if any(out[: bench.CHECKED] != want for out, _, _ in runs):
            sys.exit("ours: two runs gave different tokens")
        layers, head = bench.work(model)
        result = {
            "engine": "accel",
            "prefill_s": statistics.median(prefill for _, prefill, _ in runs),
            "step_s": statistics.median(step for _, _, step in runs),
            "weight_bytes": model.report().weight_bytes,
            "prefill_ops": 2 * (layers * len(ids) + head),
            "decode_ops": 2 * (layers + head),
            "isa": device.info.isa,
        }
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
