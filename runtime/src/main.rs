//! The `bespoke` binary.

use std::process::ExitCode;

fn main() -> ExitCode {
    bespoke::cli::main()
}
