#!/usr/bin/env python3
"""Simulates how long prompts should wait for others to share a prefill step.

While sequences wait for a slot of the scheduler, a prompt that has got one waits until the prompts together have missed a share of the
tokens of a decode step, or until there are `enough` tokens (`runtime/src/scheduler/policy.rs`, `defers_prompts`). Prints tokens/s
against no wait, for several loads. Times of steps, in milliseconds, are those of Llama-3.1-8B on an H200: prefill steps are fitted to
prompts of 16 and 512 tokens, decode steps measured at a depth of 128 (NOTES, 2026-11-30 and 2026-12-01).
"""

import random

# A prefill step takes a fixed time and a time for each token.
PREFILL, PREFILL_TOKEN = 4.5, 0.0165
# Times of decode steps by the number of slots: integers, and f16.
DECODE = {4: 1.56, 8: 1.69, 16: 2.5, 64: 5.8}
DECODE_F16 = {64: 3.8}
# Most tokens of a prefill step: while sequences decode, and otherwise.
MOST_BESIDE, MOST_ALONE = 512, 2048


def simulate(load, share, enough):
    """Tokens per second. `share`: of a decode step's tokens, that prompts may miss together; 0 for no wait."""
    random.seed(1)
    jobs = [(load["prompt"](), load["answer"]()) for _ in range(load["requests"])]
    decode = (DECODE_F16 if load.get("f16") else DECODE)[load["slots"]]
    waiting, later = jobs[: load["clients"]], jobs[load["clients"] :]
    running, time, steps, tokens, after_decode = [], 0.0, 0, 0, False
    while running or waiting:
        while waiting and len(running) < load["slots"]:
            prompt, answer = waiting.pop(0)
            running.append({"prompt": prompt, "answer": answer, "since": steps})
        prompts = [it for it in running if it["prompt"]]
        decoding = [it for it in running if not it["prompt"]]
        missed = sum(steps - it["since"] for it in prompts)
        waits = waiting and sum(it["prompt"] for it in prompts) < enough and missed < share * len(decoding)
        if prompts and (after_decode and not waits or not decoding):
            left = MOST_BESIDE if decoding else MOST_ALONE
            time += PREFILL
            for it in prompts:
                count = min(it["prompt"], left)
                it["prompt"] -= count
                left -= count
                time += PREFILL_TOKEN * count
                if count and not it["prompt"]:
                    it["answer"] -= 1
                    tokens += 1
            after_decode = False
        else:
            time += decode
            steps += 1
            after_decode = True
            for it in decoding:
                it["answer"] -= 1
            tokens += len(decoding)
        ended = [it for it in running if not it["prompt"] and it["answer"] <= 0]
        running = [it for it in running if it not in ended]
        # A client sends its next request when it has its answer.
        waiting += later[: len(ended)]
        del later[: len(ended)]
    return tokens / time * 1e3


def load(slots, answer, prompt=(20, 120), requests=512, clients=10**6, **more):
    between = lambda bounds: lambda: random.randint(*bounds)
    return {"slots": slots, "answer": between(answer), "prompt": between(prompt), "requests": requests, "clients": clients, **more}


LOADS = {
    "mixed": load(64, (60, 260)),
    "mixed, f16": load(64, (60, 260), f16=True),
    "short": load(64, (10, 50), requests=1024),
    "long": load(64, (300, 1200), requests=192),
    "16 slots": load(16, (60, 260)),
    "16, short": load(16, (10, 50), requests=1024),
    "8 slots": load(8, (60, 260)),
    "8, short": load(8, (10, 50), requests=1024),
    "4, short": load(4, (10, 50), requests=1024),
    # Clients whose answers are of equal length, so that their ends come together.
    "clients": load(64, (100, 100), (100, 100), 640, 128),
    "clients, 50": load(64, (100, 100), (50, 50), 640, 128),
    "clients, 300": load(64, (100, 100), (300, 300), 640, 128),
    "8 of 16": load(8, (100, 100), (100, 100), 320, 16),
}


def main():
    without = {name: simulate(it, 0, 0) for name, it in LOADS.items()}
    print("| share | enough | " + " | ".join(LOADS) + " |")
    print("| ---: | ---: |" + " ---: |" * len(LOADS))
    for share, enough in [(1, 512), (1, 384), (0.5, 384), (0.25, 512), (0.25, 384), (0.25, 256), (0.1, 384)]:
        gains = [simulate(it, share, enough) / without[name] - 1 for name, it in LOADS.items()]
        print(f"| {share} | {enough} | " + " | ".join(f"{100 * gain:+.1f}%" for gain in gains) + " |")


if __name__ == "__main__":
    main()
