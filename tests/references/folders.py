#!/usr/bin/env python3
"""Small Hugging Face folders of every architecture, with float64 logits and the result of llama.cpp's converter.

  pip install torch transformers safetensors sentencepiece tokenizers numpy
  PYTHONPATH=LLAMA_CPP:LLAMA_CPP/gguf-py folders.py --out hf/tests/fixtures [CASE ...]

LLAMA_CPP is the tree of llama.cpp, as for `architectures.py`, whose random models these are. Writes folders with

- what `transformers` saves: config.json, generation_config.json and model.safetensors, or shards with an index;
- tokenizer.json and tokenizer_config.json of a small tokenizer that is trained here: by `tokenizers` for byte-level
  BPE, by `sentencepiece` for the others;
- reference.safetensors: `tokens` (i32 [n]) and `logits` (f32 [n, vocab]), computed in float64;
- converted.json: the metadata, and the dimensions, types and SHA-256 of the tensors, in the GGUF file that llama.cpp's
  converter makes of the folder; for short vectors that it computes, the values;
- encoded.json: texts with the ids that `tokenizers` or `sentencepiece` gives.

The converter recognises published tokenizers by a hash. It is told the pre-tokenizer's name instead.
"""

import argparse
import copy
import hashlib
import importlib
import json
import logging
import shutil
import tempfile
from pathlib import Path

import architectures
import conversion
import gguf
import numpy as np
import sentencepiece
import tokenizers
import torch
from architectures import ARCHITECTURES, LINEAR, SEED, YARN, float64_everywhere, make_model
from conversion.base import ModelBase, TextModel
from safetensors.numpy import save_file
from tokenizers import Regex, decoders, models, normalizers, pre_tokenizers, processors, trainers

TOKENS = 24
VOCAB = architectures.VOCAB = 400
SIZES = dict(hidden_size=64, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
             head_dim=16)

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
          r"|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

# Case: architecture of architectures.py, other options, type of the weights, tokenizer, name of the pre-tokenizer.
CASES = {
    "llama": ("llama", dict(), "bf16", "llama3", "llama-bpe"),
    "llama-bias": ("llama-bias", dict(intermediate_size=32, num_hidden_layers=1, tie_word_embeddings=True), "f32",
                   "smollm", "smollm"),
    "mistral": ("mistral", dict(sliding_window=8), "f16", "sentencepiece", None),
    "qwen2": ("qwen2", dict(rope_parameters=YARN), "bf16", "qwen2", "qwen2"),
    "qwen3": ("qwen3", dict(rope_parameters=LINEAR, intermediate_size=32, num_attention_heads=2, num_key_value_heads=1,
                            head_dim=32),
              "bf16", "qwen2", "qwen2"),
    "phi3": ("phi3-long", dict(), "f16", "phi3", None),
    "gemma2": ("gemma2", dict(num_hidden_layers=2, sliding_window=8, query_pre_attn_scalar=24), "bf16",
               "gemma", None),
    "gemma3": ("gemma3", dict(num_hidden_layers=6, num_attention_heads=2, num_key_value_heads=1, intermediate_size=32,
                              sliding_window=8, query_pre_attn_scalar=16), "bf16", "gemma", None),
    "granite": ("granite", dict(), "f16", "smollm", "refact"),
    "smollm3": ("smollm3", dict(num_hidden_layers=4, intermediate_size=32), "bf16", "llama3", "llama-bpe"),
    "olmo2": ("olmo2", dict(), "f16", "gpt2", "gpt-2"),
}

TYPES = {
    "f32": (torch.float32, "ALL_F32"),
    "f16": (torch.float16, "MOSTLY_F16"),
    "bf16": (torch.bfloat16, "MOSTLY_BF16"),
}

CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the other dogs don't mind at all.",
    "In the beginning there was a token, then another token, and then there were many tokens.",
    "def add(a, b):\n    return a + b\n\nfor i in range(100):\n    print(add(i, 1))",
    "Der schnelle braune Fuchs springt über den faulen Hund; größer als zwölf.",
    "1234567890 is a number, 3.14159 is another number, and 2026 is a year.",
]
TEXTS = CORPUS + [
    "", " ", "a", "  two  spaces ", "\n\n\t tabs\r\n", "I'll say 'twas WE'RE", "12 345 6789", "naïve café €5 🦙🚀",
    "日本語のテキスト",
    "<|im_start|>user\nHi<|im_end|>\n", "x <|im_end|>y", "\u0000\u0001", "a\u00a0b\u200bc", "ﷺ 𝔘𝔫𝔦",
]
SPECIAL = ["<|begin|>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = ("{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")


def byte_level(kind):
    """A trained byte-level BPE with four special tokens, and its tokenizer_config.json."""
    tokenizer = tokenizers.Tokenizer(models.BPE(ignore_merges=kind == "llama3"))
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split = lambda pattern: pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(pattern), "isolated"), plain])
    tokenizer.pre_tokenizer = {
        "llama3": lambda: split(LLAMA3),
        "qwen2": lambda: split(QWEN2),
        "smollm": lambda: pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                   pre_tokenizers.ByteLevel(add_prefix_space=False)]),
        "gpt2": lambda: pre_tokenizers.ByteLevel(add_prefix_space=False),
    }[kind]()
    if kind == "qwen2":
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(vocab_size=VOCAB - 12, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                                  show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.add_tokens(["<tool>"])
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "chat_template": TEMPLATE}
    if kind == "llama3":
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|begin|> $A", pair="<|begin|> $A <|begin|> $B",
            special_tokens=[("<|begin|>", tokenizer.token_to_id("<|begin|>"))])
        config["bos_token"] = {"__type": "AddedToken", "content": "<|begin|>", "lstrip": False, "rstrip": False}
    else:
        tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
        config.update(add_bos_token=False, pad_token="<|endoftext|>")
    return tokenizer, config


def sentence_piece(folder, kind):
    """A trained SentencePiece BPE as tokenizer.json, as `transformers` converts it, and its tokenizer_config.json."""
    gemma = kind == "gemma"
    text = folder / "corpus.txt"
    text.write_text("\n".join(CORPUS * 3))
    options = dict(pad_id=0, eos_id=1, bos_id=2, unk_id=3, pad_piece="<pad>", eos_piece="<eos>", bos_piece="<bos>",
                   add_dummy_prefix=False) if gemma else dict(unk_id=0, bos_id=1, eos_id=2)
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(folder / "tokenizer"), model_type="bpe", vocab_size=VOCAB - 14,
        byte_fallback=True,
        character_coverage=0.99, normalization_rule_name="identity", remove_extra_whitespaces=False,
        split_digits=True, minloglevel=2, **options)
    text.unlink()
    (folder / "tokenizer.vocab").unlink()
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    pieces = {model.id_to_piece(i): (i, model.get_score(i)) for i in range(model.vocab_size())}
    is_text = lambda i: not (model.is_control(i) or model.is_byte(i) or model.is_unknown(i))
    text_pieces = {piece for piece, (i, _) in pieces.items() if is_text(i)}
    merges = []
    for piece in sorted(text_pieces, key=lambda p: -pieces[p][1]):
        splits = [(piece[:i], piece[i:]) for i in range(1, len(piece))]
        splits = [(a, b) for a, b in splits if a in text_pieces and b in text_pieces]
        merges += sorted(splits, key=lambda pair: (pieces[pair[0]][0], pieces[pair[1]][0]))
    unknown = model.id_to_piece(model.unk_id())
    vocab = {piece: i for piece, (i, _) in pieces.items()}
    tokenizer = tokenizers.Tokenizer(models.BPE(vocab, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    replace = normalizers.Replace(" ", "▁")
    tokenizer.normalizer = replace if gemma else normalizers.Sequence([normalizers.Prepend("▁"), replace])
    if gemma:
        tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    controls = [model.id_to_piece(i) for i in range(4) if model.is_control(i) or model.is_unknown(i)]
    # Phi-3's control tokens take the white space after them, which llama.cpp knows from the architecture's name.
    turn = lambda name: tokenizers.AddedToken(name, special=True, rstrip=kind == "phi3")
    turns = [turn("<|im_start|>"), turn("<|im_end|>")]
    tokenizer.add_special_tokens(controls + turns)
    tokenizer.add_tokens([tokenizers.AddedToken("<tool>", normalized=False)])
    bos, eos = model.id_to_piece(model.bos_id()), model.id_to_piece(model.eos_id())
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A", pair=f"{bos} $A {bos} $B", special_tokens=[(bos, model.bos_id())])
    added = {str(i): {"content": t.content, "special": t.special} for i, t in tokenizer.get_added_tokens_decoder().items()}
    config = {"tokenizer_class": "LlamaTokenizer", "bos_token": bos, "eos_token": eos, "unk_token": unknown,
              "add_bos_token": True, "add_eos_token": False, "added_tokens_decoder": added}
    return tokenizer, config


def write_tokenizer(kind, folder):
    if kind in ("sentencepiece", "phi3", "gemma"):
        tokenizer, config = sentence_piece(folder, kind)
        (folder / "chat_template.jinja").write_text(TEMPLATE)
    else:
        tokenizer, config = byte_level(kind)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1, ensure_ascii=False))
    encoded = [[text, tokenizer.encode(text).ids] for text in TEXTS]
    (folder / "encoded.json").write_text(json.dumps(encoded, ensure_ascii=False))
    eos = tokenizer.token_to_id(config["eos_token"])
    for name in ("config.json", "generation_config.json"):
        settings = json.loads((folder / name).read_text())
        settings["eos_token_id"] = eos
        # Instruct models often end answers with several tokens.
        if name == "generation_config.json" and kind == "llama3":
            settings["eos_token_id"] = [eos, tokenizer.token_to_id("<|endoftext|>")]
        (folder / name).write_text(json.dumps(settings, indent=1))


def converted(folder, file_type, pre):
    """What llama.cpp's converter makes of the folder."""
    hparams = ModelBase.load_hparams(folder, False)
    model_class = conversion.get_model_class(hparams["architectures"][0], mmproj=False)
    TextModel.get_vocab_base_pre = lambda self, tokenizer: pre
    path = folder / "converted.gguf"
    with torch.inference_mode():
        model_class(folder, getattr(gguf.LlamaFileType, file_type), path, eager=True).write()
    reader = gguf.GGUFReader(path)
    metadata = {f.name: f.contents() for f in reader.fields.values() if not f.name.startswith("GGUF.")}
    # The name of a temporary folder.
    del metadata["general.name"]
    tensors = {}
    for tensor in reader.tensors:
        data = np.ascontiguousarray(tensor.data)
        entry = {"dims": [int(dim) for dim in tensor.shape], "type": tensor.tensor_type.name,
                 "sha256": hashlib.sha256(data.tobytes()).hexdigest()}
        if tensor.name.startswith("rope_"):
            entry["values"] = [float(value) for value in data]
        tensors[tensor.name] = entry
    path.unlink()
    return {"metadata": metadata, "tensors": tensors}


def logits_of(model, tokens):
    with torch.no_grad(), float64_everywhere():
        logits = model(torch.from_numpy(tokens)[None], use_cache=False).logits[0].numpy()
    assert logits.dtype == np.float64
    return logits


def logits_with_half_cache(model, tokens):
    """Logits in float64 but for keys and values, which are rounded to f16 as in a KV cache."""
    module = importlib.import_module(type(model).__module__)
    exact = module.eager_attention_forward

    def rounded(layer, query, key, value, *args, **options):
        return exact(layer, query, key.half().double(), value.half().double(), *args, **options)

    module.eager_attention_forward = rounded
    try:
        return logits_of(model, tokens)
    finally:
        module.eager_attention_forward = exact


def make_case(case, out):
    name, options, kind, tokenizer, pre = CASES[case]
    dtype, file_type = TYPES[kind]
    saved = copy.deepcopy(ARCHITECTURES[name])
    ARCHITECTURES[name][1].update(options)
    model = make_model(name, SIZES, TOKENS)
    ARCHITECTURES[name] = saved
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(dtype).double())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        stored = copy.deepcopy(model).to(dtype)
        stored.config.dtype = dtype
        stored.save_pretrained(folder, max_shard_size="100KB" if case == "llama" else "5GB")
        write_tokenizer(tokenizer, folder)
        result = converted(folder, file_type, pre)
        (folder / "converted.json").write_text(json.dumps(result, ensure_ascii=False))
        tokens = np.random.default_rng(SEED + 1).integers(3, VOCAB, TOKENS)
        logits = logits_of(model, tokens)
        rounded = logits_with_half_cache(model, tokens)
        save_file({"tokens": tokens.astype(np.int32), "logits": logits.astype(np.float32)}, folder / "reference.safetensors")
        (folder / "tokenizer.model").unlink(missing_ok=True)
        shutil.rmtree(out / case, ignore_errors=True)
        shutil.copytree(folder, out / case)
    size = sum(file.stat().st_size for file in (out / case).iterdir())
    error = ((rounded - logits) ** 2).sum() / (logits**2).sum()
    print(f"{case}: {size} bytes, logits' deviation {logits.std():.3f}, NMSE with an f16 cache {error:.3e}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("cases", nargs="*", default=list(CASES))
    args = parser.parse_args()
    logging.disable(logging.INFO)
    torch.set_num_threads(2)
    for case in args.cases:
        make_case(case, args.out)


if __name__ == "__main__":
    main()
