//! A cache of machine code in a folder, one file per entry; an entry's key is the hash of its inputs.
//!
//! Any number of processes may share a folder. A writer writes an entry under a temporary name and renames it, so that
//! a reader finds a complete entry or none. An entry carries the hash of its content; a reader removes an entry whose
//! hash does not match (truncated, altered, another format), and the caller then makes the content again. The least
//! recently used entries are removed when the folder exceeds its limit.

use std::fmt;
use std::fs::{self, DirBuilder, File, FileTimes};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use sha2::{Digest, Sha256};

/// First bytes of an entry; the last digit is the format version.
const MAGIC: [u8; 8] = *b"bespoke1";
/// Size in bytes of an entry's header: magic, hash of the content, length of the content.
const HEADER: usize = MAGIC.len() + HASH + size_of::<u64>();
const HASH: usize = 32;
/// File extensions of a complete entry and of one being written.
const EXTENSION: &str = "bin";
const UNFINISHED: &str = "tmp";
/// Age from which an unfinished file is removed: its writer is assumed dead.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Key of a cache entry: the hash of the inputs.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Key([u8; HASH]);

impl Key {
    /// Key of a sequence of inputs: the hash of `parts` in this order.
    pub fn of(parts: &[&[u8]]) -> Key {
        let mut hash = Sha256::new();
        for part in parts {
            // The length keeps ("ab", "c") and ("a", "bc") apart.
            hash.update((part.len() as u64).to_le_bytes());
            hash.update(part);
        }
        Key(hash.finalize().into())
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Number and total size of the entries in a cache folder.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contents {
    /// Number of entries.
    pub entries: usize,
    /// Total size of the entries' files, in bytes.
    pub bytes: u64,
}

/// A folder of cache entries with a size limit.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    limit: u64,
}

impl Cache {
    /// Cache in `folder` of at most `limit` bytes; the first `put` creates the folder.
    pub fn new(folder: impl Into<PathBuf>, limit: u64) -> Cache {
        Cache { folder: folder.into(), limit }
    }

    /// Path of the cache folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Content of the entry with this key, if present and valid. Marks the entry as used.
    pub fn get(&self, key: Key) -> Option<Vec<u8>> {
        let mut file = File::open(self.path(key)).ok()?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).ok()?;
        let Some(content) = content(&bytes) else {
            self.remove(key);
            return None;
        };
        let content = content.to_vec();
        // If the time cannot be set, as in another user's folder, the entry keeps its age. On Windows the handle must
        // be writable.
        let touched = File::options().append(true).open(self.path(key));
        let _ = touched.and_then(|file| file.set_times(FileTimes::new().set_modified(SystemTime::now())));
        Some(content)
    }

    /// Writes or replaces an entry, then evicts others if the limit is exceeded. Content larger than the limit is not
    /// stored.
    pub fn put(&self, key: Key, content: &[u8]) -> io::Result<()> {
        if HEADER as u64 + content.len() as u64 > self.limit {
            return Ok(());
        }
        create_private(&self.folder)?;
        // A random name: another process may have the same number, in another container that shares the folder.
        let (prefix, suffix) = (format!("{key}."), format!(".{UNFINISHED}"));
        let mut unfinished =
            tempfile::Builder::new().prefix(&prefix).suffix(&suffix).tempfile_in(&self.folder)?;
        write_entry(unfinished.as_file_mut(), content)?;
        unfinished.persist(self.path(key))?;
        self.evict(key)
    }

    /// Removes an entry, if present.
    pub fn remove(&self, key: Key) {
        // An invalid entry that cannot be removed will be found invalid again.
        let _ = fs::remove_file(self.path(key));
    }

    /// Number and total size of the entries; zero if the folder does not exist.
    pub fn contents(&self) -> io::Result<Contents> {
        let entries = self.entries()?;
        Ok(Contents { entries: entries.len(), bytes: entries.iter().map(|entry| entry.bytes).sum() })
    }

    fn path(&self, key: Key) -> PathBuf {
        self.folder.join(format!("{key}.{EXTENSION}"))
    }

    /// Removes the least recently used entries until the folder is within the limit; never removes `newest`.
    fn evict(&self, newest: Key) -> io::Result<()> {
        self.remove_abandoned()?;
        let mut entries = self.entries()?;
        let mut bytes: u64 = entries.iter().map(|entry| entry.bytes).sum();
        if bytes <= self.limit {
            return Ok(());
        }
        entries.sort_by_key(|entry| entry.used);
        let newest = self.path(newest);
        for entry in entries.iter().filter(|entry| entry.path != newest) {
            if bytes <= self.limit {
                break;
            }
            // Another process may have removed the file already.
            let _ = fs::remove_file(&entry.path);
            bytes -= entry.bytes;
        }
        Ok(())
    }

    fn remove_abandoned(&self) -> io::Result<()> {
        for file in self.files(UNFINISHED)? {
            if file.used.elapsed().is_ok_and(|age| age > ABANDONED) {
                // Another process may have removed the file already.
                let _ = fs::remove_file(&file.path);
            }
        }
        Ok(())
    }

    fn entries(&self) -> io::Result<Vec<Entry>> {
        self.files(EXTENSION)
    }

    /// Files in the cache folder with this extension. Files that do not belong to the cache are ignored.
    fn files(&self, extension: &str) -> io::Result<Vec<Entry>> {
        let listing = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            listing => listing?,
        };
        let mut files = Vec::new();
        for file in listing {
            let path = file?.path();
            if !is_ours(&path, extension) {
                continue;
            }
            // Another process may have removed the file.
            let Ok(data) = fs::metadata(&path) else { continue };
            files.push(Entry { bytes: data.len(), used: data.modified()?, path });
        }
        Ok(files)
    }
}

/// File of an entry.
struct Entry {
    path: PathBuf,
    bytes: u64,
    used: SystemTime,
}

/// Whether the file name is a key with this extension.
fn is_ours(path: &Path, extension: &str) -> bool {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    let (key, rest) = name.split_once('.').unwrap_or((name, ""));
    let is_key = key.len() == 2 * HASH && key.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_key && rest.rsplit('.').next() == Some(extension)
}

/// Creates a folder and its parents; on Unix, only the owner has access.
fn create_private(folder: &Path) -> io::Result<()> {
    let mut builder = DirBuilder::new();
    builder.recursive(true);
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.create(folder)
}

fn write_entry(file: &mut File, content: &[u8]) -> io::Result<()> {
    file.write_all(&MAGIC)?;
    file.write_all(&Sha256::digest(content))?;
    file.write_all(&(content.len() as u64).to_le_bytes())?;
    file.write_all(content)
}

/// Content of an entry, given the bytes of its file; none if the file is invalid.
fn content(bytes: &[u8]) -> Option<&[u8]> {
    let (header, content) = bytes.split_at_checked(HEADER)?;
    let (magic, rest) = header.split_at(MAGIC.len());
    let (hash, length) = rest.split_at(HASH);
    let whole = magic == MAGIC
        && length == (content.len() as u64).to_le_bytes()
        && hash == Sha256::digest(content).as_slice();
    whole.then_some(content)
}

#[cfg(test)]
mod tests;
