//! Comparison of an output with its expected content.

use half::f16;

use super::case::{Close, Coordinates, Element, POISON, Want};

/// Result of comparing an output: errors, limit and failure.
pub(super) struct Verdict {
    /// Normalised mean squared error: energy of the error over energy of the reference.
    pub nmse: f64,
    /// Largest error divided by the root mean square of the reference.
    pub max: f64,
    /// Largest `nmse` that passes.
    pub limit: f64,
    /// Reason for the limit.
    pub reason: &'static str,
    /// Description of the failure; `None` if the output passed.
    pub failure: Option<String>,
}

/// Largest single error that passes, relative to the root of the limit. Errors are sums of many roundings, so their
/// distribution has no long tail.
const PEAK: f64 = 10.0;

/// Compares an output with its expected content. `outputs` has the content of all buffers.
pub(super) fn compare(got: &[u8], place: &Coordinates, want: &Want, outputs: &[Vec<u8>]) -> Verdict {
    match want {
        Want::Exactly(element, want) => exactly(got, place, *element, want),
        Want::Close(want) => close(got, place, want),
        Want::Same(other) => exactly(got, place, Element::U32, &outputs[*other][..got.len()]),
    }
}

fn exactly(got: &[u8], place: &Coordinates, element: Element, want: &[u8]) -> Verdict {
    let verdict = Verdict { nmse: 0.0, max: 0.0, limit: 0.0, reason: "bits must be equal", failure: None };
    let size = element.bytes();
    let pairs = || got.chunks_exact(size).zip(want.chunks_exact(size)).enumerate();
    let differing = pairs().filter(|(_, (got, want))| got != want).count();
    let Some((index, (first_got, first_want))) = pairs().find(|(_, (got, want))| got != want) else {
        return verdict;
    };
    let (mut error, mut energy, mut max) = (0.0, 0.0, 0.0f64);
    for (_, (got, want)) in pairs() {
        let (got, want) = (value(element, got), value(element, want));
        if got != want && !(got.is_nan() && want.is_nan()) {
            error += (got - want).powi(2);
            max = max.max((got - want).abs());
        }
        if want.is_finite() {
            energy += want * want;
        }
    }
    let rms = (energy / (want.len() / size) as f64).sqrt();
    let failure = format!(
        "{differing} of {} elements differ, the first at [{index}] ({}): {} instead of {}",
        want.len() / size,
        place.describe(index),
        show(element, first_got),
        show(element, first_want),
    );
    Verdict { nmse: error / energy, max: max / rms, failure: Some(failure), ..verdict }
}

fn close(got: &[u8], place: &Coordinates, want: &Close) -> Verdict {
    let got: Vec<f32> = got.as_chunks::<4>().0.iter().map(|&bytes| f32::from_le_bytes(bytes)).collect();
    let finite = || want.at.iter().zip(&want.values).filter(|(_, want)| !want.is_nan());
    let count = finite().count().max(1) as f64;
    let rms =
        want.scale.unwrap_or_else(|| (finite().map(|(_, want)| want * want).sum::<f64>() / count).sqrt());
    let errors = || finite().map(|(&at, &want)| (at, (f64::from(got[at]) - want).abs(), want));
    let nmse = errors().map(|(_, error, _)| error * error).sum::<f64>() / count / (rms * rms);
    // A NaN counts as the largest error; of equal errors the first is reported.
    let size = |error: f64| if error.is_nan() { f64::INFINITY } else { error };
    let worst = errors().rev().max_by(|a, b| size(a.1).total_cmp(&size(b.1)));
    let max = worst.map_or(0.0, |(_, error, _)| size(error) / rms);

    let failure = unwritten(&got, place, want).or_else(|| overwritten(&got, place, want)).or_else(|| {
        let (at, error, value) = worst?;
        let exceeded = if nmse.is_nan() || nmse > want.limit.nmse {
            format!("an NMSE of {nmse:.2e} is above {:.0e}", want.limit.nmse)
        } else if max > PEAK * want.limit.nmse.sqrt() {
            format!("an error of {max:.2e} RMS is above {:.2e}", PEAK * want.limit.nmse.sqrt())
        } else {
            return None;
        };
        let place = place.describe(at);
        Some(format!(
            "{exceeded}; worst at [{at}] ({place}): {:e} instead of {value:e}, off by {error:.2e}",
            got[at]
        ))
    });
    Verdict { nmse, max, limit: want.limit.nmse, reason: want.limit.reason, failure }
}

fn poisoned(value: f32) -> bool {
    value.to_bits() == u32::from_le_bytes([POISON; 4])
}

/// Reports elements that were not written.
fn unwritten(got: &[f32], place: &Coordinates, want: &Close) -> Option<String> {
    let must_stay = |index: usize| want.at.binary_search(&index).is_ok_and(|i| want.values[i].is_nan());
    let left = |&index: &usize| poisoned(got[index]) && !must_stay(index);
    let first = (0..got.len()).find(left)?;
    let count = (0..got.len()).filter(left).count();
    Some(format!(
        "{count} of {} elements were not written, the first at [{first}] ({})",
        got.len(),
        place.describe(first)
    ))
}

/// Reports an element that must not be written but was.
fn overwritten(got: &[f32], place: &Coordinates, want: &Close) -> Option<String> {
    let (at, _) =
        want.at.iter().zip(&want.values).find(|&(&at, want)| want.is_nan() && !poisoned(got[at]))?;
    Some(format!("[{at}] ({}) must not be written but holds {:e}", place.describe(*at), got[*at]))
}

/// Decodes an element as a number.
fn value(element: Element, bytes: &[u8]) -> f64 {
    match (element, bytes) {
        (Element::F32, &[a, b, c, d]) => f64::from(f32::from_le_bytes([a, b, c, d])),
        (Element::U32, &[a, b, c, d]) => f64::from(u32::from_le_bytes([a, b, c, d])),
        (_, &[a, b, ..]) => f16::from_le_bytes([a, b]).to_f64(),
        _ => f64::NAN,
    }
}

fn show(element: Element, bytes: &[u8]) -> String {
    if bytes.iter().all(|&byte| byte == POISON) {
        return "not written".to_owned();
    }
    match element {
        Element::U32 => value(element, bytes).to_string(),
        Element::F32 | Element::F16 => format!("{:e}", value(element, bytes)),
    }
}

#[cfg(test)]
mod tests {
    use super::super::case::Limit;
    use super::super::inputs::f32s;
    use super::*;

    const LIMIT: Limit = Limit { nmse: 1e-12, reason: "a test" };

    fn failure(got: &[f32], want: Close) -> Option<String> {
        let rows = Coordinates::Parts(vec![("q".to_owned(), 2), ("k".to_owned(), 2)]);
        compare(&f32s(got), &rows, &Want::Close(want), &[]).failure
    }

    #[test]
    fn a_wrong_element_is_named_with_its_segment_and_row() {
        let want = || Close::all(vec![1.0, 2.0, 3.0, 4.0], LIMIT);
        assert_eq!(failure(&[1.0, 2.0, 3.0, 4.0], want()), None);
        let text = failure(&[1.0, 2.0, 3.0, 4.5], want()).expect("a difference");
        assert!(text.ends_with("worst at [3] (k, row 1): 4.5e0 instead of 4e0, off by 5.00e-1"), "{text}");
        let text = failure(&[f32::INFINITY, 2.0, 3.0, 4.0], want()).expect("a difference");
        assert!(text.contains("[0] (q, row 0)"), "{text}");
        let text = failure(&[1.0, f32::from_bits(0x7fc0_0000), 3.0, 4.0], want()).expect("a NaN");
        assert!(text.contains("[1] (q, row 1)"), "{text}");
    }

    #[test]
    fn unwritten_and_overwritten_elements_are_named() {
        let poison = f32::from_bits(u32::MAX);
        let some = |values| Close { at: vec![0, 3], ..Close::all(values, LIMIT) };
        let text = failure(&[1.0, poison, 3.0, 4.0], some(vec![1.0, 4.0])).expect("unwritten");
        assert_eq!(text, "1 of 4 elements were not written, the first at [1] (q, row 1)");
        assert_eq!(failure(&[1.0, 2.0, 3.0, poison], some(vec![1.0, f64::NAN])), None);
        let text = failure(&[1.0, 2.0, 3.0, 4.0], some(vec![1.0, f64::NAN])).expect("overwritten");
        assert_eq!(text, "[3] (k, row 1) must not be written but holds 4e0");
    }

    #[test]
    fn one_large_error_among_many_elements_fails() {
        let n = 1 << 20;
        let mut got = vec![1.0f32; n];
        got[77] += 2e-5;
        let verdict = compare(
            &f32s(&got),
            &Coordinates::line("element"),
            &Want::Close(Close::all(vec![1.0; n], LIMIT)),
            &[],
        );
        assert!(verdict.nmse < LIMIT.nmse);
        assert!(verdict.failure.is_some_and(|text| text.contains("[77]")));
    }

    #[test]
    fn differing_bits_are_counted() {
        let want =
            Want::Exactly(Element::U32, [1u32, 2, 3].iter().flat_map(|word| word.to_le_bytes()).collect());
        let got: Vec<u8> = [1u32, 5, u32::MAX].iter().flat_map(|word| word.to_le_bytes()).collect();
        let text = compare(&got, &Coordinates::line("token"), &want, &[]).failure.expect("a difference");
        assert_eq!(text, "2 of 3 elements differ, the first at [1] (token 1): 5 instead of 2");
    }
}
