#!/usr/bin/env python3
"""Conformance models of every architecture, with float64 reference logits.

  pip install torch transformers safetensors numpy
  PYTHONPATH=LLAMA_CPP:LLAMA_CPP/gguf-py architectures.py --out tests/fixtures [CASE ...]

LLAMA_CPP is the tree of llama.cpp, for its converter: PyPI's source package of llama-cpp-python has it in vendor/.

A case is a small Hugging Face model with random weights. llama.cpp's converter writes it as a GGUF file of F32
weights; every matrix is then replaced by weights of the case's types, and the same weights, dequantised by the `gguf`
package, go back into the Hugging Face model, which computes the logits in float64. Nothing of bespoke takes part.

The converter permutes the rows of some matrices. The script finds each permutation by comparing rows, so it needs no
knowledge of the architectures beyond the names of the configuration classes.

Writes CASE.gguf, and CASE.safetensors with `tokens` (i32 [n]), `logits` (f32 [positions, vocab]) and, if not every
position is stored, `positions` (i32).
"""

import argparse
import contextlib
import copy
import json
import logging
import tempfile
from pathlib import Path

import conversion
import gguf
import numpy as np
import torch
import transformers
from conversion.base import ModelBase
from gguf import GGMLQuantizationType as T
from safetensors.numpy import save_file

SEED = 20261122
VOCAB = 320

# Sizes of most cases; K-quants need rows of a multiple of 256. Only some architectures have a head_dim of their own.
SMALL = dict(hidden_size=64, intermediate_size=160, num_hidden_layers=3, num_attention_heads=4, num_key_value_heads=2,
             head_dim=32)
WIDE = dict(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
            head_dim=64)

YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=256)
LLAMA3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
              original_max_position_embeddings=256)
GEMMA3_LINEAR = dict(full_attention=dict(rope_type="linear", rope_theta=1000000.0, factor=8.0),
                     sliding_attention=dict(rope_type="default", rope_theta=10000.0))
LINEAR = dict(rope_type="linear", rope_theta=10000.0, factor=4.0)


def longrope(pairs):
    short = [1.0 + 0.02 * i for i in range(pairs)]
    long = [1.0 + 0.4 * i for i in range(pairs)]
    return dict(rope_type="longrope", rope_theta=10000.0, short_factor=short, long_factor=long,
                original_max_position_embeddings=256)


# Architecture: configuration class, and its options besides the sizes.
ARCHITECTURES = {
    "llama": ("Llama", dict(rope_parameters=LLAMA3, max_position_embeddings=2048)),
    "llama-bias": ("Llama", dict(attention_bias=True)),
    "llama-linear": ("Llama", dict(rope_parameters=LINEAR, max_position_embeddings=4096)),
    "llama-yarn": ("Llama", dict(rope_parameters=YARN, max_position_embeddings=2048)),
    "mistral": ("Mistral", dict(sliding_window=None)),
    "qwen2": ("Qwen2", dict(tie_word_embeddings=True)),
    "qwen3": ("Qwen3", dict()),
    "phi3": ("Phi3", dict(sliding_window=None, pad_token_id=0, partial_rotary_factor=1.0)),
    "phi3-long": ("Phi3", dict(sliding_window=None, pad_token_id=0, longrope=True, max_position_embeddings=4096,
                               original_max_position_embeddings=256)),
    "gemma2": ("Gemma2", dict(sliding_window=48, num_hidden_layers=4,
                              attn_logit_softcapping=50.0, final_logit_softcapping=30.0)),
    "gemma3": ("Gemma3Text", dict(sliding_window=40, num_hidden_layers=7,
                                  rope_parameters=GEMMA3_LINEAR, max_position_embeddings=4096)),
    "gemma3-256": ("Gemma3Text", dict(head_dim=256, sliding_window=40, num_hidden_layers=2,
                                      num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=4096)),
    "granite": ("Granite", dict(embedding_multiplier=12.0, attention_multiplier=0.25, residual_multiplier=0.22,
                                logits_scaling=8.0)),
    "smollm3": ("SmolLM3", dict(num_hidden_layers=5, no_rope_layer_interval=4, use_sliding_window=False, pad_token_id=0)),
    "olmo2": ("Olmo2", dict()),
    "ernie4_5": ("Ernie4_5", dict(tie_word_embeddings=True, use_bias=False)),
}

Q4_K_M = {"default": T.Q4_K, "output.weight": T.Q6_K, "token_embd.weight": T.Q6_K, "attn_v": T.Q6_K, "ffn_down": T.Q6_K,
          "attn_qkv": T.Q5_K}
Q2_K_MIX = {"default": T.Q2_K, "output.weight": T.Q6_K, "attn_v": T.Q4_K, "attn_output": T.Q3_K, "ffn_down": T.Q3_K}
IQ4_XS_MIX = {"default": T.IQ4_XS, "output.weight": T.Q6_K, "attn_v": T.Q5_K, "attn_qkv": T.Q5_K}


def uniform(kind):
    return {"default": kind}


# Recipe of types: sizes, types by part of the tensor's name.
RECIPES = {
    "f32": (SMALL, uniform(T.F32)),
    "f16": (SMALL, uniform(T.F16)),
    "bf16": (SMALL, uniform(T.BF16)),
    "q8_0": (SMALL, uniform(T.Q8_0)),
    "q5_0": (SMALL, uniform(T.Q5_0)),
    "q5_1": (SMALL, uniform(T.Q5_1)),
    "q4_0": (SMALL, uniform(T.Q4_0)),
    "q4_1": (SMALL, uniform(T.Q4_1)),
    "iq4_nl": (SMALL, uniform(T.IQ4_NL)),
    "mxfp4": (SMALL, {"default": T.MXFP4, "output.weight": T.Q8_0, "token_embd.weight": T.Q8_0}),
    "q4_k_m": (WIDE, Q4_K_M),
    "q2_k": (WIDE, Q2_K_MIX),
    "iq4_xs": (WIDE, IQ4_XS_MIX),
}

# Where the f16 scales lie in a block, in bytes.
HALF_SCALES = {T.Q2_K: [80, 82], T.Q3_K: [108], T.Q4_K: [0, 2], T.Q5_K: [0, 2], T.Q6_K: [208], T.IQ4_XS: [0],
               T.IQ4_NL: [0], T.Q4_0: [0], T.Q4_1: [0, 2], T.Q5_0: [0], T.Q5_1: [0, 2], T.Q8_0: [0]}

# Cases that are checked in. Others are made on request, as ARCHITECTURE-RECIPE or ARCHITECTURE-RECIPE-2048.
CHECKED_IN = [
    "llama-linear-q5_1", "llama-yarn-q8_0", "llama-bias-bf16", "mistral-iq4_nl", "qwen2-q8_0", "qwen3-mxfp4",
    "phi3-q8_0", "phi3-long-q5_0", "phi3-q4_k_m", "gemma2-q8_0", "gemma2-q4_k_m", "gemma3-q8_0", "gemma3-256-q4_0",
    "granite-q8_0", "granite-iq4_xs", "smollm3-q4_1", "olmo2-q8_0", "olmo2-q2_k", "gemma3-f16-2048",
    "ernie4_5-q4_0",
]


@contextlib.contextmanager
def float64_everywhere():
    """Makes transformers' casts to float32 (norms, softmax, RoPE's angles) casts to float64."""
    names = {"float32": torch.float32, "float": torch.float}
    to_float = torch.Tensor.float
    torch.float32 = torch.float = torch.float64
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        for name, value in names.items():
            setattr(torch, name, value)
        torch.Tensor.float = to_float


def split_name(case):
    """Architecture, recipe and number of tokens of a case."""
    tokens = 96
    if case.rsplit("-", 1)[-1].isdigit() and case not in ARCHITECTURES:
        case, count = case.rsplit("-", 1)
        tokens = int(count)
    architecture, recipe = case.rsplit("-", 1)
    return architecture, recipe, tokens


def make_model(architecture, sizes, tokens):
    name, options = ARCHITECTURES[architecture]
    options = {**sizes, **options}
    if name not in ("Mistral", "Qwen3", "Gemma2", "Gemma3Text"):
        del options["head_dim"]
    if name.startswith("Gemma"):
        # llama.cpp's converter writes no key for another value.
        options.setdefault("query_pre_attn_scalar", options["head_dim"])
    if options.pop("longrope", False):
        head_dim = options["hidden_size"] // options["num_attention_heads"]
        options["rope_parameters"] = longrope(head_dim // 2)
    options.setdefault("max_position_embeddings", max(2048, tokens))
    config_class = getattr(transformers, f"{name}Config")
    config = config_class(vocab_size=VOCAB, bos_token_id=1, eos_token_id=2, attn_implementation="eager", **options)
    config.architectures = [f"{name}ForCausalLM".replace("Gemma3TextFor", "Gemma3For")]
    model_class = getattr(transformers, f"{name}ForCausalLM".replace("Gemma3TextFor", "Gemma3For"))
    with float64_everywhere():
        model = model_class(config).double().eval()
    generator = torch.Generator().manual_seed(SEED)
    with torch.no_grad():
        for parameter_name, parameter in model.named_parameters():
            random = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if parameter.dim() == 2:
                random *= 1.0 if "embed" in parameter_name else 1.4 / parameter.shape[1] ** 0.5
            elif "norm" in parameter_name:
                # Gemma's norms have the factor 1 + weight.
                random = 0.2 * random + (0.0 if name.startswith("Gemma") else 1.0)
            else:
                random *= 0.1
            parameter.copy_(random.float().double())
    return model


def convert(model, folder):
    """Writes the model as a GGUF file of F32 weights with llama.cpp's converter."""
    single = copy.deepcopy(model).float()
    single.config.dtype = torch.float32
    single.save_pretrained(folder, safe_serialization=True)
    hparams = ModelBase.load_hparams(folder, False)
    model_class = conversion.get_model_class(hparams["architectures"][0], mmproj=False)

    def set_vocab(self):
        tokens = ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)]
        tokens += [f"t{i}" for i in range(VOCAB - len(tokens))]
        types = [2, 3, 3] + [6] * 256 + [1] * (VOCAB - 259)
        self.gguf_writer.add_tokenizer_model("llama")
        self.gguf_writer.add_tokenizer_pre("default")
        self.gguf_writer.add_token_list(tokens)
        self.gguf_writer.add_token_scores([0.0 if kind != 1 else -float(i) for i, kind in enumerate(types)])
        self.gguf_writer.add_token_types(types)
        self.gguf_writer.add_bos_token_id(1)
        self.gguf_writer.add_eos_token_id(2)
        self.gguf_writer.add_add_bos_token(False)

    path = folder / "f32.gguf"
    model_class.set_vocab = set_vocab
    # Gemma's converter counts the tokens of this file.
    (folder / "tokenizer.json").write_text(json.dumps({"model": {"vocab": list(range(VOCAB))}, "added_tokens": []}))
    with torch.inference_mode():
        model_class(folder, gguf.LlamaFileType.ALL_F32, path, eager=True).write()
    return path


def pick_type(name, types):
    if name in types:
        return types[name]
    return next((kind for part, kind in types.items() if part in name), types["default"])


def random_blocks(shape, kind, deviation, generator):
    """Random blocks of a quantised type whose weights have the given standard deviation."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    rows, cols = shape
    assert cols % elements == 0, f"{kind.name}: {cols} columns"
    raw = generator.integers(0, 256, (rows * cols // elements, size), dtype=np.uint8)
    if kind == T.MXFP4:
        # E8M0 exponents around that of the deviation; an E2M1 value has a deviation of about 3.
        exponent = 127 + round(np.log2(deviation / 3))
        raw[:, 0] = generator.integers(exponent - 1, exponent + 2, len(raw))
    else:
        for offset in HALF_SCALES[kind]:
            scale = np.float16(1.0) if offset == HALF_SCALES[kind][0] else np.float16(0.7)
            values = (scale * (0.5 + generator.random(len(raw)))).astype(np.float16)
            raw[:, offset:offset + 2] = values.view(np.uint8).reshape(-1, 2)
        spread = gguf.quants.dequantize(raw.reshape(rows, -1), kind).astype(np.float64)
        factor = deviation / spread.std()
        offset_too = {T.Q4_1: -8, T.Q5_1: -16}.get(kind)
        for index, offset in enumerate(HALF_SCALES[kind]):
            values = raw[:, offset:offset + 2].copy().view(np.float16).reshape(-1).astype(np.float64) * factor
            if index == 1 and offset_too is not None:
                first = raw[:, 0:2].copy().view(np.float16).reshape(-1).astype(np.float64)
                values = first * offset_too * (0.9 + 0.2 * generator.random(len(raw)))
            raw[:, offset:offset + 2] = values.astype(np.float16).view(np.uint8).reshape(-1, 2)
    return raw.reshape(rows, -1)


def quantise(weights, kind, generator):
    """Raw rows of `kind`: the rounded weights for float types, random blocks of the same deviation for others."""
    if kind in (T.F32, T.F16, T.BF16):
        return gguf.quants.quantize(weights.astype(np.float32), kind)
    return random_blocks(weights.shape, kind, float(weights.std()), generator)


def row_permutation(original, converted):
    """Index in `converted` of each row of `original`, or None if the rows are others."""
    if original.shape != converted.shape:
        return None
    at = {row.tobytes(): index for index, row in enumerate(np.ascontiguousarray(converted))}
    rows = [at.get(row.tobytes()) for row in np.ascontiguousarray(original)]
    return None if None in rows else np.array(rows)


def requantise(f32_path, out_path, model, types):
    """Writes the file with weights of `types`, and puts the same weights into the model."""
    reader = gguf.GGUFReader(f32_path)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(out_path, architecture)
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        writer.add_key_value(field.name, field.contents(), kind, field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None)
    generator = np.random.default_rng(SEED)
    parameters = {name: p for name, p in model.named_parameters()}
    left = set(name for name, p in parameters.items() if p.dim() == 2)
    for tensor in reader.tensors:
        data = np.array(tensor.data)
        if data.ndim != 2:
            writer.add_tensor(tensor.name, data)
            continue
        kind = pick_type(tensor.name, types)
        raw = quantise(data, kind, generator)
        exact = gguf.quants.dequantize(raw, kind).reshape(data.shape)
        writer.add_tensor(tensor.name, raw, raw_dtype=kind)
        found = False
        for name in sorted(left):
            rows = row_permutation(parameters[name].detach().float().numpy(), data)
            if rows is not None:
                with torch.no_grad():
                    parameters[name].copy_(torch.from_numpy(exact[rows].astype(np.float64)))
                left.discard(name)
                found = True
                break
        assert found, f"no parameter of the model is {tensor.name}"
    assert not left, f"not converted: {left}"
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_case(case, out):
    architecture, recipe, count = split_name(case)
    sizes, types = RECIPES[recipe]
    model = make_model(architecture, sizes, count)
    with tempfile.TemporaryDirectory() as folder:
        path = convert(model, Path(folder))
        requantise(path, out / f"{case}.gguf", model, types)
    tokens = np.random.default_rng(SEED + 1).integers(3, VOCAB, count)
    with torch.no_grad(), float64_everywhere():
        logits = model(torch.from_numpy(tokens)[None], use_cache=False).logits[0].numpy()
    assert logits.dtype == np.float64
    tensors = {"tokens": tokens.astype(np.int32)}
    positions = np.arange(count)
    if count > 96:
        # A few positions of every stretch, and the last ones.
        positions = np.unique(np.concatenate([np.arange(0, count, 64), np.arange(count - 16, count)]))
        tensors["positions"] = positions.astype(np.int32)
    tensors["logits"] = np.ascontiguousarray(logits[positions].astype(np.float32))
    save_file(tensors, out / f"{case}.safetensors")
    size = (out / f"{case}.gguf").stat().st_size
    print(f"{case}: {size} bytes, logits of {len(positions)} positions, deviation {logits.std():.3f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("cases", nargs="*", default=CHECKED_IN)
    args = parser.parse_args()
    logging.disable(logging.INFO)
    torch.set_num_threads(2)
    args.out.mkdir(parents=True, exist_ok=True)
    for case in args.cases:
        make_case(case, args.out)


if __name__ == "__main__":
    main()
