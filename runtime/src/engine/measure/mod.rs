//! Measurements of an engine: times of its steps, launches and matrices, and of plans by other rules; and of a device: bandwidth
//! and tensor throughput.

mod matrix_rates;
mod read_bandwidth;
mod step_times;
mod tensor_throughput;
mod timeline;
mod variants;

pub use matrix_rates::{Matrix, MatrixRate};
pub use read_bandwidth::read_bandwidth;
pub use step_times::StepRows;
pub use tensor_throughput::tensor_throughput;
pub use timeline::LaunchSpan;
pub use variants::{Variant, Variants};

/// Median of measurements: the middle value, or the mean of the two middle ones; 0 of none. In the unit of the values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    match (sorted.len(), sorted.len() / 2) {
        (0, _) => 0.0,
        (len, middle) if len % 2 == 1 => sorted[middle],
        (_, middle) => (sorted[middle - 1] + sorted[middle]) / 2.0,
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn medians_of_even_and_odd_numbers() {
        assert_eq!([&[][..], &[3.0], &[4.0, 1.0], &[9.0, 1.0, 2.0]].map(super::median), [0.0, 3.0, 2.5, 2.0]);
    }
}
