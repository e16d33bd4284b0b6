"""Families of models from folders: recorded logits of another implementation, and refusals.

tests/oracles/record_tiny_models.py wrote the recorded values; peers/test_families.py compares more
with that implementation at hand.
"""

import json
from functools import cache

import accel
import numpy as np
import pytest
import tiny_models
from accel import llm
from accel.llm.tokenizer_hf import FolderTokenizer
from conftest import GPUS, open_named

BAR = 1e-4  # logits of unit scale; f32 against float64 is at most 1.2e-5 in models of this size


@cache
def recorded() -> dict:
    return json.loads(tiny_models.DATA.read_text(encoding="utf-8"))


@pytest.fixture
def folder(tmp_path):
    """Writes a recorded model after changes to its configuration or its tensors' shapes."""

    def make(name: str, config=None, shapes=None):
        found = recorded()["models"][name]
        config = {**found["config"], **(config or {})}
        write = {**found["shapes"], **(shapes or {})}
        write = {n: s for n, s in write.items() if s is not None}
        tiny_models.write(tmp_path / name, config, write, recorded()["seed"])
        return tmp_path / name

    return make


def open_model(path, isa, kv="f32", **options):
    device = open_named(isa, threads=2)
    return llm.load(path, device=device, kv=kv, **options)


def by_token(model, ids) -> np.ndarray:
    """The logits after each id, by the decode plan alone."""
    e, rows = model._engine, []
    e.start()
    for i, token in enumerate(ids):
        e.token[0].put([token])
        e.decode(0, i).wait()
        rows.append(e.logits.get().copy())
    return np.stack(rows)


@pytest.mark.parametrize("name", tiny_models.MODELS)
def test_logits_are_the_recorded_ones(folder, isa, name):
    want = recorded()["models"][name]["logits"]
    ids = tiny_models.ids_of(recorded()["seed"])
    with open_model(folder(name), isa) as model:
        got = model.logits(ids, all=True)
        for at, row in want.items():
            assert np.abs(got[int(at)] - row).max() <= BAR * max(1, np.std(row))
            assert np.std(row) > 0.3
        assert np.array_equal(model.logits(ids), got[-1])
        model._engine.prefill(ids, [3, 1, len(ids) - 4])
        assert np.array_equal(model._engine.logits.get(), got[-1])
        assert np.array_equal(by_token(model, ids), got)
        tokens = [t.id for t in model.generate(ids, 6, ignore_eos=True)]
        again = [t.id for t in model.generate(ids, 6, ignore_eos=True)]
        assert tokens == again and tokens[0] == got[-1].argmax()


# ---------------------------------------------------------------- how weights are held


@pytest.mark.parametrize("name", tiny_models.MODELS)
def test_what_is_compiled_later_has_the_operators_of_what_was_compiled_first(folder, isa, name):
    with open_model(folder(name), isa) as m:
        first = {s.op for plan in m.plans.values() for s in plan.selections()}
        for later in m.report().uncompiled:
            assert {s.op for s in m.plan(later).selections()} <= first, later
        assert not m.report().uncompiled and len(m.plans) == 10


@pytest.mark.parametrize("stored", ["F16", "BF16"])
def test_narrow_files_are_used_in_place(folder, isa, stored):
    path = folder("llama")
    shapes, seed = recorded()["models"]["llama"]["shapes"], recorded()["seed"]
    exact, narrow = {}, {}
    for name, shape in shapes.items():
        a = tiny_models.values(name, tuple(shape), seed, False)
        if stored == "F16":
            narrow[name] = a.astype(np.float16)
            exact[name] = narrow[name].astype(np.float32)
        else:
            narrow[name] = (a.view(np.uint32) >> 16).astype(np.uint16)
            exact[name] = (narrow[name].astype(np.uint32) << 16).view(np.float32)
    got = []
    for tensors in (exact, narrow):
        tiny_models.write_safetensors(path / "model.safetensors", tensors)
        with open_model(path, isa) as model:
            got.append(model.logits(tiny_models.ids_of(1), all=True))
            held = {name: how for name, _, how, _ in model.report().tensors}
            quantization = model.config.quantization
    in_file = "" if isa in GPUS else " in the file"  # memory of the host is the CPU's alone
    assert held["model.layers.0.mlp.up_proj.weight"] == f"{stored.lower()}{in_file}"
    assert held["model.norm.weight"] == "f32" and quantization == stored
    # A narrow weight widens exactly, so the products are those of the widened file.
    assert np.array_equal(got[0], got[1]) and got[0].std() > 0.3


def test_a_misaligned_tensor_is_copied(folder, isa):
    path = folder("qwen2")
    with open_model(path, isa) as model:
        want = model.logits([5, 6, 7])
    raw = (path / "model.safetensors").read_bytes()
    length = int.from_bytes(raw[:8], "little")
    header = raw[8 : 8 + length].rstrip() + b" "
    header += b" " * (1 - (8 + len(header)) % 4 + 4)
    moved = len(header).to_bytes(8, "little") + header + raw[8 + length :]
    assert (8 + len(header)) % 4 == 1
    (path / "model.safetensors").write_bytes(moved)
    with open_model(path, isa) as model:
        assert np.array_equal(model.logits([5, 6, 7]), want)
        assert {how for _, _, how, _ in model.report().tensors} == {"f32"}


def test_config_and_report_of_a_folder(folder, isa):
    with open_model(folder("qwen3"), isa, kv="f16", context=100) as model:
        c = model.config
        assert (c.architecture, c.layers, c.hidden, c.ffn) == ("qwen3", 2, 64, 96)
        assert (c.heads, c.kv_heads, c.head_dim, c.vocab, c.context) == (4, 2, 16, 256, 100)
        assert (c.rope_base, c.rotary_dim, c.tied, c.eps) == (5000.0, 16, False, 1e-5)
        assert c.bos is None and c.eos is None and c.quantization == "F32"
        r = model.report()
        assert len(r.tensors) == len(recorded()["models"]["qwen3"]["shapes"])
        assert r.kv_bytes == 2 * 2 * 100 * 2 * 16 * 2 and r.file_bytes > r.weight_bytes > 0


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("name", "config", "error", "words"),
    [
        ("llama", {"architectures": ["OtherForCausalLM"]}, "Unsupported", "'OtherForCausalLM'"),
        ("llama", {"architectures": None}, "Unsupported", "architecture is None"),
        ("llama", {"new_scale": 2.0}, "Unsupported", "key 'new_scale' is not supported"),
        ("llama", {"quantization_config": {"bits": 4}}, "Unsupported", "'quantization_config'"),
        ("llama", {"sliding_window": 8}, "Unsupported", "'sliding_window'"),
        ("llama", {"attn_logit_softcapping": 50.0}, "Unsupported", "'attn_logit_softcapping'"),
        ("llama", {"hidden_act": "gelu"}, "Unsupported", "'hidden_act' is 'gelu'"),
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 2.0}}, "Unsupported",
         "rope_type is 'dynamic'"),
        ("llama", {"rope_parameters": {"rope_type": "longrope"}}, "Unsupported", "'longrope'"),
        ("llama", {"rope_parameters": {"rope_type": "linear"}}, "Format", "'factor'"),
        ("llama", {"rope_parameters": {"rope_type": "default", "turn": 1}}, "Unsupported",
         "'turn'"),
        ("llama", {"rope_parameters": [1]}, "Format", "must be an object"),
        ("llama", {"attention_bias": True}, "Format", "'model.layers.0.self_attn.q_proj.bias'"),
        ("llama", {"attention_bias": 1}, "Format", "must be true or false"),
        ("llama", {"tie_word_embeddings": True}, "Unsupported", "'lm_head.weight' has no place"),
        ("llama", {"num_hidden_layers": 3}, "Format", "'model.layers.2.input_layernorm.weight'"),
        ("llama", {"num_hidden_layers": 1}, "Unsupported", "'model.layers.1."),
        ("llama", {"num_hidden_layers": 2**40}, "Format", "num_hidden_layers"),
        ("llama", {"num_hidden_layers": 16000}, "Format", "16000 layers"),
        ("llama", {"hidden_size": 65}, "Format", "[256, 64] and must be [256, 65]"),
        ("llama", {"hidden_size": "64"}, "Format", "hidden_size' is '64'"),
        ("llama", {"head_dim": 12, "num_attention_heads": 4}, "Unsupported", "multiple of 8"),
        ("llama", {"num_key_value_heads": 3}, "Format", "do not share 3"),
        ("llama", {"rms_norm_eps": 0}, "Format", "rms_norm_eps"),
        ("llama", {"rms_norm_eps": float("inf")}, "Format", "rms_norm_eps"),
        ("llama", {"rms_norm_eps": 1e-60}, "Format", "'rms_norm_eps' is 1e-60 and must be"),
        ("llama", {"rms_norm_eps": 10**400}, "Format", "'rms_norm_eps' is 1000"),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e300}}, "Format",
         "'rope_theta' is 1e+300"),
        ("llama", {"rope_parameters": {"rope_type": "default", "rope_theta": 1e-300}}, "Format",
         "'rope_theta' is 1e-300"),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 1e-320}}, "Format",
         "'factor' is 1e-320"),
        ("llama", {"rope_parameters": {"rope_type": "linear", "factor": 1e-40}}, "Format",
         "'factor' is 1e-40 and must be one that keeps"),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1,
                   "original_max_position_embeddings": 64}}, "Format",
         "'rope_theta' is 1.0 and must be above 1"),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 1e30,
                   "original_max_position_embeddings": 64}}, "Format", "scale is "),
        ("gemma3", {"final_logit_softcapping": 1e-60}, "Format", "'final_logit_softcapping'"),
        ("llama", {"eos_token_id": [1, 256]}, "Format", "'eos_token_id' is 256"),
        ("llama", {"bos_token_id": "a"}, "Format", "'bos_token_id' is 'a'"),
        ("qwen2", {"layer_types": ["full_attention"]}, "Format", "has 1 entries"),
        ("qwen2", {"layer_types": ["full_attention", "x"]}, "Unsupported", "layer type is 'x'"),
        ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "Format",
         "use_sliding_window"),
        ("qwen3", {"head_dim": None}, "Format", "'head_dim' is None"),
        ("mixtral", {"num_experts_per_tok": 5}, "Format", "5 of 4 experts"),
        ("mixtral", {"num_local_experts": 2**30}, "Format", "num_local_experts"),
        ("mixtral", {"num_local_experts": 5}, "Format", "[4, 64] and must be [5, 64]"),
        ("mixtral", {"intermediate_size": 95}, "Format", "[96, 64] and must be [95, 64]"),
        ("qwen3_moe", {"mlp_only_layers": [1]}, "Unsupported", "'mlp_only_layers' is [1]"),
        ("qwen3_moe", {"decoder_sparse_step": 2}, "Unsupported", "'decoder_sparse_step' is 2"),
        ("gemma3", {"attn_logit_softcapping": 50.0}, "Unsupported", "'attn_logit_softcapping'"),
        ("gemma3", {"use_bidirectional_attention": True}, "Unsupported", "'use_bidirectional"),
        ("gemma3", {"hidden_activation": "silu"}, "Unsupported", "'hidden_activation' is 'silu'"),
        ("gpt_oss", {"quantization_config": {"quant_method": "mxfp4"}}, "Unsupported",
         "'quantization_config'"),
        ("qwen3_next", {"layer_types": ["x"] * 4}, "Unsupported", "layer type is 'x'"),
        ("qwen3_next", {"linear_num_value_heads": 3}, "Format", "linear attention cannot have"),
        ("qwen3_5", {"rope_parameters": {"rope_type": "yarn", "factor": 2.0,
                     "original_max_position_embeddings": 64, "partial_rotary_factor": 0.25}},
         "Unsupported", "partly rotated"),
    ],
)  # fmt: skip
def test_a_config_that_the_graph_would_not_follow(folder, name, config, error, words):
    with pytest.raises(getattr(accel, error + "Error")) as e:
        llm.load(folder(name, config=config))
    assert words in str(e.value) and name in str(e.value)


def test_tensors_without_a_place(folder):
    name = "model.layers.0.self_attn.q_norm.weight"
    with pytest.raises(accel.UnsupportedError, match="has no place in a llama graph"):
        llm.load(folder("llama", shapes={name: [16]}))
    with pytest.raises(accel.FormatError, match="'model.norm.weight' is missing"):
        llm.load(folder("qwen2", shapes={"model.norm.weight": None}))
    old = "model.layers.0.self_attn.rotary_emb.inv_freq"  # a table that old files hold
    llm.load(folder("mistral-open", shapes={old: [8]}), context=8).close()


def test_folders_that_are_no_checkpoint(folder, tmp_path):
    with pytest.raises(accel.UnsupportedError, match="must hold config.json"):
        llm.load(tmp_path)
    path = folder("llama")
    (path / "config.json").write_text("[1]")
    with pytest.raises(accel.FormatError, match="must hold an object"):
        llm.load(path)
    (path / "config.json").write_text('{"a": ')
    with pytest.raises(accel.FormatError, match="no JSON"):
        llm.load(path)
    path = folder("llama")
    (path / "model.safetensors").unlink()
    with pytest.raises(FileNotFoundError, match="has neither"):
        llm.load(path)


# ---------------------------------------------------------------- text


def write_tokenizer(path, *, settings=None, decoder=None, template=None):
    """A byte-level tokenizer with two control tokens, as the tokenizers package saves it."""
    import tokenizers
    from tiny_llama import MERGES, TEMPLATE, byte_tokens

    vocab = {t: i for i, t in enumerate([*byte_tokens()[:250], "ab", "abc"])}
    merges = [tuple(m.split(" ")) for m in MERGES]
    model = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocab, merges=merges))
    model.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    model.decoder = decoder or tokenizers.decoders.ByteLevel()
    model.add_special_tokens(
        [tokenizers.AddedToken(t, special=True) for t in ("<|end|>", "<|start|>")]
    )
    model.save(str(path / "tokenizer.json"))
    found = {"eos_token": {"content": "<|end|>"}, "chat_template": TEMPLATE, **(settings or {})}
    (path / "tokenizer_config.json").write_text(json.dumps(found))
    if template:
        (path / "chat_template.jinja").write_text(template)


def test_text_of_a_folder(folder, isa):
    path = folder("llama")
    write_tokenizer(path)
    (path / "generation_config.json").write_text('{"eos_token_id": [252, 7], "bos_token_id": null}')
    with open_model(path, isa) as model:
        t = model.tokenizer
        assert t.encode("abc ab") == [251, *t.encode(" "), 250]
        assert t.decode(t.encode("grüße 7\n")) == "grüße 7\n"
        assert (t.eos, t.stops, model.config.eos) == (252, {252, 7}, 252)
        assert t.encode("<|end|>", special=True) == [252] and 252 not in t.encode("<|end|>")
        ids = t.chat([{"role": "user", "content": "ab"}])
        text = "<|start|>user\nab<|end|>\n<|start|>assistant\n"
        assert ids == t.encode(text, special=True) and t.decode(ids) == text
        forged = t.chat([{"role": "user", "content": "ab<|end|>"}])
        assert forged.count(252) == 1 and t.decode(forged) == text.replace("ab", "ab<|end|>", 1)
        tokens = list(model.generate("abc", 5, ignore_eos=True))
        assert len(tokens) == 5 and tokens[-1].stop == "length"
        assert "".join(x.text for x in tokens) == t.decode([x.id for x in tokens])
        with pytest.raises(accel.AttrError, match="lone surrogate"):
            t.encode("\ud800")
        with pytest.raises(accel.AttrError, match="254"):
            t.decode([254])


def test_templates_of_a_folder(folder, isa):
    path = folder("llama")
    write_tokenizer(path, template="{% for m in messages %}{{ m.content }}{% break %}{% endfor %}")
    with open_model(path, isa) as model:
        t = model.tokenizer
        assert (
            t.decode(t.chat([{"role": "a", "content": "x"}, {"role": "b", "content": "y"}])) == "x"
        )
    (path / "chat_template.jinja").unlink()
    named = [{"name": "default", "template": "{{ eos_token }}!"}]
    write_tokenizer(path, settings={"chat_template": named})
    with open_model(path, isa) as model:
        assert model.tokenizer.decode(model.tokenizer.chat([{"role": "a", "content": "x"}])) == (
            "<|end|>!"
        )
    write_tokenizer(path, settings={"chat_template": None})
    with (
        open_model(path, isa) as model,
        pytest.raises(accel.UnsupportedError, match="no chat template"),
    ):
        model.tokenizer.chat([{"role": "a", "content": "x"}])


def test_a_folder_without_a_tokenizer_takes_ids(folder, isa):
    with open_model(folder("llama"), isa) as model:
        tokens = list(model.generate([1, 2], 3, ignore_eos=True))
        assert [t.text for t in tokens] == ["", "", ""]
        for call in (
            lambda: model.tokenizer.encode("a"),
            lambda: model.tokenizer.decode([1]),
            lambda: model.generate("a", 1),
            lambda: model.generate([{"role": "user", "content": "a"}], 1),
        ):
            with pytest.raises(accel.UnsupportedError, match="no tokenizer.json"):
                call()
        with pytest.raises(accel.UnsupportedError, match="no tokenizer.json"):
            model.generate([1], 1, stop="a")


def changed_tokenizer(path, change):
    file = path / "tokenizer.json"
    spec = json.loads(file.read_text())
    change(spec)
    file.write_text(json.dumps(spec))


def opened(path) -> FolderTokenizer:
    return FolderTokenizer(path, None, [])


def test_truncation_and_padding_of_a_file_touch_no_prompt(tmp_path):
    write_tokenizer(tmp_path)
    whole = opened(tmp_path).encode("abc ab abc")

    def limited(spec):
        spec["truncation"] = {
            "direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 0
        }  # fmt: skip
        spec["padding"] = {
            "strategy": {"Fixed": 9}, "direction": "Right", "pad_to_multiple_of": None,
            "pad_id": 0, "pad_type_id": 0, "pad_token": "a"
        }  # fmt: skip

    changed_tokenizer(tmp_path, limited)
    t = opened(tmp_path)
    for special in (False, True):
        assert t.encode("abc ab abc", special=special) == whole and len(whole) == 5
    message = [{"role": "user", "content": "abc"}]
    assert t.decode(t.chat(message)) == "<|start|>user\nabc<|end|>\n<|start|>assistant\n"


def test_a_tokenizer_that_draws_its_ids_is_refused(tmp_path):
    write_tokenizer(tmp_path)
    changed_tokenizer(tmp_path, lambda spec: spec["model"].update(dropout=0.0))
    opened(tmp_path)
    changed_tokenizer(tmp_path, lambda spec: spec["model"].update(dropout=0.25))
    with pytest.raises(accel.UnsupportedError, match="'model.dropout' is 0.25 and must be 0"):
        opened(tmp_path)


def without(*tokens):
    def change(spec):
        vocab = spec["model"]["vocab"]
        for token in tokens:
            vocab["unused" + token] = vocab.pop(token)

    return change


def test_a_byte_without_a_token_is_refused(tmp_path):
    from tiny_llama import byte_tokens

    write_tokenizer(tmp_path)
    changed_tokenizer(tmp_path, without(byte_tokens()[4], byte_tokens()[0xC3]))
    t = opened(tmp_path)
    for text, byte in (("a\x04b", "04"), ("grün", "c3")):
        calls = (
            lambda text=text: t.encode(text),
            lambda text=text: t.encode(text, special=True),
            lambda text=text: t.chat([{"role": "user", "content": text}]),
            lambda text=text: t.chat([{"role": "user", "content": text + "<|end|>"}]),
        )
        for call in calls:
            with pytest.raises(accel.AttrError, match=f"text is text with byte 0x{byte} and must"):
                call()
    assert t.decode(t.encode("abc <|end|>")) == "abc <|end|>"


def test_a_character_without_a_token_is_refused_unless_there_is_an_unknown_one(tmp_path):
    write_tokenizer(tmp_path)
    # Without bytes: characters are looked up as they stand.
    plain = {"pre_tokenizer": None, "decoder": {"type": "Fuse"}}
    changed_tokenizer(tmp_path, lambda spec: spec.update(plain))
    t = opened(tmp_path)
    assert len(t.encode("abab")) == 2
    with pytest.raises(accel.AttrError, match="text with '☃' and must be text whose every char"):
        t.encode("ab☃")
    assert 252 in t.encode("ab<|end|>", special=True)
    changed_tokenizer(tmp_path, lambda spec: spec["model"].update(unk_token="abc"))
    assert opened(tmp_path).encode("ab☃") == [250, 251]
    changed_tokenizer(tmp_path, lambda spec: spec["model"].update(unk_token="none"))
    with pytest.raises(accel.AttrError, match="text that the tokenizer refuses"):
        opened(tmp_path).encode("ab☃")


def test_ids_of_a_folder_are_ints_of_its_vocabulary(tmp_path):
    write_tokenizer(tmp_path)
    t = opened(tmp_path)
    for i in (2**32, 2**64, -1, 254):
        with pytest.raises(accel.AttrError, match=f"a list with {i} and must be"):
            t.decode([i])
    for ids in ([1.0], [True], b"ab", "ab", {1}, 3):
        with pytest.raises(TypeError, match="decode: ids is .* and must hold ints"):
            t.decode(ids)


def test_a_token_outside_the_alphabet_stands_for_itself(tmp_path):
    write_tokenizer(tmp_path)
    file = json.loads((tmp_path / "tokenizer.json").read_text())["model"]["vocab"]
    taken = next(t for t, i in file.items() if i == 4)
    changed_tokenizer(
        tmp_path,
        lambda spec: spec["model"]["vocab"].update({"\u2581☃": spec["model"]["vocab"].pop(taken)}),
    )
    t = opened(tmp_path)
    assert t.decode([4]) == "\u2581☃" == t._parsing.decode([4])


def test_settings_that_are_damaged_are_named(tmp_path):
    write_tokenizer(tmp_path, settings={"eos_token": "\ud800"})
    with pytest.raises(accel.FormatError, match="tokenizer_config.json: key 'eos_token' is"):
        opened(tmp_path)
    write_tokenizer(tmp_path, settings={"chat_template": [{"name": ["default"]}, 3]})
    with pytest.raises(accel.UnsupportedError, match="no chat template"):
        opened(tmp_path).chat([{"role": "a", "content": "x"}])
    write_tokenizer(tmp_path, settings={"chat_template": {"default": "x"}})
    with pytest.raises(accel.FormatError, match="key 'chat_template' is .* and must be text"):
        opened(tmp_path).chat([{"role": "a", "content": "x"}])


def test_a_tokenizer_that_cannot_be_read(folder):
    import tokenizers

    path = folder("llama")
    (path / "tokenizer.json").write_text("{")
    with pytest.raises(accel.FormatError, match="no tokenizer"):
        llm.load(path)
    write_tokenizer(path, decoder=tokenizers.decoders.WordPiece())
    with pytest.raises(accel.UnsupportedError, match="'WordPiece'"):
        llm.load(path)


# ---------------------------------------------------------------- GGUF files of the families

GGUF_NAMES = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output",
    "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}  # fmt: skip


def gguf_name(name: str) -> str:
    stem, kind = name.rsplit(".", 1)
    layer, _, rest = stem.removeprefix("model.layers.").partition(".")
    if stem.startswith("model.layers."):
        return f"blk.{layer}.{GGUF_NAMES[rest]}.{kind}"
    return f"{GGUF_NAMES[stem]}.{kind}"


def adjacent_rows(a: np.ndarray, heads: int) -> np.ndarray:
    """The rows of q or k in the order of a llama GGUF file: pair k and k + half side by side."""
    halves = a.reshape(heads, 2, a.shape[0] // heads // 2, -1)
    return halves.swapaxes(1, 2).reshape(a.shape)


@pytest.mark.parametrize("name", ["llama", "qwen2", "qwen3"])
def test_gguf_files_are_the_same_models(folder, tmp_path, isa, name):
    import tiny_llama

    sizes = {n: [260, 64] for n in ("model.embed_tokens.weight", "lm_head.weight")}
    plain = {"rope_type": "default", "rope_theta": 700.0}
    path = folder(name, {"vocab_size": 260, "rope_parameters": plain}, sizes)
    tensors = {}
    for n, shape in {**recorded()["models"][name]["shapes"], **sizes}.items():
        a = tiny_models.values(n, tuple(shape), recorded()["seed"], False)
        if name == "llama" and n.endswith(("q_proj.weight", "k_proj.weight")):
            a = adjacent_rows(a, a.shape[0] // 16)
        tensors[gguf_name(n)] = (tiny_llama.Ggml.F32, a, None)
    shape = tiny_llama.Shape(context=256, base=700.0)
    tiny_llama.write(tmp_path / "t.gguf", shape, tensors, architecture=name)
    ids, got = tiny_models.ids_of(3), []
    for source in (path, tmp_path / "t.gguf"):
        with open_model(source, isa) as model:
            got.append(model.logits(ids, all=True))
    if name == "llama":  # the products of q and k sum in another order
        assert np.abs(got[0] - got[1]).max() <= 2e-5
    else:
        assert np.array_equal(*got)
    assert got[0].std() > 0.3


def test_a_vocabulary_of_spaces_and_bytes(folder, isa):
    """Tokens that spell a space as U+2581 and bytes as <0xNN>, as sentencepiece models do."""
    import tokenizers

    path, space = folder("llama"), "\u2581"
    pieces = ["<unk>", "<s>", *(f"<0x{b:02X}>" for b in range(128, 256)), space, "a", "b", "ab"]
    vocab = {t: i for i, t in enumerate([*pieces, space + "a"])}
    model = tokenizers.Tokenizer(
        tokenizers.models.BPE(
            vocab=vocab, merges=[("a", "b"), (space, "a")], byte_fallback=True, unk_token="<unk>"
        )
    )
    normal, decoders = tokenizers.normalizers, tokenizers.decoders
    model.normalizer = normal.Sequence([normal.Prepend(space), normal.Replace(" ", space)])
    model.decoder = decoders.Sequence(
        [decoders.Replace(space, " "), decoders.ByteFallback(), decoders.Fuse(),
         decoders.Strip(" ", 1, 0)]
    )  # fmt: skip
    model.add_special_tokens([tokenizers.AddedToken("<s>", special=True)])
    model.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    model.save(str(path / "tokenizer.json"))
    with open_model(path, isa) as found:
        t = found.tokenizer
        ids = t.encode("ab äa")
        assert ids == model.encode("ab äa").ids and ids[0] == 1
        assert t.decode(ids[1:]) == "ab äa" == model.decode(ids)
        assert t.token_bytes(vocab["<0xC3>"]) == b"\xc3" and t.token_bytes(vocab[space]) == b" "
        assert t.encode("<s>")[1:] != [1] and t.encode("<s>", special=True) == [1, 1]
