//! Initial contents of buffers, and comparison with their expected contents after the launches.

use std::collections::BTreeMap;
use std::path::Path;

use super::CheckError;
use super::launches::{Buffer, Content, Expectation, Function, Launches};
use super::values::{Element, Number, hex, random};

/// Size and initial content of a buffer.
pub(super) struct Prepared {
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes of the initial content; `None` for an uninitialised buffer.
    pub content: Option<Vec<u8>>,
}

/// Largest size of a buffer in bytes.
const MAX_BYTES: u64 = 1 << 36;

/// Computes size and initial content of every buffer, by name.
pub(super) fn prepare(launches: &Launches) -> Result<BTreeMap<&str, Prepared>, CheckError> {
    let buffers = launches.buffers.iter().map(|(name, buffer)| {
        let prepared = prepare_one(buffer, &launches.folder)
            .map_err(|what| CheckError::launches(format!("buffer `{name}`"), what))?;
        Ok((name.as_str(), prepared))
    });
    buffers.collect()
}

fn prepare_one(buffer: &Buffer, folder: &Path) -> Result<Prepared, String> {
    let given = [
        buffer.init.is_some(),
        buffer.fill.is_some(),
        buffer.values.is_some(),
        buffer.hex.is_some(),
        buffer.file.is_some(),
    ];
    if given.iter().filter(|&&given| given).count() > 1 {
        return Err("only one of `init`, `fill`, `values`, `hex` and `file` can set the content".to_owned());
    }
    let element = buffer.element;
    let content = if let Some(values) = &buffer.values {
        Some(encode(element, values.iter().copied())?)
    } else if let Some(digits) = &buffer.hex {
        Some(hex(digits).ok_or("`hex` must be pairs of hexadecimal digits")?)
    } else if let Some(file) = &buffer.file {
        let path = folder.join(file);
        Some(std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?)
    } else {
        by_rule(buffer)?
    };
    let counted = buffer.count.map(|count| count as u64 * element.bytes() as u64);
    let bytes = match (&content, counted) {
        (Some(content), Some(bytes)) if content.len() as u64 > bytes => {
            return Err(format!(
                "{} bytes of content do not fit `count`, which is {bytes} bytes",
                content.len()
            ));
        }
        (_, Some(bytes)) => bytes,
        (Some(content), None) => content.len() as u64,
        (None, None) => return Err("`count` is missing: give the number of elements".to_owned()),
    };
    if bytes == 0 || bytes > MAX_BYTES {
        return Err(format!("{bytes} bytes; a buffer must have 1 to {MAX_BYTES}"));
    }
    Ok(Prepared { bytes, content })
}

/// Content set by `init` or `fill`.
fn by_rule(buffer: &Buffer) -> Result<Option<Vec<u8>>, String> {
    let element = buffer.element;
    let (Some(count), true) = (buffer.count, buffer.init.is_some() || buffer.fill.is_some()) else {
        return match buffer.init {
            None | Some(Content::Uninitialised) => Ok(None),
            Some(_) => Err("`count` is missing: give the number of elements".to_owned()),
        };
    };
    if count as u64 > MAX_BYTES / element.bytes() as u64 {
        return Err(format!("{count} elements are more than {MAX_BYTES} bytes"));
    }
    if let Some(number) = buffer.fill {
        return encode(element, std::iter::repeat_n(number, count)).map(Some);
    }
    let numbers = match buffer.init {
        None | Some(Content::Uninitialised) => return Ok(None),
        Some(Content::Zeros) => return Ok(Some(vec![0; count * element.bytes()])),
        Some(Content::Iota) => {
            // The sequence wraps at the range of the element type.
            let modulus =
                if element.is_float() { i64::MAX } else { 1i64 << (8 * element.bytes() as u32 - 1).min(62) };
            (0..count).map(|index| Number::Integer(index as i64 % modulus)).collect::<Vec<_>>()
        }
        Some(Content::Random) => {
            let range = buffer.range.unwrap_or(if element.is_float() { [-1.0, 1.0] } else { [0.0, 100.0] });
            let whole = |value: f64| if element.is_float() { value } else { value.floor() };
            random(buffer.seed, count, range).into_iter().map(|value| element.nearest(whole(value))).collect()
        }
    };
    encode(element, numbers.into_iter()).map(Some)
}

fn encode(element: Element, numbers: impl Iterator<Item = Number>) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    for number in numbers {
        let encoded = element
            .encode(number)
            .ok_or_else(|| format!("{} is not a value of type {}", number.value(), name(element)))?;
        bytes.extend(encoded);
    }
    Ok(bytes)
}

fn name(element: Element) -> String {
    format!("{element:?}").to_lowercase()
}

/// Compares a buffer with its expected content. `Err` means that the expectation itself is invalid.
pub(super) fn compare(
    name: &str,
    launches: &Launches,
    first: &BTreeMap<&str, Prepared>,
    got: &[u8],
) -> Result<Option<String>, CheckError> {
    let Some(buffer) = launches.buffers.get(name) else { return Ok(None) };
    let Some(expectation) = &buffer.expect else { return Ok(None) };
    let invalid = |what: String| CheckError::launches(format!("`expect` of buffer `{name}`"), what);
    let want = wanted(expectation, buffer.element, launches, first).map_err(invalid)?;
    let got = buffer.element.decode_all(got);
    if want.len() > got.len() {
        return Err(invalid(format!("{} elements, but the buffer has {}", want.len(), got.len())));
    }
    Ok(difference(&want, &got, expectation.tolerance))
}

/// Describes the differing elements: the first one, their number, and the largest error. `None` if all are within
/// tolerance.
fn difference(want: &[f64], got: &[f64], tolerance: f64) -> Option<String> {
    let off = |want: f64, got: f64| {
        let same = want == got || want.is_nan() && got.is_nan();
        if same { 0.0 } else { (want - got).abs() / want.abs().max(1.0) }
    };
    let wrong = |&(_, (&want, &got)): &(usize, (&f64, &f64))| {
        let off = off(want, got);
        off > tolerance || off.is_nan()
    };
    let mut different = want.iter().zip(got).enumerate().filter(wrong);
    let (index, (wanted, found)) = different.next()?;
    let more = different.clone().count();
    let worst = std::iter::once((index, (wanted, found)))
        .chain(different)
        .map(|(_, (&want, &got))| off(want, got))
        .fold(0.0, f64::max);
    let mut text = format!("element {index} is {found}, expected {wanted}");
    if tolerance > 0.0 {
        text += &format!(" ± {}", tolerance * wanted.abs().max(1.0));
    }
    if more > 0 {
        text += &format!(
            "; {} of {} elements are wrong, by up to {worst:.3e} of their value",
            more + 1,
            want.len()
        );
    }
    Some(text)
}

fn wanted(
    expectation: &Expectation,
    element: Element,
    launches: &Launches,
    first: &BTreeMap<&str, Prepared>,
) -> Result<Vec<f64>, String> {
    match (&expectation.values, &expectation.file, expectation.function) {
        (Some(values), None, None) => Ok(values.iter().map(|value| value.value()).collect()),
        (None, Some(file), None) => {
            let path = launches.folder.join(file);
            let bytes =
                std::fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
            Ok(element.decode_all(&bytes))
        }
        (None, None, Some(function)) => {
            let operands: Result<Vec<_>, String> = expectation
                .of
                .iter()
                .map(|name| {
                    let buffer = launches.buffers.get(name).zip(first.get(name.as_str()));
                    let (buffer, prepared) = buffer.ok_or_else(|| format!("there is no buffer `{name}`"))?;
                    let bytes = prepared
                        .content
                        .as_ref()
                        .ok_or_else(|| format!("`{name}` has no initial content"))?;
                    Ok(buffer.element.decode_all(bytes))
                })
                .collect();
            apply(function, &operands?)
        }
        _ => Err("give one of `values`, `file` and `fn`".to_owned()),
    }
}

fn apply(function: Function, operands: &[Vec<f64>]) -> Result<Vec<f64>, String> {
    let pairs = |a: &[f64], b: &[f64], f: fn(f64, f64) -> f64| -> Vec<f64> {
        a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
    };
    Ok(match (function, operands) {
        (Function::Copy, [a]) => a.clone(),
        (Function::Sum, [a]) => vec![a.iter().sum()],
        (Function::Min, [a]) => vec![a.iter().copied().fold(f64::INFINITY, f64::min)],
        (Function::Max, [a]) => vec![a.iter().copied().fold(f64::NEG_INFINITY, f64::max)],
        (Function::Add, [a, b]) => pairs(a, b, |a, b| a + b),
        (Function::Multiply, [a, b]) => pairs(a, b, |a, b| a * b),
        (Function::Dot, [a, b]) => vec![pairs(a, b, |a, b| a * b).iter().sum()],
        (Function::Add | Function::Multiply | Function::Dot, _) => {
            return Err("`of` must name two buffers".to_owned());
        }
        _ => return Err("`of` must name one buffer".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn content(text: &str) -> Result<Option<Vec<u8>>, String> {
        let launches =
            Launches::parse(&format!("version = 1\n[buffers.a]\n{text}")).map_err(|e| e.to_string())?;
        let prepared = prepare(&launches).map_err(|error| error.to_string())?;
        Ok(prepared.into_values().next().and_then(|buffer| buffer.content))
    }

    #[test]
    fn contents() {
        for (text, expected) in [
            ("count = 3", Ok(None)),
            ("count = 3\ninit = 'uninitialised'", Ok(None)),
            ("count = 3\ninit = 'zeros'", Ok(Some(vec![0, 0, 0]))),
            ("type = 'i16'\ncount = 2\ninit = 'iota'", Ok(Some(vec![0, 0, 1, 0]))),
            ("type = 'u16'\ncount = 2\nfill = 258", Ok(Some(vec![2, 1, 2, 1]))),
            ("type = 'f32'\nvalues = [1, 0.5]", Ok(Some(vec![0, 0, 0x80, 0x3f, 0, 0, 0, 0x3f]))),
            ("hex = 'dead'", Ok(Some(vec![0xde, 0xad]))),
            ("hex = 'de'\ncount = 1\nfill = 1", Err("only one of")),
            ("init = 'zeros'", Err("`count` is missing")),
            ("count = 0", Err("0 bytes")),
            ("values = [1.5]", Err("1.5 is not a value of type u8")),
            ("hex = 'dead'\ncount = 1", Err("2 bytes of content do not fit")),
            ("file = 'no such file'", Err("cannot read no such file")),
            ("size = 3", Err("unknown field `size`")),
        ] {
            match (content(text), expected) {
                (Ok(got), Ok(expected)) => assert_eq!(got, expected, "{text}"),
                (Err(got), Err(part)) => assert!(got.contains(part), "{text}: {got}"),
                (got, expected) => panic!("{text}: {got:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn differences_in_words() {
        assert_eq!(difference(&[1.0, f64::NAN], &[1.0, f64::NAN, 9.0], 0.0), None);
        assert_eq!(difference(&[100.0], &[100.5], 0.01), None);
        assert_eq!(
            difference(&[1.0, 2.0, 4.0], &[1.0, 3.0, 5.0], 0.1).as_deref(),
            Some(
                "element 1 is 3, expected 2 ± 0.2; 2 of 3 elements are wrong, by up to 5.000e-1 of their value"
            )
        );
        assert_eq!(
            difference(&[1.0], &[f64::NAN], 1e9).as_deref(),
            Some("element 0 is NaN, expected 1 ± 1000000000")
        );
    }

    #[test]
    fn functions_of_buffers() {
        let (a, b) = (vec![1.0, 2.0, 3.0], vec![4.0, 5.0, 6.0]);
        for (function, operands, expected) in [
            (Function::Copy, vec![a.clone()], a.clone()),
            (Function::Sum, vec![a.clone()], vec![6.0]),
            (Function::Min, vec![a.clone()], vec![1.0]),
            (Function::Max, vec![b.clone()], vec![6.0]),
            (Function::Add, vec![a.clone(), b.clone()], vec![5.0, 7.0, 9.0]),
            (Function::Multiply, vec![a.clone(), b.clone()], vec![4.0, 10.0, 18.0]),
            (Function::Dot, vec![a.clone(), b.clone()], vec![32.0]),
        ] {
            assert_eq!(apply(function, &operands), Ok(expected), "{function:?}");
        }
        assert!(apply(Function::Dot, &[a]).is_err());
    }
}
