//! The same computation on the host in double precision, and the error of a device's output.

/// Input of the kernel.
pub struct Input {
    /// Rows before the addition, consecutive, f32 [rows, cols].
    pub hidden: Vec<f32>,
    /// Addend of each element of `hidden`, f32 [rows, cols].
    pub update: Vec<f32>,
    /// Weight of each column, f32 `[cols]`.
    pub weight: Vec<f32>,
    /// Number added to the mean square before the root.
    pub epsilon: f32,
}

/// Output of the kernel.
pub struct Output {
    /// Rows after the addition, f32 [rows, cols].
    pub hidden: Vec<f32>,
    /// Quantised elements, i8 [rows, cols].
    pub quants: Vec<i8>,
    /// Scale of each row, f32 `[rows]`.
    pub scales: Vec<f32>,
}

/// Errors of an [`Output`] against double precision.
#[derive(Debug)]
pub struct Errors {
    /// Number of elements of `hidden` that are not the correctly rounded sum.
    pub hidden: usize,
    /// The largest relative error of a scale.
    pub scale: f64,
    /// The largest error of an element, in steps of its row's scale; rounding to bytes causes up to half a step.
    pub steps: f64,
}

impl Input {
    /// Pseudo-random values between -1 and 1; the second row is zero.
    pub fn example(rows: usize, cols: usize) -> Input {
        let mut state = 1u32;
        let mut next = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let mut values = |count| (0..count).map(|_| next()).collect::<Vec<f32>>();
        let (mut hidden, mut update) = (values(rows * cols), values(rows * cols));
        let second = cols..(2 * cols).min(rows * cols);
        hidden[second.clone()].fill(0.0);
        update[second].fill(0.0);
        Input { hidden, update, weight: values(cols), epsilon: 1e-5 }
    }
}

impl Errors {
    /// Compares the output of a device with the reference.
    pub fn of(output: &Output, input: &Input) -> Errors {
        let cols = input.weight.len();
        let mut errors = Errors { hidden: 0, scale: 0.0, steps: 0.0 };
        for (row, &scale) in output.scales.iter().enumerate() {
            let elements = row * cols..(row + 1) * cols;
            let sums = input.hidden[elements.clone()]
                .iter()
                .zip(&input.update[elements.clone()])
                .map(|(a, b)| a + b);
            errors.hidden += sums
                .clone()
                .zip(&output.hidden[elements.clone()])
                .filter(|(sum, found)| sum != *found)
                .count();
            let sums: Vec<f64> = sums.map(f64::from).collect();
            let mean = sums.iter().map(|sum| sum * sum).sum::<f64>() / cols as f64;
            let factor = 1.0 / (mean + f64::from(input.epsilon)).sqrt();
            let exact: Vec<f64> = sums
                .iter()
                .zip(&input.weight)
                .map(|(sum, &weight)| sum * factor * f64::from(weight))
                .collect();
            let step = exact.iter().fold(0.0, |largest: f64, value| largest.max(value.abs())) / 127.0;
            // A row of zeros has no step.
            let unit = if step > 0.0 { step } else { f64::MIN_POSITIVE };
            errors.scale = errors.scale.max((f64::from(scale) - step).abs() / unit);
            for (value, &quant) in exact.iter().zip(&output.quants[elements]) {
                let found = f64::from(quant) * f64::from(scale);
                errors.steps = errors.steps.max((found - value).abs() / unit);
            }
        }
        errors
    }

    /// Whether the errors are only those of an approximate root and of additions in single precision.
    pub fn are_small(&self) -> bool {
        self.hidden == 0 && self.scale < 1e-6 && self.steps < 0.501
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn computed() -> (Input, Output) {
        let input =
            Input { hidden: vec![1.0, 2.0], update: vec![2.0, 2.0], weight: vec![1.0, 0.5], epsilon: 0.0 };
        // hidden is 3, 4; the mean square 12.5; the larger output 3 / √12.5.
        let scale = (3.0 / 12.5f64.sqrt() / 127.0) as f32;
        (input, Output { hidden: vec![3.0, 4.0], quants: vec![127, 85], scales: vec![scale] })
    }

    #[test]
    fn a_right_result_passes() {
        let (input, output) = computed();
        let errors = Errors::of(&output, &input);
        assert!(errors.are_small() && errors.steps > 0.1, "{errors:?}");
    }

    #[test]
    fn a_wrong_result_fails() {
        let wrong = |change: fn(&mut Output)| {
            let (input, mut output) = computed();
            change(&mut output);
            let errors = Errors::of(&output, &input);
            assert!(!errors.are_small(), "{errors:?}");
        };
        wrong(|output| output.hidden[1] = 4.000_001);
        wrong(|output| output.quants[1] += 1);
        wrong(|output| output.scales[0] *= 1.000_01);
        wrong(|output| output.scales[0] = 0.0);
    }

    #[test]
    fn the_example_has_a_row_of_zeros_and_others() {
        let input = Input::example(3, 8);
        assert!(input.hidden[8..16].iter().all(|&value| value == 0.0));
        assert!(input.hidden[16..].iter().all(|value| (-1.0..1.0).contains(value) && *value != 0.0));
    }
}
