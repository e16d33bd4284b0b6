"""What every run of one engine shares: its arguments, and what is recorded of SmolLM2-135M-Instruct
in tests/data, a prompt with its greedy tokens and a text."""

import argparse
import json
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RECORDED = ROOT / "tests/data/smollm2-reference.json"


def arguments(what: str) -> argparse.Namespace:
    """Of one run; `ids` is what the prompt's file holds."""
    parser = argparse.ArgumentParser(description=what)
    parser.add_argument("model")
    parser.add_argument("threads", type=int)
    parser.add_argument("prompt", type=Path, help="JSON list of token ids, or of such lists")
    parser.add_argument("tokens", type=int, help="to decode")
    parser.add_argument("--activations")
    parser.add_argument("--reference", action="store_true", help="check the recorded tokens")
    options = parser.parse_args()
    options.ids = json.loads(options.prompt.read_text())
    return options


def plain_prompt() -> tuple[list[int], list[int]]:
    """Ids of a prompt and of the greedy tokens behind it."""
    found = json.loads(RECORDED.read_text())["prompts"]["plain"]
    return found["prompt_ids"], found["greedy_ids"]


def plain_text() -> str:
    """What the greedy tokens of that prompt say."""
    return json.loads(RECORDED.read_text())["prompts"]["plain"]["greedy_text"]


def text_ids() -> list[int]:
    """4096 ids of prose."""
    return json.loads(RECORDED.read_text())["perplexity"]["token_ids"]
