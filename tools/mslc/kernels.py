"""Kernel signatures: their attributes are recorded for the binder and removed from the text."""

import re

from tokens import Text

SPACES = {"device", "constant", "threadgroup", "thread", "threadgroup_imageblock", "ray_data"}
BUILTINS = {
    "thread_position_in_grid",
    "thread_position_in_threadgroup",
    "thread_index_in_threadgroup",
    "threadgroup_position_in_grid",
    "threads_per_threadgroup",
    "threads_per_grid",
    "threadgroups_per_grid",
    "dispatch_threads_per_threadgroup",
    "thread_index_in_simdgroup",
    "simdgroup_index_in_threadgroup",
    "simdgroups_per_threadgroup",
    "threads_per_simdgroup",
    "thread_execution_width",
    "dispatch_simdgroups_per_threadgroup",
    "quadgroup_index_in_threadgroup",
    "thread_index_in_quadgroup",
}


class Kernels(Text):
    def __init__(self, tokens):
        super().__init__(tokens)
        self.kernels, self.instances = [], []

    def has_kernel_attr(self, n):
        attrs = self.attrs_in(n, self.attr_end(n) + 1)
        return any(name == "kernel" for _, _, items in attrs for name, _ in items)

    def kernel(self, n):
        """A kernel's signature begins at n; returns where its parameters begin."""
        first, attributes = n, {}
        if self.s(n) == "kernel":
            self.tok(n).s = "MSL_KERNEL_FN"
            n += 1
        while self.is_attr(n) or self.s(n) != "(":
            if not self.is_attr(n):
                n += 1
                continue
            e = self.attr_end(n)
            attributes |= dict(self.attr_items(n, e))
            self.blank(n, e)
            if first == n:
                self.tok(n).s = "MSL_KERNEL_FN"
            n = e + 1
        name, close = self.s(n - 1), self.match(n, "(", ")")
        params, a = [], n + 1
        while a < close:
            b = self.parameter_end(a, close)
            params.append(self.parameter(name, a, b, params))
            a = b + 1
        self.refuse_twice(name, n, params)
        self.kernels.append(
            {
                "name": name,
                "params": params,
                "max_threads": attributes.get("max_total_threads_per_threadgroup"),
                "groups": attributes.get("groups_of_a_processor"),  # CUDA's alone
                "template": self.template_of(first),
            }
        )
        return n  # vectors and arrays inside the list are rewritten by the caller

    def parameter_end(self, a, close):
        depth = 0
        while a < close and not (depth == 0 and self.s(a) == ","):
            if self.s(a) in ("(", "[", "{", "<"):
                depth += 1
            elif self.s(a) in (")", "]", "}", ">"):
                depth -= 1
            a += 1
        return a

    def parameter(self, kernel, a, b, before):
        binds, optional = [], False
        for start, end, items in self.attrs_in(a, b):
            for name, arguments in items:
                if name in ("buffer", "threadgroup", "texture", "sampler"):
                    binds.append((name, arguments))
                elif name in BUILTINS:
                    binds.append((name, None))
                elif name == "function_constant":
                    optional = True
                else:
                    self.problem(start, f"attribute [[{name}]] of a kernel argument is not known")
            self.blank(start, end)
        text = self.text(a, b - 1)
        space = next((self.s(i) for i in range(a, b) if self.s(i) in SPACES), None)
        if not binds and space in ("device", "constant", "threadgroup"):
            # Numbered by order, as MSL does for an argument without an attribute.
            kind = "threadgroup" if space == "threadgroup" else "buffer"
            taken = [int(p["index"]) for p in before if p["kind"] == kind]
            binds = [(kind, str(max(taken, default=-1) + 1))]
        if len(binds) != 1:
            self.problem(a, f"kernel '{kernel}': argument '{text}' has {len(binds)} bindings")
            binds = binds[:1] or [("none", None)]
        kind, index = binds[0]
        if kind == "buffer" and space not in ("device", "constant"):
            self.problem(a, f"kernel '{kernel}': [[buffer]] argument needs device or constant")
        if kind == "buffer" and (index or "").isdigit() and int(index) > 30:
            self.problem(a, f"kernel '{kernel}': buffer({index}): indices end at 30")
        if kind == "threadgroup" and space != "threadgroup":
            self.problem(a, f"kernel '{kernel}': [[threadgroup]] argument needs threadgroup")
        const = any(self.s(i) == "const" for i in range(a, b)) or space == "constant"
        names = [self.s(i) for i in range(a, b) if self.tok(i).k == "id" and self.s(i)]
        return {
            "kind": kind,
            "index": index,
            "space": space,
            "const": const,
            "optional": optional,
            "ref": "&" in text,
            "name": names[-1] if names else "",
        }

    def refuse_twice(self, kernel, n, params):
        seen = set()
        for p in params:
            key = (p["kind"], p["index"])
            if p["kind"] in ("buffer", "threadgroup") and key in seen:
                self.problem(n, f"kernel '{kernel}': {p['kind']}({p['index']}) is used twice")
            seen.add(key)

    def template_of(self, n):
        """The text `template <...>` before a kernel; empty where there is none."""
        m = n - 1
        while m >= 0 and self.s(m) not in (";", "}", "{"):
            if self.s(m) == "template":
                return self.text(m, self.match_angle(m + 1))
            m -= 1
        return ""

    def explicit_instantiation(self, a, e):
        host = None
        for start, end, items in self.attrs_in(a, e):
            for name, arguments in items:
                if name == "host_name":
                    host = "".join(re.findall(r'"([^"]*)"', arguments))
            self.blank(start, end)
        if host is None:
            return
        b = a + 1
        while self.s(b) in ("", "kernel", "void", "MSL_KERNEL_FN"):
            b += 1
        if self.s(b) == "decltype":
            b = self.match(b + 1, "(", ")") + 1
        c = b
        while self.s(c) not in ("<", "(", ";"):
            c += 1
        end = self.match_angle(c) if self.s(c) == "<" else c - 1
        instance = {"host": host, "base": self.s(c - 1), "entity": self.text(b, end)}
        self.instances.append(instance)
        self.blank(a, e)

    def table(self):
        """One row for each kernel that the host can name."""
        by_name = {k["name"]: k for k in self.kernels}
        todo = [(k["name"], k["name"], k) for k in self.kernels if not k["template"]]
        todo += [
            (i["host"], i["entity"], by_name[i["base"]])
            for i in self.instances
            if i["base"] in by_name
        ]
        return [row(host, entity, kernel) for host, entity, kernel in todo]


def row(host, entity, kernel):
    binds, meta = [], []
    for p in kernel["params"]:
        indexed = p["kind"] in ("buffer", "threadgroup")
        binds.append(f"mslrt::b_{p['kind']}" + (f"<({p['index']})>" if indexed else ""))
        flags = "r" if p["const"] else "w"
        flags += "o" * p["optional"] + "&" * p["ref"] + "c" * (p["space"] == "constant")
        meta.append(f"{p['kind']}:{p['index'] or 0}:{flags}:{p['name']}")
    limit = kernel["max_threads"] if (kernel["max_threads"] or "").isdigit() else 1024
    arguments = "".join(", " + b for b in binds)
    return f'MSL_ENTRY("{host}", ({entity}), "{";".join(meta)}", {limit}{arguments})'
