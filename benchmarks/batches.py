"""Decoding sequences of one length together, whatever engine makes the step."""

from collections.abc import Callable


def decode(
    step: Callable[[list[int], int], tuple[list[int], float]],
    prompts: list[list[int]],
    tokens: int,
) -> tuple[list[list[int]], list[float]]:
    """Prompts token by token, then `tokens` steps: the ids they made, and their seconds.

    step(ids, position) takes one id of each sequence and gives the next ones and its seconds.
    """
    made, seconds = [], []
    ids = [p[0] for p in prompts]
    for at in range(len(prompts[0]) + tokens - 1):
        following, spent = step(ids, at)
        if at + 1 < len(prompts[0]):
            ids = [p[at + 1] for p in prompts]
            continue
        made.append(following)
        seconds.append(spent)
        ids = following
    return made, seconds
