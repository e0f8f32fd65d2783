//! Text of numbers as Python prints them.

/// Text of a float: the shortest digits that give the same number, in Python's layout.
pub fn float_text(value: f64) -> String {
    if value.is_nan() {
        return "NaN".to_owned();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.to_owned();
    }
    let scientific = format!("{value:e}");
    let Some((digits, exponent)) = scientific.split_once('e') else { return scientific };
    let power: i32 = exponent.parse().unwrap_or(0);
    if (-4..16).contains(&power) {
        let text = value.to_string();
        return if text.contains('.') { text } else { text + ".0" };
    }
    let sign = if power < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", power.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_have_python_s_layout() {
        for (value, text) in [
            (1.0, "1.0"),
            (-0.0, "-0.0"),
            (0.1, "0.1"),
            (7.25e15, "7250000000000000.0"),
            (1e16, "1e+16"),
            (1.5e300, "1.5e+300"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (f64::INFINITY, "Infinity"),
        ] {
            assert_eq!(float_text(value), text);
        }
    }
}
