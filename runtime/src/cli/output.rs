//! Commands that write one large file.

use std::path::Path;

use miette::miette;

/// Checks that `out` is not there, or may be replaced.
pub fn check(out: &Path, force: bool) -> miette::Result<()> {
    if out.exists() && !force {
        return Err(miette!(help = "--force replaces it", "{} is there already", out.display()));
    }
    Ok(())
}
