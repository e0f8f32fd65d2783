#!/usr/bin/env python3
"""Bank conflicts of shared loads of 4, 8 and 16 bytes. `bank.py make DIR` writes bank.ptx, bank.toml, patterns.json;
`bank.py run DIR` launches every pattern once (under ncu)."""
import json, random, sys, pathlib
out = pathlib.Path(sys.argv[2])
random.seed(1)
patterns = {}
for k in (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 31, 32, 33):
    patterns[f"stride{k}"] = [lane * k for lane in range(32)]
patterns["broadcast"] = [5] * 32
patterns["pairs"] = [lane // 2 for lane in range(32)]
patterns["quads"] = [lane // 4 for lane in range(32)]
patterns["halves"] = [lane % 16 for lane in range(32)]
patterns["reverse"] = [31 - lane for lane in range(32)]
patterns["xor5"] = [lane ^ 5 for lane in range(32)]
patterns["evenodd"] = [(lane % 2) * 16 + lane // 2 for lane in range(32)]
patterns["halves_apart"] = [(lane % 16) + (lane // 16) * 32 for lane in range(32)]
patterns["quarters_apart"] = [(lane % 8) + (lane // 8) * 32 for lane in range(32)]
patterns["alternate_apart"] = [(lane // 2) + (lane % 2) * 32 for lane in range(32)]
patterns["xor2"] = [(lane & 1) | ((lane >> 2) << 1) for lane in range(32)]
patterns["xor4"] = [(lane & 3) | ((lane >> 3) << 2) for lane in range(32)]
patterns["xor8"] = [(lane & 7) | ((lane >> 4) << 3) for lane in range(32)]
patterns["xor1_then_2"] = [lane // 2 if lane < 16 else (lane & 1) | ((lane >> 2) << 1) for lane in range(32)]
patterns["xor1_then_none"] = [lane // 2 if lane < 16 else lane for lane in range(32)]
patterns["xor1_apart"] = [lane // 2 * 16 for lane in range(32)]
patterns["xor1_but_one"] = [lane // 2 if lane != 9 else 20 for lane in range(32)]
patterns["xor2_apart"] = [((lane & 1) | ((lane >> 2) << 1)) * 16 for lane in range(32)]
patterns["xor1_spread"] = [(lane // 2) * 2 for lane in range(32)]
for i in range(4):
    patterns[f"shuffled{i}"] = random.sample(range(32), 32)
for i in range(6):
    patterns[f"random{i}"] = [random.randrange(0, 256) for _ in range(32)]
if sys.argv[1] == "make":
    out.mkdir(exist_ok=True, parents=True)
    ptx = ".version 8.0\n.target sm_90\n.address_size 64\n"
    toml = 'version = 1\n'
    for name, lanes in patterns.items():
        toml += f'[buffers.{name}]\ntype = "u32"\nvalues = {lanes}\n'
    toml += '[buffers.out]\ntype = "u32"\ncount = 32\n'
    for width, regs in ((4, "{%r4}"), (8, "{%r4, %r5}"), (16, "{%r4, %r5, %r6, %r7}")):
        n = width // 4
        vec = "" if n == 1 else f".v{n}"
        dst = "%r4" if n == 1 else regs
        for name in patterns:
            adds = "".join(f"\tadd.u32 %r4, %r4, %r{4 + i};\n" for i in range(1, n))
            ptx += f"""
.visible .entry {name}_w{width}(.param .u64 table, .param .u64 out)
.maxntid 32, 1, 1
{{
	.reg .b32 %r<12>; .reg .b64 %rd<8>; .reg .pred %p<2>;
	.shared .align 16 .b8 memory[36864];
	ld.param.u64 %rd1, [table];
	ld.param.u64 %rd2, [out];
	mov.u32 %r1, %tid.x;
	mul.wide.u32 %rd3, %r1, 4;
	add.s64 %rd4, %rd1, %rd3;
	ld.global.u32 %r2, [%rd4];
	mov.u32 %r3, memory;
	mov.u32 %r8, %r1;
$fill:
	shl.b32 %r9, %r8, 2;
	add.u32 %r10, %r3, %r9;
	st.volatile.shared.u32 [%r10], %r8;
	add.u32 %r8, %r8, 32;
	setp.lt.u32 %p1, %r8, 9216;
	@%p1 bra $fill;
	bar.sync 0;
	mad.lo.u32 %r3, %r2, {width}, %r3;
	ld.shared{vec}.u32 {dst}, [%r3];
{adds}	add.s64 %rd5, %rd2, %rd3;
	st.global.u32 [%rd5], %r4;
	ret;
}}
"""
            toml += f'[[launch]]\nkernel = "{name}_w{width}"\ngrid = 1\nblock = 32\nargs = ["{name}", "out"]\n'
    (out / "bank.ptx").write_text(ptx)
    (out / "bank.toml").write_text(toml)
else:
    import cupy
    module = cupy.RawModule(path=str(out / "bank.ptx"))
    result = cupy.zeros(32, cupy.uint32)
    for width in (4, 8, 16):
        for name, lanes in patterns.items():
            module.get_function(f"{name}_w{width}")((1,), (32,), (cupy.asarray(lanes, cupy.uint32), result))
    cupy.cuda.Device().synchronize()
