"""The small records that the library hands out: what they hold, and that they are what they say."""

import accel
import numpy as np
import pytest
from accel import tensor as T
from conftest import open_runtime


def test_devices_and_probe_notes():
    found = accel.enumerate_devices()
    assert isinstance(found, accel.Enumeration)
    (cpu,) = [d for d in found.devices if d.backend == "cpu"]
    assert isinstance(cpu, accel.DeviceInfo)
    assert cpu.name and cpu.vendor and cpu.software is False
    assert isinstance(cpu.capabilities, tuple) and all(isinstance(c, str) for c in cpu.capabilities)
    for note in found.notes:
        assert isinstance(note, accel.ProbeNote)
        assert note.backend in ("metal", "cuda") and note.stage and note.error


def test_the_stats_of_a_fence_are_in_order():
    builder = open_runtime(None).new_builder("stats")
    builder.output("y", T.silu(builder.input("x", accel.F32, [8])))
    fence = builder.compile().submit({"x": np.ones(8, "f4"), "y": np.zeros(8, "f4")})
    assert fence.wait()
    assert isinstance(fence.stats, accel.FenceStats)
    assert 0 < fence.stats.queued_ns <= fence.stats.started_ns <= fence.stats.finished_ns


def test_a_selection_says_what_it_rejected():
    builder = open_runtime(None).new_builder("rejected")
    x, w = builder.input("x", accel.F32, [2, 8]), builder.weight("w", accel.F16, [8, 4])
    builder.output("y", T.matmul(x, w))
    (entry,) = builder.compile().selections()
    assert entry.kernel == "matmul_kn_f32_f16"
    assert entry.rejected and all(" " in text for text in map(str, entry.rejected))
    assert any("matmul_nk_f32_f32" in str(r) for r in entry.rejected)


def test_what_no_kernel_takes_names_each_and_why(monkeypatch):
    builder = open_runtime(None).new_builder("unsupported")
    builder.output("y", T.silu(builder.input("x", accel.F32, [8])))
    monkeypatch.setenv("ACCEL_SKIP_KERNEL", "silu_f32")
    with pytest.raises(accel.UnsupportedError) as caught:
        builder.compile()
    rejected = caught.value.rejected
    assert all(isinstance(r, accel.Rejection) for r in rejected)
    assert ("silu_f32", "is switched off by ACCEL_SKIP_KERNEL") in [tuple(r) for r in rejected]
    assert ("silu_f16", "reads f16") in [tuple(r) for r in rejected]


def test_a_diagnostic_has_the_fields_of_its_text():
    builder = open_runtime(None).new_builder("diagnostic")
    T.softmax(builder.input("x", accel.F16, [2, 8]))
    (d,) = builder.err().diagnostics
    assert isinstance(d, accel.Diagnostic)
    assert (d.op, d.operand, d.file) == ("softmax", "x", __file__)
    assert d.message.startswith("softmax: x is f16 and must be f32")


def test_options_are_validated_on_request():
    T.SamplingOptions(temperature=0.7, top_k=40).validate()
    with pytest.raises(accel.AttrError, match="top_k is -1 and must be 0 or more"):
        T.SamplingOptions(top_k=-1).validate()


def test_planes_are_records_with_names():
    blocks = np.zeros(18 * 2, np.uint8)
    planes, error = accel.quant.gguf_planes("Q4_0", blocks, (1, 64))
    assert isinstance(planes, accel.quant.Int4Planes) and error == 0
    assert planes.weights == 64 and planes.group == 32
