//! The table of results in `tests/seeded/README.md`.

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Bug, Result};

/// Test results for one bug.
pub struct Outcome {
    /// Number of failing file tests.
    pub files: usize,
    /// Number of the first failing random kernel, through the default pipeline and through passes in any order; none if
    /// they did not run.
    pub kernels: Option<[Option<u64>; 2]>,
    /// Names of failing unit tests; none if they did not run.
    pub units: Option<Vec<String>>,
    /// Whether a test did not terminate.
    pub hangs: bool,
}

impl Outcome {
    /// Whether any test fails.
    pub fn noticed(&self) -> bool {
        let kernels = self.kernels.is_some_and(|kernels| kernels != [None; 2]);
        let units = self.units.as_ref().is_some_and(|failed| !failed.is_empty());
        self.hangs || self.files > 0 || kernels || units
    }
}

/// Header rule of the table: the line before the first row.
const RULE: &str = "| --- | --- | --- | --- | --- | --- |\n";

/// A Markdown file that ends with the table of results: the text up to [`RULE`], and the rows after it.
pub struct Table {
    path: PathBuf,
    head: String,
    rows: String,
}

impl Table {
    /// Reads the Markdown file.
    pub fn read(path: &Path) -> Result<Table> {
        let text = fs::read_to_string(path)?;
        let (head, rows) = text.split_once(RULE).ok_or("README.md has no table")?;
        Ok(Table { path: path.to_owned(), head: head.to_owned(), rows: rows.to_owned() })
    }

    fn row_of(&self, name: &str) -> Option<&str> {
        self.rows.split_inclusive('\n').find(|row| row.starts_with(&format!("| {name} |")))
    }

    /// Sets the row of a bug and writes the file; rows are in the order of the list of bugs.
    pub fn enter(&mut self, bugs: &[Bug], bug: &Bug, outcome: &Outcome) -> Result<()> {
        let new = row(bug, outcome);
        let rows = bugs.iter().filter_map(|other| match other.name == bug.name {
            true => Some(new.as_str()),
            false => self.row_of(&other.name),
        });
        self.rows = rows.collect();
        Ok(fs::write(&self.path, format!("{}{RULE}{}", self.head, self.rows))?)
    }
}

/// Table row of a bug, in Markdown.
pub fn row(bug: &Bug, outcome: &Outcome) -> String {
    const NOTHING: &str = "–";
    let number = |n: u64| if n > 0 { n.to_string() } else { NOTHING.to_owned() };
    let kernels = match outcome.kernels {
        Some(kernels) => kernels.map(|kernel| number(kernel.unwrap_or(0))),
        None => [String::new(), String::new()],
    };
    let units = match outcome.units.as_deref() {
        _ if outcome.hangs => "never ends".to_owned(),
        None => String::new(),
        Some([]) => "**unnoticed**".to_owned(),
        Some([test]) => format!("`{test}`"),
        Some([test, others @ ..]) => format!("`{test}` and {} others", others.len()),
    };
    let [pipeline, any_order] = kernels;
    let cells = [&bug.name, &bug.what, &number(outcome.files as u64), &pipeline, &any_order, &units];
    cells.iter().fold("|".to_owned(), |row, cell| format!("{row} {cell} |")) + "\n"
}
