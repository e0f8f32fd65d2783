//! Text of Rust files that generated code comes from.

use std::borrow::Cow;
use std::fs;
use std::path::{Component, Path};

/// Text of the file that the compiler calls `name`: embedded in this binary, or a file below the current folder or a folder
/// above that one. A name from an emitted folder may be anything, so absolute ones and `..` are not followed.
pub(crate) fn find(name: &str) -> Option<Cow<'static, str>> {
    if let Some(text) = bespoke_sources::find(name) {
        return Some(text.into());
    }
    let is_below = |part| matches!(part, Component::Normal(_));
    if !Path::new(name).components().all(is_below) {
        return None;
    }
    let here = std::env::current_dir().ok()?;
    here.ancestors().find_map(|folder| fs::read_to_string(folder.join(name)).ok()).map(Cow::from)
}
