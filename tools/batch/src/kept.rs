//! Records of an interrupted run.
//!
//! A run appends each record to a file as soon as its job has ended, in the order of the ends. A line has the fingerprint
//! of the job, its index and the record, with spaces between them.

use serde::de::IgnoredAny;

use crate::{Job, Record};

/// Records of jobs that have ended, by the index of the job.
#[derive(Debug, Default)]
pub struct Kept {
    records: Vec<Option<String>>,
}

/// A line that is no record of these jobs.
#[derive(Debug, thiserror::Error)]
pub enum KeptError {
    /// The line is not a record.
    #[error("line {line} is no record of a batch")]
    NoRecord {
        /// Number of the line, from 1.
        line: usize,
    },
    /// The record is of another input, model or options.
    #[error("line {line} is a record of another input, model or options")]
    OtherInput {
        /// Number of the line, from 1.
        line: usize,
    },
}

impl Kept {
    /// Reads the lines of a run of these jobs.
    ///
    /// # Errors
    /// If a line is not of these jobs.
    pub fn read(lines: &[String], jobs: &[Job]) -> Result<Kept, KeptError> {
        let mut kept = Kept { records: vec![None; jobs.len()] };
        for (number, text) in (1..).zip(lines) {
            let (input, index, record) = parts(text).ok_or(KeptError::NoRecord { line: number })?;
            match jobs.get(index) {
                Some(job) if job.fingerprint == input => kept.records[index] = Some(record.to_owned()),
                _ => return Err(KeptError::OtherInput { line: number }),
            }
        }
        Ok(kept)
    }

    /// Adds a record, and returns its line.
    pub fn add(&mut self, record: &Record, job: &Job) -> serde_json::Result<String> {
        let text = serde_json::to_string(record)?;
        let line = format!("{} {} {text}", job.fingerprint, record.index);
        self.records[record.index] = Some(text);
        Ok(line)
    }

    /// Indices of the jobs without a record.
    pub fn missing(&self) -> Vec<usize> {
        (0..self.records.len()).filter(|&index| self.records[index].is_none()).collect()
    }

    /// Number of records.
    pub fn len(&self) -> usize {
        self.records.iter().flatten().count()
    }

    /// Whether there is no record.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The records as lines, in the order of the jobs.
    pub fn lines(&self) -> String {
        self.records.iter().flatten().flat_map(|record| [record.as_str(), "\n"]).collect()
    }
}

/// Fingerprint, index and record of a line.
fn parts(line: &str) -> Option<(&str, usize, &str)> {
    let (input, rest) = line.split_once(' ')?;
    let (index, record) = rest.split_once(' ')?;
    serde_json::from_str::<IgnoredAny>(record).ok()?;
    Some((input, index.parse().ok()?, record))
}
