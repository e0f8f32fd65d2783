//! What the passes did to a kernel, with the Rust lines.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;

use bespoke_codegen::opt_report::{OptReport, Place};

use crate::sources::find;

/// The report of a kernel: the entries of each Rust line below its text.
pub fn opt_report(name: &str, report: &OptReport) -> String {
    let mut sources = Sources::default();
    let mut text = format!("// {name}\n");
    for entries in report.by_line() {
        // Writing to a string does not fail.
        match entries[0].places.as_slice() {
            [] => text.push_str(&format!("{}\n", entries[0].subject())),
            [place, callers @ ..] => {
                let _ = writeln!(text, "{place}");
                if let Some(line) = sources.line(place) {
                    let _ = writeln!(text, "  | {line}");
                }
                for caller in callers {
                    let _ = writeln!(text, "  called at {caller}");
                    if let Some(line) = sources.line(caller) {
                        let _ = writeln!(text, "  | {line}");
                    }
                }
            }
        }
        for entry in entries {
            let _ = writeln!(text, "  {}", entry.line());
        }
    }
    if report.entries.is_empty() {
        text.push_str("the passes did nothing that is reported\n");
    }
    text
}

/// Source files by name; none for files that are not found.
#[derive(Default)]
struct Sources(HashMap<String, Option<Cow<'static, str>>>);

impl Sources {
    /// The source line of a place, without its indentation.
    fn line(&mut self, place: &Place) -> Option<&str> {
        let text = self.0.entry(place.file.clone()).or_insert_with(|| find(&place.file));
        let line = text.as_ref()?.lines().nth((place.line as usize).checked_sub(1)?)?.trim();
        (!line.is_empty()).then_some(line)
    }
}
