//! Initial contents of buffers, and comparison with their expected contents after the launches.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;

use super::CheckError;
use super::launches::{Buffer, Content, Expectation, Function, Launches, POINTER, Pointers};
use super::values::{Element, Number, hex, random};

/// Size and initial content of a buffer.
pub(super) struct Prepared {
    /// Size in bytes.
    pub bytes: u64,
    /// Bytes of the initial content; `None` for an uninitialised buffer.
    pub content: Option<Vec<u8>>,
}

/// Computes size and initial content of every buffer, by name. The buffers may have `limit` bytes together.
pub(super) fn prepare(launches: &Launches, limit: u64) -> Result<BTreeMap<&str, Prepared>, CheckError> {
    let mut left = limit;
    let buffers = launches.buffers.iter().map(|(name, buffer)| {
        let prepared = prepare_one(buffer, &launches.folder, left)
            .map_err(|what| CheckError::launches(format!("buffer `{name}`"), what))?;
        left -= prepared.bytes;
        Ok((name.as_str(), prepared))
    });
    buffers.collect()
}

fn prepare_one(buffer: &Buffer, folder: &Path, limit: u64) -> Result<Prepared, String> {
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
    let too_large = |bytes: u128| {
        format!(
            "{bytes} bytes; the buffers of a file may have {limit} more, a quarter of this machine's memory in all"
        )
    };
    // Before any content is made, so that no memory is claimed for a count that is too large.
    let counted = match buffer.count {
        Some(0) => return Err("`count` is 0; a buffer has at least one element".to_owned()),
        Some(count) => {
            let bytes = count as u128 * element.bytes() as u128;
            Some(u64::try_from(bytes).ok().filter(|&bytes| bytes <= limit).ok_or_else(|| too_large(bytes))?)
        }
        None => None,
    };
    let content = if let Some(values) = &buffer.values {
        Some(encode(element, values.iter().copied()).map_err(|what| format!("`values`: {what}"))?)
    } else if let Some(digits) = &buffer.hex {
        Some(hex(digits).ok_or("`hex` must be pairs of hexadecimal digits")?)
    } else if let Some(file) = &buffer.file {
        Some(read(&folder.join(file), limit)?)
    } else {
        by_rule(buffer)?
    };
    let bytes = match (&content, counted) {
        (Some(content), Some(bytes)) if content.len() as u64 > bytes => {
            return Err(format!(
                "{} bytes of content do not fit `count`, which is {bytes} bytes",
                content.len()
            ));
        }
        (_, Some(bytes)) => bytes,
        (Some(content), None) => content.len() as u64,
        (None, None) => match &buffer.pointers {
            Some(Pointers::List(pointers)) => (pointers.len() * POINTER) as u64,
            _ => return Err("`count` is missing: give the number of elements".to_owned()),
        },
    };
    match bytes {
        0 => Err("the content is empty; a buffer has at least one element".to_owned()),
        _ if bytes > limit => Err(too_large(bytes.into())),
        _ => Ok(Prepared { bytes, content }),
    }
}

/// Reads a file of at most `limit` bytes.
fn read(path: &Path, limit: u64) -> Result<Vec<u8>, String> {
    let cannot = |error| format!("cannot read {}: {error}", path.display());
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(cannot)?;
    file.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(cannot)?;
    if bytes.len() as u64 > limit {
        return Err(format!("{} has more than the {limit} bytes that buffers may have", path.display()));
    }
    Ok(bytes)
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
    if let Some(number) = buffer.fill {
        let one = encode(element, [number].into_iter()).map_err(|what| format!("`fill`: {what}"))?;
        return Ok(Some(one.repeat(count)));
    }
    match buffer.init {
        None | Some(Content::Uninitialised) => Ok(None),
        Some(Content::Zeros) => Ok(Some(vec![0; count * element.bytes()])),
        Some(Content::Iota) => {
            // The sequence wraps at the range of the element type.
            let modulus =
                if element.is_float() { i64::MAX } else { 1i64 << (8 * element.bytes() as u32 - 1).min(62) };
            encode(element, (0..count).map(|index| Number::Integer(index as i64 % modulus))).map(Some)
        }
        Some(Content::Random) => {
            let range = buffer.range.unwrap_or(if element.is_float() { [-1.0, 1.0] } else { [0.0, 100.0] });
            let [low, high] = range;
            if low > high || !(high - low).is_finite() {
                return Err(format!(
                    "`range` is [{low}, {high}]; give two finite numbers, the smaller one first"
                ));
            }
            let whole = |value: f64| if element.is_float() { value } else { value.floor() };
            let numbers = random(buffer.seed, count, range).map(|value| element.nearest(whole(value)));
            encode(element, numbers).map(Some).map_err(|what| format!("`range`: {what}"))
        }
    }
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

/// The expected first elements of a buffer.
#[derive(Debug)]
pub(super) struct Expected {
    element: Element,
    /// Values of the elements.
    values: Vec<f64>,
    /// Bytes of the elements, if they must be equal to the bit: 64-bit integers without a tolerance.
    exact: Option<Vec<u8>>,
    tolerance: f64,
}

impl Expected {
    /// Size of the elements in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.values.len() * self.element.bytes()
    }

    /// Size of an element in bytes.
    pub(super) fn element_bytes(&self) -> u64 {
        self.element.bytes() as u64
    }

    /// Compares with the bytes of the elements: describes what differs, or `None`.
    pub(super) fn difference(&self, got: &[u8]) -> Option<String> {
        if let Some(exact) = &self.exact {
            return integer_difference(self.element, exact, got);
        }
        difference(&self.values, &self.element.decode_all(got), self.tolerance)
    }
}

/// Describes the differing 64-bit integers: the first one, and their number. `None` if all are equal.
fn integer_difference(element: Element, want: &[u8], got: &[u8]) -> Option<String> {
    let decode = |bytes: &[u8; 8]| match element {
        Element::I64 => i128::from(i64::from_le_bytes(*bytes)),
        _ => i128::from(u64::from_le_bytes(*bytes)),
    };
    let (want, got) = (want.as_chunks::<8>().0, got.as_chunks::<8>().0);
    let mut different = want.iter().zip(got).enumerate().filter(|(_, (want, got))| want != got);
    let (index, (wanted, found)) = different.next()?;
    let mut text = format!("element {index} is {}, expected {}", decode(found), decode(wanted));
    match different.count() {
        0 => {}
        more => text += &format!("; {} of {} elements are wrong", more + 1, want.len()),
    }
    Some(text)
}

/// The expected content of every buffer that has an expectation, by name. `limit` is the largest number of bytes for
/// the elements of one expectation, its operands included, as double-precision numbers.
pub(super) fn expected<'a>(
    launches: &'a Launches,
    first: &BTreeMap<&str, Prepared>,
    limit: u64,
) -> Result<BTreeMap<&'a str, Expected>, CheckError> {
    let mut all = BTreeMap::new();
    for (name, buffer) in &launches.buffers {
        let Some(expectation) = &buffer.expect else { continue };
        let expected = expect_one(name, expectation, launches, first, limit)
            .map_err(|what| CheckError::launches(format!("`expect` of buffer `{name}`"), what))?;
        all.insert(name.as_str(), expected);
    }
    Ok(all)
}

fn expect_one(
    name: &str,
    expectation: &Expectation,
    launches: &Launches,
    first: &BTreeMap<&str, Prepared>,
    limit: u64,
) -> Result<Expected, String> {
    let tolerance = expectation.tolerance;
    if !tolerance.is_finite() || tolerance < 0.0 {
        return Err(format!("`tolerance` is {tolerance}; give a finite number that is not negative"));
    }
    let elements = |name: &str| -> u64 {
        let buffer = launches.buffers.get(name).zip(first.get(name));
        buffer.map_or(0, |(buffer, prepared)| prepared.bytes / buffer.element.bytes() as u64)
    };
    let compared = expectation.of.iter().map(|name| elements(name)).sum::<u64>() + 2 * elements(name);
    if compared.saturating_mul(size_of::<f64>() as u64) > limit {
        return Err(format!("{compared} elements are too many to compare on this machine; check fewer"));
    }
    let element = launches.buffers.get(name).map(|buffer| buffer.element).unwrap_or_default();
    let (values, bytes) = wanted(expectation, element, launches, first, limit)?;
    let available = elements(name);
    match values.len() as u64 {
        0 => return Err("no elements to compare: give at least one".to_owned()),
        count if count > available => {
            return Err(format!("{count} elements, but the buffer has {available}"));
        }
        _ => {}
    }
    let is_wide = matches!(element, Element::U64 | Element::I64);
    let exact = bytes.filter(|_| is_wide && tolerance == 0.0);
    Ok(Expected { element, values, exact, tolerance })
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

/// Values of the expected elements, and their bytes if they are not computed.
fn wanted(
    expectation: &Expectation,
    element: Element,
    launches: &Launches,
    first: &BTreeMap<&str, Prepared>,
    limit: u64,
) -> Result<(Vec<f64>, Option<Vec<u8>>), String> {
    let given = |bytes: Vec<u8>| (element.decode_all(&bytes), Some(bytes));
    match (&expectation.values, &expectation.file, expectation.function) {
        (Some(values), None, None) => {
            encode(element, values.iter().copied()).map(given).map_err(|what| format!("`values`: {what}"))
        }
        (None, Some(file), None) => {
            let bytes = read(&launches.folder.join(file), limit)?;
            match bytes.len() % element.bytes() {
                0 => Ok(given(bytes)),
                _ => Err(format!(
                    "`file` has {} bytes, which are no elements of type {}",
                    bytes.len(),
                    name(element)
                )),
            }
        }
        (None, None, Some(function)) => {
            let mut operands = Vec::new();
            for name in &expectation.of {
                let buffer = launches.buffers.get(name).zip(first.get(name.as_str()));
                let (buffer, prepared) =
                    buffer.ok_or_else(|| format!("`of`: there is no buffer `{name}`"))?;
                if buffer.pointers.is_some() {
                    return Err(format!("`of`: `{name}` has `pointers`, which differ from run to run"));
                }
                let content = prepared.content.as_ref();
                let content = content.ok_or_else(|| format!("`of`: `{name}` has no initial content"))?;
                operands.push((buffer.element, content));
            }
            let bytes = match (function, &operands[..]) {
                (Function::Copy, [(from, content)]) if *from == element => Some(content.to_vec()),
                _ => None,
            };
            let operands: Vec<_> = operands.iter().map(|(from, content)| from.decode_all(content)).collect();
            Ok((apply(function, &operands)?, bytes))
        }
        _ => Err("give one of `values`, `file` and `fn`".to_owned()),
    }
}

fn apply(function: Function, operands: &[Vec<f64>]) -> Result<Vec<f64>, String> {
    let pairs = |a: &[f64], b: &[f64], f: fn(f64, f64) -> f64| -> Vec<f64> {
        a.iter().zip(b).map(|(&a, &b)| f(a, b)).collect()
    };
    if let [a, b] = operands
        && a.len() != b.len()
    {
        return Err(format!(
            "`of` names buffers of {} and {} elements; give two of one length",
            a.len(),
            b.len()
        ));
    }
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
        let prepared = prepare(&launches, 1 << 20).map_err(|error| error.to_string())?;
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
            ("count = 0", Err("`count` is 0")),
            ("values = []", Err("the content is empty")),
            ("count = -1", Err("invalid value: integer `-1`, expected usize")),
            // 2^62 + 1 elements of 4 bytes are 4 bytes modulo 2^64.
            ("type = 'u32'\ncount = 4611686018427387905", Err("18446744073709551620 bytes")),
            ("count = 60000000000\ninit = 'zeros'", Err("60000000000 bytes; the buffers of a file may have")),
            ("count = 60000000000\ninit = 'random'", Err("60000000000 bytes")),
            ("values = [1.5]", Err("`values`: 1.5 is not a value of type u8")),
            ("count = 2\nfill = 256", Err("`fill`: 256 is not a value of type u8")),
            ("type = 'f16'\ncount = 2\nfill = 1e6", Err("`fill`: 1000000 is not a value of type f16")),
            ("count = 2\ninit = 'random'\nrange = [nan, 1]", Err("`range` is [NaN, 1]")),
            ("count = 2\ninit = 'random'\nrange = [2.0, 1.0]", Err("`range` is [2, 1]")),
            ("type = 'f64'\ncount = 2\ninit = 'random'\nrange = [-1e308, 1e308]", Err("`range` is [")),
            ("count = 99\ninit = 'random'\nrange = [0.0, 1e3]", Err("`range`: ")),
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

    /// Compares the bytes `got` of buffer `a`, which holds 2 elements, with an expectation.
    fn compare(element: &str, expect: &str, got: &[u8]) -> Result<Option<String>, String> {
        let text = format!(
            "version = 1\n[buffers.a]\ntype = '{element}'\ncount = 2\ninit = 'zeros'\nexpect = {{ {expect} }}\n\
             [buffers.b]\ntype = 'u64'\nvalues = [9007199254740993]\n[buffers.c]\nvalues = [1, 2, 3]"
        );
        let launches = Launches::parse(&text).map_err(|error| error.to_string())?;
        let first = prepare(&launches, 1 << 20).map_err(|error| error.to_string())?;
        let expected = super::expected(&launches, &first, 1 << 20).map_err(|error| error.to_string())?;
        Ok(expected["a"].difference(got))
    }

    #[test]
    fn expectations_that_would_check_nothing() {
        for (element, expect, error) in [
            ("u32", "values = [6], tolerance = nan", "`tolerance` is NaN"),
            ("u32", "values = [6], tolerance = inf", "`tolerance` is inf"),
            ("u32", "values = [6], tolerance = -1.0", "`tolerance` is -1"),
            ("u32", "values = []", "no elements to compare"),
            ("u32", "values = [1, 2, 3]", "3 elements, but the buffer has 2"),
            ("u32", "values = [0.5]", "`values`: 0.5 is not a value of type u32"),
            ("u32", "fn = 'add', of = ['b', 'c']", "buffers of 1 and 3 elements"),
            ("u32", "fn = 'sum', of = ['d']", "`of`: there is no buffer `d`"),
            ("u32", "", "give one of"),
        ] {
            let got = compare(element, expect, &[0; 8]).expect_err(expect);
            assert!(got.contains(error), "{expect}: {got}");
        }
    }

    #[test]
    fn wide_integers_are_compared_exactly() {
        let got = 9_007_199_254_740_992u64.to_le_bytes();
        for expect in ["values = [9007199254740993]", "fn = 'copy', of = ['b']"] {
            let text = compare("u64", expect, &got).expect("it is valid").expect("it differs by one");
            assert_eq!(text, "element 0 is 9007199254740992, expected 9007199254740993");
        }
        assert_eq!(compare("i64", "values = [-1]", &[0xff; 8]), Ok(None));
        assert_eq!(compare("u64", "values = [-1]", &[0xff; 8]), Ok(None));
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
