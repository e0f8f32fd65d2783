//! Results of a selftest.

use serde::Serialize;

/// One output of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The kernel, or the kernels in order.
    pub kernel: String,
    /// Description of the inputs.
    pub what: String,
    /// The output.
    pub output: String,
    /// Normalised mean squared error; 0 if the bits are equal.
    pub nmse: f64,
    /// Largest error over the reference's root mean square.
    pub max: f64,
    /// The largest `nmse` that passes; 0 if the bits must be equal.
    pub limit: f64,
    /// Reason for the limit.
    pub reason: &'static str,
    /// Time of the launches, gaps included, if the device measures it.
    pub microseconds: Option<f64>,
    /// Description of the failure; `None` if the output passed.
    pub failure: Option<String>,
}

impl Row {
    /// A row for a failure before there was an output.
    pub(super) fn failed(kernel: String, what: String, failure: String) -> Row {
        Row {
            kernel,
            what,
            output: "-".to_owned(),
            nmse: f64::NAN,
            max: f64::NAN,
            limit: 0.0,
            reason: "runs",
            microseconds: None,
            failure: Some(failure),
        }
    }

    /// Whether the output passed.
    pub fn passed(&self) -> bool {
        self.failure.is_none()
    }
}

/// All rows of a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Report {
    /// The device's name.
    pub device: String,
    /// The target that kernels were compiled for.
    pub target: String,
    /// Kernels that were tested.
    pub kernels: usize,
    /// Kernels built into this binary; the others were compiled for the test.
    pub built_in: usize,
    /// The compared outputs.
    pub rows: Vec<Row>,
}

impl Report {
    /// The rows that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.passed())
    }

    /// `N passed, M failed`.
    pub fn summary(&self) -> String {
        let failed = self.failures().count();
        format!("{} passed, {failed} failed", self.rows.len() - failed)
    }

    /// Origin of the kernels: `N kernels, M of them built in`.
    pub fn origin(&self) -> String {
        format!("{} kernels, {} of them built in", self.kernels, self.built_in)
    }
}
