//! `mma`, `ldmatrix` and `stmatrix`, compared with element-wise matrix products.

use bespoke_emulator::{Finding, FindingKind, LaunchConfig};
use expect_test::expect;

use crate::harness::{kernel, launch, words};

const ROWS: usize = 16;
const COLUMNS: usize = 8;

/// Element type of a matrix operand in the tests.
#[derive(Clone, Copy)]
struct Kind {
    name: &'static str,
    bits: usize,
    /// Bit pattern and value of element number `n` of a test matrix.
    element: fn(u32) -> (u32, f64),
}

fn scramble(n: u32) -> u32 {
    n.wrapping_mul(0x9e37_79b9).rotate_left(13).wrapping_mul(0x85eb_ca6b) >> 11
}

const S8: Kind = Kind {
    name: "s8",
    bits: 8,
    element: |n| {
        let byte = scramble(n) as u8;
        (byte as u32, byte as i8 as f64)
    },
};
const U8: Kind = Kind { name: "u8", bits: 8, element: |n| (scramble(n) & 0xff, (scramble(n) & 0xff) as f64) };
const F16: Kind = Kind {
    name: "f16",
    bits: 16,
    element: |n| {
        let value = half::f16::from_f32((scramble(n) % 31) as f32 - 15.0);
        (value.to_bits() as u32, value.to_f64())
    },
};
const BF16: Kind = Kind {
    name: "bf16",
    bits: 16,
    element: |n| {
        let value = half::bf16::from_f32((scramble(n) % 31) as f32 - 15.0);
        (value.to_bits() as u32, value.to_f64())
    },
};
const TF32: Kind = Kind {
    name: "tf32",
    bits: 32,
    element: |n| {
        let value = (scramble(n) % 31) as f32 - 15.0;
        // The low bits are not part of the tf32 format; `mma` ignores them.
        (value.to_bits() | n & 0x1fff, value as f64)
    },
};

/// Normal numbers from 1/4 to 4 in e4m3: bias 7, fraction of 3 bits.
const E4M3: Kind = Kind {
    name: "e4m3",
    bits: 8,
    element: |n| {
        let (exponent, fraction, sign) = (5 + scramble(n) % 4, scramble(n) / 4 % 8, scramble(n) / 32 % 2);
        let value = (1.0 + f64::from(fraction) / 8.0) * 2f64.powi(exponent as i32 - 7);
        (sign << 7 | exponent << 3 | fraction, if sign == 1 { -value } else { value })
    },
};
/// Normal numbers from 1/4 to 4 in e5m2: bias 15, fraction of 2 bits.
const E5M2: Kind = Kind {
    name: "e5m2",
    bits: 8,
    element: |n| {
        let (exponent, fraction, sign) = (13 + scramble(n) % 4, scramble(n) / 4 % 4, scramble(n) / 16 % 2);
        let value = (1.0 + f64::from(fraction) / 4.0) * 2f64.powi(exponent as i32 - 15);
        (sign << 7 | exponent << 2 | fraction, if sign == 1 { -value } else { value })
    },
};

/// Registers of `A`, each with the values of all lanes, in the layout of the figures in the PTX ISA.
fn fragment_a(kind: Kind, depth: usize) -> Vec<[u32; 32]> {
    let per = 32 / kind.bits;
    let mut registers = vec![[0u32; 32]; ROWS * depth / per / 32];
    for row in 0..ROWS {
        for k in 0..depth {
            let (bits, _) = (kind.element)((row * depth + k) as u32);
            let lane = row % 8 * 4 + k % (4 * per) / per;
            let register = row / 8 + 2 * (k / (4 * per));
            registers[register][lane] |= bits << (kind.bits * (k % per)) as u32;
        }
    }
    registers
}

/// Registers of `B`, as [`fragment_a`]; the elements are numbered from 1000.
fn fragment_b(kind: Kind, depth: usize) -> Vec<[u32; 32]> {
    let per = 32 / kind.bits;
    let mut registers = vec![[0u32; 32]; COLUMNS * depth / per / 32];
    for column in 0..COLUMNS {
        for k in 0..depth {
            let (bits, _) = (kind.element)((1000 + k * COLUMNS + column) as u32);
            let lane = column * 4 + k % (4 * per) / per;
            registers[k / (4 * per)][lane] |= bits << (kind.bits * (k % per)) as u32;
        }
    }
    registers
}

/// The exact element of `A · B` at a row and column.
fn product(a: Kind, b: Kind, depth: usize, row: usize, column: usize) -> f64 {
    (0..depth)
        .map(|k| {
            (a.element)((row * depth + k) as u32).1 * (b.element)((1000 + k * COLUMNS + column) as u32).1
        })
        .sum()
}

/// Runs an `mma` on the registers `a`, `b` and `c`, and returns the registers of `D`.
fn run_mma(name: &str, a: &[[u32; 32]], b: &[[u32; 32]], c: &[[u32; 32]]) -> Vec<[u32; 32]> {
    let inputs: Vec<&[u32; 32]> = a.iter().chain(b).chain(c).collect();
    let mut data: Vec<u32> = inputs.iter().flat_map(|register| register.iter().copied()).collect();
    let outputs = data.len();
    data.resize(outputs + c.len() * 32, 0);
    let mut body = "mov.u32 %r0, %laneid; mad.wide.u32 %x0, %r0, 4, %data;\n".to_string();
    for index in 0..inputs.len() {
        body += &format!("ld.global.u32 %r{}, [%x0+{}];\n", index + 1, index * 128);
    }
    let list = |from: usize, count: usize| {
        let names: Vec<String> = (from..from + count).map(|r| format!("%r{r}")).collect();
        format!("{{{}}}", names.join(", "))
    };
    let (d, a_at, b_at, c_at) = (20, 1, 1 + a.len(), 1 + a.len() + b.len());
    body += &format!(
        "mma.sync.aligned.{name} {}, {}, {}, {};\n",
        list(d, c.len()),
        list(a_at, a.len()),
        list(b_at, b.len()),
        list(c_at, c.len())
    );
    for index in 0..c.len() {
        body += &format!("st.global.u32 [%x0+{}], %r{};\n", (inputs.len() + index) * 128, d + index);
    }
    // 8-bit floats need a later version than the other tests.
    let text = kernel("", &body).replacen(".version 8.1", ".version 8.7", 1);
    launch(&text, LaunchConfig::linear(1, 32), &mut data).unwrap_or_else(|finding| panic!("{finding}"));
    data[outputs..].chunks(32).map(|lanes| std::array::from_fn(|lane| lanes[lane])).collect()
}

fn place(lane: usize, index: usize) -> (usize, usize) {
    (lane / 4 + index / 2 * 8, lane % 4 * 2 + index % 2)
}

#[test]
fn integer_products() {
    for depth in [16, 32] {
        for (a, b) in [(S8, S8), (S8, U8), (U8, S8), (U8, U8)] {
            let c: Vec<[u32; 32]> = (0..4)
                .map(|index| std::array::from_fn(|lane| (lane as u32 * 1001).wrapping_sub(index * 70_000)))
                .collect();
            let name = format!("m16n8k{depth}.row.col.s32.{}.{}.s32", a.name, b.name);
            let d = run_mma(&name, &fragment_a(a, depth), &fragment_b(b, depth), &c);
            for (index, (d, c)) in d.iter().zip(&c).enumerate() {
                for lane in 0..32 {
                    let (row, column) = place(lane, index);
                    let want = c[lane] as i32 + product(a, b, depth, row, column) as i32;
                    assert_eq!(d[lane] as i32, want, "{name}: lane {lane}, register {index}");
                }
            }
        }
    }
}

#[test]
fn integer_sums_wrap_unless_they_saturate() {
    let c: Vec<[u32; 32]> = vec![[i32::MAX as u32; 32], [i32::MIN as u32; 32], [5; 32], [0; 32]];
    for saturates in [false, true] {
        let infix = if saturates { ".satfinite" } else { "" };
        let name = format!("m16n8k32.row.col{infix}.s32.s8.s8.s32");
        let d = run_mma(&name, &fragment_a(S8, 32), &fragment_b(S8, 32), &c);
        for index in 0..4 {
            for lane in 0..32 {
                let (row, column) = place(lane, index);
                let exact = c[index][lane] as i32 as i64 + product(S8, S8, 32, row, column) as i64;
                let want = if saturates { exact.clamp(i32::MIN as i64, i32::MAX as i64) } else { exact };
                assert_eq!(d[index][lane] as i32, want as i32, "{name}: lane {lane}, register {index}");
            }
        }
    }
}

#[test]
fn float_products() {
    let same = [(F16, 16), (F16, 8), (BF16, 16), (BF16, 8), (TF32, 8), (TF32, 4)];
    let same = same.map(|(kind, depth)| (kind, kind, depth));
    let float8 = [(E4M3, E4M3), (E4M3, E5M2), (E5M2, E4M3), (E5M2, E5M2)];
    let float8 = float8.into_iter().flat_map(|(a, b)| [(a, b, 32), (a, b, 16)]);
    let c: Vec<[u32; 32]> = (0..4u32)
        .map(|index| std::array::from_fn(|lane| (lane as f32 * 0.5 - index as f32).to_bits()))
        .collect();
    for (left, right, depth) in same.into_iter().chain(float8) {
        let name = format!("m16n8k{depth}.row.col.f32.{}.{}.f32", left.name, right.name);
        let d = run_mma(&name, &fragment_a(left, depth), &fragment_b(right, depth), &c);
        for index in 0..4 {
            for lane in 0..32 {
                let (row, column) = place(lane, index);
                let want = product(left, right, depth, row, column) + f32::from_bits(c[index][lane]) as f64;
                let got = f32::from_bits(d[index][lane]);
                assert_eq!(got as f64, want, "{name}: lane {lane}, register {index}");
            }
        }
    }
}

/// `A · B + c` in half precision at a row and column. Sums of 8-bit floats are rounded after the products of the first two
/// of every four elements along K, after those of the others, and with the accumulator.
fn half_sum(a: Kind, b: Kind, depth: usize, (row, column): (usize, usize), c: half::f16) -> half::f16 {
    if a.bits > 8 {
        return half::f16::from_f64(product(a, b, depth, row, column) + c.to_f64());
    }
    let term =
        |k| (a.element)((row * depth + k) as u32).1 * (b.element)((1000 + k * COLUMNS + column) as u32).1;
    let total = [0, 2].into_iter().fold(half::f16::ZERO, |total, first| {
        let terms = (0..depth).filter(|k| k % 4 / 2 * 2 == first).map(term);
        half::f16::from_f64(terms.sum::<f64>() + total.to_f64())
    });
    half::f16::from_f64(total.to_f64() + c.to_f64())
}

#[test]
fn sums_in_half_precision_are_rounded() {
    let c: Vec<[u32; 32]> = vec![[0x3c00_3800; 32], [0xbc00_b800; 32]];
    let float8 = [(E4M3, E5M2, 16), (E4M3, E4M3, 32), (E5M2, E4M3, 32), (E5M2, E5M2, 32)];
    for (left, right, depth) in [(F16, F16, 8), (F16, F16, 16)].into_iter().chain(float8) {
        let name = format!("m16n8k{depth}.row.col.f16.{}.{}.f16", left.name, right.name);
        let d = run_mma(&name, &fragment_a(left, depth), &fragment_b(right, depth), &c);
        for index in 0..4 {
            for lane in 0..32 {
                let bits = |register: u32| half::f16::from_bits((register >> (16 * (index % 2))) as u16);
                let expected = half_sum(left, right, depth, place(lane, index), bits(c[index / 2][lane]));
                let got = bits(d[index / 2][lane]);
                assert_eq!(got, expected, "{name}: lane {lane}, index {index}");
            }
        }
    }
}

/// The value of every 8-bit float, by the definition of the formats: e4m3 has no infinities, and one NaN per sign.
fn float8(code: u8, fraction_bits: i32, bias: i32, has_infinities: bool) -> f64 {
    let (exponent, fraction) =
        (i32::from(code & 0x7f) >> fraction_bits, i32::from(code) & ((1 << fraction_bits) - 1));
    let special = exponent == (0x7f >> fraction_bits);
    let magnitude = match (exponent, fraction) {
        (_, 0) if special && has_infinities => f64::INFINITY,
        (_, fraction) if special && (has_infinities || fraction == 7) => f64::NAN,
        (0, fraction) => f64::from(fraction) * 2f64.powi(1 - bias - fraction_bits),
        _ => f64::from((1 << fraction_bits) + fraction) * 2f64.powi(exponent - bias - fraction_bits),
    };
    if code & 0x80 != 0 { -magnitude } else { magnitude }
}

#[test]
fn every_float_of_8_bits() {
    for (name, one, fraction_bits, bias, has_infinities) in
        [("e4m3", 0x38u32, 3, 7, false), ("e5m2", 0x3c, 2, 15, true)]
    {
        for first in (0..256u32).step_by(16) {
            // Row `r` of A has the code `first + r`, then zeros; every element of B is 1.
            let mut a = vec![[0u32; 32]; 4];
            for row in 0..ROWS {
                a[row / 8][row % 8 * 4] = first + row as u32;
            }
            let b = vec![[one * 0x0101_0101; 32]; 2];
            let c = vec![[0u32; 32]; 4];
            let d = run_mma(&format!("m16n8k32.row.col.f32.{name}.{name}.f32"), &a, &b, &c);
            for (index, d) in d.iter().enumerate() {
                for (lane, &sum) in d.iter().enumerate() {
                    let code = (first + place(lane, index).0 as u32) as u8;
                    let want = float8(code, fraction_bits, bias, has_infinities);
                    let got = f64::from(f32::from_bits(sum));
                    assert!(
                        got == want || got.is_nan() && want.is_nan(),
                        "{name} {code:#x}: {got}, not {want}"
                    );
                }
            }
        }
    }
}

/// Element number `n` of a matrix of doubles: sums of products are rounded.
fn double(n: usize) -> f64 {
    f64::from(scramble(n as u32)) / 7.0 - 1e5
}

#[test]
fn products_of_doubles() {
    for (rows, depth) in [(8, 4), (16, 4), (16, 8), (16, 16)] {
        let a = |row: usize, k: usize| double(row * depth + k);
        let b = |k: usize, column: usize| double(1000 + k * COLUMNS + column);
        let c = |row: usize, column: usize| double(2000 + row * COLUMNS + column);
        let halves = rows / 8;
        // Registers of A, of B and of C, by lanes.
        let mut inputs: Vec<[f64; 32]> = Vec::new();
        for i in 0..halves * depth / 4 {
            let (row, k) = (8 * (i % halves), 4 * (i / halves));
            inputs.push(std::array::from_fn(|lane| a(row + lane / 4, k + lane % 4)));
        }
        for i in 0..depth / 4 {
            inputs.push(std::array::from_fn(|lane| b(4 * i + lane % 4, lane / 4)));
        }
        for i in 0..2 * halves {
            inputs.push(std::array::from_fn(|lane| {
                let (row, column) = place(lane, i);
                c(row, column)
            }));
        }
        let words = |x: f64| [x.to_bits() as u32, (x.to_bits() >> 32) as u32];
        let mut data: Vec<u32> = inputs.iter().flatten().copied().flat_map(words).collect();
        let outputs = data.len();
        data.resize(outputs + 2 * halves * 64, 0);
        let mut body = "mov.u32 %r0, %laneid; mad.wide.u32 %x0, %r0, 8, %data;\n".to_string();
        for index in 0..inputs.len() {
            body += &format!("ld.global.f64 %x{}, [%x0+{}];\n", index + 1, index * 256);
        }
        let list = |from: usize, count: usize| {
            let names: Vec<String> = (from..from + count).map(|r| format!("%x{r}")).collect();
            format!("{{{}}}", names.join(", "))
        };
        let (a_count, b_count, c_count) = (halves * depth / 4, depth / 4, 2 * halves);
        let sums = 1 + inputs.len();
        body += &format!(
            "mma.sync.aligned.m{rows}n8k{depth}.row.col.f64.f64.f64.f64 {}, {}, {}, {};\n",
            list(sums, c_count),
            list(1, a_count),
            list(1 + a_count, b_count),
            list(1 + a_count + b_count, c_count)
        );
        for index in 0..c_count {
            body += &format!("st.global.f64 [%x0+{}], %x{};\n", (inputs.len() + index) * 256, sums + index);
        }
        launch(&kernel("", &body), LaunchConfig::linear(1, 32), &mut data)
            .unwrap_or_else(|finding| panic!("{finding}"));
        for index in 0..c_count {
            for lane in 0..32 {
                let (row, column) = place(lane, index);
                let want = (0..depth).fold(c(row, column), |sum, k| a(row, k).mul_add(b(k, column), sum));
                let at = outputs + index * 64 + lane * 2;
                let got = f64::from_bits(u64::from(data[at]) | u64::from(data[at + 1]) << 32);
                assert_eq!(got, want, "m{rows}n8k{depth}: lane {lane}, register {index}");
            }
        }
    }
}

/// Stores the numbers 0, 1, 2 … as 16-bit elements to shared memory and loads them with `ldmatrix`.
fn run_ldmatrix(count: usize, suffix: &str) -> Vec<[u32; 32]> {
    let names: Vec<String> = (0..count).map(|r| format!("%r{}", 10 + r)).collect();
    let mut body = format!(
        ".shared .align 16 .b8 tile[512];
        mov.u32 %r0, %laneid; mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 16, %r1; mad.lo.u32 %r2, %r0, 0x80008, 0x10000;
        add.u32 %r3, %r2, 0x20002; add.u32 %r4, %r2, 0x40004; add.u32 %r5, %r2, 0x60006;
        st.shared.v4.u32 [%r1], {{%r2, %r3, %r4, %r5}}; bar.warp.sync -1;
        ldmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 {{{}}}, [%r1];
        mad.wide.u32 %x0, %r0, 4, %data;\n",
        names.join(", ")
    );
    for (index, name) in names.iter().enumerate() {
        body += &format!("st.global.u32 [%x0+{}], {name};\n", index * 128);
    }
    let mut data = words(32 * count, 0);
    launch(&kernel("", &body), LaunchConfig::linear(1, 32), &mut data)
        .unwrap_or_else(|finding| panic!("{finding}"));
    data.chunks(32).map(|lanes| std::array::from_fn(|lane| lanes[lane])).collect()
}

#[test]
fn matrices_are_loaded_plain_and_transposed() {
    for count in [1, 2, 4] {
        for (suffix, transposed) in [("", false), (".trans", true)] {
            for (matrix, lanes) in run_ldmatrix(count, suffix).into_iter().enumerate() {
                for (lane, &got) in lanes.iter().enumerate() {
                    let (outer, inner) = (lane as u32 / 4, lane as u32 % 4 * 2);
                    let at = |row: u32, column: u32| 64 * matrix as u32 + 8 * row + column;
                    let (low, high) = if transposed {
                        (at(inner, outer), at(inner + 1, outer))
                    } else {
                        (at(outer, inner), at(outer, inner + 1))
                    };
                    assert_eq!(got, low | high << 16, "x{count}{suffix}, matrix {matrix}, lane {lane}");
                }
            }
        }
    }
}

/// Stores matrices with the 16-bit elements 0, 1, 2 … by `stmatrix`, their rows `apart` bytes from each other, and
/// returns the first 512 bytes of shared memory. Lane `l` holds elements `2l` and `2l + 1` of each matrix.
fn run_stmatrix(count: u32, suffix: &str, apart: u32) -> Result<Vec<u32>, Box<Finding>> {
    let mut body = format!(
        ".shared .align 16 .b8 tile[512];
        mov.u32 %r0, %laneid; mov.u32 %r1, tile; mad.lo.u32 %r2, %r0, 16, %r1; mov.u32 %r3, 0;
        st.shared.v4.u32 [%r2], {{%r3, %r3, %r3, %r3}}; bar.warp.sync -1;
        mad.lo.u32 %r2, %r0, {apart}, %r1; mad.lo.u32 %r10, %r0, 0x20002, 0x10000;
        add.u32 %r11, %r10, 0x400040; add.u32 %r12, %r11, 0x400040; add.u32 %r13, %r12, 0x400040;\n"
    );
    let names: Vec<String> = (0..count).map(|r| format!("%r{}", 10 + r)).collect();
    body += &format!(
        "stmatrix.sync.aligned.m8n8.x{count}{suffix}.shared.b16 [%r2], {{{}}}; bar.warp.sync -1;
        mad.lo.u32 %r2, %r0, 16, %r1; ld.shared.v4.u32 {{%r4, %r5, %r6, %r7}}, [%r2];
        mad.wide.u32 %x0, %r0, 16, %data; st.global.v4.u32 [%x0], {{%r4, %r5, %r6, %r7}};\n",
        names.join(", ")
    );
    let mut data = words(128, 0);
    launch(&kernel("", &body), LaunchConfig::linear(1, 32), &mut data).map(|_| data)
}

#[test]
fn matrices_are_stored_plain_and_transposed() {
    for count in [1, 2, 4] {
        for (suffix, transposed) in [("", false), (".trans", true)] {
            let data = run_stmatrix(count, suffix, 16).unwrap_or_else(|finding| panic!("{finding}"));
            for (index, &got) in data.iter().enumerate() {
                let (matrix, row, column) = (index as u32 / 32, index as u32 / 4 % 8, index as u32 % 4 * 2);
                let at = |column: u32| match transposed {
                    true => 64 * matrix + 8 * column + row,
                    false => 64 * matrix + 8 * row + column,
                };
                let expected = if matrix < count { at(column) | at(column + 1) << 16 } else { 0 };
                assert_eq!(got, expected, "x{count}{suffix}, word {index}");
            }
        }
    }
}

#[test]
fn stmatrix_rows_are_checked_like_stores() {
    let kind = |apart| run_stmatrix(4, "", apart).err().map(|finding| finding.kind);
    assert_eq!(kind(8), Some(FindingKind::Misaligned));
    assert_eq!(kind(32), Some(FindingKind::OutOfBounds));
    assert_eq!(kind(0), Some(FindingKind::Race));
}

#[test]
fn the_whole_warp_must_execute() {
    let body = |limit: u32| {
        format!(
            "mov.u32 %r0, %laneid; mov.u32 %r1, 0; setp.ge.u32 %p, %r0, {limit}; @%p bra END;\n \
             mma.sync.aligned.m16n8k16.row.col.s32.s8.s8.s32 {{%r2, %r3, %r4, %r5}}, {{%r1, %r1}}, {{%r1}}, {{%r1, %r1, %r1, %r1}};\n END: ret;"
        )
    };
    let mut data = words(1, 0);
    let one = LaunchConfig::linear(1, 32);
    launch(&kernel("", &body(32)), one, &mut data).expect("all lanes are there");
    let finding = launch(&kernel("", &body(20)), one, &mut data).expect_err("lanes 20 to 31 are elsewhere");
    assert_eq!(finding.kind, FindingKind::MemberMask);
    expect![
        "all 32 lanes of the warp must execute it together, but lane 20 has diverged and does not execute it"
    ]
    .assert_eq(&finding.detail);
    launch(&kernel("", &body(32)), LaunchConfig::linear(1, 16), &mut data).expect_err("half a warp");
}

#[test]
fn ldmatrix_rows_are_checked_like_loads() {
    let body = |offset: u32| {
        format!(
            ".shared .align 16 .b8 tile[512]; mov.u32 %r0, %laneid; mov.u32 %r1, tile; mad.lo.u32 %r1, %r0, 16, %r1;
            st.shared.v4.u32 [%r1], {{%r0, %r0, %r0, %r0}}; bar.warp.sync -1;
            ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{%r2, %r3, %r4, %r5}}, [%r1+{offset}];"
        )
    };
    let mut data = words(1, 0);
    let mut kind = |offset| {
        launch(&kernel("", &body(offset)), LaunchConfig::linear(1, 32), &mut data).err().map(|f| f.kind)
    };
    assert_eq!(kind(0), None);
    assert_eq!(kind(8), Some(FindingKind::Misaligned));
    assert_eq!(kind(16), Some(FindingKind::OutOfBounds));
}

/// The element of C = A · B by `wmma` of tf32, where all rows of A have the elements of `rows`, and B has ones.
fn wmma_of_tf32(row: [f32; 8]) -> f32 {
    let body = ".reg .f32 %s<8>; add.u64 %x0, %data, 512; add.u64 %x1, %data, 1024;
        wmma.load.a.sync.aligned.row.m16n16k8.global.tf32 {%r0, %r1, %r2, %r3}, [%data], 8;
        wmma.load.b.sync.aligned.col.m16n16k8.global.tf32 {%r4, %r5, %r6, %r7}, [%x0], 8;
        mov.f32 %f0, 0f00000000;
        wmma.mma.sync.aligned.row.col.m16n16k8.f32.tf32.tf32.f32 {%s0, %s1, %s2, %s3, %s4, %s5, %s6, %s7},
            {%r0, %r1, %r2, %r3}, {%r4, %r5, %r6, %r7}, {%f0, %f0, %f0, %f0, %f0, %f0, %f0, %f0};
        wmma.store.d.sync.aligned.row.m16n16k8.global.f32 [%x1], {%s0, %s1, %s2, %s3, %s4, %s5, %s6, %s7}, 16;\n";
    let bits = row.map(f32::to_bits);
    let mut data: Vec<u32> = bits.iter().copied().cycle().take(16 * 8).collect();
    data.resize(2 * 16 * 8, 1.0f32.to_bits());
    data.resize(2 * 16 * 8 + 16 * 16, 0);
    launch(&kernel("", body), LaunchConfig::linear(1, 32), &mut data)
        .unwrap_or_else(|finding| panic!("{finding}"));
    let (first, others) = data[2 * 16 * 8..].split_first().expect("the elements of C");
    assert!(others.iter().all(|other| other == first), "{others:x?}");
    f32::from_bits(*first)
}

#[test]
fn wmma_of_tf32_adds_four_products_at_a_time() {
    let half_bit = 2.0f32.powi(-24);
    // The first sum drops the half bit, and so does the second: eight products at a time would add a whole bit.
    assert_eq!(wmma_of_tf32([1.0, half_bit, 0.0, 0.0, half_bit, 0.0, 0.0, 0.0]), 1.0);
    assert_eq!(wmma_of_tf32([1.0, half_bit, half_bit, 0.0, 0.0, 0.0, 0.0, 0.0]), 1.0 + f32::EPSILON);
    assert_eq!(wmma_of_tf32([1.0, 0.0, 0.0, 0.0, half_bit, half_bit, 0.0, 0.0]), 1.0 + f32::EPSILON);
}

/// Registers of A are ones and those of B twos, as pairs of f16: sixteen products of each sum are 32. C has decimal literals.
#[test]
fn results_that_nothing_reads_and_decimal_literals() {
    let body = "mov.u32 %r0, %laneid; mov.b32 %r1, 0x3c003c00; mov.b32 %r2, 0x40004000; mov.f32 %f0, 1.;
        mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%f1, _, %f2, _}, {%r1, %r1, %r1, %r1}, {%r2, %r2},
            {%f0, 0.0, .5, 2.e1};
        .shared .align 16 .b8 rows[256]; shl.b32 %r3, %r0, 3; and.b32 %r4, %r3, 127; mov.u32 %r5, rows;
        add.u32 %r6, %r5, %r3; st.shared.v2.u32 [%r6], {%r0, %r0}; bar.warp.sync -1;
        add.u32 %r4, %r5, %r4; and.b32 %r4, %r4, -16; ldmatrix.sync.aligned.m8n8.x2.shared.b16 {_, %r7}, [%r4];
        st.global.f32 [%data], %f1; st.global.f32 [%data+4], %f2;";
    let mut data = words(2, 0);
    launch(&kernel("", body), LaunchConfig::linear(1, 32), &mut data).expect("runs");
    assert_eq!([0, 1].map(|index| f32::from_bits(data[index])), [33.0, 32.5]);
}
