"""How fast `wgmma` is while other warps of the multiprocessor compute, and how fast these are: run on a GPU of compute capability 9.0.

One warpgroup of each CTA multiplies with operand A in registers, 16 products in a loop of which at most two are in flight. The
warps of the others repeat one instruction until it ends. Needs NVIDIA's driver and Python alone.
"""

import ctypes
import sys

ROUNDS = 200
PRODUCTS = 16
REPEATED = 64
SHARED = 120 * 1024
CTAS = 132

# CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
MAX_DYNAMIC_SHARED = 8

# An instruction that writes register i, with the number of registers that it reads.
OTHERS = {
    "nothing": "",
    "xor of 3 registers": "lop3.b32 q{i}, q{i}, q{j}, q{k}, 0x96;",
    "prmt, 1 register": "prmt.b32 q{i}, q{i}, 0, 0x4041;",
    "mul, 2 registers": "mul.lo.u32 q{i}, q{i}, q{j};",
    "mad, 3 registers": "mad.lo.u32 q{i}, q{i}, q{j}, q{k};",
    "shift, immediate": "shf.l.wrap.b32 q{i}, q{i}, q{i}, 3;",
    "to float": "cvt.rn.f32.s32 f{i}, q{i}; mov.b32 q{i}, f{i};",
    "fmul, 2 registers": "mul.rn.f32 f{i}, f{i}, f{j};",
    "fadd, 2 registers": "add.rn.f32 f{i}, f{i}, f{j};",
    "ffma, 3 registers": "fma.rn.f32 f{i}, f{i}, f{j}, f{k};",
    "load, 4 bytes": "ld.volatile.shared.u32 q{i}, [place];",
    "store, 4 bytes": "st.volatile.shared.u32 [place], q{i};",
}

# Type of products: suffix of the instruction, type of a sum, immediates after the descriptors.
PRODUCT_TYPES = {
    "m64n128k32, bytes": (128, "k32.s32.u8.s8", "b32", ", 1"),
    "m64n256k32, bytes": (256, "k32.s32.u8.s8", "b32", ", 1"),
    "m64n128k16, f16": (128, "k16.f32.f16.f16", "f32", ", 1, 1, 1, 0"),
    "m64n256k16, f16": (256, "k16.f32.f16.f16", "f32", ", 1, 1, 1, 0"),
}


def program(product, instruction, others):
    """PTX of a kernel with `others` warpgroups beside the one that multiplies; without `product`, that one waits instead."""
    columns, suffix, sum_type, flags = PRODUCT_TYPES[product or "m64n128k32, bytes"]
    sums = columns // 2
    ptx = [f"""
.version 8.4
.target sm_90a
.address_size 64
.extern .shared .align 1024 .b8 memory[];
.visible .entry beside(.param .u64 out, .param .u32 rounds) .maxntid {128 + 128 * others} {{
.reg .pred p<3>; .reg .b32 a<12>, c<8>, q<32>, thread, base, flag, left, place, is_set, loops, total; .reg .f32 f<32>;
.reg .b64 b<8>, descriptor, start, end, address; .reg .{sum_type} s<{sums}>;
.shared .align 4 .b32 done;
mov.u32 thread, %tid.x; mov.u32 base, memory; mov.u32 flag, done; mov.u32 is_set, 0; st.shared.u32 [flag], is_set;
ld.param.u64 address, [out]; ld.param.u32 left, [rounds];
shl.b32 place, thread, 2; add.u32 place, place, base; add.u32 place, place, 65536;
mov.u32 c0, %ctaid.x; mul.wide.u32 end, c0, 32; add.u64 address, address, end;
shr.u32 c1, base, 4; and.b32 c1, c1, 0x3fff; cvt.u64.u32 descriptor, c1;
or.b64 descriptor, descriptor, {(columns << 16) | (8 << 32)};
bar.sync 0; setp.ge.u32 p0, thread, 128; @p0 bra OTHERS; mov.u64 start, %clock64;"""]
    if product:
        ptx += [f"add.u64 b{i}, descriptor, {i * columns * 2};" for i in range(8)]
        ptx += [f"mul.lo.u32 a{i}, thread, {i * 77773 + 3}; and.b32 a{i}, a{i}, 0x3fff3fff;" for i in range(12)]
        ptx += [f"mov.{sum_type} s{i}, {'0f00000000' if sum_type == 'f32' else 0};" for i in range(sums)]
        ptx += ["PRODUCTS:"]
        names = ", ".join(f"s{i}" for i in range(sums))
        for i in range(PRODUCTS):
            a = ", ".join(f"a{i % 3 * 4 + word}" for word in range(4))
            ptx += [f"""wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n{columns}{suffix} {{{names}}}, {{{a}}}, b{i % 8}{flags};
wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 1;"""]
        ptx += ["wgmma.wait_group.sync.aligned 0; sub.u32 left, left, 1; setp.ne.u32 p0, left, 0; @p0 bra PRODUCTS;"]
    else:
        ptx += ["PRODUCTS: mov.u64 end, %clock64; sub.u64 end, end, start; setp.lt.u64 p0, end, 200000; @p0 bra PRODUCTS;"]
    ptx += ["mov.u64 end, %clock64; sub.u64 end, end, start; mov.u32 is_set, 1; st.volatile.shared.u32 [flag], is_set;"]
    ptx += ["setp.eq.u32 p1, thread, 0; @p1 st.global.u64 [address], end; mov.u32 total, 0;"]
    if product:
        to_word = "cvt.rzi.s32.f32" if sum_type == "f32" else "mov.b32"
        ptx += [f"{to_word} c2, s{i}; add.u32 total, total, c2;" for i in range(sums)]
    ptx += ["setp.eq.u32 p2, total, 12345; @p2 st.global.u32 [address+24], total; ret;", "OTHERS:"]
    ptx += [f"add.u32 q{i}, thread, {i}; cvt.rn.f32.u32 f{i}, q{i};" for i in range(32)]
    ptx += ["mov.u64 start, %clock64; mov.u32 loops, 0;", "REPEAT:"]
    for i in range(REPEATED):
        registers = {"i": i % 16, "j": 16 + (i + 5) % 16, "k": 16 + i % 16}
        ptx += [OTHERS[instruction].format(**registers)]
    ptx += ["add.u32 loops, loops, 1; ld.volatile.shared.u32 is_set, [flag]; setp.eq.u32 p0, is_set, 0; @p0 bra REPEAT;"]
    ptx += ["mov.u64 end, %clock64; sub.u64 end, end, start; mov.u32 total, 0;"]
    ptx += [f"add.u32 total, total, q{i}; mov.b32 c2, f{i}; add.u32 total, total, c2;" for i in range(16)]
    ptx += ["setp.eq.u32 p1, thread, 128; @p1 st.global.u64 [address+8], end; @p1 st.global.u32 [address+16], loops;"]
    ptx += ["setp.eq.u32 p2, total, 12345; @p2 st.global.u32 [address+20], total; ret; }"]
    return "\n".join(ptx)


class Gpu:
    """The first GPU, through the driver's library."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        device, self.context, self.buffer = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        self.call("cuInit", 0)
        self.call("cuDeviceGet", ctypes.byref(device), 0)
        self.call("cuDevicePrimaryCtxRetain", ctypes.byref(self.context), device)
        self.call("cuCtxSetCurrent", self.context)
        self.call("cuMemAlloc_v2", ctypes.byref(self.buffer), ctypes.c_size_t(65536))

    def call(self, name, *arguments):
        status = getattr(self.driver, name)(*arguments)
        if status != 0:
            sys.exit(f"{name} returned {status}")

    def run(self, ptx, threads):
        """Cycles of the products, cycles of the others, and how often these repeated their instructions."""
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self.call("cuModuleLoadData", ctypes.byref(module), ptx.encode())
        self.call("cuModuleGetFunction", ctypes.byref(function), module, b"beside")
        self.call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED, SHARED)
        out, rounds = ctypes.c_uint64(self.buffer.value), ctypes.c_uint32(ROUNDS)
        pointers = [ctypes.cast(ctypes.byref(it), ctypes.c_void_p) for it in (out, rounds)]
        for _ in range(2):
            arguments = (ctypes.c_void_p * 2)(*pointers)
            self.call("cuLaunchKernel", function, CTAS, 1, 1, threads, 1, 1, SHARED, None, arguments, None)
            self.call("cuCtxSynchronize")
        times = (ctypes.c_uint64 * 3)()
        self.call("cuMemcpyDtoH_v2", times, self.buffer, ctypes.c_size_t(24))
        self.call("cuModuleUnload", module)
        return times[0], times[1], times[2] & 0xFFFFFFFF


def main():
    gpu = Gpu()
    print("| product | beside it | warps a scheduler | cycles a product | instructions a cycle and scheduler | without products |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    for product in PRODUCT_TYPES:
        for instruction in OTHERS:
            for others in (1, 2) if "128" in product else (1,):
                threads = 128 + 128 * others
                rates = []
                for kind in (product, None):
                    cycles, other_cycles, loops = gpu.run(program(kind, instruction, others), threads)
                    repeated = REPEATED if OTHERS[instruction] else 0
                    rates.append(repeated * loops * others / max(1, other_cycles))
                    if kind:
                        per_product = cycles / ROUNDS / PRODUCTS
                print(f"| {product} | {instruction} | {others} | {per_product:.0f} | {rates[0]:.2f} | {rates[1]:.2f} |")


if __name__ == "__main__":
    main()
