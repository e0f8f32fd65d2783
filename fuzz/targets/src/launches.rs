//! Files of launches of `bespoke check`, over the kernels of [`KERNELS`].
//!
//! Property: checking twice gives the same report.

use std::sync::LazyLock;

use bespoke_check::{Launches, Loaded, Options, text};

/// Kernels to launch: see the file.
const KERNELS: &str = include_str!("launches.ptx");

static LOADED: LazyLock<Loaded> = LazyLock::new(|| Loaded::parse("launches.ptx", KERNELS).expect("PTX"));

pub fn run(data: &[u8]) {
    let Ok(toml) = std::str::from_utf8(data) else { return };
    let mut launches = match Launches::parse(toml) {
        Ok(launches) => launches,
        Err(error) => return drop(error.to_string()),
    };
    launches.buffers.values_mut().for_each(|buffer| {
        buffer.file = None;
        buffer.expect.iter_mut().for_each(|expected| expected.file = None);
    });
    let first = checked(&launches);
    assert_eq!(first, checked(&launches));
}

/// The report as text, or the error.
fn checked(launches: &Launches) -> String {
    let options = Options { instruction_limit: 8_000, profile: true, ..Options::default() };
    match LOADED.check(launches, &options) {
        Ok(report) => {
            let shown = text::Renderer::new(false, None).report(&report, true);
            let profiles: String = report.profiles.iter().map(text::profile).collect();
            shown + &text::summary(&report) + &profiles
        }
        Err(error) => error.to_string(),
    }
}
