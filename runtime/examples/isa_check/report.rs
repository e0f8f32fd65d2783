//! Comparison of results between a device and the emulator.

use std::fmt::Write;

use super::forms::{Family, Form};

/// Counts and largest differences over all forms of a family.
#[derive(Default)]
pub struct Agreement {
    /// Number of results compared.
    cases: usize,
    /// Number of results with equal bits.
    equal: usize,
    /// Number of different results without a distance: not floats, or NaN or infinite on one side.
    unlike: usize,
    /// Largest distance in units of the last place.
    ulps: u64,
    /// Largest relative difference.
    difference: f64,
    differences: Vec<String>,
}

impl Agreement {
    /// Compares the results of a form: `expected` from the device, `got` from the emulator.
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

/// Difference of two values relative to the larger of 1 and the first; 0 for types other than f32 and f64.
fn difference(ty: &str, a: u64, b: u64) -> f64 {
    let value = |bits: u64| match ty {
        "f32" => f32::from_bits(bits as u32) as f64,
        "f64" => f64::from_bits(bits),
        _ => 0.0,
    };
    (value(a) - value(b)).abs() / value(a).abs().max(1.0)
}

/// Distance in units of the last place; none if the type is not a float or either value is NaN.
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
    // Position in numerical order.
    let position = |x: u64| {
        let magnitude = (x & (sign - 1)) as i128;
        ((x & (sign - 1)) < infinity).then_some(if x & sign != 0 { -magnitude } else { magnitude })
    };
    Some((position(a)? - position(b)?).unsigned_abs() as u64)
}

/// First differences of each form.
pub fn differences(families: &[Family], table: &[Agreement]) -> String {
    let lines = families.iter().zip(table).flat_map(|(_, agreement)| &agreement.differences);
    lines.map(|line| format!("{line}\n")).collect()
}

/// Table with a line for each family, under the headings of `forms.txt`.
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
