"""One batched decode of llama.cpp (xllamacpp, in .venv-bench): prints one JSON object.

One context holds all sequences and each step decodes one token of each, through the C interface
that the package's library exports: its server would add the cost of requests.
"""

import ctypes as c
import json
import statistics
import sys
import time

import numpy as np
import xllamacpp
from batches import decode
from reference import arguments

PARAMS = 1024  # bytes, more than any structure of parameters takes; only those known are set


class Params(c.Structure):
    _fields_ = [("words", c.c_uint32 * (PARAMS // 4))]


class Batch(c.Structure):
    _fields_ = [
        ("n_tokens", c.c_int32),
        ("token", c.POINTER(c.c_int32)),
        ("embd", c.POINTER(c.c_float)),
        ("pos", c.POINTER(c.c_int32)),
        ("n_seq_id", c.POINTER(c.c_int32)),
        ("seq_id", c.POINTER(c.POINTER(c.c_int32))),
        ("logits", c.POINTER(c.c_int8)),
    ]


def library() -> c.CDLL:
    lib = c.CDLL(xllamacpp.xllamacpp.__file__)
    lib.llama_model_default_params.restype = Params
    lib.llama_context_default_params.restype = Params
    lib.llama_model_load_from_file.argtypes = [c.c_char_p, Params]
    lib.llama_model_load_from_file.restype = c.c_void_p
    lib.llama_init_from_model.argtypes = [c.c_void_p, Params]
    lib.llama_init_from_model.restype = c.c_void_p
    lib.llama_set_n_threads.argtypes = [c.c_void_p, c.c_int32, c.c_int32]
    lib.llama_n_seq_max.argtypes = lib.llama_n_ctx.argtypes = [c.c_void_p]
    lib.llama_n_seq_max.restype = lib.llama_n_ctx.restype = c.c_uint32
    lib.llama_decode.argtypes = [c.c_void_p, Batch]
    lib.llama_get_logits_ith.argtypes = [c.c_void_p, c.c_int32]
    lib.llama_get_logits_ith.restype = c.POINTER(c.c_float)
    lib.llama_model_get_vocab.argtypes = lib.llama_vocab_n_tokens.argtypes = [c.c_void_p]
    lib.llama_model_get_vocab.restype = c.c_void_p
    lib.llama_get_memory.argtypes, lib.llama_get_memory.restype = [c.c_void_p], c.c_void_p
    lib.llama_memory_clear.argtypes = [c.c_void_p, c.c_bool]
    return lib


def context_params(lib: c.CDLL, positions: int, sequences: int) -> Params:
    """The first fields are n_ctx, n_batch, n_ubatch and n_seq_max, which their defaults show."""
    params = lib.llama_context_default_params()
    if list(params.words[:4]) != [512, 2048, 512, 1]:
        sys.exit(f"peer_llama_batch: unknown parameters, which begin with {params.words[:4]}")
    params.words[0], params.words[3] = positions, sequences
    return params


class Llama:
    def __init__(self, path: str, threads: int, positions: int, sequences: int):
        self.lib = lib = library()
        lib.llama_backend_init()
        model = lib.llama_model_load_from_file(path.encode(), lib.llama_model_default_params())
        if not model:
            sys.exit(f"peer_llama_batch: {path} is not loaded")
        params = context_params(lib, positions * sequences, sequences)
        self.context = lib.llama_init_from_model(model, params)
        held = lib.llama_n_seq_max(self.context), lib.llama_n_ctx(self.context)
        if held[0] != sequences or held[1] < positions * sequences:
            sys.exit(f"peer_llama_batch: the context has {held} sequences and positions")
        lib.llama_set_n_threads(self.context, threads, threads)
        self.vocab = lib.llama_vocab_n_tokens(lib.llama_model_get_vocab(model))

    def clear(self) -> None:
        self.lib.llama_memory_clear(self.lib.llama_get_memory(self.context), True)

    def step(self, tokens: list[int], at: int, first: int = 0) -> tuple[list[int], float]:
        """One token of each sequence at position `at`: the next ones, and the seconds it took."""
        n = len(tokens)
        ids = (c.POINTER(c.c_int32) * n)(*((c.c_int32 * 1)(first + i) for i in range(n)))
        batch = Batch(
            n,
            (c.c_int32 * n)(*tokens),
            None,
            (c.c_int32 * n)(*[at] * n),
            (c.c_int32 * n)(*[1] * n),
            c.cast(ids, c.POINTER(c.POINTER(c.c_int32))),
            (c.c_int8 * n)(*[1] * n),
        )
        begin = time.perf_counter()
        if self.lib.llama_decode(self.context, batch):
            sys.exit("peer_llama_batch: decoding failed")
        spent = time.perf_counter() - begin
        rows = [self.lib.llama_get_logits_ith(self.context, i) for i in range(n)]
        return [int(np.ctypeslib.as_array(r, (self.vocab,)).argmax()) for r in rows], spent

    def decode(self, prompts: list[list[int]], tokens: int, first: int = 0):
        self.clear()
        return decode(lambda ids, at: self.step(ids, at, first), prompts, tokens)


def main() -> None:
    options = arguments(__doc__)
    prompts, tokens = options.ids, options.tokens
    positions = len(prompts[0]) + tokens + 8
    llama = Llama(options.model, options.threads, positions, len(prompts))
    made, seconds = llama.decode(prompts, tokens)
    alone, _ = llama.decode(prompts[1:2], 1, first=1)
    if made[0][1] != alone[0][0]:
        sys.exit("peer_llama_batch: a sequence alone decodes another token")
    result = {"engine": "llama.cpp", "step_s": statistics.median(seconds[1:])}
    print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
