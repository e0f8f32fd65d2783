//! Moves of files in a folder, which can be undone.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::{fs, io};

use tempfile::TempPath;

use crate::faults::{self, Operation};
use crate::file::rename;
use crate::{FileError, Replace, parent};

/// Moves of files in `folder`, in order.
pub(crate) struct Journal<'a> {
    folder: &'a Path,
    /// Where files are put that were in the way.
    aside: PathBuf,
    /// Source and target of each move.
    moves: Vec<(PathBuf, PathBuf)>,
    /// Folders that were created, outermost first.
    created: Vec<PathBuf>,
    /// Folders out of which files were moved.
    emptied: BTreeSet<PathBuf>,
}

impl<'a> Journal<'a> {
    /// An empty journal. The folder `aside` need not exist.
    pub fn new(folder: &'a Path, aside: PathBuf) -> Journal<'a> {
        Journal { folder, aside, moves: Vec::new(), created: Vec::new(), emptied: BTreeSet::new() }
    }

    /// Moves a file or a link out of the folder, if it exists. Nothing is moved through a link.
    pub fn set_aside(&mut self, file: &Path) -> Result<(), FileError> {
        let path = self.folder.join(file);
        if self.missing_folders(file)?.is_some() {
            return Ok(());
        }
        match path.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(FileError::io(&path)(error)),
            Ok(data) if data.is_dir() => return Err(FileError::is_not(&path, "a file")),
            Ok(_) => {}
        }
        let aside = self.aside.join(file);
        let move_aside = || {
            fs::create_dir_all(parent(&aside))?;
            faults::point(Operation::Rename)?;
            fs::rename(&path, &aside)
        };
        move_aside().map_err(FileError::io(&path))?;
        self.emptied.insert(parent(&path).to_owned());
        self.moves.push((path, aside));
        Ok(())
    }

    /// Moves the file `from` into the folder as `file`, which must not exist.
    pub fn move_in(&mut self, from: &Path, file: &Path) -> Result<(), FileError> {
        let path = self.folder.join(file);
        for folder in self.missing_folders(file)?.unwrap_or_default() {
            fs::create_dir(&folder).map_err(FileError::io(&folder))?;
            self.created.push(folder);
        }
        let temporary = TempPath::try_from_path(from).map_err(FileError::io(&path))?;
        rename(temporary, &path, Replace::Never)?;
        self.moves.push((from.to_owned(), path));
        Ok(())
    }

    /// Undoes all moves, the last one first. Returns whether that succeeded.
    pub fn undo(self) -> bool {
        let mut undone = true;
        for (from, to) in self.moves.iter().rev() {
            undone &= fs::rename(to, from).is_ok();
        }
        crate::unfinished::remove_created(&self.created);
        undone
    }

    /// Removes folders out of which the last file was moved.
    pub fn remove_empty_folders(&self) {
        for folder in self.emptied.iter().filter(|&folder| folder != self.folder) {
            // Fails for a folder with other files, which stays.
            let _ = fs::remove_dir(folder);
        }
    }

    /// Folders between the journal's folder and `file` that do not exist, outermost first; `None` if all exist. A link
    /// or a file in their place is an error.
    fn missing_folders(&self, file: &Path) -> Result<Option<Vec<PathBuf>>, FileError> {
        let mut missing = Vec::new();
        let mut folder = self.folder.to_owned();
        for component in file.parent().into_iter().flat_map(Path::components) {
            folder.push(component);
            match folder.symlink_metadata() {
                Err(error) if error.kind() == io::ErrorKind::NotFound => missing.push(folder.clone()),
                Err(error) => return Err(FileError::io(&folder)(error)),
                Ok(data) if !data.is_dir() => return Err(FileError::is_not(&folder, "a folder")),
                Ok(_) => {}
            }
        }
        Ok((!missing.is_empty()).then_some(missing))
    }
}
