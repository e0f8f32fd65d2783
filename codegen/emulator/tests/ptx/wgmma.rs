//! `wgmma`: all types, sources and layouts against products computed here, and misuse.
//!
//! A kernel copies the operands, which the test has laid out, to shared memory, and stores every thread's accumulators.

use std::fmt::Write;

use bespoke_emulator::{Finding, FindingKind, LaunchConfig, Memory, Module, Options, run};

const HEADER: &str = ".version 8.4\n.target sm_90a\n.address_size 64\n";
/// Offset of operand B in shared memory; the swizzle patterns repeat every 1024 bytes.
const B: usize = 32 << 10;
const SHARED: usize = 96 << 10;

/// Types of a product, with the bytes of an element of A and B.
struct Types {
    accumulator: &'static str,
    a: &'static str,
    b: &'static str,
    bytes: usize,
}

const fn types(accumulator: &'static str, a: &'static str, b: &'static str, bytes: usize) -> Types {
    Types { accumulator, a, b, bytes }
}

const TYPES: [Types; 9] = [
    types("f32", "f16", "f16", 2),
    types("f16", "f16", "f16", 2),
    types("f32", "bf16", "bf16", 2),
    types("f32", "tf32", "tf32", 4),
    types("f32", "e4m3", "e5m2", 1),
    types("f16", "e5m2", "e4m3", 1),
    types("s32", "s8", "s8", 1),
    types("s32", "u8", "s8", 1),
    types("s32", "s8", "u8", 1),
];

/// A product `D = scale · A · B + D` of one instruction.
struct Product {
    types: &'static Types,
    columns: usize,
    /// Whether A is in registers; else in shared memory.
    registers: bool,
    /// Whether A, and B, are stored along M or N; only for types of 16 bits.
    transposed: [bool; 2],
    /// Swizzle of the descriptors: 0 none, 1 of 128, 2 of 64, 3 of 32 bytes.
    swizzle: u64,
    negative: bool,
    accumulates: bool,
}

/// Small integers, which every type holds, as do sums of their products.
fn value(seed: usize, row: usize, column: usize, unsigned: bool) -> i32 {
    let mut bits = (seed * 7919 + row * 31 + column) as u64;
    bits = (bits ^ bits >> 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let small = (bits >> 33) as i32 % 5;
    if unsigned { small } else { small - 2 }
}

/// Bits of a small integer in a type.
fn encode(ty: &str, value: i32) -> u32 {
    let single = (value as f32).to_bits();
    // Magnitudes up to 4 have at most two significant bits and a small exponent.
    let narrow = |fraction: u32, bias: i32| match value {
        0 => 0,
        _ => {
            let exponent = (single >> 23 & 255) as i32 - 127 + bias;
            let sign = (value < 0) as u32;
            let bits = if fraction == 10 { 5 } else { 7 - fraction };
            sign << (fraction + bits)
                | (exponent as u32) << fraction
                | (single >> (23 - fraction)) & ((1 << fraction) - 1)
        }
    };
    match ty {
        "f16" => narrow(10, 15),
        "e4m3" => narrow(3, 7),
        "e5m2" => narrow(2, 15),
        "bf16" => single >> 16,
        "tf32" | "f32" => single,
        _ => value as u32 & 0xff,
    }
}

impl Product {
    fn depth(&self) -> usize {
        32 / self.types.bytes
    }

    fn a(&self, row: usize, k: usize) -> i32 {
        value(1, row, k, self.types.a == "u8")
    }

    fn b(&self, k: usize, column: usize) -> i32 {
        value(2, k, column, self.types.b == "u8")
    }

    /// Offset of an element in shared memory by the canonical layouts; `line` is the row of A or the column of B.
    fn offset(&self, line: usize, k: usize, transposed: bool) -> usize {
        // Chunks of 16 bytes in a row of the pattern, and bytes of a pattern of eight rows.
        let width = [1, 8, 4, 2][self.swizzle as usize];
        let (per_chunk, pattern) = (16 / self.types.bytes, width * 128);
        let at = match transposed {
            false => {
                let chunk = k / per_chunk;
                let within = if self.swizzle == 0 {
                    line / 8 * 256 + chunk * 128
                } else {
                    line / 8 * pattern + chunk * 16
                };
                line % 8 * width * 16 + within
            }
            true => {
                let chunk = line / per_chunk;
                // Patterns follow each other along M or N, and then along K, 16 KiB later.
                chunk % width * 16 + chunk / width * pattern + k % 8 * width * 16 + k / 8 * (16 << 10)
            }
        };
        let rest = if transposed { line % per_chunk } else { k % per_chunk } * self.types.bytes;
        (at ^ (at >> 7 & (width - 1)) << 4) + rest
    }

    /// Descriptor of the operand at `start`.
    fn descriptor(&self, start: usize, transposed: bool) -> u64 {
        let pattern = [1, 8, 4, 2][self.swizzle as usize] * 128;
        let (leading, stride) = match (transposed, self.swizzle) {
            (false, 0) => (128, 256),
            (false, _) => (0, pattern),
            (true, 0) => (16 << 10, pattern),
            (true, _) => (pattern, 16 << 10),
        };
        (start >> 4) as u64 | (leading as u64 >> 4) << 16 | (stride as u64 >> 4) << 32 | self.swizzle << 62
    }

    /// Shared memory with both operands.
    fn operands(&self) -> Vec<u8> {
        let mut shared = vec![0; SHARED];
        let mut put = |at: usize, bits: u32| {
            let bytes = self.types.bytes;
            shared[at..at + bytes].copy_from_slice(&bits.to_le_bytes()[..bytes]);
        };
        for k in 0..self.depth() {
            for row in 0..64 {
                put(self.offset(row, k, self.transposed[0]), encode(self.types.a, self.a(row, k)));
            }
            for column in 0..self.columns {
                put(B + self.offset(column, k, self.transposed[1]), encode(self.types.b, self.b(k, column)));
            }
        }
        shared
    }

    /// Accumulators of a thread.
    fn count(&self) -> usize {
        self.columns / if self.types.accumulator == "f16" { 4 } else { 2 }
    }

    fn list(prefix: &str, count: usize) -> String {
        let registers: Vec<String> = (0..count).map(|i| format!("%{prefix}{i}")).collect();
        format!("{{{}}}", registers.join(", "))
    }

    /// The kernel's text.
    fn text(&self) -> String {
        let Types { accumulator, a, b, .. } = self.types;
        let initial = encode_accumulator(accumulator, 3);
        let count = self.count();
        let mut text = format!(
            "{HEADER}.extern .shared .align 1024 .b8 tile[];\n.visible .entry product(.param .u64 in, .param .u64 out)\n\
             {{\n.reg .b32 %d<{count}>, %a<4>, %t<8>;\n.reg .b64 %x<8>;\n.reg .pred %p<4>;\nld.param.u64 %x0, [in];\n\
             ld.param.u64 %x1, [out];\nmov.u32 %t0, %tid.x;\nmov.u32 %t1, tile;\nshl.b32 %t2, %t0, 2;\nCOPY:\n\
             cvt.u64.u32 %x2, %t2;\nadd.u64 %x3, %x0, %x2;\nld.global.b32 %t3, [%x3];\nadd.u32 %t4, %t1, %t2;\n\
             st.shared.b32 [%t4], %t3;\nadd.u32 %t2, %t2, 512;\nsetp.lt.u32 %p0, %t2, {SHARED};\n@%p0 bra COPY;\n\
             fence.proxy.async;\nbar.sync 0;\n"
        );
        if self.registers {
            // Register r of lane l: row l / 4 + 8 (r mod 2) of the warp's 16, 4 bytes of K at 16 (r / 2) + 4 (l mod 4).
            for register in 0..4 {
                let _ = writeln!(
                    text,
                    "ld.param.u64 %x4, [in];\nmul.wide.u32 %x5, %t0, 16;\nadd.u64 %x4, %x4, %x5;\n\
                     ld.global.b32 %a{register}, [%x4+{}];",
                    SHARED + 4 * register
                );
            }
        }
        for register in 0..count {
            let _ = writeln!(text, "mov.b32 %d{register}, {initial};");
        }
        let a_operand = if self.registers { Product::list("a", 4) } else { "%x4".to_string() };
        if !self.registers {
            let _ = writeln!(text, "mov.b64 %x4, {};", self.descriptor(0, self.transposed[0]));
        }
        let _ = writeln!(
            text,
            "mov.b64 %x5, {};\nsetp.eq.u32 %p1, {}, 1;",
            self.descriptor(B, self.transposed[1]),
            self.accumulates as u32
        );
        let mut options = String::new();
        if *accumulator != "s32" {
            options += if self.negative { ", -1, 1" } else { ", 1, 1" };
        }
        if self.types.bytes == 2 {
            let [ta, tb] = self.transposed.map(|transposed| transposed as u32);
            options += &if self.registers { format!(", {tb}") } else { format!(", {ta}, {tb}") };
        }
        let _ = writeln!(
            text,
            "wgmma.fence.sync.aligned;\nwgmma.mma_async.sync.aligned.m64n{}k{}.{accumulator}.{a}.{b} {}, {a_operand}, %x5, \
             %p1{options};\nwgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;\n\
             mul.wide.u32 %x6, %t0, {};\nadd.u64 %x1, %x1, %x6;",
            self.columns,
            self.depth(),
            Product::list("d", count),
            4 * count
        );
        for register in 0..count {
            let _ = writeln!(text, "st.global.b32 [%x1+{}], %d{register};", 4 * register);
        }
        text + "ret;\n}\n"
    }

    /// Contents of `in`: shared memory, then the registers of A of each thread.
    fn input(&self) -> Vec<u8> {
        let mut bytes = self.operands();
        for thread in 0..128 {
            for register in 0..4 {
                let row = thread / 32 * 16 + thread % 32 / 4 + 8 * (register % 2);
                let first = (16 * (register / 2) + 4 * (thread % 4)) / self.types.bytes;
                let mut word = 0;
                for element in 0..4 / self.types.bytes {
                    word |= encode(self.types.a, self.a(row, first + element))
                        << (8 * self.types.bytes * element);
                }
                bytes.extend_from_slice(&word.to_le_bytes());
            }
        }
        bytes
    }

    /// Expected accumulators of a thread.
    fn expected(&self, thread: usize) -> Vec<u32> {
        let halves = self.types.accumulator == "f16";
        let element = |index: usize| {
            let row = thread / 32 * 16 + thread % 32 / 4 + 8 * (index / 2 % 2);
            let column = index / 4 * 8 + 2 * (thread % 4) + index % 2;
            let sum: i32 = (0..self.depth()).map(|k| self.a(row, k) * self.b(k, column)).sum();
            let sign = if self.negative && self.types.accumulator != "s32" { -1 } else { 1 };
            half_or_word(self.types.accumulator, sign * sum + if self.accumulates { 3 } else { 0 })
        };
        match halves {
            true => (0..self.count()).map(|i| element(2 * i) | element(2 * i + 1) << 16).collect(),
            false => (0..self.count()).map(element).collect(),
        }
    }
}

/// Initial value of an accumulator register; two halves for `f16`.
fn encode_accumulator(ty: &str, value: i32) -> u32 {
    let bits = half_or_word(ty, value);
    if ty == "f16" { bits | bits << 16 } else { bits }
}

fn half_or_word(ty: &str, value: i32) -> u32 {
    match ty {
        "f16" => half::f16::from_f32(value as f32).to_bits() as u32,
        "f32" => (value as f32).to_bits(),
        _ => value as u32,
    }
}

/// Runs the text of a product in one CTA; returns the accumulators of all threads.
fn outcome(product: &Product, text: &str, warps: u32) -> Result<Vec<u32>, Box<Finding>> {
    outcome_in(product, text, LaunchConfig::linear(1, 32 * warps))
}

/// Runs the text of a product; returns the accumulators of the first four warps of each CTA.
fn outcome_in(product: &Product, text: &str, config: LaunchConfig) -> Result<Vec<u32>, Box<Finding>> {
    let module = Module::load(text).unwrap_or_else(|errors| panic!("{}\n{text}", errors[0]));
    let memory = Memory::new();
    let (input, size) = (product.input(), 512 * product.count() * config.grid[0] as usize);
    let (from, to) = (memory.alloc("in", input.len() as u64), memory.alloc("out", size as u64));
    memory.write(from, &input).expect("inside");
    let params: Vec<u8> = [from, to].iter().flat_map(|address| address.to_le_bytes()).collect();
    let config = LaunchConfig { dynamic_shared: SHARED as u32, ..config };
    run(module.kernel("product").expect("the kernel"), &memory, &config, &params, &Options::default())?;
    let mut bytes = vec![0; size];
    memory.read(to, &mut bytes).expect("inside");
    Ok(bytes.chunks(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect())
}

fn check(product: &Product) {
    let text = product.text();
    let got = outcome(product, &text, 4).unwrap_or_else(|finding| panic!("{finding}\n{text}"));
    for (thread, got) in got.chunks(product.count()).enumerate() {
        assert_eq!(got, product.expected(thread), "thread {thread} of\n{text}");
    }
}

fn plain(types: &'static Types) -> Product {
    Product {
        types,
        columns: 24,
        registers: false,
        transposed: [false; 2],
        swizzle: 0,
        negative: false,
        accumulates: true,
    }
}

#[test]
fn all_types_from_shared_memory_and_from_registers() {
    for types in &TYPES {
        for registers in [false, true] {
            check(&Product { registers, ..plain(types) });
        }
    }
}

#[test]
fn all_layouts_of_the_descriptors() {
    for swizzle in 0..4 {
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            check(&Product { swizzle, transposed, columns: 64, ..plain(&TYPES[0]) });
        }
        check(&Product { swizzle, ..plain(&TYPES[3]) });
        check(&Product { swizzle, ..plain(&TYPES[6]) });
    }
}

#[test]
fn every_number_of_columns() {
    for columns in (8..=256).step_by(8) {
        check(&Product { columns, swizzle: 1, ..plain(&TYPES[0]) });
    }
    for columns in [8, 16, 24, 32, 48, 256] {
        check(&Product { columns, ..plain(&TYPES[6]) });
    }
    let text = Product { columns: 40, ..plain(&TYPES[6]) }.text();
    assert!(Module::load(&text).is_err(), "integers have no 40 columns");
}

#[test]
fn products_are_negated_and_accumulators_ignored() {
    check(&Product { negative: true, ..plain(&TYPES[0]) });
    check(&Product { negative: true, registers: true, ..plain(&TYPES[2]) });
    check(&Product { accumulates: false, ..plain(&TYPES[1]) });
    check(&Product { accumulates: false, ..plain(&TYPES[6]) });
}

/// Replaces a line of the product's text; returns the finding.
#[track_caller]
fn finding(product: &Product, line: &str, replacement: &str) -> Finding {
    let text = product.text();
    assert!(text.contains(line), "{text}");
    *outcome(product, &text.replacen(line, replacement, 1), 4).map(drop).expect_err("a finding")
}

#[test]
fn misuse_is_found() {
    let shared = plain(&TYPES[0]);
    let fragment = Product { registers: true, ..plain(&TYPES[0]) };
    let wait = "wgmma.wait_group.sync.aligned 0;";
    let fence = "wgmma.fence.sync.aligned;";
    let with = |line: &str, before: &str| format!("{before}\n{line}");
    for (product, line, replacement, kind, message) in [
        (&shared, fence, String::new(), FindingKind::Wgmma, "no `wgmma.fence` before it"),
        (
            &shared,
            fence,
            format!("{fence}\nmov.b32 %d5, 0;"),
            FindingKind::Wgmma,
            "`%d5` was written after the last",
        ),
        (
            &fragment,
            fence,
            format!("{fence}\nmov.b32 %a2, 0;"),
            FindingKind::Wgmma,
            "`%a2` was written after the last",
        ),
        (&shared, wait, String::new(), FindingKind::Wgmma, "`%d0` is read while the `wgmma` at PTX line"),
        (&shared, wait, "wgmma.wait_group.sync.aligned 1;".into(), FindingKind::Wgmma, "`%d0` is read while"),
        (&shared, wait, with(wait, "mov.b32 %d7, 0;"), FindingKind::Wgmma, "`%d7` is written while"),
        (&fragment, wait, with(wait, "mov.b32 %a3, 0;"), FindingKind::Wgmma, "which reads it, is in flight"),
        (
            &shared,
            wait,
            with(wait, "st.shared.b32 [tile], %t0;"),
            FindingKind::Wgmma,
            "that `wgmma` has not been",
        ),
        (&shared, "wgmma.commit_group.sync.aligned;", String::new(), FindingKind::Wgmma, "is read while"),
        (&shared, "fence.proxy.async;", String::new(), FindingKind::ProxyFence, "`fence.proxy.async`"),
        (&shared, "bar.sync 0;", String::new(), FindingKind::Race, "a barrier is missing"),
        (&shared, wait, "ret;".into(), FindingKind::AsyncCopy, "ends while this operation is in flight"),
        (
            &shared,
            fence,
            format!("setp.gt.u32 %p2, %t0, 95;\n@%p2 bra END;\n{fence}"),
            FindingKind::Deadlock,
            "warp 0 waits for 1 `wgmma` of its warpgroup, of which warp 3 has issued 0",
        ),
    ] {
        let mut text = product.text();
        assert!(text.contains(line), "{text}");
        text = text.replacen(line, &replacement, 1).replace("ret;\n}\n", "END:\nret;\n}\n");
        let finding = *outcome(product, &text, 4).expect_err(&format!("`{line}` → `{replacement}`"));
        assert_eq!(finding.kind, kind, "`{line}` → `{replacement}`: {finding}");
        assert!(finding.detail.contains(message), "`{line}` → `{replacement}`: {finding}");
    }
    let few = *outcome(&shared, &shared.text(), 3).expect_err("three warps");
    assert!(few.detail.contains("a warpgroup has four warps"), "{few}");
    let damaged = shared.descriptor(B, false).to_string();
    let far = finding(&shared, &damaged, &(shared.descriptor(SHARED - 16, false)).to_string());
    assert_eq!(far.kind, FindingKind::OutOfBounds, "{far}");
}

#[test]
fn warpgroups_are_numbered_in_their_cta() {
    // The fifth warp of each CTA is in no warpgroup.
    let product = plain(&TYPES[0]);
    let text = product
        .text()
        .replace(
            "mov.u32 %t0, %tid.x;",
            &format!(
                "mov.u32 %t0, %tid.x;\nsetp.gt.u32 %p2, %t0, 127;\n@%p2 ret;\nmov.u32 %t6, %ctaid.x;\n\
                 mad.wide.u32 %x1, %t6, {}, %x1;",
                512 * product.count()
            ),
        )
        .replace("bar.sync 0;", "bar.sync 0, 128;")
        // The descriptors have the addresses of the CTA's own operands.
        .replace(
            "setp.eq.u32 %p1,",
            "shr.u32 %t6, %t1, 4;\ncvt.u64.u32 %x6, %t6;\nadd.u64 %x4, %x4, %x6;\nadd.u64 %x5, %x5, %x6;\n\
             setp.eq.u32 %p1,",
        );
    let config = LaunchConfig { cluster: Some([2, 1, 1]), ..LaunchConfig::linear(2, 160) };
    let got = outcome_in(&product, &text, config).unwrap_or_else(|finding| panic!("{finding}\n{text}"));
    for (thread, got) in got.chunks(product.count()).enumerate() {
        assert_eq!(got, product.expected(thread % 128), "thread {} of CTA {}", thread % 128, thread / 128);
    }
}

#[test]
fn operands_that_differ_within_a_warpgroup_are_found() {
    let product = plain(&TYPES[0]);
    let (a, b) = (product.descriptor(0, false), product.descriptor(B, false));
    let scale = "setp.eq.u32 %p1, 1, 1;".to_string();
    let moved = |name: &str, bits: u64, shift: u32| {
        let line = format!("mov.b64 {name}, {bits};");
        let other =
            format!("shr.u32 %t6, %t0, {shift};\ncvt.u64.u32 %x6, %t6;\nadd.u64 {name}, {name}, %x6;");
        (line.clone(), format!("{line}\n{other}"))
    };
    for ((line, replacement), message) in [
        (
            (scale.clone(), "setp.lt.u32 %p1, %t0, 16;".into()),
            "`scale-d`: true in lane 0, false in lane 16".into(),
        ),
        (
            (scale, "setp.lt.u32 %p1, %t0, 64;".into()),
            "`scale-d`: true in warp 0, false in warp 2".to_string(),
        ),
        (moved("%x4", a, 0), format!("the descriptor of A: {a:#x} in lane 0, {:#x} in lane 1", a + 1)),
        (moved("%x5", b, 0), format!("the descriptor of B: {b:#x} in lane 0, {:#x} in lane 1", b + 1)),
        (moved("%x5", b, 5), format!("the descriptor of B: {b:#x} in warp 0, {:#x} in warp 1", b + 1)),
    ] {
        let found = finding(&product, &line, &replacement);
        assert_eq!(found.kind, FindingKind::Wgmma, "{replacement}: {found}");
        assert!(found.detail.contains(&message), "{replacement}: {found}");
    }
}

#[test]
fn accumulators_must_be_initialised_where_they_are_read() {
    let initial = format!("mov.b32 %d5, {};", encode_accumulator("f32", 3));
    let found = finding(&plain(&TYPES[0]), &initial, "");
    assert_eq!(found.kind, FindingKind::Uninitialised, "{found}");
    assert!(found.detail.contains("register `%d5` is read but nothing has written it"), "{found}");
    let product = Product { accumulates: false, ..plain(&TYPES[0]) };
    let text = product.text();
    assert!(text.contains(&initial), "{text}");
    let got = outcome(&product, &text.replace(&initial, ""), 4).unwrap_or_else(|finding| panic!("{finding}"));
    assert_eq!(got[..product.count()], product.expected(0));
}

#[test]
fn operands_that_another_operation_still_reads_are_reserved() {
    let product = plain(&TYPES[0]);
    // One thread stores 16 bytes of an operand to global memory, or copies them within shared memory.
    let store = "setp.eq.u32 %p2, %t0, 0;\n\
                 @%p2 cp.async.bulk.global.shared::cta.bulk_group [%x1], [tile], 16;\n\
                 @%p2 cp.async.bulk.commit_group;";
    let stored = "@%p2 cp.async.bulk.wait_group 0;";
    let copy = "setp.eq.u32 %p2, %t0, 0;\n@%p2 mbarrier.init.shared.b64 [tile+98176], 1;\n\
                @%p2 fence.mbarrier_init.release.cluster;\n\
                @%p2 mbarrier.arrive.expect_tx.shared.b64 _, [tile+98176], 16;\n\
                @%p2 cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [tile+90112], [tile], 16, \
                [tile+98176];";
    let copied = "@!%p2 bra DONE;\nTEST: mbarrier.try_wait.parity.shared.b64 %p3, [tile+98176], 0;\n@!%p3 bra TEST;\nDONE:";
    let multiplied = "wgmma.wait_group.sync.aligned 0;";
    let write = "@%p2 st.shared.b32 [tile], %t0;";
    let (by_wgmma, by_copy) = (Some(FindingKind::Wgmma), Some(FindingKind::AsyncCopy));
    for (steps, kind) in [
        (vec![store, multiplied, stored, write], None),
        (vec![store, stored, multiplied, write], None),
        (vec![copy, multiplied, copied, write], None),
        (vec![store, multiplied, write, stored], by_copy),
        (vec![store, stored, write, multiplied], by_wgmma),
        // The barrier keeps the other warps from a wait for the `wgmma`.
        (vec![copy, copied, write, "bar.sync 0;", multiplied], by_wgmma),
        (vec![copy, multiplied, write, copied], by_copy),
        (vec![store, copy, multiplied, copied, write, stored], by_copy),
        (vec![store, copy, multiplied, stored, write, copied], by_copy),
    ] {
        let text = product.text().replace(multiplied, &steps.join("\n"));
        let found = outcome(&product, &text, 4).err();
        assert_eq!(found.as_ref().map(|found| found.kind), kind, "{steps:#?}\n{found:?}");
    }
}

/// Warp 0 waits for the operation; a thread of warp 1 writes an operand later (warps 1 to 3 meet at a barrier first), without
/// a barrier between the two.
#[test]
fn a_warp_knows_of_the_operations_that_it_has_waited_for_itself() {
    let product = plain(&TYPES[0]);
    let multiplied = "wgmma.wait_group.sync.aligned 0;";
    for (pending, kind) in [(0, None), (1, Some(FindingKind::Race))] {
        let steps = format!(
            "setp.lt.u32 %p2, %t0, 32;\n@%p2 bra WAIT;\nbar.sync 1, 96;\nwgmma.wait_group.sync.aligned {pending};\n\
             setp.eq.u32 %p3, %t0, 32;\n@%p3 st.shared.b32 [tile], %t0;\nWAIT:\n{multiplied}"
        );
        let text = product.text().replace(multiplied, &steps);
        let found = outcome(&product, &text, 4).err();
        assert_eq!(found.as_ref().map(|found| found.kind), kind, "{pending} pending\n{found:?}");
    }
}

#[test]
fn other_targets_do_not_have_it() {
    let text = plain(&TYPES[0]).text();
    for (target, version) in [("sm_90", "8.4"), ("sm_100a", "8.6")] {
        let text = text.replace("sm_90a", target).replace(".version 8.4", &format!(".version {version}"));
        let errors = Module::load(&text).expect_err("another target");
        assert!(errors[0].message.contains("needs `.target` sm_90a, but the text names"), "{}", errors[0]);
    }
}

/// The second product reads most of what the first reads, which is no conflict, and 16 bytes that nothing has written.
#[test]
fn uninitialised_operands_beside_a_product_in_flight() {
    const READ: usize = 768;
    let product = plain(&TYPES[0]);
    let text = product.text();
    let line = text.lines().find(|line| line.starts_with("wgmma.mma_async")).expect("a product");
    let (commit, store) = ("wgmma.commit_group.sync.aligned;", "st.shared.b32 [%t4], %t3;");
    let twice = text
        .replacen(commit, &format!("{commit}\nadd.u64 %x5, %x5, 1;\n{line}\n{commit}"), 1)
        .replacen(store, &format!("setp.lt.u32 %p2, %t2, {};\n@%p2 {store}", B + READ), 1);
    let found = *outcome(&product, &twice, 4).expect_err("uninitialised bytes");
    assert_eq!(found.kind, FindingKind::Uninitialised, "{found}");
}
