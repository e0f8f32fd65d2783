//! Comparison of results between a device and the emulator.

use std::fmt::Write;

/// A line of the table: a family of forms, with counts and largest differences of their results.
pub struct Agreement {
    /// Heading of the family's section.
    group: &'static str,
    name: &'static str,
    /// Number of forms compared.
    forms: usize,
    /// Number of results compared.
    results: usize,
    /// Number of results with equal bits.
    equal: usize,
    /// Number of different results without a distance: not floats, or NaN or infinite on one side.
    unlike: usize,
    /// Largest distance in units of the last place.
    ulps: u64,
    /// Largest relative difference.
    difference: f64,
    /// Descriptions of the first differences of each form.
    differences: Vec<String>,
    /// Number of differences of each form to describe.
    show: usize,
    /// Number of differences of the last form that are described.
    shown: usize,
}

impl Agreement {
    /// Line of a family without results; `show` differences of each form will be described.
    pub fn new(group: &'static str, name: &'static str, show: usize) -> Agreement {
        Agreement {
            group,
            name,
            forms: 0,
            results: 0,
            equal: 0,
            unlike: 0,
            ulps: 0,
            difference: 0.0,
            differences: Vec::new(),
            show,
            shown: 0,
        }
    }

    /// Counts a form; the results that follow are the form's.
    pub fn start_form(&mut self) {
        self.forms += 1;
        self.shown = 0;
    }

    /// Compares a result of type `ty`: `expected` from the device, `got` from the emulator. `place` names the result.
    pub fn compare(&mut self, ty: &str, (expected, got): (u64, u64), place: impl FnOnce() -> String) {
        self.results += 1;
        if expected == got {
            self.equal += 1;
            return;
        }
        match distance(ty, expected, got) {
            Some(ulps) => {
                self.ulps = self.ulps.max(ulps);
                self.difference = self.difference.max(difference(ty, expected, got));
            }
            None => self.unlike += 1,
        }
        self.describe(|| format!("{} is {expected:#x}, the emulator's {got:#x}", place()));
    }

    /// Counts a result that only one side has.
    pub fn differ(&mut self, message: String) {
        self.results += 1;
        self.unlike += 1;
        self.describe(|| message);
    }

    /// Describes one of the form's first differences.
    fn describe(&mut self, text: impl FnOnce() -> String) {
        if self.shown < self.show {
            self.shown += 1;
            self.differences.push(text());
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
pub fn differences(table: &[Agreement]) -> String {
    let lines = table.iter().flat_map(|agreement| &agreement.differences);
    lines.map(|line| format!("{line}\n")).collect()
}

/// Totals of all families.
pub fn summary(table: &[Agreement], device: &str) -> String {
    let sum = |count: fn(&Agreement) -> usize| table.iter().map(count).sum::<usize>();
    let (forms, results, equal) = (sum(|line| line.forms), sum(|line| line.results), sum(|line| line.equal));
    let whole = sum(|line| if line.results == line.equal { line.forms } else { 0 });
    format!(
        "{forms} forms and {results} results on {device}: {equal} are equal bits; {whole} forms are in families that \
         agree in all."
    )
}

/// Tables with a line for each family, under the headings of the lists.
pub fn table(table: &[Agreement]) -> String {
    let mut text = String::new();
    let mut group = "";
    for Agreement { group: heading, name, forms, results, equal, unlike, ulps, difference, .. } in table {
        if *heading != group {
            group = heading;
            let _ = write!(
                text,
                "\n### {group}\n\n| form | forms | results | equal bits | unlike | ulp at most | \
                 difference |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n"
            );
        }
        let difference =
            if *difference > 0.0 { format!("2^{:.1}", difference.log2()) } else { String::new() };
        let share = match results == equal {
            true => "all".to_string(),
            false => format!("{:.2}%", 100.0 * *equal as f64 / *results as f64),
        };
        let _ =
            writeln!(text, "| `{name}` | {forms} | {results} | {share} | {unlike} | {ulps} | {difference} |");
    }
    text.trim_start().to_string()
}
