//! What a self-test found.

use serde::Serialize;

/// One output of one case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The kernel, or the kernels in order.
    pub kernel: String,
    /// Which inputs.
    pub what: String,
    /// The output.
    pub output: String,
    /// Energy of the error over energy of the reference; 0 where bits are equal.
    pub nmse: f64,
    /// Largest error over the reference's root mean square.
    pub max: f64,
    /// The largest `nmse` that passes; 0 where bits must be equal.
    pub limit: f64,
    /// Why the limit is what it is.
    pub reason: &'static str,
    /// Time of the launches, gaps included, where the device measures it.
    pub microseconds: Option<f64>,
    /// What is wrong, where, and by how much; none if it passed.
    pub failure: Option<String>,
}

impl Row {
    /// A row for what went wrong before there was an output.
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

    /// Whether the output is right.
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
    /// How many of them were built into this binary; the others were made for the test.
    pub built_in: usize,
    /// What was compared.
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

    /// Where the kernels came from: `N kernels, M of them built in`.
    pub fn origin(&self) -> String {
        format!("{} kernels, {} of them built in", self.kernels, self.built_in)
    }
}
