"""The accel command: what it prints, and one line and a status for each mistake."""

import json
import os
import signal
import subprocess
import sys
import time

import accel
import numpy as np
import pytest
import tiny_llama
from accel import cli
from checkpoint import checkpoint_path, reference

PLAIN = reference()["prompts"]["plain"]


def run(capfd, *args, model=True):
    if model:
        args = (*args, "--model", checkpoint_path())
    status = cli.main(list(args))
    captured = capfd.readouterr()
    return status, captured.out, captured.err


def test_generate_streams_text_and_ends_with_one_line(capfd):
    status, out, err = run(capfd, "generate", "--max-tokens", "12", "--kv", "f32", "--threads", "2")
    assert status == 0 and PLAIN["greedy_text"].startswith(out[:-1]) and out[-1] == "\n"
    assert len(err.splitlines()) == 1
    for word in ("prompt ", "decode ", "tok/s", "plan memory", "MiB", "cpu", "2 threads"):
        assert word in err


def test_p26_52_generate_as_json(capfd):
    args = ["--prompt", PLAIN["prompt"], "--max-tokens", "32", "--kv", "f32", "--ignore-eos"]
    status, out, err = run(capfd, "generate", *args, "--json")
    result = json.loads(out)
    assert status == 0 and err == "" and out.count("\n") == 1
    assert result["prompt_ids"] == PLAIN["prompt_ids"] and result["ids"] == PLAIN["greedy_ids"]
    assert result["text"] == PLAIN["greedy_text"]
    for name in ("prefill_tok_s", "decode_tok_s", "load_s", "plan_memory"):
        assert result[name] > 0, name
    assert result["device"].startswith("cpu") and sum(result["kernels"].values()) > 400


def test_the_command_line_prints_what_the_api_returns(capfd):
    from accel import llm
    from accel.tensor import SamplingOptions

    text = ["--prompt", PLAIN["prompt"], "--max-tokens", "9", "--temperature", "1.5", "--seed", "5"]
    options = ["--top-k", "200", "--context", "64", "--stop", "zzz", "--stop", "yyy"]
    status, out, _ = run(capfd, "generate", *text, *options, "--json")
    result = json.loads(out)
    sampling = SamplingOptions(temperature=1.5, top_k=200, exact=True)
    with llm.load(checkpoint_path(), context=64) as model:
        prompt = PLAIN["prompt"]
        tokens = list(model.generate(prompt, 9, sampling=sampling, seed=5, stop=["zzz", "yyy"]))
        report = model.report()
    assert status == 0 and result["ids"] == [t.id for t in tokens]
    assert result["logprobs"] == [t.logprob for t in tokens]
    assert result["text"] == "".join(t.text for t in tokens)
    assert result["stop"] == tokens[-1].stop
    assert (result["device"], result["plan_memory"]) == (report.device, report.plan_bytes)


def test_a_template_that_fails_is_one_line(capfd, tmp_path):
    path, shape = tmp_path / "t.gguf", tiny_llama.Shape()
    weights = tiny_llama.random_weights(shape, {"*": "F32"}, True, np.random.default_rng(0))
    tiny_llama.write(path, shape, weights, template="{{ 1 / 0 }}")
    args = ("generate", "--chat", "--model", str(path))
    status, out, err = run(capfd, *args, model=False)
    assert status == 1 and out == "" and err.count("\n") == 1
    assert "messages is refused by the template (ZeroDivisionError: division by zero)" in err


def test_generate_chat_and_sampling(capfd):
    chat = ["generate", "--chat", "--prompt", "What is the capital of France?", "--json"]
    status, out, _ = run(capfd, *chat, "--kv", "f32")
    result = json.loads(out)
    assert status == 0 and result["prompt_ids"] == reference()["prompts"]["chat"]["prompt_ids"]
    assert result["text"] == reference()["prompts"]["chat"]["greedy_text_to_eos"]
    draws = ["--temperature", "1.5", "--top-k", "300", "--top-p", "0.95", "--max-tokens", "6"]
    made = [json.loads(run(capfd, *chat, *draws, "--seed", s)[1])["ids"] for s in "774"]
    assert made[0] == made[1] != made[2]


def test_perplexity(capfd, tmp_path):
    want = reference()["perplexity"]
    path = tmp_path / "ids.json"
    path.write_text(json.dumps(want["token_ids"][:96]))
    args = ["perplexity", "--ids", str(path), "--window", "48", "--kv", "f32"]
    status, out, _ = run(capfd, *args, "--json")
    result = json.loads(out)
    assert status == 0 and result["tokens"] == 94 and len(result["per_window"]) == 2
    assert result["nll_sum"] == pytest.approx(sum(result["per_window"]))
    path.write_text(json.dumps({"token_ids": want["token_ids"][:96]}))
    status, out, _ = run(capfd, *args)
    assert status == 0 and out.startswith(f"perplexity {result['perplexity']:.4f} over 94 tokens")


BENCH = ["bench", "--prompt-tokens", "24", "--decode-tokens", "4", "--rounds", "1"]


def test_bench_prints_a_machine_and_two_rows_a_count_of_threads(capfd):
    status, out, err = run(capfd, *BENCH, "--threads", "1", "2")
    lines = out.splitlines()
    assert status == 0 and err == "" and len(lines) == 6
    assert [line.split()[0] for line in lines] == [
        "1",
        "decode",
        "prefill",
        "2",
        "decode",
        "prefill",
    ]
    assert "GB/s" in lines[0] and lines[1].endswith("% of reading")
    assert lines[2].endswith("% of multiply-add")


def test_bench_as_json(capfd):
    status, out, err = run(capfd, *BENCH, "--threads", "1", "--activations", "int8", "--json")
    result = json.loads(out)
    assert status == 0 and err == "" and out.count("\n") == 1
    decode, prefill = result["rows"]
    assert (decode["name"], prefill["name"]) == ("decode", "prefill 24")
    assert (decode["of"], prefill["of"]) == ("read_gb_s", "int8_gop_s")
    for row in result["rows"]:
        assert row["us"] > 0 and row["tok_s"] > 0 and row["gb_s"] > 0 and row["gflop_s"] > 0
    # A step reads every weight once, and multiplies each with one number.
    weights = decode["gb_s"] * decode["us"] * 1e3
    products = decode["gflop_s"] * decode["us"] * 1e3 / 2
    assert 0.5 < weights / products < 1.0
    (ceiling,) = result["ceilings"]
    assert ceiling["threads"] == 1 and ceiling["read_gb_s"] > 0 and ceiling["fma_gop_s"] > 0


def test_devices(capfd):
    status, out, _ = run(capfd, "devices", model=False)
    assert status == 0 and out.startswith("cpu: ")
    status, out, _ = run(capfd, "devices", "--json", model=False)
    found = json.loads(out)["devices"]
    assert found[0]["backend"] == "cpu" and len(bytes.fromhex(found[0]["id"])) == 16


@pytest.mark.parametrize("backend", ["metal", "cuda"])
def test_a_device_that_is_absent_says_why(capfd, backend):
    notes = [n for n in accel.enumerate_devices().notes if n.backend == backend]
    status, out, err = run(capfd, "generate", "--device", backend, "--max-tokens", "1")
    if not notes:
        assert status == 0
        return
    assert status == 1 and out == ""
    why = f"not available ({notes[0].stage}: {notes[0].error})"
    assert err == f"accel generate: error: the {backend} device is {why}\n"
    assert f"{backend}: {why}" in run(capfd, "devices", model=False)[1]


def test_version(capfd):
    with pytest.raises(SystemExit) as e:
        cli.main(["--version"])
    assert e.value.code == 0 and capfd.readouterr().out == f"accel {accel.__version__}\n"


def test_explain(capfd):
    status, out, _ = run(capfd, "explain")
    assert status == 0 and "int4_matmul" in out and "attention" in out
    status, other, _ = run(capfd, "explain", "--plan", "prefill_128")
    assert status == 0 and other != out
    status, out, err = run(capfd, "explain", "--plan", "nope")
    assert status == 1 and out == "" and "'nope'" in err and "decode" in err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["generate", "--prompt", ""], "prompt is empty"),
        (["generate", "--prompt", "a " * 9000], "the context"),
        (["generate", "--temperature", "nan"], "temperature"),
        (["generate", "--temperature", "-1"], "temperature"),
        (["generate", "--temperature", "1e-6"], "temperature"),
        (["generate", "--top-p", "1.5"], "top_p"),
        (["generate", "--top-k", "-3"], "top_k"),
        (["generate", "--max-tokens", "0"], "max_tokens is 0"),
        (["generate", "--seed", "-1", "--temperature", "1"], "seed is -1"),
        (["generate", "--top-k", "5"], "--top-k given, --temperature is 0: nothing is drawn"),
        (["generate", "--top-p", "0.5", "--seed", "0"], "--top-p, --seed given"),
        (["generate", "--threads", "-1"], "threads"),
        (["generate", "--device", "tpu"], "'tpu' and must be one of: cpu, cuda, metal"),
        (["perplexity", "--ids", "nowhere.json"], "nowhere.json"),
        (["perplexity", "--ids", os.devnull], "JSON"),
        (["generate", "--model", "nowhere.gguf"], "nowhere.gguf"),
        (["generate", "--model", os.devnull], "special file"),
        (["explain", "--model", __file__], "magic"),
        (["bench", "--rounds", "0"], "rounds is 0 and must be at least 1"),
        (["bench", "--decode-tokens", "1"], "decode_tokens is 1 and must be at least 2"),
        (["bench", "--prompt-tokens", "100000"], "context is 100064 and must be"),
        (["bench", "--threads", "1", "-1"], "threads"),
    ],
)
def test_mistakes_are_one_line_and_a_status(capfd, args, words):
    flags = [] if args[0] == "explain" else ["--json"]  # nothing half-written, text or object
    status, out, err = run(capfd, *args, *flags, model="--model" not in args)
    assert status == 1 and out == "" and len(err.splitlines()) == 1
    assert err.startswith(f"accel {args[0]}: error: ") and words in err, err


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["generate", "--max-tokens", "many"], "--max-tokens"),
        (["generate", "--kv", "f64"], "--kv"),
        (["generate", "--unknown"], "--unknown"),
        (["perplexity"], "--ids"),
        (["nothing"], "nothing"),
        ([], "COMMAND"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(capfd, args, words):
    with pytest.raises(SystemExit) as e:
        cli.main(args)
    out, err = capfd.readouterr()
    assert e.value.code == 2 and out == "" and len(err.splitlines()) == 1 and words in err


def test_ids_that_are_none(capfd, tmp_path):
    path = tmp_path / "ids.json"
    for value in ({"a": 1}, [1, 2.5], [True, 1], "text"):
        path.write_text(json.dumps(value))
        status, out, err = run(capfd, "perplexity", "--ids", str(path))
        assert status == 1 and out == "" and "JSON list of token ids" in err


def spawn(*args, **options):
    command = [sys.executable, "-m", "accel", *args, "--model", checkpoint_path()]
    # A shell that starts tests in the background has them ignore Ctrl-C; their children too.
    if sys.platform != "win32":
        options["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, **options)


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX pipes")
def test_a_reader_that_leaves_ends_it(tmp_path):
    read, write = os.pipe()
    process = spawn("generate", "--max-tokens", "4000", "--ignore-eos", stdout=write)
    os.close(write)
    assert os.read(read, 1)
    os.close(read)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 141 and err == ""


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX signals")
def test_ctrl_c_ends_it():
    process = spawn("generate", "--max-tokens", "8000", "--ignore-eos", stdout=subprocess.PIPE)
    assert process.stdout.read(1)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130 and "Traceback" not in err and err.strip() == ""


def test_special_files_and_deep_json_are_refused(capfd, tmp_path):
    fifo, deep = tmp_path / "fifo", tmp_path / "deep.json"
    os.mkfifo(fifo)
    deep.write_text("[" * 100000)
    status, _, err = run(capfd, "generate", "--model", str(fifo), model=False)
    assert status == 1 and "is a special file and must be a regular one" in err
    status, _, err = run(capfd, "perplexity", "--ids", str(deep))
    assert status == 1 and "the file is no JSON" in err and len(err.splitlines()) == 1
    status, _, err = run(capfd, "generate", "--model", "", model=False)
    assert status == 1 and "'': no such file" in err


def test_closed_streams_end_in_a_status(tmp_path):
    command = [sys.executable, "-m", "accel", "devices"]
    out = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *command], capture_output=True, text=True, check=False
    )
    assert out.returncode == 1 and out.stderr.count("\n") == 1 and "stdout is closed" in out.stderr
    err = subprocess.run(
        ["sh", "-c", '"$@" 2>&-', "sh", *command], capture_output=True, text=True, check=False
    )
    assert err.returncode == 0 and err.stdout.startswith("cpu: ")


def test_module_and_errors_have_the_same_version():
    out = subprocess.run(
        [sys.executable, "-m", "accel", "devices"], capture_output=True, text=True, check=True
    )
    assert "cpu" in out.stdout and accel.__version__
