//! Buffers that are saved to files after the last launch.

use std::path::{Component, Path, PathBuf};

use bespoke_emulator::Memory;

use super::CheckError;
use super::arguments::{Buffers, Placed};
use super::launches::Launches;

/// Refuses files to which two buffers would be saved, and files that a buffer is read from.
pub(super) fn refuse_overwritten(launches: &Launches) -> Result<(), CheckError> {
    // `x.bin` and `./x.bin` are the same file.
    let same = |one: &Path, other: &Path| {
        let parts = |path: &Path| -> PathBuf {
            path.components().filter(|part| !matches!(part, Component::CurDir)).collect()
        };
        parts(one) == parts(other)
    };
    for (name, buffer) in &launches.buffers {
        let Some(path) = &buffer.save else { continue };
        let is_path = |other: &Option<PathBuf>| other.as_ref().is_some_and(|other| same(path, other));
        let mut others = launches.buffers.iter().filter(|(other, _)| *other != name);
        let is_read = launches.buffers.values().any(|other| {
            is_path(&other.file) || other.expect.as_ref().is_some_and(|expected| is_path(&expected.file))
        });
        let other = match others.find(|(_, other)| is_path(&other.save)) {
            _ if is_read => "is read as a buffer's content".to_owned(),
            Some((other, _)) => format!("is also the `save` file of buffer `{other}`"),
            None => continue,
        };
        let what = format!("`save`: {} {other}; give another file", path.display());
        return Err(CheckError::launches(format!("buffer `{name}`"), what));
    }
    Ok(())
}

/// Writes each buffer that has a `save` file to the file.
pub(super) fn save(launches: &Launches, buffers: &Buffers<'_>, memory: &Memory) -> Result<(), CheckError> {
    for (name, buffer) in &launches.buffers {
        let Some(path) = &buffer.save else { continue };
        let Placed { address, bytes } = buffers[name.as_str()];
        let mut content = vec![0; bytes as usize];
        memory.read(address, &mut content).map_err(|error| CheckError::Nothing(error.to_string()))?;
        let path = launches.folder.join(path);
        std::fs::write(&path, content).map_err(|source| CheckError::Write { path, source })?;
    }
    Ok(())
}
