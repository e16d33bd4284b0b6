"""The passes that turn tokens of MSL into tokens of C++."""

from kernels import BUILTINS, SPACES, Kernels
from tokens import MslError

SCALARS = (
    *("float", "half", "bfloat", "bool", "char", "uchar", "short", "ushort"),
    *("int", "uint", "long", "ulong"),
)
VECTORS = {f"{s}{n}" for s in SCALARS for n in (2, 3, 4)}
BANNED = {
    *("double", "goto", "virtual", "throw", "try", "catch", "new", "delete", "dynamic_cast"),
    *("typeid", "thread_local", "asm", "__asm__", "std"),
}


class Rewriter(Kernels):
    def __init__(self, tokens):
        super().__init__(tokens)
        self.constants = []

    def run(self):
        n, depth, paren = 0, 0, 0
        start = True  # at the start of a statement
        while n < len(self.sig):
            jump = self.statement(n, depth, paren) if start else None
            if jump is None and self.s(n) == "kernel" and self.s(n - 1) != ",":
                jump = self.kernel(n)
            if jump is not None:
                start = self.s(jump - 1) in ("", ";") and self.s(jump) != "("
                n = jump
                continue
            c = self.s(n)
            self.word(n)
            depth += (c == "{") - (c == "}")
            paren += (c == "(") - (c == ")")
            start = c in ("{", "}", ";") or (c in ("static", ">") and start)
            if c == "template" and self.s(n + 1) == "<":
                n = self.match_angle(n + 1)
                start = True
            n += 1
        self.drop_attributes()
        self.check_pointer_spaces()

    def drop_attributes(self):
        """What binds an argument means nothing on a function that is no kernel."""
        for start, end, items in self.attrs_in(0, len(self.sig)):
            if items and items[0][0] in BUILTINS | {"buffer", "threadgroup", "function_constant"}:
                self.blank(start, end)

    def statement(self, n, depth, paren):
        """What only a statement can begin with; the place to go on from, or None."""
        c = self.s(n)
        if c == "template" and self.s(n + 1) != "<":
            e = n
            while self.s(e) != ";":
                e += 1
            self.explicit_instantiation(n, e)
            return e + 1
        if self.is_attr(n) and self.has_kernel_attr(n):
            return self.kernel(n)
        if c == "constant":
            e = self.function_constant(n)
            return e + 1 if e else None
        if c == "threadgroup" and depth > 0 and paren == 0:
            e = self.threadgroup_var(n)
            return e + 1 if e else None
        return None

    def word(self, n):
        """Vector constructors become calls, and words that MSL has not are named."""
        c, k = self.s(n), self.tok(n).k
        if k == "id" and c in VECTORS and self.s(n + 1) == "(" and self.s(n - 1) != "operator":
            self.tok(n).s = f"mslrt::mk<{c}>"
        if k == "id" and c == "vec" and self.s(n + 1) == "<":
            e = self.match_angle(n + 1)
            if self.s(e + 1) == "(":
                a = n - 2 if self.s(n - 1) == "::" else n
                self.tok(a).s = "mslrt::mk<" + self.tok(a).s
                self.tok(e).s = ">>"
        if c in SPACES and self.s(n - 1) in (")", "const") and self.s(n + 1) in ("{", ";", "const"):
            self.tok(n).s = ""  # of a member function
        if k == "id" and c in BANNED and self.s(n - 1) not in ("::", ".", "->"):
            self.problem(n, f"'{c}' is not available in MSL")

    def function_constant(self, n):
        e = n
        while self.s(e) not in (";", "=", "{", "(", "") and not self.is_attr(e):
            e += 1
        if not self.is_attr(e):
            return None
        end = self.attr_end(e)
        index = dict(self.attr_items(e, end)).get("function_constant")
        if index is None:
            return None
        name, typ = self.s(e - 1), self.text(n + 1, e - 2)
        self.constants.append({"name": name, "type": typ, "index": index})
        self.blank(n, end + 1)
        self.tok(n).s = f"MSL_FUNCTION_CONSTANT({typ}, {name}, {index});"
        return end + 1

    def threadgroup_var(self, n):
        e, depth = n, 0
        while not (self.s(e) == ";" and depth == 0):
            depth += (self.s(e) in ("(", "[", "{")) - (self.s(e) in (")", "]", "}"))
            e += 1
        # The declarator's name: the last identifier before what ends it, outside <>.
        m, angle = n + 1, 0
        while angle or self.s(m) not in ("[", ",", "=", ";", "(", "*", "&"):
            angle += (self.s(m) == "<") - (self.s(m) == ">")
            m += 1
        if self.s(m) in ("*", "&", "("):
            return None  # a pointer or reference to threadgroup memory
        typ = self.text(n + 1, m - 2)
        if self.s(m) == "=":
            self.problem(n, "a threadgroup variable cannot have an initializer")
        out, a = [], m - 1
        while a < e:
            name, b, dims = self.s(a), a + 1, ""
            while self.s(b) == "[":
                c = self.match(b, "[", "]")
                dims += "[" + self.text(b + 1, c - 1) + "]"
                b = c + 1
            out.append(self.shared(typ, name, dims, self.tok(n).line))
            while self.s(b) not in (",", ";"):
                b += 1
            a = b + 1
        self.blank(n, e)
        self.tok(n).s = " ".join(o + ";" for o in out)
        return e

    def shared(self, typ, name, dims, line):
        """The declaration of one threadgroup variable."""
        return f"MSL_THREADGROUP_VAR(({typ}), {name}, ({dims}), {line})"

    def check_pointer_spaces(self):
        """A pointer or reference parameter of any function must name its address space."""
        for n in range(len(self.sig)):
            if not (
                self.tok(n).k == "id"
                and self.s(n + 1) == "("
                and self.tok(n - 1).k == "id"
                and self.s(n - 1) not in ("return", "else", "typename", "operator", "new")
            ):
                continue
            try:
                close = self.match(n + 1, "(", ")")
            except MslError:  # rewritten text: no parameter list
                continue
            if self.s(close + 1) not in ("{", "const"):
                continue
            a = n + 2
            while a <= close:
                b = self.parameter_end(a, close)
                self.check_parameter(a, [self.s(i) for i in range(a, b)])
                a = b + 1

    def check_parameter(self, a, words):
        if SPACES & set(words) and words[-1] == "]" and "[" in words:
            # `constant T x[2]` as a parameter is a pointer.
            at = a + words.index("[")
            if not self.is_attr(at):
                self.tok(at - 1).s = "* " + self.s(at - 1)
                self.blank(at, a + len(words) - 1)
        if "=" in words:
            words = words[: words.index("=")]
        if ("*" in words or "&" in words) and not SPACES & set(words):
            shown = " ".join(words)
            self.problem(a, f"pointer or reference parameter '{shown}' names no address space")
