//! Where two devices differ.

use std::fmt::Write;

use super::forms::{Family, Form};

/// What became of the forms of a family.
#[derive(Default)]
pub struct Agreement {
    /// Results compared, and those that are the same bits.
    cases: usize,
    equal: usize,
    /// Results that are NaN on one side only, or infinite, or zero, where no distance says anything.
    unlike: usize,
    /// The largest distance otherwise, in units of the last place, and the largest difference.
    ulps: u64,
    difference: f64,
    differences: Vec<String>,
}

impl Agreement {
    /// Compares a form's results: `expected` of the device, `got` of the emulator.
    pub fn add(
        &mut self,
        form: &Form,
        rows: &[Vec<u64>],
        (expected, got): (&[Vec<u64>], &[Vec<u64>]),
        show: usize,
    ) {
        let mut shown = 0;
        for (row, (expected, got)) in rows.iter().zip(expected.iter().zip(got)) {
            for (at, (&expected, &got)) in expected.iter().zip(got).enumerate() {
                self.cases += 1;
                if expected == got {
                    self.equal += 1;
                    continue;
                }
                match distance(&form.results[at], expected, got) {
                    Some(ulps) => {
                        self.ulps = self.ulps.max(ulps);
                        self.difference = self.difference.max(difference(&form.results[at], expected, got));
                    }
                    None => self.unlike += 1,
                }
                if shown < show {
                    shown += 1;
                    let values: Vec<String> = row.iter().map(|value| format!("{value:#x}")).collect();
                    self.differences.push(format!(
                        "{} of {}: result {at} is {expected:#x}, the emulator's {got:#x}",
                        form.mnemonic,
                        values.join(", ")
                    ));
                }
            }
        }
    }
}

/// The difference of two singles or doubles relative to the larger of the first and one; zero of other types.
fn difference(ty: &str, a: u64, b: u64) -> f64 {
    let value = |bits: u64| match ty {
        "f32" => f32::from_bits(bits as u32) as f64,
        "f64" => f64::from_bits(bits),
        _ => 0.0,
    };
    (value(a) - value(b)).abs() / value(a).abs().max(1.0)
}

/// Units of the last place between two numbers of a type; `None` if either is no number, or they are no floats.
fn distance(ty: &str, a: u64, b: u64) -> Option<u64> {
    let (bits, exponent) = match ty {
        "f16" => (16, 5),
        "bf16" => (16, 8),
        "f32" => (32, 8),
        "f64" => (64, 11),
        "f16x2" | "bf16x2" => {
            let of = &ty[..ty.len() - 2];
            let halves = [0, 16].map(|shift| (a >> shift & 0xffff, b >> shift & 0xffff));
            let [low, high] = halves.map(|(a, b)| if a == b { Some(0) } else { distance(of, a, b) });
            return Some(low?.max(high?));
        }
        _ => return None,
    };
    let infinity = ((1u64 << exponent) - 1) << (bits - 1 - exponent);
    let sign = 1u64 << (bits - 1);
    // In the order of the numbers.
    let position = |x: u64| {
        let magnitude = (x & (sign - 1)) as i128;
        ((x & (sign - 1)) < infinity).then_some(if x & sign != 0 { -magnitude } else { magnitude })
    };
    Some((position(a)? - position(b)?).unsigned_abs() as u64)
}

/// The first differences of each form.
pub fn differences(families: &[Family], table: &[Agreement]) -> String {
    let lines = families.iter().zip(table).flat_map(|(_, agreement)| &agreement.differences);
    lines.map(|line| format!("{line}\n")).collect()
}

/// A line a family, under the headings of the forms.
pub fn table(families: &[Family], table: &[Agreement], device: &str) -> String {
    let mut text = String::new();
    let mut group = "";
    let (mut forms, mut cases, mut equal) = (0, 0, 0);
    for (family, agreement) in families.iter().zip(table) {
        if family.group != group {
            group = family.group;
            let _ = write!(
                text,
                "\n### {group}\n\n| form | forms | results | equal bits | unlike | ulp at most | \
                 difference |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
            );
        }
        let Agreement { cases: of, equal: same, unlike, ulps, difference, .. } = agreement;
        let difference =
            if *difference > 0.0 { format!("2^{:.1}", difference.log2()) } else { String::new() };
        let count = family.forms.len();
        let share =
            if of == same { "all".to_string() } else { format!("{:.2}%", 100.0 * *same as f64 / *of as f64) };
        let _ = writeln!(
            text,
            "| `{}` | {count} | {of} | {share} | {unlike} | {ulps} | {difference} |",
            family.name
        );
        (forms, cases, equal) = (forms + count, cases + of, equal + same);
    }
    let whole = families.iter().zip(table).filter(|(_, a)| a.cases == a.equal).map(|(f, _)| f.forms.len());
    let whole: usize = whole.sum();
    format!(
        "{forms} forms and {cases} results on {device}: {equal} are equal bits; {whole} forms are in families that \
         agree in all.\n{text}"
    )
}
