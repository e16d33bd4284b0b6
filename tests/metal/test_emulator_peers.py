"""Shaders that Apple's compiler is known to accept pass here: the net must not be too strict.

They are headers of MLX's kernels, fetched from its wheel for this test and kept nowhere.
"""

import re
import sys

import numpy as np
import pytest
from emulator import BUILD, ROOT

sys.path.insert(0, str(ROOT / "tools"))
import metal_headers

pytestmark = [pytest.mark.metal, pytest.mark.peers]

ACCEPTED = [
    *("arange", "binary", "binary_two", "copy", "cross_entropy", "gated_delta_update", "gemv"),
    *("hadamard", "logsumexp", "sdpa_blocked", "sdpa_vector", "softmax", "ternary", "unary"),
]
# These three use compiler internals; a pair of numbers stands in for the complex type.
LEFT_OUT = {
    "complex.h": """
template <class T> struct complex_t {
  T real, imag;
  complex_t() {}
  complex_t(T r, T i = 0) : real(r), imag(i) {}
};
typedef complex_t<float> complex64_t;
""",
    "bf16_math.h": "",
    "logging.h": "",
}
PREFIX = "mlx/backend/metal/kernels/"


@pytest.fixture(scope="session")
def shaders():
    metal_headers.fetch(BUILD, kernels=True)
    return BUILD / "kernels"


def flat(root, name, seen):
    """The text with its includes in place, each once."""
    if name in seen:
        return ""
    seen.add(name)
    if name in LEFT_OUT:
        return LEFT_OUT[name]
    out = [f'#line 1 "{name}"']
    for number, line in enumerate((root / name).read_text().splitlines(), 1):
        m = re.match(r'\s*#\s*include\s+"([^"]+)"', line)
        if m:
            target = m.group(1).removeprefix(PREFIX)
            if target not in LEFT_OUT and not (root / target).exists():
                target = (root / name).parent.joinpath(target).relative_to(root).as_posix()
            out += [flat(root, target, seen), f'#line {number + 1} "{name}"']
        else:
            out.append("" if "#pragma once" in line else line)
    return "\n".join(out)


def source_of(root, name, tail=""):
    seen = set()
    head = "#include <metal_stdlib>\nusing namespace metal;\n"
    return head + flat(root, "utils.h", seen) + "\n" + flat(root, name, seen) + "\n" + tail


U = 2.0**-24  # the relative error of one rounding in f32


@pytest.mark.parametrize("name", ACCEPTED)
def test_known_good_shaders_are_accepted(emu, run, shaders, name):
    run(source_of(shaders, f"{name}.h"))


@pytest.mark.parametrize("mode", [{}, {"seed": 5}, {"check": True}], ids=str)
@pytest.mark.parametrize(
    ("kernel", "width", "threads"), [("single_row", 1024, 256), ("looped", 5000, 1024)]
)
def test_a_known_good_softmax(emu, run, shaders, kernel, width, threads, mode):
    emu.mode(**mode)
    tail = f'instantiate_kernel("softmax", softmax_{kernel}, float)\n'
    x = np.random.default_rng(1).standard_normal((3, width)).astype(np.float32) * 2
    y = np.zeros_like(x)
    n = np.int32(width).tobytes()
    run(source_of(shaders, "softmax.h", tail)).dispatch("softmax", [x, y, n], 3, threads)
    e = np.exp(x.astype(np.float64) - x.max(1, keepdims=True))
    reach = float((x.max(1) - x.min(1)).max())
    # An exponential is off by its rounded argument (reach * U) and by an ulp (2 U). It enters the
    # result as numerator and in the sum, which passes each term through the additions of a thread
    # and of a tree of at most 1024, and in `looped` through a rescaling a turn and one at the end.
    additions, rescalings = -(-width // threads) + 10, -(-width // (4 * threads)) + 1
    rtol = (2 * (reach + 2) + additions + rescalings * (reach + 3) + 1) * U
    np.testing.assert_allclose(y, e / e.sum(1, keepdims=True), rtol=rtol)


@pytest.mark.parametrize("mode", [{}, {"seed": 2}, {"check": True}], ids=str)
def test_a_known_good_attention(emu, run, shaders, mode):
    emu.mode(**mode)
    heads, keys, d = 4, 70, 64
    tail = 'instantiate_kernel("attention", sdpa_vector, float, 64, 64)\n'
    r = np.random.default_rng(2)
    q = r.standard_normal((heads, d)).astype(np.float32)
    k, v = (r.standard_normal((heads // 2, keys, d)).astype(np.float32) for _ in range(2))
    out = np.zeros_like(q)
    numbers = [np.int32(2), np.int32(keys), *(np.uint64(s) for s in (keys * d, d, keys * d, d))]
    scalars = [s.tobytes() for s in (*numbers, np.float32(d**-0.5))]
    none = dict.fromkeys(range(20, 26), False)
    made = run(source_of(shaders, "sdpa_vector.h", tail))
    made.dispatch("attention", [q, k, v, out, *scalars], (heads, 1, 1), 1024, none)
    kk, vv = (np.repeat(a, 2, 0).astype(np.float64) for a in (k, v))
    scores = np.einsum("hd,hkd->hk", q, kk) * d**-0.5
    p = np.exp(scores - scores.max(1, keepdims=True))
    want = np.einsum("hk,hkd->hd", p / p.sum(1, keepdims=True), vv)
    # A score: q scaled, d / 32 products a lane and a tree of 32, by the sum of magnitudes. A
    # weight: its score's error, its rounded argument and an ulp, in the numerator and in the sum.
    # Keys go to 32 SIMD groups, which rescale at each and once when they meet in a tree of 32: by
    # one factor for numerator and sum, so half of it is counted in each.
    weights = p / p.sum(1, keepdims=True)
    score = (1 + d // 32 + 5) * np.einsum("hd,hkd->hk", abs(q), abs(kk)) * d**-0.5
    reach = scores.max(1, keepdims=True) - scores
    steps = -(-keys // 32) + 1
    own = score + reach + 2 + steps * (reach.max(1, keepdims=True) + 4) / 2 + 5.5  # of one weight
    all_of_them = np.einsum("hk,hk->h", weights, own)[:, None]
    bound = np.einsum("hk,hkd->hd", weights * own, abs(vv))
    bound += all_of_them * np.einsum("hk,hkd->hd", weights, abs(vv))
    assert (abs(out - want) <= bound * U).all()
