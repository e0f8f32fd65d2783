//! Split models: `NAME-00001-of-00003.gguf` and the parts beside it.
//!
//! Every part has the keys `split.no` (its index, from 0), `split.count` and `split.tensors.count` (of all parts). The
//! first part has the model's metadata. `llama-gguf-split` and gguf-py's `GGUFWriter` write such files.

use crate::Error;
use crate::part::Part;
use std::path::{Path, PathBuf};

const INDEX: &str = "split.no";
const COUNT: &str = "split.count";
const TENSORS: &str = "split.tensors.count";

/// Whether a key describes a part, not the model.
pub(crate) fn is_own_key(key: &str) -> bool {
    [INDEX, COUNT, TENSORS].contains(&key)
}

/// Opens a file and, if it is a part of a split model, all other parts. The first part comes first.
pub(crate) fn open(path: &Path) -> Result<Vec<Part>, Error> {
    let given = Part::open(path)?;
    let count = count(&given)?;
    if count <= 1 {
        return Ok(vec![given]);
    }
    let index = given.opt_u32(INDEX)?.ok_or_else(|| missing(INDEX))?;
    let Some(name) = SplitName::parse(path).filter(|name| (name.index, name.count) == (index, count)) else {
        return Err(Error::SplitName { path: path.into(), suffix: suffix(index, count) });
    };
    let mut given = Some(given);
    let mut parts: Vec<Part> = Vec::new();
    for at in 0..count {
        let part = match given.take_if(|_| at == index) {
            Some(given) => given,
            None => open_other(&name.path_of(at), at, count)?,
        };
        if let Some(first) = parts.first() {
            check(&part, first).map_err(|source| in_part(&name.path_of(at), source))?;
        }
        parts.push(part);
    }
    let found: usize = parts.iter().map(|part| part.tensors.len()).sum();
    match parts[0].opt_u32(TENSORS)? {
        Some(expected) if expected as usize != found => {
            Err(Error::SplitTensors { key: TENSORS, expected, found })
        }
        _ => Ok(parts),
    }
}

/// Refuses a part that is not read from a file: the others cannot be found.
pub(crate) fn refuse_part(part: &Part) -> Result<(), Error> {
    match count(part)? {
        0 | 1 => Ok(()),
        count => Err(Error::SplitInMemory { key: COUNT, count }),
    }
}

/// Opens part `index` of `count` and checks that it says that it is this part.
fn open_other(path: &Path, index: u32, count: u32) -> Result<Part, Error> {
    let part = match Part::open(path) {
        Err(Error::Io { path, source }) => {
            return Err(Error::MissingPart { path, index: index + 1, count, source });
        }
        part => part.map_err(|source| in_part(path, source))?,
    };
    for (key, expected) in [(INDEX, index), (COUNT, count)] {
        let found = part.opt_u32(key).map_err(|source| in_part(path, source))?;
        if found != Some(expected) {
            return Err(in_part(path, differs(key, found, expected)));
        }
    }
    Ok(part)
}

/// Checks that a part belongs to the model of the first part.
fn check(part: &Part, first: &Part) -> Result<(), Error> {
    let (found, expected) = (part.opt_u32(TENSORS)?, first.opt_u32(TENSORS)?);
    if let Some(expected) = expected.filter(|_| found != expected) {
        return Err(differs(TENSORS, found, expected));
    }
    let key = "general.architecture";
    match (part.get(key), first.get(key)) {
        (Some(found), Some(expected)) if found != expected => Err(differs(key, Some(found), expected)),
        _ => Ok(()),
    }
}

fn count(part: &Part) -> Result<u32, Error> {
    Ok(part.opt_u32(COUNT)?.unwrap_or(0))
}

fn missing(key: &str) -> Error {
    Error::MissingKey { key: key.into() }
}

fn in_part(path: &Path, source: Error) -> Error {
    Error::InPart { path: path.into(), source: Box::new(source) }
}

fn differs(key: &'static str, found: Option<impl ToString>, expected: impl ToString) -> Error {
    let found = found.map_or_else(|| "missing".into(), |found| found.to_string());
    Error::OtherPart { key, found, expected: expected.to_string() }
}

/// End of the file name of part `index`.
fn suffix(index: u32, count: u32) -> String {
    format!("-{:05}-of-{count:05}.gguf", index + 1)
}

/// File name of a part, taken apart.
struct SplitName {
    /// The path up to the suffix.
    prefix: PathBuf,
    /// Index from 0.
    index: u32,
    count: u32,
}

impl SplitName {
    fn parse(path: &Path) -> Option<Self> {
        let name = path.file_name()?.to_str()?;
        let (rest, count) = name.strip_suffix(".gguf")?.rsplit_once("-of-")?;
        let (prefix, number) = rest.rsplit_once('-')?;
        let (number, count): (u32, u32) = (number.parse().ok()?, count.parse().ok()?);
        let index = number.checked_sub(1)?;
        (format!("{prefix}{}", suffix(index, count)) == name).then(|| Self {
            prefix: path.with_file_name(prefix),
            index,
            count,
        })
    }

    fn path_of(&self, index: u32) -> PathBuf {
        let mut path = self.prefix.clone().into_os_string();
        path.push(suffix(index, self.count));
        path.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts() {
        let name = SplitName::parse(Path::new("a/my-model-00002-of-00003.gguf")).unwrap();
        assert_eq!((name.index, name.count), (1, 3));
        assert_eq!(name.path_of(0), Path::new("a/my-model-00001-of-00003.gguf"));
        for other in
            ["model.gguf", "m-2-of-3.gguf", "m-00000-of-00003.gguf", "m-00001-of-00003.bin", "-of-.gguf"]
        {
            assert!(SplitName::parse(Path::new(other)).is_none(), "{other}");
        }
    }
}
