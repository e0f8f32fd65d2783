"""Writes the launches of the decode step of one sequence of built-in shapes for `skeleton.cu`: `model NAME`, then for each launch
the bytes of its weights and the number of its inputs. Launches of one role that differ (Q6_K in some layers) have their mean.

    python3 skeleton.py BESPOKE SHAPE… > phases.txt
"""

import json
import subprocess
import sys

# Attention at a short context: two rows of weights for each multiprocessor of an H100.
ATTENTION_BYTES = 264 * 2304


def mean_launch(kernels, role):
    """Bytes and inputs of a launch of a role, the mean over the layers."""
    found = [kernel for kernel in kernels if kernel["roles"] == [role]]
    count = sum(kernel["launches"] for kernel in found)
    total = sum(kernel["launches"] * kernel["bytes"] for kernel in found)
    return count, total // count, found[0]["constants"]["cols"]


def main():
    bespoke, *shapes = sys.argv[1:]
    for shape in shapes:
        command = [bespoke, "inspect", shape, "--format", "json", "--multiprocessors", "132"]
        kernels = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
        print("model", shape)
        layers, *qkv = mean_launch(kernels, "attn_qkv")
        rest = [mean_launch(kernels, role)[1:] for role in ("attn_output", "ffn_gate_up", "ffn_down")]
        for _ in range(layers):
            print(*qkv)
            print(ATTENTION_BYTES, qkv[1])
            for launch in rest:
                print(*launch)
        print(*mean_launch(kernels, "output")[1:])


main()
