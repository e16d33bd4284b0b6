"""Writes tests/data/tiny-models.json: for each tiny model its configuration, the shapes of its
tensors and some logits of transformers in float64. Needs the extra [peers].

Run from the root: python tests/oracles/record_tiny_models.py
"""

import json
import sys
import tempfile
from pathlib import Path

TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(TESTS), str(TESTS / "peers")]
import peer_models  # noqa: E402
import tiny_models  # noqa: E402

SEED = 7
POSITIONS = (0, 6, 20)


def record(name: str) -> dict:
    with tempfile.TemporaryDirectory() as folder:
        config, shapes = peer_models.saved(name, Path(folder))
        tiny_models.write(Path(folder), config, shapes, SEED)
        found = peer_models.logits(peer_models.reference(folder), tiny_models.ids_of(SEED))
    rows = {str(p): [float(f"{v:.6f}") for v in found[p]] for p in POSITIONS}
    config.pop("transformers_version", None)
    return {"config": config, "shapes": shapes, "logits": rows}


def main() -> None:
    lines = [f"{json.dumps(n)}: {json.dumps(record(n))}" for n in tiny_models.MODELS]
    models = ",\n".join(lines)
    text = f'{{"seed": {SEED},\n"models": {{\n{models}\n}}}}\n'
    tiny_models.DATA.write_text(text, encoding="utf-8")


main()
