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
    launch(&kernel("", &body), LaunchConfig::linear(1, 32), &mut data)
        .unwrap_or_else(|finding| panic!("{finding}"));
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
    let shapes = [(F16, 16), (F16, 8), (BF16, 16), (BF16, 8), (TF32, 8), (TF32, 4)];
    let c: Vec<[u32; 32]> = (0..4u32)
        .map(|index| std::array::from_fn(|lane| (lane as f32 * 0.5 - index as f32).to_bits()))
        .collect();
    for (kind, depth) in shapes {
        let name = format!("m16n8k{depth}.row.col.f32.{0}.{0}.f32", kind.name);
        let d = run_mma(&name, &fragment_a(kind, depth), &fragment_b(kind, depth), &c);
        for index in 0..4 {
            for lane in 0..32 {
                let (row, column) = place(lane, index);
                let want = product(kind, kind, depth, row, column) + f32::from_bits(c[index][lane]) as f64;
                let got = f32::from_bits(d[index][lane]);
                assert_eq!(got as f64, want, "{name}: lane {lane}, register {index}");
            }
        }
    }
}

#[test]
fn half_accumulators_are_rounded_once() {
    let c: Vec<[u32; 32]> = vec![[0x3c00_3800; 32], [0xbc00_b800; 32]];
    for depth in [8, 16] {
        let name = format!("m16n8k{depth}.row.col.f16.f16.f16.f16");
        let d = run_mma(&name, &fragment_a(F16, depth), &fragment_b(F16, depth), &c);
        for index in 0..4 {
            for lane in 0..32 {
                let (row, column) = place(lane, index);
                let bits = |register: u32| half::f16::from_bits((register >> (16 * (index % 2))) as u16);
                let exact = product(F16, F16, depth, row, column) + bits(c[index / 2][lane]).to_f64();
                let got = bits(d[index / 2][lane]);
                assert_eq!(got, half::f16::from_f64(exact), "{name}: lane {lane}, index {index}");
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
