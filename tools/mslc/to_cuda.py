"""Metal Shading Language text to CUDA C++ (specs/017-cuda.md).

1. A C++ compiler expands macros; line markers keep every error at the .metal text.
2. A kernel becomes a device function; `threadgroup T x[N];` is __shared__, address spaces go,
   vectors and the library's functions are named as shaders/cuda/msl.h has them.
3. Each function that the host can name gets an entry whose parameters are the buffers, by index:
   pointers, and structs of parameters by value.
"""

import re

from rewrite import SCALARS, VECTORS, Rewriter
from tokens import preprocess_text, tokenize

LANGUAGE = 310
# CUDA has overloads of its own of these, which round or treat NaN in other ways.
FUNCTIONS = {"fma", "sqrt", "min", "max"}
VECTOR = re.compile(rf"\b({'|'.join(SCALARS)})([234])\b")
# What the values of a thread's place are called; groups have one dimension.
PLACES = {
    "thread_position_in_grid": "msl::in_grid()",
    "thread_position_in_threadgroup": "msl::place(threadIdx)",
    "thread_index_in_threadgroup": "threadIdx.x",
    "threadgroup_position_in_grid": "msl::place(blockIdx)",
    "threads_per_threadgroup": "msl::place(blockDim)",
    "threadgroups_per_grid": "msl::place(gridDim)",
    "thread_index_in_simdgroup": "threadIdx.x % 32",
    "simdgroup_index_in_threadgroup": "threadIdx.x / 32",
    "simdgroups_per_threadgroup": "(blockDim.x + 31) / 32",
    "threads_per_simdgroup": "32",
    "thread_execution_width": "32",
}


def vector(name):
    scalar, count = VECTOR.fullmatch(name).groups()
    return f"metal::vec<{'signed char' if scalar == 'char' else scalar}, {count}>"


class CudaText(Rewriter):
    def kernel(self, n):
        at = super().kernel(n)
        self.tok(at - 1).s += "_body"  # the entry has the name
        return at

    def word(self, n):
        c = self.s(n)
        if self.tok(n).k != "id":
            return
        if c in VECTORS:
            self.tok(n).s = vector(c)
        elif c in FUNCTIONS and self.s(n + 1) == "(" and self.s(n - 1) not in ("::", ".", "->"):
            self.tok(n).s = "metal::" + c
        elif c == "char" and self.s(n - 1) not in ("signed", "unsigned"):
            self.tok(n).s = "signed char"  # plain char has no sign on some processors
        elif c == "inline":
            self.tok(n).s = "__forceinline__"
        elif c != "vec":
            super().word(n)

    def function_constant(self, n):
        found = super().function_constant(n)
        if found:
            self.problem(n, "CUDA has no function constants")
        return found

    def shared(self, typ, name, dims, line):
        return f"__shared__ {VECTOR.sub(lambda m: vector(m[0]), typ)} {name}{dims}"

    def body(self):
        return "".join(self.shown(t) for t in self.t)

    def shown(self, t):
        if t.k == "ws" and t.s.startswith("#"):
            marker = re.match(r'#\s*(?:line\s+)?(\d+)\s+"([^"]*)"', t.s)
            if marker and marker[1] != "0":
                return f'#line {marker[1]} "{marker[2]}"\n'
            return t.s if re.match(r"#\s*pragma\s+unroll\b", t.s) else "\n"
        if t.k == "id" and t.s in ("device", "threadgroup", "thread", "constant"):
            return "const" if t.s == "constant" else ""
        return "static __forceinline__" if t.s == "MSL_KERNEL_FN" else t.s

    def entries(self):
        """The text of all and {name: places}; kernels without exchange are other devices'."""
        by_name = {k["name"]: k for k in self.kernels}
        bounds = "".join(bounds_of(k) for k in self.kernels)
        todo = [(k["name"], k["name"], k) for k in self.kernels if not k["template"]]
        todo += [(i["host"], i["entity"], by_name[i["base"]]) for i in self.instances]
        texts = [
            entry(host, entity, kernel)
            for host, entity, kernel in todo
            if not re.search(r"\bPlain\b", entity)
        ]
        return bounds + "".join(text for _, _, text in texts), {t[0]: t[1] for t in texts}


def bounds_of(kernel):
    """A group's most threads and how many groups a processor is to hold: 0 leaves it to the
    compiler. Both may depend on the parameters of the template."""
    threads, groups = kernel["max_threads"] or "MSL_MOST_THREADS", kernel["groups"] or "0"
    values = f"enum {{ threads = {threads}, groups = {groups} }};"
    return f"{kernel['template']} struct {kernel['name']}_bounds {{ {values} }};\n"


def entry(host, entity, kernel):
    """The kernel's function `entity` behind parameters in ascending order of their places."""
    body = re.sub(r"^\w+", lambda m: m[0] + "_body", entity)
    params, values = {}, []
    for i, p in enumerate(kernel["params"]):
        if p["kind"] != "buffer":
            values.append(PLACES[p["kind"]])
            continue
        index = int(p["index"])
        how = "const __grid_constant__ msl::value" if p["ref"] else "msl::pointer"
        params[index] = f"{how}<{i}, {host}_type> {'' if p['ref'] else '__restrict__ '}b{index}"
        values.append(f"b{index}")
    bounds = re.sub(r"^\w+", lambda m: m[0] + "_bounds", entity)
    listed = ",\n    ".join(params[i] for i in sorted(params))
    text = (
        f"typedef decltype({body}) {host}_type;\n"
        f'extern "C" __global__ void __launch_bounds__({bounds}::threads, {bounds}::groups)'
        f" {host}(\n    {listed}) {{\n"
        f"  {body}({', '.join(values)});\n}}\n"
    )
    return host, sorted(params), text


ENTRY = re.compile(
    r'extern "C" __global__ void\s+__launch_bounds__\([^()]*\)\s*(\w+)\s*\(([^()]*)\)'
)


def places_of(text, cxx):
    """{function: places} of a text in CUDA C++: the parameter of place 5 is called b5."""
    found = ENTRY.findall(preprocess_text(text, cxx, [], LANGUAGE))
    places = {name: [int(p) for p in re.findall(r"\bb(\d+)\b", params)] for name, params in found}
    if wrong := [name for name, own in places.items() if own != sorted(own)]:
        raise SystemExit(f"{wrong[0]}: its parameters are not in the order of their places")
    return places


def translate(name, text, cxx):
    """CUDA C++ of a text whose includes stand in their places, and {function: places}."""
    code = CudaText(tokenize(preprocess_text(text, cxx, ["ACCEL_CUDA=1"], LANGUAGE)))
    code.run()
    for k in code.kernels:
        for p in k["params"]:
            if p["kind"] != "buffer" and p["kind"] not in PLACES:
                code.problems.append(f"{name}: kernel {k['name']}: {p['kind']} is not of CUDA")
    if code.problems:
        raise SystemExit("\n".join(code.problems))
    entries, places = code.entries()
    return f'{code.body()}\n#line 1 "<entries of {name}>"\n{entries}', places
