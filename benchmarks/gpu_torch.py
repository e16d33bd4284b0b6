"""Torch's products beside ours on a GPU, in a CUDA graph."""


def torch_replay(m: int, k: int, n: int, count: int, dtype: str = "f16"):
    """A call that replays `count` products [m, k] by [k, n], each with a weight of its own, and
    waits for them; None without a torch that has a GPU. dtype: f16 or bf16, of both operands."""
    try:
        import torch
    except ImportError:
        return None
    if not torch.cuda.is_available():
        return None
    of = {"f16": torch.float16, "bf16": torch.bfloat16}[dtype]
    x = torch.zeros(m, k, dtype=of, device="cuda")
    weights = [torch.zeros(k, n, dtype=of, device="cuda") for _ in range(count)]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for w in weights[:3]:
            x @ w
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        kept = [x @ w for w in weights]

    def replay(kept=kept) -> None:
        graph.replay()
        torch.cuda.synchronize()

    return replay
