//! The files of an emission as data, before they are written.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use rayon::prelude::*;

use super::{EmitError, Emitted};
use crate::ptx::Target;

/// The files of an emission.
#[derive(Clone, Debug)]
pub struct Files {
    /// The compiled kernels of each target, sorted by name.
    pub kernels: BTreeMap<Target, Vec<Emitted>>,
    /// Content of each file, by its path in the folder.
    pub content: BTreeMap<PathBuf, Vec<u8>>,
    /// Paths of files that an earlier emission may have left, and that would not match this one: machine code and
    /// reports, if this one has none.
    pub stale: Vec<PathBuf>,
}

impl Files {
    /// Files of compiled kernels: PTX, and machine code if the kernel was assembled.
    pub(super) fn of(kernels: BTreeMap<Target, Vec<Emitted>>) -> Files {
        let (mut content, mut stale) = (BTreeMap::new(), Vec::new());
        for (target, kernel) in
            kernels.iter().flat_map(|(target, kernels)| kernels.iter().map(move |it| (target, it)))
        {
            let path = |extension: &str| {
                Path::new(&target.to_string()).join(format!("{}.{extension}", kernel.compiled.name))
            };
            content.insert(path("ptx"), kernel.compiled.ptx.clone().into_bytes());
            match &kernel.assembled {
                Some(assembled) => drop(content.insert(path("cubin"), assembled.cubin.clone())),
                None => stale.push(path("cubin")),
            }
        }
        Files { kernels, content, stale }
    }

    /// Writes all files below `out`, which is created, and removes stale ones.
    pub fn write(&self, out: &Path) -> Result<(), EmitError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| EmitError::Io { path, source }
        };
        fs::create_dir_all(out).map_err(failed(out))?;
        self.content.par_iter().try_for_each(|(file, bytes)| {
            let path = out.join(file);
            let write = || {
                fs::create_dir_all(path.parent().unwrap_or(out))?;
                fs::write(&path, bytes)
            };
            write().map_err(failed(&path))
        })?;
        for file in &self.stale {
            let path = out.join(file);
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(failed(&path)(source)),
                _ => {}
            }
        }
        Ok(())
    }
}
