//! Results of a selftest.

use serde::Serialize;

/// Result for one output of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// Name of the kernel, or the names of the case's kernels in launch order.
    pub kernel: String,
    /// Description of the inputs.
    pub what: String,
    /// Name of the output.
    pub output: String,
    /// Normalised mean squared error; 0 if the bits are equal.
    pub nmse: f64,
    /// Largest error divided by the root mean square of the reference.
    pub max: f64,
    /// The largest `nmse` that passes; 0 if the bits must be equal.
    pub limit: f64,
    /// Reason for the limit.
    pub reason: &'static str,
    /// Time of the launches in microseconds, gaps included; `None` if the device measures no time.
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
    /// Number of tested kernels.
    pub kernels: usize,
    /// Number of tested kernels that are built into this binary; the others were compiled for the test.
    pub built_in: usize,
    /// Rows of all compared outputs.
    pub rows: Vec<Row>,
}

impl Report {
    /// The rows that failed.
    pub fn failures(&self) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(|row| !row.passed())
    }

    /// Summarises the rows as `N passed, M failed`.
    pub fn summary(&self) -> String {
        let failed = self.failures().count();
        format!("{} passed, {failed} failed", self.rows.len() - failed)
    }

    /// Origin of the kernels: `N kernels, M of them built in`.
    pub fn origin(&self) -> String {
        let plural = if self.kernels == 1 { "" } else { "s" };
        format!("{} kernel{plural}, {} of them built in", self.kernels, self.built_in)
    }
}
