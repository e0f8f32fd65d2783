//! Emitted folders: a hostile manifest beside a PTX file, as `bespoke inspect FOLDER` reads them.
//!
//! The input is `kernels.json`; every module that it names and that lies in the folder is [`PTX`]. Property: occupancy
//! and text can be computed for each kernel that is accepted.

use std::fs;

use bespoke_inspect::Tools;
use bespoke_inspect::folder::Folder;
use bespoke_inspect::text;

const PTX: &str = include_str!("launches.ptx");

pub fn run(data: &[u8]) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let write = |name: &str, bytes: &[u8]| fs::write(folder.path().join(name), bytes).expect("a file");
    fs::create_dir(folder.path().join("sm_90")).expect("a folder");
    write("kernels.json", data);
    write("sm_90/k.ptx", PTX.as_bytes());
    let read = match Folder::read(folder.path()) {
        Ok(read) => read,
        Err(error) => return drop(error.to_string()),
    };
    if let Err(error) = read.target(None) {
        drop(error.to_string());
    }
    for target in read.targets() {
        drop(read.names(target));
        match read.kernels(target, None, &Tools::default()) {
            Ok(kernels) => {
                drop(text::folder(&kernels));
                kernels.iter().for_each(|kernel| drop(text::folder_kernel(kernel)));
                serde_json::to_string(&kernels).expect("kernels as JSON");
            }
            Err(error) => drop(error.to_string()),
        }
    }
}
