#!/usr/bin/env python3
"""Compares sums of Hopper's tensor cores with a model of their rounding, bit by bit.

Needs the driver and a GPU of compute capability 9.0; no other package. For each instruction it runs 14 products of
random matrices, with small and large spreads of the exponents, subnormal elements and accumulators, and zeros of both
signs, and prints how many sums the model gives bit by bit.

The model: the significands of the products, in [1, 4), and the accumulator are aligned to the largest exponent among
them, and cut toward zero a number of bits below it. Their sum is exact, then rounded.

- f16, bf16 and tf32: 25 bits. Sums in single precision are cut toward zero, those in half precision rounded to nearest.
- 8-bit floats of wgmma: 13 bits. Sums in single precision keep 14 bits, cut toward zero.
- 8-bit floats of mma: two products of f16 without accumulator, of the first and of the last two of every four along K;
  the accumulator is added by an ordinary addition.
"""

import ctypes
import random
import struct
import sys

# Spreads of the exponents of products, without and with accumulators; `None` for zeros.
SPREADS = (0, 1, 3, 6, 9, 15, None)
TILES = 2 * len(SPREADS)

HEADER = """
.version 8.7
.target sm_90a
.address_size 64
.visible .entry probe(.param .u64 pa, .param .u64 pb, .param .u64 pc, .param .u64 pd)
{{
    .reg .b64 %pa, %pb, %pc, %pd;
    ld.param.u64 %pa, [pa];
    ld.param.u64 %pb, [pb];
    ld.param.u64 %pc, [pc];
    ld.param.u64 %pd, [pd];
"""

WGMMA = HEADER + """    .reg .pred %p;
    .reg .b32 %t, %n, %s, %w, %a<4>, %d<4>;
    .reg .b64 %x, %b;
    .shared .align 128 .b8 tile[256];
    mov.u32 %t, %tid.x;
    mov.u32 %w, %ctaid.x;
    mad.lo.u32 %n, %w, 128, %t;
    mul.wide.u32 %x, %n, 16;
    add.u64 %pa, %pa, %x;
    add.u64 %pc, %pc, %x;
    add.u64 %pd, %pd, %x;
    ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%pa];
    ld.global.v4.b32 {{%d0, %d1, %d2, %d3}}, [%pc];
    setp.lt.u32 %p, %t, 64;
    mad.lo.u32 %n, %w, 64, %t;
    mul.wide.u32 %x, %n, 4;
    add.u64 %pb, %pb, %x;
    mov.u32 %s, tile;
    mad.lo.u32 %n, %t, 4, %s;
    @%p ld.global.b32 %w, [%pb];
    @%p st.shared.b32 [%n], %w;
    fence.proxy.async;
    bar.sync 0;
    // Core matrices follow each other along K at 128 bytes.
    shr.u32 %s, %s, 4;
    and.b32 %s, %s, 0x3fff;
    cvt.u64.u32 %b, %s;
    or.b64 %b, %b, 0x0000000800080000;
    wgmma.fence.sync.aligned;
    wgmma.mma_async.sync.aligned.{name} {{{sums}}}, {{%a0, %a1, %a2, %a3}}, %b, 1, 1, 1{transposed};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
    st.global.v4.b32 [%pd], {{%d0, %d1, %d2, %d3}};
    ret;
}}
"""

MMA = HEADER + """    .reg .b32 %n, %w, %a<4>, %b<2>, %d<4>;
    .reg .b64 %x;
    mov.u32 %n, %tid.x;
    mov.u32 %w, %ctaid.x;
    mad.lo.u32 %n, %w, 32, %n;
    mul.wide.u32 %x, %n, 16;
    add.u64 %pa, %pa, %x;
    add.u64 %pc, %pc, %x;
    add.u64 %pd, %pd, %x;
    shr.u64 %x, %x, 1;
    add.u64 %pb, %pb, %x;
    ld.global.v4.b32 {{%a0, %a1, %a2, %a3}}, [%pa];
    ld.global.v4.b32 {{%d0, %d1, %d2, %d3}}, [%pc];
    ld.global.v2.b32 {{%b0, %b1}}, [%pb];
    mma.sync.aligned.{name} {{{sums}}}, {{%a0, %a1, %a2, %a3}}, {{%b0, %b1}}, {{{sums}}};
    st.global.v4.b32 [%pd], {{%d0, %d1, %d2, %d3}};
    ret;
}}
"""

# Bits of the exponent and of the fraction, and elements of a 32-bit word.
FORMATS = {"f16": (5, 10, 2), "bf16": (8, 7, 2), "tf32": (8, 10, 1), "e4m3": (4, 3, 4), "e5m2": (5, 2, 4), "f32": (8, 23, 1)}

# PTX, name, type of A and B, type of the sums.
INSTRUCTIONS = [
    (WGMMA, "m64n8k16.f32.f16.f16", "f16", "f32"),
    (WGMMA, "m64n8k16.f32.bf16.bf16", "bf16", "f32"),
    (WGMMA, "m64n8k8.f32.tf32.tf32", "tf32", "f32"),
    (WGMMA, "m64n8k16.f16.f16.f16", "f16", "f16"),
    (WGMMA, "m64n8k32.f32.e4m3.e4m3", "e4m3", "f32"),
    (WGMMA, "m64n8k32.f32.e5m2.e5m2", "e5m2", "f32"),
    (WGMMA, "m64n8k32.f16.e4m3.e4m3", "e4m3", "f16"),
    (MMA, "m16n8k16.row.col.f32.f16.f16.f32", "f16", "f32"),
    (MMA, "m16n8k16.row.col.f32.bf16.bf16.f32", "bf16", "f32"),
    (MMA, "m16n8k8.row.col.f32.tf32.tf32.f32", "tf32", "f32"),
    (MMA, "m16n8k16.row.col.f16.f16.f16.f16", "f16", "f16"),
    (MMA, "m16n8k32.row.col.f32.e4m3.e4m3.f32", "e4m3", "f32"),
    (MMA, "m16n8k32.row.col.f32.e5m2.e5m2.f32", "e5m2", "f32"),
    (MMA, "m16n8k32.row.col.f16.e4m3.e4m3.f16", "e4m3", "f16"),
]


class Number:
    """A number `significand` · 2^(`exponent` − `fraction`), whose significand has `fraction` bits behind its point."""

    def __init__(self, significand, fraction, exponent):
        self.significand, self.fraction, self.exponent = significand, fraction, exponent

    @staticmethod
    def decode(bits, ty):
        exponent_bits, fraction, _ = FORMATS[ty]
        # A tf32 is in the upper bits of a word.
        bits >>= 13 if ty == "tf32" else 0
        exponent = bits >> fraction & ((1 << exponent_bits) - 1)
        significand = bits & ((1 << fraction) - 1) | (1 << fraction if exponent else 0)
        negative = bits >> (fraction + exponent_bits)
        exponent = max(exponent, 1) - ((1 << (exponent_bits - 1)) - 1)
        return Number(-significand if negative else significand, fraction, exponent)

    @staticmethod
    def normal(integer, exponent):
        """The number `integer` · 2^`exponent`, with a significand in [1, 2)."""
        fraction = max(abs(integer).bit_length() - 1, 0)
        return Number(integer, fraction, exponent + fraction)

    def __mul__(self, other):
        significand = self.significand * other.significand
        return Number(significand, self.fraction + other.fraction, self.exponent + other.exponent)

    def rounded(self, ty, kept=None, to_nearest=False):
        """Rounded to a type, or to `kept` bits of it: to nearest, ties to even, or toward zero."""
        exponent_bits, fraction, _ = FORMATS[ty]
        bits = kept or fraction + 1
        lowest = 2 - (1 << (exponent_bits - 1))
        magnitude, unit = abs(self.significand), self.exponent - self.fraction
        top = unit + magnitude.bit_length() - 1
        shift = max(top, lowest) - bits + 1 - unit
        if shift > 0:
            rest = magnitude & ((1 << shift) - 1)
            magnitude >>= shift
            half = 1 << (shift - 1)
            magnitude += to_nearest and (rest > half or (rest == half and magnitude & 1))
            unit += shift
        return Number.normal(-magnitude if self.significand < 0 else magnitude, unit)

    def encode(self, ty):
        """Bits of a number that the type has."""
        exponent_bits, fraction, _ = FORMATS[ty]
        magnitude = abs(self.significand)
        if magnitude == 0:
            return 0
        lowest = 2 - (1 << (exponent_bits - 1))
        unit = max(self.exponent, lowest) - fraction
        shift = self.exponent - self.fraction - unit
        magnitude = magnitude << shift if shift >= 0 else magnitude >> -shift
        biased = unit + fraction - lowest if magnitude >> fraction else -1
        sign = (self.significand < 0) << (fraction + exponent_bits)
        return sign | (biased + 1) << fraction | magnitude & ((1 << fraction) - 1)


def aligned_sum(terms, bits):
    """The sum of terms that are cut toward zero `bits` bits below the largest of their exponents."""
    terms = [term for term in terms if term.significand]
    if not terms:
        return Number(0, 0, 0)
    lowest = max(term.exponent for term in terms) - bits
    total = 0
    for term in terms:
        shift = term.exponent - term.fraction - lowest
        magnitude = abs(term.significand)
        magnitude = magnitude << shift if shift >= 0 else magnitude >> -shift
        total += -magnitude if term.significand < 0 else magnitude
    return Number.normal(total, lowest)


def model(ptx, ty, sum_ty, row, column, accumulator):
    """The bits of a sum of products of a row of A and a column of B."""
    products = [Number.decode(a, ty) * Number.decode(b, ty) for a, b in zip(row, column)]
    accumulator = Number.decode(accumulator, sum_ty)
    half, bytes_ = sum_ty == "f16", ty in ("e4m3", "e5m2")
    if not bytes_:
        return aligned_sum(products + [accumulator], 25).rounded(sum_ty, to_nearest=half).encode(sum_ty)
    if ptx is WGMMA:
        total = aligned_sum(products + [accumulator], 13)
        return total.rounded(sum_ty, kept=None if half else 14, to_nearest=half).encode(sum_ty)
    total = Number(0, 0, 0)
    for first in (0, 2):
        terms = [product for at, product in enumerate(products) if at % 4 // 2 * 2 == first]
        total = aligned_sum(terms + [total], 25).rounded(sum_ty, to_nearest=half)
    # An exact sum: more bits than the exponents can differ by.
    return aligned_sum([total, accumulator], 400).rounded(sum_ty, to_nearest=True).encode(sum_ty)


def random_element(ty, spread, generator):
    """Bits of a number with an exponent of −1 to −1 − `spread`, or of a subnormal one; of a zero if there is no spread."""
    exponent_bits, fraction, _ = FORMATS[ty]
    if spread is None:
        return generator.getrandbits(1) << (exponent_bits + fraction + (13 if ty == "tf32" else 0))
    exponent = max((1 << (exponent_bits - 1)) - 2 - generator.randrange(spread + 1), 0)
    bits = generator.getrandbits(1) << exponent_bits | exponent
    return (bits << fraction | generator.getrandbits(fraction)) << (13 if ty == "tf32" else 0)


def random_word(ty, spread, generator):
    count = FORMATS[ty][2]
    return sum(random_element(ty, spread, generator) << (32 // count * at) for at in range(count))


def random_accumulator(ty, spread, generator):
    count = FORMATS[ty][2]
    word = 0
    for at in range(count):
        value = generator.choice((-1, 1)) * 0.0
        if spread is not None:
            value = generator.uniform(0.5, 1.0) * 2.0 ** generator.randrange(-spread - 4, 6) * generator.choice((-1, 1))
        word |= int.from_bytes(struct.pack("<f" if ty == "f32" else "<e", value), "little") << (16 * at)
    return word


def elements(word, ty):
    count = FORMATS[ty][2]
    return [word >> (32 // count * at) & ((1 << (32 // count)) - 1) for at in range(count)]


class Device:
    """The first GPU, by the driver's API."""

    def __init__(self):
        self.driver = ctypes.CDLL("libcuda.so.1")
        self.check(self.driver.cuInit(0), "cuInit")
        device, context = ctypes.c_int(), ctypes.c_void_p()
        self.check(self.driver.cuDeviceGet(ctypes.byref(device), 0), "cuDeviceGet")
        self.check(self.driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device), "cuDevicePrimaryCtxRetain")
        self.check(self.driver.cuCtxSetCurrent(context), "cuCtxSetCurrent")

    def check(self, error, call):
        if error:
            sys.exit(f"{call} failed with error {error}: this needs a GPU of compute capability 9.0 and its driver")

    def run(self, ptx, threads, buffers):
        """Launches `TILES` CTAs with the buffers, lists of words; returns the last one afterwards."""
        module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self.check(self.driver.cuModuleLoadData(ctypes.byref(module), ptx.encode()), "cuModuleLoadData")
        self.check(self.driver.cuModuleGetFunction(ctypes.byref(kernel), module, b"probe"), "cuModuleGetFunction")
        addresses = []
        for words in buffers:
            address, data = ctypes.c_uint64(), struct.pack(f"<{len(words)}I", *words)
            self.check(self.driver.cuMemAlloc_v2(ctypes.byref(address), len(data)), "cuMemAlloc")
            self.check(self.driver.cuMemcpyHtoD_v2(address, data, len(data)), "cuMemcpyHtoD")
            addresses.append(address)
        params = (ctypes.c_void_p * len(addresses))(*map(ctypes.addressof, addresses))
        launched = self.driver.cuLaunchKernel(kernel, TILES, 1, 1, threads, 1, 1, 0, None, params, None)
        self.check(launched, "cuLaunchKernel")
        result = ctypes.create_string_buffer(4 * len(buffers[-1]))
        self.check(self.driver.cuMemcpyDtoH_v2(result, addresses[-1], len(result)), "cuMemcpyDtoH")
        for address in addresses:
            self.driver.cuMemFree_v2(address)
        self.driver.cuModuleUnload(module)
        return struct.unpack(f"<{len(buffers[-1])}I", result.raw)


def matrices(ptx, ty, a, b):
    """Rows of A and columns of B from the registers of a CTA's lanes, and from core matrices."""
    count, lanes = FORMATS[ty][2], len(a) // 4
    rows = [[0] * (8 * count) for _ in range(lanes // 2)]
    columns = [[0] * (8 * count) for _ in range(8)]
    for at, word in enumerate(a):
        lane, register = at // 4, at % 4
        row = lane // 32 * 16 + lane % 32 // 4 + register % 2 * 8
        first = (lane % 4 + register // 2 * 4) * count
        rows[row][first : first + count] = elements(word, ty)
    for at, word in enumerate(b):
        column, place = (at % 32 // 4, at // 32 * 4 + at % 4) if ptx is WGMMA else (at // 8, at // 2 % 4 + at % 2 * 4)
        columns[column][place * count : (place + 1) * count] = elements(word, ty)
    return rows, columns


def compare(device, ptx, name, ty, sum_ty, generator):
    """Number of sums, and of those that the model gives."""
    lanes = 128 if ptx is WGMMA else 32
    registers = 4 // FORMATS[sum_ty][2]
    sums = ", ".join(f"%d{at}" for at in range(registers))
    text = ptx.format(name=name, sums=sums, transposed=", 0" if ty in ("f16", "bf16") else "")
    a, b, c = [], [], []
    for tile in range(TILES):
        spread = SPREADS[tile % len(SPREADS)]
        a += [random_word(ty, spread, generator) for _ in range(4 * lanes)]
        b += [random_word(ty, spread, generator) for _ in range(64)]
        accumulators = [random_accumulator(sum_ty, spread, generator) for _ in range(4 * lanes)]
        c += accumulators if tile >= len(SPREADS) else [0] * (4 * lanes)
    found = device.run(text, lanes, [a, b, c, [0] * len(c)])
    total = equal = 0
    for tile in range(TILES):
        of_lanes = slice(tile * 4 * lanes, (tile + 1) * 4 * lanes)
        rows, columns = matrices(ptx, ty, a[of_lanes], b[tile * 64 : (tile + 1) * 64])
        for at, (before, after) in enumerate(zip(c[of_lanes], found[of_lanes])):
            lane, register = at // 4, at % 4
            if register >= registers:
                continue
            for part, (start, end) in enumerate(zip(elements(before, sum_ty), elements(after, sum_ty))):
                index = register * FORMATS[sum_ty][2] + part
                row = rows[lane // 32 * 16 + lane % 32 // 4 + index // 2 * 8]
                total += 1
                equal += model(ptx, ty, sum_ty, row, columns[lane % 4 * 2 + index % 2], start) == end
    return total, equal


def main():
    device, generator = Device(), random.Random(7)
    print("| instruction | sums | equal bits |")
    print("| --- | ---: | ---: |")
    for ptx, name, ty, sum_ty in INSTRUCTIONS:
        total, equal = compare(device, ptx, name, ty, sum_ty, generator)
        print(f"| `{'wgmma' if ptx is WGMMA else 'mma'} {name}` | {total} | {equal} |", flush=True)


if __name__ == "__main__":
    main()
