#!/usr/bin/env python3
"""Compares greedy continuations of bespoke with those of llama.cpp on the same model file.

  pip install llama-cpp-python gguf numpy
  continuations.py MODEL.gguf --bespoke target/release/bespoke [--device cuda] [--tokens 64]

llama.cpp quantises activations, which changes logits more than the weights' own rounding does. It therefore gets the
same weights as F32 (dequantised by the `gguf` package) and a KV cache of F32. For every prompt the script gives llama.cpp
the tokens that bespoke chose, and compares the choice at every step: a step where llama.cpp's largest logit is another
token's counts as a difference if the margin between its two largest logits is above 0.005, and as a near tie otherwise.

Exits with 1 if there is a difference.
"""

import argparse
import ctypes
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

MARGIN = 0.005

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small village by the sea,",
    "def fibonacci(n):\n    ",
    "Water boils at 100 degrees Celsius because",
    "1, 1, 2, 3, 5, 8, 13,",
    "Dear Sir or Madam,\n\nI am writing to",
    "Die Hauptstadt von Deutschland ist",
    "<|im_start|>user\nName three colours.<|im_end|>\n<|im_start|>assistant\n",
]


def write_f32(model, out):
    """Writes a copy of the model whose matrices are F32."""
    reader = gguf.GGUFReader(model)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name in ("general.architecture", "general.file_type"):
            continue
        array = field.types[-1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), field.types[0], array)
    for tensor in reader.tensors:
        data = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        writer.add_tensor(tensor.name, data.astype(np.float32).reshape([int(n) for n in reversed(tensor.shape)]))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Peer:
    """llama.cpp with one sequence."""

    def __init__(self, path, context):
        self.log = llama_cpp.llama_log_callback(lambda *_: None)
        llama_cpp.llama_log_set(self.log, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        model_params = llama_cpp.llama_model_default_params()
        model_params.n_gpu_layers = 0
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), model_params)
        self.params = llama_cpp.llama_context_default_params()
        self.params.n_ctx = context
        self.params.type_k = self.params.type_v = int(gguf.GGMLQuantizationType.F32)
        self.vocab = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self.model))

    def logits(self, tokens):
        """Logits after every token, f64 [tokens, vocab]."""
        context = llama_cpp.llama_init_from_model(self.model, self.params)
        rows = []
        for token in tokens:
            one = (llama_cpp.llama_token * 1)(int(token))
            if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(one, 1)) != 0:
                raise RuntimeError("llama_decode failed")
            row = llama_cpp.llama_get_logits_ith(context, -1)
            rows.append(np.ctypeslib.as_array(row, (self.vocab,)).astype(np.float64))
        llama_cpp.llama_free(context)
        return np.array(rows)


def continuation(args, prompt):
    """Token ids of the prompt and of bespoke's continuation."""
    command = [args.bespoke, "run", args.model, "-p", prompt, "-n", str(args.tokens), "--ignore-eos", "--format", "json"]
    if args.device:
        command += ["--device", args.device]
    report = json.loads(subprocess.run(command, capture_output=True, check=True, text=True).stdout)
    return report["prompt_tokens"], report["tokens"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--bespoke", required=True)
    parser.add_argument("--device")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--prompts", type=int, default=len(PROMPTS), help="how many of the prompts")
    args = parser.parse_args()
    differences = ties = steps = 0
    with tempfile.TemporaryDirectory() as folder:
        exact = Path(folder) / "f32.gguf"
        write_f32(args.model, exact)
        peer = Peer(exact, context=512)
        for prompt in PROMPTS[: args.prompts]:
            before, after = continuation(args, prompt)
            logits = peer.logits([*before, *after[:-1]])[len(before) - 1 :]
            for step, (token, row) in enumerate(zip(after, logits)):
                second, first = np.sort(row)[-2:]
                steps += 1
                if int(row.argmax()) != token:
                    if first - second > MARGIN:
                        differences += 1
                        print(f"{prompt!r}, step {step}: {token}, llama.cpp {int(row.argmax())}, margin {first - second:.4f}")
                    else:
                        ties += 1
    print(f"{steps} steps: {differences} differences, {ties} near ties")
    sys.exit(1 if differences else 0)


if __name__ == "__main__":
    main()
