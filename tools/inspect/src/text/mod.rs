//! Inspections as text: tables, lines for a terminal, and the page for a browser.

mod choices;
mod diff;
mod folder;
mod kernels;
mod model;
mod opt_report;
mod page;
mod plan;
mod rows;

pub use choices::choices;
pub use diff::diff;
pub use folder::{folder, folder_kernel};
pub use kernels::{kernel, kernels};
pub use model::model;
pub use opt_report::opt_report;
pub use page::page;
pub use plan::plan;
pub use rows::by_rows;

use bespoke_kernels::plan::StepKind;

use crate::{Listing, Places};

/// Instructions of a disassembly, with a comment where the Rust line changes.
pub fn with_places(sass: &str, name: &str) -> String {
    let mut places = Places::new();
    let listing = Listing::of_sass(sass, &mut places);
    let mut text = format!("// {name}\n");
    let mut last = None;
    for (line, place) in listing.lines() {
        if let Some(place) = place.filter(|_| place != last) {
            let (file, number) = places.line(place);
            text.push_str(&format!("// {file}:{number}\n"));
            last = Some(place);
        }
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// What a step is called where its launches are counted: a step of one row is a token.
fn per(step: StepKind, rows: u32) -> &'static str {
    if (step, rows) == (StepKind::Decode, 1) { "token" } else { "step" }
}

/// Formats a step as `decode step of 8 rows`.
fn step(kind: StepKind, rows: u32) -> String {
    format!("{kind} step of {rows} row{}", if rows == 1 { "" } else { "s" })
}

/// Formats a grid as `132` or `8x4x1`.
fn grid([x, y, z]: [u32; 3]) -> String {
    if (y, z) == (1, 1) { x.to_string() } else { format!("{x}x{y}x{z}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn grids() {
        assert_eq!(grid([132, 1, 1]), "132");
        assert_eq!(grid([8, 4, 1]), "8x4x1");
    }
}
