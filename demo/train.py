"""Trains the demo model and writes it as an F32 GGUF file.

    python3 train.py OUT.gguf [--steps N] [--seed S]

What it learns is in `data.py`. In the last third of the steps the weights are rounded in the forward pass as their
blocks will round them, so that what the quantiser does to them is nothing new. Needs PyTorch, numpy and tqdm, and a GPU
for other than trying it out (`--rows 16 --steps 20`).
"""

import argparse
import math
import multiprocessing
import time

import numpy as np
import torch
import torch.nn.functional as F
from tqdm import tqdm

import data
import gguf

LAYERS, HIDDEN, HEADS, KV_HEADS, HEAD, FFN, CONTEXT = 4, 256, 4, 2, 64, 512, 64
EPS, ROPE_BASE = 1e-5, 10_000.0


def round_q4_k(w):
    """`w` rounded like blocks of 32 with a scale and a minimum; the gradient passes unchanged (straight-through)."""
    blocks = w.detach().view(-1, 32)
    low = blocks.amin(1, keepdim=True).clamp(max=0)
    step = ((blocks.amax(1, keepdim=True) - low) / 15).clamp(min=1e-8)
    rounded = ((blocks - low) / step).round().clamp(0, 15) * step + low
    return w + (rounded.view_as(w) - w).detach()


def round_q6_k(w):
    """Like `round_q4_k`, for blocks of 16 with a scale."""
    blocks = w.detach().view(-1, 16)
    step = (blocks.abs().amax(1, keepdim=True) / 31).clamp(min=1e-8)
    rounded = (blocks / step).round().clamp(-32, 31) * step
    return w + (rounded.view_as(w) - w).detach()


def more_bits(layer):
    """Whether Q4_K_M gives `attn_v` and `ffn_down` of a layer six bits."""
    eighth = LAYERS // 8
    return layer < eighth or layer >= 7 * LAYERS // 8 or (layer - eighth) % 3 == 2


class Model(torch.nn.Module):
    """Llama: RMSNorm, RoPE over adjacent pairs, grouped queries, SwiGLU, embedding and output matrix in one."""

    def __init__(self):
        super().__init__()
        matrix = lambda rows, cols, std: torch.nn.Parameter(torch.randn(rows, cols) * std)
        self.weights = torch.nn.ParameterDict()
        w = self.weights
        w["token_embd"] = matrix(data.VOCAB, HIDDEN, HIDDEN**-0.5)
        small = (2 * LAYERS) ** -0.5  # for what adds to the residual stream
        for layer in range(LAYERS):
            name = f"blk-{layer}-"
            w[name + "attn_q"] = matrix(HEADS * HEAD, HIDDEN, HIDDEN**-0.5)
            w[name + "attn_k"] = matrix(KV_HEADS * HEAD, HIDDEN, HIDDEN**-0.5)
            w[name + "attn_v"] = matrix(KV_HEADS * HEAD, HIDDEN, HIDDEN**-0.5)
            w[name + "attn_output"] = matrix(HIDDEN, HEADS * HEAD, small * (HEADS * HEAD) ** -0.5)
            w[name + "ffn_gate"] = matrix(FFN, HIDDEN, HIDDEN**-0.5)
            w[name + "ffn_up"] = matrix(FFN, HIDDEN, HIDDEN**-0.5)
            w[name + "ffn_down"] = matrix(HIDDEN, FFN, small * FFN**-0.5)
            for norm in ("attn_norm", "ffn_norm"):
                w[name + norm] = torch.nn.Parameter(torch.ones(HIDDEN))
        w["output_norm"] = torch.nn.Parameter(torch.ones(HIDDEN))
        angles = torch.outer(torch.arange(CONTEXT), ROPE_BASE ** (-torch.arange(0, HEAD, 2) / HEAD))
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def get(self, name, rounding, layer=None):
        """A matrix as the forward pass uses it."""
        w = self.weights[name if layer is None else f"blk-{layer}-{name}"]
        if not rounding:
            return w
        six = layer is None or name in ("attn_v", "ffn_down") and more_bits(layer)
        return (round_q6_k if six else round_q4_k)(w)

    def rotate(self, x):
        """RoPE of `x` [rows, heads, positions, HEAD]."""
        even, odd = x.float().unflatten(-1, (-1, 2)).unbind(-1)
        cos, sin = self.cos[: x.shape[2]], self.sin[: x.shape[2]]
        return torch.stack([even * cos - odd * sin, even * sin + odd * cos], -1).flatten(-2).to(x.dtype)

    def forward(self, tokens, rounding, dtype):
        """Logits [rows, positions, VOCAB] in float32; products are computed in `dtype`."""
        norm = lambda x, name: F.rms_norm(x, (HIDDEN,), self.weights[name], EPS).to(dtype)
        embedding = self.get("token_embd", rounding)
        x = F.embedding(tokens, embedding)
        for layer in range(LAYERS):
            w = lambda name: self.get(name, rounding, layer).to(dtype)
            heads = lambda y: y.unflatten(-1, (-1, HEAD)).transpose(1, 2)
            y = norm(x, f"blk-{layer}-attn_norm")
            q, k = (self.rotate(heads(F.linear(y, w(name)))) for name in ("attn_q", "attn_k"))
            v = heads(F.linear(y, w("attn_v")))
            k, v = (part.repeat_interleave(HEADS // KV_HEADS, dim=1) for part in (k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + F.linear(y.transpose(1, 2).flatten(-2), w("attn_output"))
            y = norm(x, f"blk-{layer}-ffn_norm")
            y = F.silu(F.linear(y, w("ffn_gate"))) * F.linear(y, w("ffn_up"))
            x = x + F.linear(y, w("ffn_down"))
        return F.linear(norm(x, "output_norm"), embedding.to(dtype)).float()


@torch.no_grad()
def accuracy(model, exam, device, rounding):
    """Share of an exam's questions with every token of the answer right, for each sign and for all."""
    inputs, targets, signs = exam
    right = []
    for start in range(0, len(inputs), 4096):
        x, y = (torch.from_numpy(part[start : start + 4096]).to(device) for part in (inputs, targets))
        chosen = model(x, rounding, torch.float32).argmax(-1)
        right.append(((chosen == y) | (y == data.NOTHING)).all(1).cpu().numpy())
    right = np.concatenate(right)
    return {sign: right[signs == i].mean() for i, sign in enumerate(data.SIGNS)} | {"all": right.mean()}


class Batches:
    """Batches in order, each with its own random state, computed by other processes."""

    def __init__(self, tokenizer, args):
        self.tokenizer, self.args = tokenizer, args
        self.stories = data.story_pool(tokenizer, np.random.default_rng((args.seed, 1)), args.stories, CONTEXT)

    def __call__(self, number):
        rng = np.random.default_rng((self.args.seed, 2, number))
        rows = data.batch(self.tokenizer, rng, self.stories, self.args.rows, CONTEXT)
        return np.stack(rows).astype(np.int16)


class Trainer:
    def __init__(self, model, args, device):
        self.model, self.args, self.device = model, args, device
        matrices = [p for p in model.parameters() if p.ndim == 2]
        norms = [p for p in model.parameters() if p.ndim == 1]
        groups = [dict(params=matrices, weight_decay=0.05), dict(params=norms, weight_decay=0.0)]
        on_gpu = device == "cuda"
        rate = torch.tensor(0.0, device=device)
        self.optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.98), fused=on_gpu, capturable=on_gpu)
        self.batch = torch.zeros(2, args.rows, CONTEXT, dtype=torch.int64, device=device)
        self.graphs = {}

    def compute(self, rounding):
        """Forward, backward and update on `self.batch`."""
        dtype = torch.bfloat16 if self.device == "cuda" else torch.float32
        logits = self.model(self.batch[0], rounding, dtype)
        loss = F.cross_entropy(logits.flatten(0, 1), self.batch[1].flatten(), ignore_index=data.NOTHING)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        return loss.detach()

    def step(self, batch, rate, rounding):
        """One step; on a GPU a replay of a captured graph. Returns the loss, which may not be known yet."""
        self.batch.copy_(torch.from_numpy(batch))
        for group in self.optimizer.param_groups:
            group["lr"].fill_(rate)
        self.optimizer.zero_grad(set_to_none=True)
        if self.device != "cuda":
            return self.compute(rounding)
        if rounding not in self.graphs:
            side = torch.cuda.Stream()
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                for _ in range(3):  # libraries and the optimizer allocate what they keep
                    self.optimizer.zero_grad(set_to_none=True)
                    self.compute(rounding)
            torch.cuda.current_stream().wait_stream(side)
            self.optimizer.zero_grad(set_to_none=True)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                loss = self.compute(rounding)
            self.graphs[rounding] = graph, loss
        graph, loss = self.graphs[rounding]
        graph.replay()
        return loss


def metadata(tokenizer):
    llama = dict(
        context_length=CONTEXT, embedding_length=HIDDEN, block_count=LAYERS, feed_forward_length=FFN,
        vocab_size=data.VOCAB,
    )
    attention = dict(head_count=HEADS, head_count_kv=KV_HEADS, layer_norm_rms_epsilon=EPS)
    return {
        "general.architecture": "llama",
        "general.name": "bespoke demo",
        "general.description": "Sums of whole numbers to 999, and stories of a small grammar",
        "general.file_type": 0,
        **{f"llama.{key}": item for key, item in llama.items()},
        **{f"llama.attention.{key}": item for key, item in attention.items()},
        "llama.rope.dimension_count": HEAD,
        "llama.rope.freq_base": ROPE_BASE,
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokenizer.tokens,
        "tokenizer.ggml.token_type": [1] * data.END + [3],
        "tokenizer.ggml.merges": tokenizer.merges,
        "tokenizer.ggml.bos_token_id": data.END,
        "tokenizer.ggml.eos_token_id": data.END,
        "tokenizer.ggml.add_bos_token": False,
    }


def report(what, accuracies):
    tqdm.write(f"{what} {' '.join(f'{sign} {share:.4f}' for sign, share in accuracies.items())}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("out")
    parser.add_argument("--steps", type=int, default=11_000)
    parser.add_argument("--rows", type=int, default=1024, help="of 64 tokens, a step")
    parser.add_argument("--rate", type=float, default=2e-3, help="the largest learning rate")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--stories", type=int, default=16_384, help="different ones")
    parser.add_argument("--questions", type=int, default=20_000, help="in the exam")
    parser.add_argument("--workers", type=int, default=14, help="processes that make batches")
    args = parser.parse_args()

    start = time.time()
    tokenizer = data.Tokenizer(np.random.default_rng((args.seed, 0)))
    batches = Batches(tokenizer, args)
    exam = data.exam(tokenizer, np.random.default_rng((args.seed, 3)), args.questions)
    # Forked before the GPU is used: the batches' state reaches a worker with the fork, not with every call.
    with multiprocessing.get_context("fork").Pool(args.workers, install, (batches,)) as pool:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.manual_seed(args.seed)
        model = Model().to(device)
        print(f"{sum(p.numel() for p in model.parameters())} parameters, data after {time.time() - start:.1f} s")
        trainer = Trainer(model, args, device)
        made = pool.imap(installed_batch, range(args.steps), chunksize=4)
        # A bar where there is a terminal, lines everywhere.
        for step, batch in enumerate(tqdm(made, total=args.steps, unit="step", disable=None)):
            done = step / args.steps
            rate = args.rate * min(1, (step + 1) / 500) * (0.5 + 0.5 * math.cos(math.pi * done)) + 1e-6
            rounding = done >= 2 / 3
            loss = trainer.step(batch, rate, rounding)
            if step % 1000 == 0:
                tqdm.write(f"{step:6} loss {loss.item():.4f} after {time.time() - start:.1f} s")
            if step % 4000 == 3999:
                report("      ", accuracy(model, exam, device, rounding))
    report("float  ", accuracy(model, exam, device, False))
    report("rounded", accuracy(model, exam, device, True))
    tensors = {
        name.replace("-", ".") + ".weight": parameter.detach().cpu().numpy()
        for name, parameter in model.weights.items()
    }
    gguf.write(args.out, metadata(tokenizer), tensors)
    print(f"{args.out} after {time.time() - start:.1f} s")


def install(made):
    global installed
    installed = made


def installed_batch(number):
    return installed(number)


if __name__ == "__main__":
    main()
