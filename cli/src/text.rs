//! Text input from files and standard input.

use std::io::Read;
use std::path::Path;

use miette::miette;

/// Reads a whole file, or standard input for `-`. Text that is not UTF-8 is an error with the offset of its first
/// invalid byte.
pub fn read(path: &Path) -> miette::Result<String> {
    let (name, bytes) = if path.as_os_str() == "-" {
        let mut bytes = Vec::new();
        ("standard input".to_owned(), std::io::stdin().read_to_end(&mut bytes).map(|_| bytes))
    } else {
        (path.display().to_string(), std::fs::read(path))
    };
    let bytes = bytes.map_err(|error| miette!("cannot read {name}: {error}"))?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        let byte = error.as_bytes()[at];
        miette!(
            help = "convert the text to UTF-8, for example with `iconv -t UTF-8`",
            "{name}: byte {at} ({byte:#04x}) is not UTF-8"
        )
    })
}
