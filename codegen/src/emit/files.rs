//! The files of an emission as data, before they are written.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Component, Path, PathBuf};

use rayon::prelude::*;

use super::{EmitError, Emitted, Manifest};
use crate::ptx::Target;

/// The files of an emission.
#[derive(Clone, Debug)]
pub struct Files {
    /// The compiled kernels of each target, sorted by name.
    pub kernels: BTreeMap<Target, Vec<Emitted>>,
    /// Content of each file, by its path in the folder.
    pub content: BTreeMap<PathBuf, Vec<u8>>,
    /// Paths of files that an earlier emission may have left, and that would not match this one: IR, machine code and
    /// reports, if this one has none.
    pub stale: Vec<PathBuf>,
}

impl Files {
    /// Files of compiled kernels: PTX, IR if wanted, and machine code if the kernel was assembled.
    pub(super) fn of(kernels: BTreeMap<Target, Vec<Emitted>>, with_ir: bool) -> Files {
        let (mut content, mut stale) = (BTreeMap::new(), Vec::new());
        for (target, kernel) in
            kernels.iter().flat_map(|(target, kernels)| kernels.iter().map(move |it| (target, it)))
        {
            let folder = target.to_string();
            let path = |stem: &str, extension: &str| Path::new(&folder).join(format!("{stem}.{extension}"));
            content.insert(path(&kernel.module, "ptx"), kernel.compiled.ptx.clone().into_bytes());
            let ir = path(&kernel.compiled.name, "ir");
            if with_ir {
                content.insert(ir, kernel.recorded.function().to_string().into_bytes());
            } else {
                stale.push(ir);
            }
            let cubin = path(&kernel.module, "cubin");
            match &kernel.assembled {
                Some(assembled) => drop(content.insert(cubin, assembled.cubin.clone())),
                None => stale.push(cubin),
            }
        }
        Files { kernels, content, stale }
    }

    /// Writes all files below `out`, which is created, and removes stale ones: those in [`Files::stale`], and modules
    /// that the `kernels.json` in the folder names and this emission does not have.
    pub fn write(&self, out: &Path) -> Result<(), EmitError> {
        let failed = |path: &Path| {
            let path = path.to_owned();
            move |source| EmitError::Io { path, source }
        };
        fs::create_dir_all(out).map_err(failed(out))?;
        let removed = modules_in(out).into_iter().filter(|file| !self.content.contains_key(file));
        for file in removed.chain(self.stale.iter().cloned()) {
            let path = out.join(file);
            match fs::remove_file(&path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => return Err(failed(&path)(source)),
                _ => {}
            }
        }
        self.content.par_iter().try_for_each(|(file, bytes)| {
            let path = out.join(file);
            let write = || {
                fs::create_dir_all(path.parent().unwrap_or(out))?;
                fs::write(&path, bytes)
            };
            write().map_err(failed(&path))
        })?;
        Ok(())
    }
}

/// Paths of the PTX, IR and machine code that the manifest in a folder names; none if there is no manifest.
fn modules_in(out: &Path) -> Vec<PathBuf> {
    let manifest = fs::read(out.join("kernels.json")).ok();
    let manifest: Option<Manifest> = manifest.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    let modules =
        manifest.into_iter().flat_map(|manifest| manifest.kernels).flat_map(|kernel| kernel.modules);
    let files =
        modules.flat_map(|module| [Some(module.ptx), module.ir, module.cubin]).flatten().map(PathBuf::from);
    let is_below = |file: &PathBuf| file.components().all(|part| matches!(part, Component::Normal(_)));
    files.filter(is_below).collect()
}
