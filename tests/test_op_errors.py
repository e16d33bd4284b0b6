"""What every operator and declaration refuses: class, operator, operand, words and line.

The rows are in refusals/. A row records one mistake; exactly one diagnostic must come of it, at the
line of the call.
"""

import accel
import pytest
from accel import tensor as T
from refusals.attention import ATTENTION
from refusals.common import Ports
from refusals.edges import EDGES
from refusals.elementwise import ELEMENTWISE, GATHERS, ROWS
from refusals.every import EVERY, SPECS, call, make, parts
from refusals.graph import DECLARATIONS, STATES, VIEWS
from refusals.linear import LINEAR
from refusals.moe import MOE
from refusals.more import MORE
from refusals.narrow import NARROW
from refusals.order import ORDER
from refusals.products import INT4, PRODUCTS
from refusals.rest import REST
from refusals.sample_rows import SAMPLE_ROWS
from refusals.sampling import DRAWS_COUNT, SAMPLE, SAMPLERS

ALL = [
    *DECLARATIONS,
    *VIEWS,
    *STATES,
    *ELEMENTWISE,
    *GATHERS,
    *ROWS,
    *PRODUCTS,
    *INT4,
    *ATTENTION,
    *SAMPLERS,
    *SAMPLE,
    *DRAWS_COUNT,
    *MORE,
    *MOE,
    *LINEAR,
    *SAMPLE_ROWS,
    *NARROW,
    *EVERY,
    *ORDER,
    *REST,
    *EDGES,
]


@pytest.fixture(scope="module")
def rt():
    return accel.Runtime(accel.open_cpu(threads=1))


def lines_of(function) -> set[int]:
    return {line for _, _, line in function.__code__.co_lines() if line}


@pytest.mark.parametrize("row", ALL, ids=[row.name for row in ALL])
def test_p26_11_refused_once_with_operator_operand_values_and_line(rt, row):
    builder = rt.new_builder("rows")
    ports = Ports(builder)
    ports.b_runtime = rt
    row.call(ports)
    error = builder.err()
    assert error is not None, "nothing was refused"
    assert type(error) is row.error, str(error)
    assert len(error.diagnostics) == 1
    assert (error.op, error.operand) == (row.op, row.operand), str(error)
    for word in row.words:
        assert word in error.message, f"{word!r} is not in {error.message!r}"
    assert error.message.startswith(row.op + ": ")
    places = [f for f in (row.call, row.helper) if f]
    assert error.file in {f.__code__.co_filename for f in places}
    assert error.line in set().union(*map(lines_of, places))
    name = error.file.rpartition("/")[2]
    assert str(error) == f"{error.message}, recorded at {name}:{error.line}"


ALONE = {
    "contiguous": lambda: T.contiguous(None),
    "silu": lambda: T.silu(None),
    "softmax": lambda: T.softmax(None),
    "argmax": lambda: T.argmax(None),
    "log_softmax": lambda: T.log_softmax(None),
    "exp": lambda: T.exp(None),
    "tanh": lambda: T.tanh(None),
    "sigmoid": lambda: T.sigmoid(None),
    "softplus": lambda: T.softplus(None),
    "gelu": lambda: T.gelu(None),
    "clamp": lambda: T.clamp(None, low=0.0, high=1.0),
    "sub": lambda: T.sub(None, None),
    "l2_norm": lambda: T.l2_norm(None, eps=1e-5),
    "top_k": lambda: T.top_k(None, 1),
    "concat": lambda: T.concat(None, None, axis=0),
    "take": lambda: T.take(None, None),
    "cast": lambda: T.cast(None, accel.F16),
    "scale": lambda: T.scale(None, "s"),
    "reshape": lambda: T.reshape(None, [1]),
    "permute": lambda: T.permute(None, [0]),
    "transpose": lambda: T.transpose(None, 0, 1),
    "slice": lambda: T.slice(None, 0, 0, 1),
    "broadcast": lambda: T.broadcast(None, [1]),
    "read_state": lambda: T.read_state(None),
    "layer_state": lambda: T.layer_state(None, 0),
    "top_k_mask": lambda: T.top_k_mask(None, 1),
    "top_p_mask": lambda: T.top_p_mask(None, 0.5),
    "add": lambda: T.add(None, None),
    "sample": lambda: T.sample(None, options=T.SamplingOptions(), prefix="s"),
    "rms_norm": lambda: T.rms_norm(None, None),
    "int4_matmul": lambda: T.int4_matmul(None, T.Int4(None, None)),
    "route": lambda: T.route(None, experts=2),
    "grouped_matmul": lambda: T.grouped_matmul(None, T.Quantized(None, None), None),
    "linear_attention": lambda: T.linear_attention(None, None, None, None),
}


@pytest.mark.parametrize("op", ALONE)
def test_p26_07_without_any_builder_the_call_raises(op):
    with pytest.raises(accel.GraphError, match=f"^{op}: .* None") as caught:
        ALONE[op]()
    assert caught.value.file == __file__
    assert caught.value.line in lines_of(ALONE[op])


def test_cast_is_named_where_it_leads_and_nowhere_else(rt):
    for row in EVERY:
        if row.error is not accel.DTypeError:
            continue
        ports = Ports(rt.new_builder("rows"))
        row.call(ports)
        named = "cast(" in ports.b.err().message
        assert named == any("cast(" in word for word in row.words), str(ports.b.err())


def test_every_operator_has_refusals():
    from accel import _core

    operators = {op["name"] for op in _core._ops() if not op["internal"]}
    assert not operators - {row.op for row in ALL}
    assert operators <= set(SPECS), "every.py lacks the call of an operator"


def test_rows_are_told_apart():
    names = [row.name for row in ALL]
    assert len(names) == len(set(names))


OPERANDS = [(op, name) for op in SPECS for name in SPECS[op].operands]


@pytest.fixture
def ports(rt):
    made = Ports(rt.new_builder("rows"))
    made.b_runtime = rt
    return made


def poison(ports, text: str):
    """A poisoned value of an operand's kind, whose mistake is recorded."""
    if parts(text)[0] == "state":
        return T.layer_state(ports.state(accel.U32, 2, 4), 7)
    return T.reshape(ports.f32(4), [3])


@pytest.mark.parametrize("op", SPECS)
def test_the_calls_that_rows_are_made_from_are_right(ports, op):
    call(ports, op)
    assert ports.b.err() is None


@pytest.mark.parametrize(("op", "name"), OPERANDS)
def test_poison_records_nothing_and_gives_poison(ports, op, name):
    result = call(ports, op, **{name: poison(ports, SPECS[op].operands[name])})
    assert len(ports.b.err().diagnostics) == 1, str(ports.b.err())
    for value in result if isinstance(result, tuple) else (result,):
        assert not value.valid


@pytest.mark.parametrize(("op", "name"), OPERANDS)
def test_a_missing_operand_is_named_beside_poison(ports, op, name):
    operands = SPECS[op].operands
    if operands[name].startswith("-") or len(operands) == 1:
        return
    other = next(n for n in operands if n != name)
    call(ports, op, **{other: poison(ports, operands[other]), name: None})
    found = {(d.op, d.operand) for d in ports.b.err().diagnostics}
    assert len(found) == 2 and (op, name) in found


@pytest.mark.parametrize("op", [op for op in SPECS if len(SPECS[op].operands) > 1])
def test_a_whole_call_of_another_builder_touches_this_one_not(rt, op):
    mine, other = rt.new_builder("mine"), rt.new_builder("other")
    ports = Ports(mine)
    first = next(iter(SPECS[op].operands))
    call(ports, op, **{first: make(ports, SPECS[op].operands[first], builder=other)})
    assert mine.err() is None
    assert "'mine'" in str(other.err()) and "'other'" in str(other.err())
