#!/usr/bin/env bash
# Start-up time with machine code built in, cached or assembled by the driver, and source lines in NVIDIA's tools.
#
#   benches/gpu-startup.sh BINARY_PTX BINARY_CUBIN MODEL OUT [STEP …]     steps: startup speed lines sanitizer ncu
#
# MODEL is a GGUF file, or a built-in shape, for which a file is synthesised. BINARY_PTX was built with
# BESPOKE_PTXAS=none, BINARY_CUBIN with a ptxas, both for MODEL's shape and this GPU's target.
# `sanitizer` needs target/release/examples/seeded_bug, or SEEDED_BUG=PATH. Run it from the repository's root, so that the
# relative paths in the kernels lead to their sources.
set -uo pipefail
ptx=$1
cubin=$2
model=$3
out=$4
shift 4
steps=("$@")
[ ${#steps[@]} -gt 0 ] || steps=(startup speed lines sanitizer ncu)
rounds=${ROUNDS:-5}
seeded=${SEEDED_BUG:-target/release/examples/seeded_bug}
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
mkdir -p "$out"
failed=0
if [ ! -e "$model" ]; then
    "$ptx" synth "$scratch/model.gguf" --shape "$model" --mix q4_k_m --seed 1 || exit 1
    model=$scratch/model.gguf
fi

fail() { echo "FAILED: $*"; failed=1; }

# Times one start: NAME BINARY. Prints name, seconds of loading kernels, to the first token, and of the process.
start() {
    local name=$1 binary=$2 begin end log
    begin=$EPOCHREALTIME
    log=$("$binary" -v run "$model" --tokens 1,2,3 -n 1 --ignore-eos --device cuda 2>&1) || fail "$name: $log"
    end=$EPOCHREALTIME
    printf '%s\n' "== $name" "$log" >> "$out/startup.log"
    printf '%s' "$log" | sed 's/\x1b\[[0-9;]*m//g' | awk -v name="$name" -v total="$(awk -v a="$begin" -v b="$end" 'BEGIN { print b - a }')" '
        / s  loading their machine code/ { match($0, /[0-9.]+ s  loading/); load = substr($0, RSTART) + 0; sub(/.*code: /, ""); from = $0 }
        /first token/ { match($0, /first token [0-9.]+/); first = substr($0, RSTART + 12) + 0 }
        END { printf "%s\t%.3f\t%.3f\t%.3f\t%s\n", name, load, first, total, from }'
}

# Alternates the five ways, so that drifts affect all of them. The driver's own cache is off unless it is measured.
startup() {
    : > "$out/startup.log"
    : > "$out/startup.tsv"
    "$ptx" run "$model" --tokens 1 -n 1 --ignore-eos --device cuda > /dev/null 2>&1 || fail "cannot run $model"
    local round
    for ((round = 0; round < rounds; round++)); do
        {
            CUDA_CACHE_DISABLE=1 BESPOKE_CACHE=none start "assembled by the driver, no cache" "$ptx"
            CUDA_CACHE_DISABLE=1 BESPOKE_CACHE="$scratch/cold$round" start "our cache, cold" "$ptx"
            CUDA_CACHE_DISABLE=1 BESPOKE_CACHE="$scratch/cold$round" start "our cache, warm" "$ptx"
            CUDA_CACHE_PATH="$scratch/driver" BESPOKE_CACHE=none start "the driver's cache, $([ "$round" = 0 ] && echo cold || echo warm)" "$ptx"
            CUDA_CACHE_DISABLE=1 BESPOKE_CACHE=none start "embedded" "$cubin"
        } >> "$out/startup.tsv"
    done
    {
        echo "| kernels | loading them, s | first token after, s | process, s | |"
        echo "| --- | --- | --- | --- | --- |"
        cut -f 1 "$out/startup.tsv" | awk '!seen[$0]++' | while read -r name; do
            awk -F '\t' -v name="$name" '
                $1 == name { n++; for (i = 2; i <= 4; i++) v[i, n] = $i; from = $5 }
                END {
                    printf "| %s ", name
                    for (i = 2; i <= 4; i++) {
                        for (a = 2; a <= n; a++) for (b = a; b > 1 && v[i, b] < v[i, b - 1]; b--) { t = v[i, b]; v[i, b] = v[i, b - 1]; v[i, b - 1] = t }
                        printf "| %.3f (%.3f to %.3f) ", v[i, int((n + 1) / 2)], v[i, 1], v[i, n]
                    }
                    printf "| %s, %d times |\n", from, n
                }' "$out/startup.tsv"
        done
    } | tee "$out/startup.md"
}

# Compares the linker's machine code, which the cache stores, with the assembler's: speed and logits.
speed() {
    local tokens name
    tokens=$(seq -s, 1 64)
    for name in whole linked embedded; do
        local binary=$ptx cache=none
        [ $name = linked ] && cache=$scratch/linked
        [ $name = embedded ] && binary=$cubin
        echo "$name:"
        BESPOKE_CACHE=$cache "$binary" logits "$model" --tokens "$tokens" --out "$scratch/$name.safetensors" --force --device cuda > /dev/null 2>&1 || fail "logits, $name"
        BESPOKE_CACHE=$cache "$binary" bench "$model" --device cuda || fail "bench, $name"
    done 2>&1 | tee "$out/speed.md"
    for name in linked embedded; do
        cmp "$scratch/whole.safetensors" "$scratch/$name.safetensors" && echo "logits of 64 tokens: $name == whole, bitwise" || fail "$name: other logits"
    done | tee -a "$out/speed.md"
}

# Rust lines in the built-in machine code.
lines() {
    type -P nvdisasm > /dev/null || { echo "no nvdisasm"; return; }
    local file
    file=$(find "${CUBINS:-target/gpu/cubins}" -name 'gemv*.cubin' 2> /dev/null | sort | head -n 1)
    [ -n "$file" ] || { echo "no cubin under ${CUBINS:-target/gpu/cubins}"; return; }
    nvdisasm --print-line-info-inline --print-code "$file" | grep -m 12 -A 3 'inlined at' | tee "$out/lines.txt"
}

# An out-of-bounds read in a kernel of the DSL: the report must name examples/seeded_bug.rs.
sanitizer() {
    type -P compute-sanitizer > /dev/null || { echo "no compute-sanitizer"; return; }
    [ -x "$seeded" ] || { fail "no $seeded"; return; }
    BESPOKE_CACHE=none compute-sanitizer --tool memcheck "$seeded" cuda > "$out/sanitizer.txt" 2>&1
    head -n 24 "$out/sanitizer.txt"
    grep -q 'seeded_bug\.rs:[0-9]' "$out/sanitizer.txt" || fail "compute-sanitizer names no line of seeded_bug.rs"
    # Again with machine code from the cache.
    for _ in 1 2; do
        BESPOKE_CACHE=$scratch/sanitizer compute-sanitizer --tool memcheck "$seeded" cuda > "$out/sanitizer-cached.txt" 2>&1
    done
    grep -q 'seeded_bug\.rs:[0-9]' "$out/sanitizer-cached.txt" || fail "from the cache: no line of seeded_bug.rs"
}

# One launch of a GEMV under ncu: its hottest Rust lines.
ncu() {
    type -P ncu > /dev/null || { echo "no ncu"; return; }
    command ncu --force-overwrite --export "$out/source" --section SourceCounters --import-source yes \
        --source-folders "$PWD" --kernel-name 'regex:gemv_.*swiglu' --launch-skip 2 --launch-count 1 \
        "$cubin" run "$model" --tokens 1,2,3 -n 1 --ignore-eos --eager --device cuda > "$out/ncu.log" 2>&1 || fail "ncu: $(tail -n 3 "$out/ncu.log")"
    local view
    for view in cuda cuda,sass; do
        command ncu --import "$out/source.ncu-rep" --page source --csv --print-source "$view" > "$out/ncu-$view.csv" 2>&1 || fail "ncu --page source, $view"
        wc -l "$out/ncu-$view.csv"
    done
    grep -m 20 -n '\.rs' "$out"/ncu-cuda*.csv | cut -c 1-200
    grep -q '\.rs' "$out"/ncu-cuda*.csv || fail "ncu names no file of Rust"
    rm -f "$out/source.ncu-rep"
}

for step in "${steps[@]}"; do
    echo "== $step ($SECONDS s)"
    "$step"
done
echo "== done ($SECONDS s), failed: $failed"
exit "$failed"
