#!/usr/bin/env bash
# All checks that need a GPU: selftest, conformance, replay against eager launches, speed.
#
#   benches/gpu-check.sh BINARY OUT [STEP …]     steps: devices selftest conformance replay bench
set -uo pipefail
bin=$1
out=$2
shift 2
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(devices selftest conformance replay bench)
fixtures=$(cd "$(dirname "$0")/../tests/fixtures" && pwd)
models=${BESPOKE_MODELS:-${TMPDIR:-/tmp}/bespoke-models}
mkdir -p "$out" "$models"
failed=0

check() { "$@" || { echo "FAILED: $*"; failed=1; }; }

synth() { # name shape mix
    [ -s "$models/$1.gguf" ] || "$bin" synth "$models/$1.gguf" --shape "$2" --mix "$3" --seed 1
}

devices() {
    nvidia-smi --query-gpu=name,driver_version,clocks.sm,clocks.mem --format=csv
    check "$bin" devices
}

selftest() { check "$bin" selftest --device cuda > "$out/selftest.txt" 2>&1; tail -n 12 "$out/selftest.txt"; }

# The cases of tests/tests/conformance.rs; the limit of each is the NMSE of llama.cpp's CPU engine.
# RoPE's factors may depend on the context.
conformance() {
    while read -r name limit; do
        local context=128
        [[ $name == *-2048 ]] && context=2048
        check "$bin" logits "$fixtures/$name.gguf" --reference "$fixtures/$name.safetensors" --limit "$limit" \
            --ctx "$context" --device cuda
    done < <(sed -n 's/^    [a-z0-9_]* "\(.*\)" \([0-9.e-]*\);$/\1 \2/p' "$fixtures/../tests/conformance.rs") |
        tee "$out/conformance.txt"
}

# Logits of 256 tokens and 256 generated tokens, replayed and eager: the same bits.
replay() {
    synth llama-3.2-1b llama-3.2-1b q4_k_m
    local model=$models/llama-3.2-1b.gguf tokens
    tokens=$(seq -s, 1 256)
    for mode in "" --eager; do
        check "$bin" logits "$model" --tokens "$tokens" --out "$out/logits$mode.safetensors" --force --device cuda $mode
        check "$bin" run "$model" --tokens 1,2,3 -n 256 --ignore-eos --device cuda $mode > "$out/tokens$mode.txt"
    done
    check cmp "$out/logits.safetensors" "$out/logits--eager.safetensors" && echo "logits of 256 tokens: replay == eager, bitwise"
    check cmp "$out/tokens.txt" "$out/tokens--eager.txt" && echo "256 tokens: replay == eager"
    rm -f "$out"/logits*.safetensors
}

bench() {
    synth llama-3.2-1b llama-3.2-1b q4_k_m
    synth llama-3.1-8b llama-3.1-8b q4_k_m
    check "$bin" run "$models/llama-3.1-8b.gguf" --tokens 1,2,3 -n 32 --ignore-eos --device cuda -v 2>&1 | tail -n 6
    check "$bin" bench "$models/llama-3.2-1b.gguf" "$models/llama-3.1-8b.gguf" --device cuda --profile --ceiling --trace "$out/trace.json" --force | tee "$out/bench.md"
    check "$bin" bench "$models/llama-3.1-8b.gguf" -d 0,1024,4096 --device cuda -o json > "$out/bench-8b.json"
    grep -E '"(depth|tokens_per_second|fraction_of_ceiling)"' "$out/bench-8b.json"
}

for step in "${steps[@]}"; do
    echo "== $step ($SECONDS s)"
    "$step"
done
echo "== done ($SECONDS s), failed: $failed"
exit "$failed"
