//! Text of a `printf`: the conversions of C that devices support.

use std::fmt::Write;

/// Source of a format's arguments: integers of 32 or 64 bits, doubles, and strings by their address.
pub(super) trait Arguments {
    /// Why an argument could not be read.
    type Error;

    /// The next argument, of 4 or 8 bytes.
    fn next(&mut self, bytes: u64) -> Result<u64, Self::Error>;

    /// The string at an address.
    fn string(&mut self, address: u64) -> Result<String, Self::Error>;
}

/// A conversion such as `%-8.3f`.
#[derive(Default)]
struct Conversion {
    left: bool,
    plus: bool,
    space: bool,
    alternate: bool,
    zero: bool,
    width: usize,
    precision: Option<usize>,
}

/// Maximum number of characters of a field, which bounds the memory that a wrong width can take.
const MAX_FIELD: usize = 1 << 12;
/// Maximum number of arguments of a format; as on a device, later conversions are copied to the text unchanged.
const MAX_ARGUMENTS: u32 = 32;

/// Formats arguments; returns the text and the number of arguments that it took. An unknown conversion is copied.
pub(super) fn format<A: Arguments>(format: &str, arguments: &mut A) -> Result<(String, u32), A::Error> {
    let (mut text, mut count) = (String::new(), 0);
    let mut rest = format;
    while let Some(at) = rest.find('%').filter(|_| count < MAX_ARGUMENTS) {
        text.push_str(&rest[..at]);
        let start = &rest[at..];
        let mut c = Cursor { rest: &start[1..] };
        let mut conversion = Conversion::default();
        while let Some(flag) = c.take(|letter| "-+ #0".contains(letter)) {
            match flag {
                '-' => conversion.left = true,
                '+' => conversion.plus = true,
                ' ' => conversion.space = true,
                '#' => conversion.alternate = true,
                _ => conversion.zero = true,
            }
        }
        let width = number(&mut c, arguments, &mut count)?.unwrap_or(0);
        conversion.left |= width < 0;
        conversion.width = (width.unsigned_abs() as usize).min(MAX_FIELD);
        if c.take(|letter| letter == '.').is_some() {
            let precision = number(&mut c, arguments, &mut count)?.unwrap_or(0);
            conversion.precision = usize::try_from(precision).ok().map(|precision| precision.min(MAX_FIELD));
        }
        let (mut longs, mut halves) = (0, 0);
        while let Some(letter) = c.take(|letter| "hlLzjt".contains(letter)) {
            longs += (letter != 'h') as u32;
            halves += (letter == 'h') as u32;
        }
        let integer_bits = match (longs, halves) {
            (0, 0) => 32,
            (0, 1) => 16,
            (0, _) => 8,
            _ => 64,
        };
        let kind = c.take(|_| true);
        count += kind.is_some_and(|kind| "diouxXcsfFeEgGaAp".contains(kind)) as u32;
        match kind {
            Some('%') => text.push('%'),
            Some('d' | 'i') => {
                let bits = arguments.next(if longs > 0 { 8 } else { 4 })?;
                let value = (bits << (64 - integer_bits)) as i64 >> (64 - integer_bits);
                let digits = value.unsigned_abs().to_string();
                conversion.integer(&mut text, conversion.sign(value < 0), digits);
            }
            Some(kind @ ('o' | 'u' | 'x' | 'X')) => {
                let bits = arguments.next(if longs > 0 { 8 } else { 4 })? & u64::MAX >> (64 - integer_bits);
                if kind == 'o' && conversion.alternate {
                    conversion.precision = conversion.precision.map(|precision| precision.max(1));
                }
                let prefix = |prefix| if conversion.alternate && bits != 0 { prefix } else { "" };
                let (prefix, digits) = match kind {
                    // The zero is a digit, which the precision counts.
                    'o' => ("", format!("{}{bits:o}", prefix("0"))),
                    'x' => (prefix("0x"), format!("{bits:x}")),
                    'X' => (prefix("0X"), format!("{bits:X}")),
                    _ => ("", bits.to_string()),
                };
                conversion.integer(&mut text, prefix, digits);
            }
            Some('p') => {
                let digits = format!("{:#x}", arguments.next(8)?);
                conversion.pad(&mut text, "", &digits, false);
            }
            Some('c') => {
                let letter = char::from(arguments.next(4)? as u8);
                conversion.pad(&mut text, "", &letter.to_string(), false);
            }
            Some('s') => {
                let address = arguments.next(8)?;
                let string = arguments.string(address)?;
                let shown = conversion.precision.unwrap_or(usize::MAX);
                let string: String = string.chars().take(shown).collect();
                conversion.pad(&mut text, "", &string, false);
            }
            Some(kind @ ('f' | 'F' | 'e' | 'E' | 'g' | 'G' | 'a' | 'A')) => {
                let value = f64::from_bits(arguments.next(8)?);
                let digits = conversion.float(value.abs(), kind.to_ascii_lowercase());
                let digits = if kind.is_ascii_uppercase() { digits.to_uppercase() } else { digits };
                let sign = conversion.sign(value.is_sign_negative() && !value.is_nan());
                conversion.pad(&mut text, sign, &digits, value.is_finite());
            }
            _ => {
                let end = start.len() - c.rest.len();
                text.push_str(&start[..end]);
            }
        }
        rest = c.rest;
    }
    text.push_str(rest);
    Ok((text, count))
}

/// Cursor over the part of a format that has not been read.
struct Cursor<'a> {
    rest: &'a str,
}

impl Cursor<'_> {
    /// Takes the next character if `accept` accepts it.
    fn take(&mut self, accept: impl Fn(char) -> bool) -> Option<char> {
        let next = self.rest.chars().next().filter(|&letter| accept(letter))?;
        self.rest = &self.rest[next.len_utf8()..];
        Some(next)
    }
}

/// A width or precision: digits, or `*` for an argument.
fn number<A: Arguments>(
    c: &mut Cursor<'_>,
    arguments: &mut A,
    count: &mut u32,
) -> Result<Option<i32>, A::Error> {
    if c.take(|letter| letter == '*').is_some() {
        *count += 1;
        return Ok(Some(arguments.next(4)? as u32 as i32));
    }
    let mut number: Option<i32> = None;
    while let Some(digit) = c.take(|letter| letter.is_ascii_digit()) {
        let digit = digit as i32 - '0' as i32;
        number = Some(number.unwrap_or(0).saturating_mul(10).saturating_add(digit));
    }
    Ok(number)
}

impl Conversion {
    /// Sign character of a number: `-`, `+` or a space; empty for none.
    fn sign(&self, negative: bool) -> &'static str {
        match negative {
            true => "-",
            false if self.plus => "+",
            false if self.space => " ",
            false => "",
        }
    }

    /// Appends an integer; the precision is the minimum number of digits.
    fn integer(&self, text: &mut String, prefix: &str, mut digits: String) {
        if let Some(least) = self.precision {
            if least == 0 && digits == "0" {
                digits.clear();
            }
            let zeros = least.saturating_sub(digits.len());
            digits.insert_str(0, &"0".repeat(zeros));
        }
        self.pad(text, prefix, &digits, self.precision.is_none());
    }

    /// Appends a field of at least the width. Zeros go between sign and digits, and only where `zeros` allows them.
    fn pad(&self, text: &mut String, sign: &str, digits: &str, zeros: bool) {
        let fill = self.width.saturating_sub(sign.len() + digits.chars().count());
        let (before, between, after) = match (self.left, self.zero && zeros) {
            (true, _) => (0, 0, fill),
            (false, true) => (0, fill, 0),
            (false, false) => (fill, 0, 0),
        };
        text.extend(std::iter::repeat_n(' ', before));
        text.push_str(sign);
        text.extend(std::iter::repeat_n('0', between));
        text.push_str(digits);
        text.extend(std::iter::repeat_n(' ', after));
    }

    /// Digits of a number that is not negative.
    fn float(&self, value: f64, kind: char) -> String {
        if !value.is_finite() {
            return if value.is_nan() { "nan" } else { "inf" }.to_string();
        }
        let precision = self.precision.unwrap_or(6);
        match kind {
            'f' => format!("{value:.precision$}"),
            'e' => exponential(value, precision),
            'a' => self.hexadecimal(value),
            _ => {
                let precision = precision.max(1);
                let rounded = exponential(value, precision - 1);
                let exponent: i32 = rounded.split_once('e').map_or(0, |(_, e)| e.parse().unwrap_or(0));
                let scientific = exponent < -4 || exponent >= precision as i32;
                let text = match scientific {
                    true => rounded,
                    false => format!("{value:.*}", (precision as i32 - 1 - exponent).max(0) as usize),
                };
                if self.alternate {
                    return text;
                }
                let (digits, exponent) = match text.find('e') {
                    Some(at) => text.split_at(at),
                    None => (&text[..], ""),
                };
                match digits.contains('.') {
                    true => digits.trim_end_matches('0').trim_end_matches('.').to_string() + exponent,
                    false => text,
                }
            }
        }
    }

    /// `0x1.8p+1`.
    fn hexadecimal(&self, value: f64) -> String {
        let bits = value.to_bits();
        let (exponent, fraction) = ((bits >> 52) as i32, bits & ((1 << 52) - 1));
        let (mut lead, exponent) = match (exponent, fraction) {
            (0, 0) => (0, 0),
            (0, _) => (0, -1022),
            _ => (1, exponent - 1023),
        };
        let mut digits = format!("{fraction:013x}");
        match self.precision {
            None => digits = digits.trim_end_matches('0').to_string(),
            Some(precision) if precision < 13 => {
                let dropped = 4 * (13 - precision as u32);
                let (kept, rest) = (fraction >> dropped, fraction & ((1 << dropped) - 1));
                let half = 1 << (dropped - 1);
                let odd = if precision == 0 { lead & 1 != 0 } else { kept & 1 != 0 };
                let kept = kept + (rest > half || rest == half && odd) as u64;
                lead += kept >> (4 * precision);
                let kept = kept & ((1 << (4 * precision)) - 1);
                digits = if precision == 0 { String::new() } else { format!("{kept:0precision$x}") };
            }
            Some(precision) => digits += &"0".repeat(precision - 13),
        }
        let point = if digits.is_empty() { "" } else { "." };
        format!("0x{lead}{point}{digits}p{exponent:+}")
    }
}

/// `1.5e+00`: at least two digits of exponent, as in C.
fn exponential(value: f64, precision: usize) -> String {
    let text = format!("{value:.precision$e}");
    let Some((digits, exponent)) = text.split_once('e') else { return text };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let mut result = digits.to_string();
    let sign = if exponent < 0 { '-' } else { '+' };
    let _ = write!(result, "e{sign}{:02}", exponent.unsigned_abs());
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Values<'a>(&'a [u64]);

    impl Arguments for Values<'_> {
        type Error = String;

        fn next(&mut self, bytes: u64) -> Result<u64, String> {
            let (&first, rest) = self.0.split_first().ok_or("no argument")?;
            self.0 = rest;
            Ok(if bytes == 4 { first as u32 as u64 } else { first })
        }

        fn string(&mut self, address: u64) -> Result<String, String> {
            Ok(format!("string {address}"))
        }
    }

    #[test]
    fn conversions_are_those_of_c() {
        let bits = |x: f64| x.to_bits();
        // Expected texts: printf of glibc 2.36.
        let cases: &[(&str, &[u64], &str)] = &[
            ("plain %% text", &[], "plain % text"),
            ("%d|%5d|%-5d|%05d|%+d|% d", &[1, 2, 3, 4, 5, 6], "1|    2|3    |00004|+5| 6"),
            ("%d %i %ld %hd", &[u64::MAX, 1 << 31, u64::MAX, 7], "-1 -2147483648 -1 7"),
            ("%u %lu %llu %zu", &[u64::MAX, u64::MAX, 1, 2], "4294967295 18446744073709551615 1 2"),
            ("%x %X %#x %#010x %o %#o", &[255, 255, 255, 255, 8, 8], "ff FF 0xff 0x000000ff 10 010"),
            ("%.3d|%6.3d|%-6.3d|%.0d", &[5, 5, 5, 5], "005|   005|005   |5"),
            ("%hhd %hhi %hd %hhu %hu", &[300, 128, 40000, 257, 65537], "44 -128 -25536 1 1"),
            ("%hhx %#hx %ho %hld", &[0x1234, 0x1_0000, 0x1_0007, u64::MAX], "34 0 7 -1"),
            ("%.0d|%.0u|%3.0x|%+.0d|%.0d", &[0, 0, 0, 0, 10], "||   |+|10"),
            ("%#.0o|%#.3o|%#.1o|%#.0x", &[0, 8, 8, 0], "0|010|010|"),
            ("%*d|%-*d|%*d", &[4, 1, 4, 2, -4i64 as u64, 3], "   1|2   |3   "),
            (
                "%f %.2f %8.3f %-8.1f| %08.2f",
                &[bits(1.5), bits(2.0), bits(-3.25), bits(4.0), bits(-5.5)],
                "1.500000 2.00   -3.250 4.0     | -0005.50",
            ),
            (
                "%e %.0e %E",
                &[bits(12345.678), bits(0.00015), bits(1e100)],
                "1.234568e+04 1e-04 1.000000E+100",
            ),
            (
                "%g %g %g %g %G %#g",
                &[bits(0.0001), bits(0.00001), bits(100000.0), bits(1e6), bits(1e-7), bits(1.0)],
                "0.0001 1e-05 100000 1e+06 1E-07 1.00000",
            ),
            ("%.3g %.10g %g", &[bits(1234.5), bits(0.1), bits(0.0)], "1.23e+03 0.1 0"),
            (
                "%a %a %a %.1a",
                &[bits(1.0), bits(3.0), bits(-0.15625), bits(1.96875)],
                "0x1p+0 0x1.8p+1 -0x1.4p-3 0x2.0p+0",
            ),
            (
                "%f %5.1f %F %e",
                &[bits(f64::INFINITY), bits(f64::NAN), bits(f64::NEG_INFINITY), bits(f64::NAN)],
                "inf   nan -INF nan",
            ),
            ("%c%c|%3c|%s|%.3s|%10s", &[104, 105, 33, 1, 2, 3], "hi|  !|string 1|str|  string 3"),
            ("%p", &[4096], "0x1000"),
            ("%y %", &[], "%y %"),
        ];
        for &(text, values, expected) in cases {
            let formatted = format(text, &mut Values(values)).expect("the arguments");
            assert_eq!(formatted, (expected.to_string(), values.len() as u32), "{text}");
        }
        assert!(format("%d %d", &mut Values(&[1])).is_err());
    }
}
