//! Comparison of `wgmma`: a product of one warpgroup for each form of `wgmma.txt` and each CTA.
//!
//! Shared memory has random elements everywhere, so that the results depend on the addresses that the descriptors give
//! to the elements.

mod kernel;

use std::error::Error;

use bespoke::device::{Device, Kernel};
use bespoke_codegen::launch::params;

use super::comparison::{Comparison, download, run, word};
use super::forms::{expand, lines};
use super::report::Agreement;
use super::values::{Random, random};

/// Text of the list of forms.
const FORMS: &str = include_str!("../wgmma.txt");
/// Names of the options of a form.
const OPTIONS: [&str; 10] =
    ["a", "major", "swizzle", "scale-d", "scale-a", "scale-b", "start", "pattern", "leading", "stride"];
/// Number of kernels in a module, limited by the time of the assembler.
const MODULE: usize = 40;
/// Number of CTAs, each with operands of its own.
const CTAS: usize = 4;
/// Threads of a warpgroup.
const THREADS: usize = 128;
/// Offset of operand B in shared memory; operand A is at 0.
const B: u64 = 12 << 10;
/// Size of both operands in shared memory, with gaps and swizzle patterns.
const TILE: usize = 46 << 10;
/// Registers of a fragment of A.
const FRAGMENT: usize = 4;
/// Largest number of registers of the accumulators.
const ACCUMULATORS: usize = 128;
/// Size of a CTA's input: shared memory, then each thread's fragment of A, then the accumulators register by register.
const INPUT: usize = TILE + 4 * THREADS * (FRAGMENT + ACCUMULATORS);

/// A product of the list.
struct Form {
    /// Line of the list without alternatives.
    name: String,
    /// The instruction's name.
    mnemonic: String,
    columns: usize,
    /// Types of D and A.
    types: [String; 2],
    /// Whether A is in registers.
    in_registers: bool,
    /// Whether A is contiguous along M, and B along N.
    transposed: [bool; 2],
    /// Swizzle of the descriptors in bytes; 0 for none.
    swizzle: u64,
    adds_accumulators: bool,
    /// `imm-scale-a` and `imm-scale-b`.
    scales: [i64; 2],
    start: u64,
    pattern: u64,
    leading: Option<u64>,
    stride: Option<u64>,
}

impl Form {
    /// Parses a line without alternatives.
    fn new(line: &str) -> Form {
        let mut words = line.split_whitespace();
        let instruction = words.next().unwrap_or_default();
        let parts: Vec<&str> = instruction.split('.').collect();
        let options: Vec<(&str, &str)> = words.filter_map(|word| word.split_once('=')).collect();
        let unknown = options.iter().find(|(key, _)| !OPTIONS.contains(key));
        assert!(unknown.is_none(), "`{line}` has an unknown option: {unknown:?}");
        let text = |name: &str| options.iter().find(|&&(key, _)| key == name).map(|&(_, value)| value);
        let number = |name: &str| -> Option<i64> { text(name)?.parse().ok() };
        let bytes = |name: &str| number(name).map(|bytes| bytes as u64);
        let columns = parts[0].strip_prefix("m64n").and_then(|rest| rest.split('k').next()?.parse().ok());
        let major = text("major").unwrap_or("kk");
        Form {
            name: line.to_string(),
            mnemonic: format!("wgmma.mma_async.sync.aligned.{instruction}"),
            columns: columns.unwrap_or_default(),
            types: [parts[1], parts[2]].map(str::to_string),
            in_registers: text("a") == Some("registers"),
            transposed: [major.starts_with('m'), major.ends_with('n')],
            swizzle: bytes("swizzle").unwrap_or(0),
            adds_accumulators: number("scale-d") != Some(0),
            scales: ["scale-a", "scale-b"].map(|name| number(name).unwrap_or(1)),
            start: bytes("start").unwrap_or(0),
            pattern: bytes("pattern").unwrap_or(0),
            leading: bytes("leading"),
            stride: bytes("stride"),
        }
    }

    /// Registers of the accumulators of a thread.
    fn accumulators(&self) -> usize {
        self.columns / if self.types[0] == "f16" { 4 } else { 2 }
    }

    /// Type of a register of the accumulators.
    fn result(&self) -> &str {
        if self.types[0] == "f16" { "f16x2" } else { &self.types[0] }
    }

    /// Kind of the operands' values, as in `values.rs`; none for any bits.
    fn kind(&self) -> Option<&'static str> {
        match self.types[1].as_str() {
            "f16" => Some("uh"),
            "bf16" => Some("ub"),
            "tf32" => Some("uf"),
            "e4m3" | "e5m2" => Some("ue"),
            _ => None,
        }
    }

    /// Matrix descriptor of the operand at offset `at` in the CTA's shared memory; the kernel adds the address of the shared memory.
    fn descriptor(&self, at: u64, transposed: bool) -> u64 {
        // Bytes of a pattern of eight rows. Core matrices without swizzle are such patterns.
        let pattern = 8 * self.swizzle.max(16);
        let (leading, stride) = match (transposed, self.swizzle) {
            (_, 0) => (pattern, 2 * pattern),
            // The patterns of a row of patterns follow each other along K.
            (true, _) => (2 * pattern, pattern),
            (false, _) => (0, pattern),
        };
        let (leading, stride) = (self.leading.unwrap_or(leading), self.stride.unwrap_or(stride));
        let swizzle = match self.swizzle {
            128 => 1,
            64 => 2,
            32 => 3,
            _ => 0,
        };
        let start = at + self.pattern + self.start;
        start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | (self.pattern >> 7 & 7) << 49 | swizzle << 62
    }

    /// Random input of all CTAs.
    fn input(&self, generator: &mut Random) -> Vec<u8> {
        let mut bytes = vec![0; CTAS * INPUT];
        for cta in bytes.chunks_mut(INPUT) {
            let (operands, accumulators) = cta.split_at_mut(TILE + 4 * THREADS * FRAGMENT);
            for word in operands.chunks_exact_mut(4) {
                let value = match self.kind() {
                    Some(kind) => random(kind, generator) as u32,
                    None => generator.next() as u32,
                };
                word.copy_from_slice(&value.to_le_bytes());
            }
            for word in accumulators.chunks_exact_mut(4).take(THREADS * self.accumulators()) {
                word.copy_from_slice(&self.accumulator(generator).to_le_bytes());
            }
        }
        bytes
    }

    /// Random value of an accumulator register. Half of the integers are near the limits of their type.
    fn accumulator(&self, generator: &mut Random) -> u32 {
        match self.result() {
            "f16x2" => random("uh", generator) as u32,
            "f32" => random("uf", generator) as u32,
            _ => {
                let bits = generator.next();
                let small = (bits >> 32) as u32 >> 13;
                match bits & 3 {
                    0 => i32::MAX as u32 - small,
                    1 => i32::MIN as u32 + small,
                    _ => (bits >> 32) as u32,
                }
            }
        }
    }

    /// Runs the product on a device and returns the registers of all threads and CTAs.
    fn results(&self, device: &dyn Device, kernel: Kernel, input: &[u8]) -> Result<Vec<u64>, Box<dyn Error>> {
        let bytes = 4 * CTAS * THREADS * self.accumulators();
        let (from, to) =
            (device.alloc("operands", input.len() as u64)?, device.alloc("results", bytes as u64)?);
        device.upload(from.address(), input)?;
        device.fill(to.address(), to.bytes(), 0)?;
        let descriptors =
            [(0, self.transposed[0]), (B, self.transposed[1])].map(|(at, along)| self.descriptor(at, along));
        let params = params(&[
            &from.address().0,
            &to.address().0,
            &descriptors[0],
            &descriptors[1],
            &u32::from(self.adds_accumulators),
        ]);
        run(device, kernel, (CTAS as u32, THREADS as u32), params)?;
        Ok(download(device, to.address(), bytes)?.chunks(4).map(word).collect())
    }
}

/// Name and forms of each family, with the heading of its section.
fn families() -> impl Iterator<Item = (&'static str, &'static str, Vec<Form>)> {
    lines(FORMS).map(|(group, line)| (group, line, expand(line).iter().map(|line| Form::new(line)).collect()))
}

/// Names and texts of all modules.
pub fn modules() -> Vec<(String, String)> {
    let all: Vec<Form> = families().flat_map(|(.., forms)| forms).collect();
    let modules = all.chunks(MODULE).enumerate();
    modules.map(|(at, part)| (format!("wgmma-{at}"), kernel::module(part))).collect()
}

/// Compares all wanted families.
pub fn compare(comparison: &Comparison) -> Result<Vec<Agreement>, Box<dyn Error>> {
    let mut generator = Random::new(3);
    let mut table = Vec::new();
    for (group, name, forms) in families().filter(|(group, name, _)| comparison.wants(group, name)) {
        let mut line = comparison.line(group, name);
        for forms in forms.chunks(MODULE) {
            let modules = comparison.load("wgmma", &kernel::module(forms))?;
            for (at, form) in forms.iter().enumerate() {
                let input = form.input(&mut generator);
                let kernel = format!("form_{at}");
                let (expected, got) =
                    comparison.both(&modules, (&kernel, &form.name), |device, kernel| {
                        form.results(device, kernel, &input)
                    })?;
                line.start_form();
                for (at, both) in expected.into_iter().zip(got).enumerate() {
                    line.compare(form.result(), both, || {
                        let (register, thread) = (at / THREADS % form.accumulators(), at % THREADS);
                        let cta = at / THREADS / form.accumulators();
                        format!("{}: register {register} of thread {thread} of CTA {cta}", form.name)
                    });
                }
            }
        }
        table.push(line);
    }
    Ok(table)
}
