//! Split models: parts written by gguf-py read as one file; missing and foreign parts are refused.
//! `fixtures/make_split.py` writes the fixtures.

use std::fs;
use std::path::{Path, PathBuf};

use bespoke_gguf::{GgmlType, Gguf, Writer};
use tempfile::TempDir;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name)
}

fn part(number: u32) -> String {
    format!("split-{number:05}-of-00003.gguf")
}

/// Names, dimensions, types and data of all tensors.
fn tensors(file: &Gguf) -> Vec<(String, Vec<u64>, GgmlType, Vec<u8>)> {
    let tensor = |info: &bespoke_gguf::TensorInfo| {
        (info.name.clone(), info.dims.clone(), info.ty, file.data(info).unwrap().into_owned())
    };
    file.tensors().iter().map(tensor).collect()
}

/// A folder with copies of the three parts.
fn copies() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    for number in 1..=3 {
        fs::copy(fixture(&part(number)), folder.path().join(part(number))).unwrap();
    }
    folder
}

/// Message of opening the first part after `edit`, without the folder's name.
fn refusal(edit: impl FnOnce(&Path)) -> String {
    let folder = copies();
    edit(folder.path());
    let message = Gguf::open(folder.path().join(part(1))).err().expect("the parts are refused").to_string();
    message.replace(&format!("{}/", folder.path().display()), "")
}

/// Overwrites the value of `key`, an integer, in a file.
fn set(path: &Path, key: &str, value: u16) {
    let mut bytes = fs::read(path).unwrap();
    let at = bytes.windows(key.len()).position(|window| window == key.as_bytes()).unwrap() + key.len() + 4;
    bytes[at..at + 2].copy_from_slice(&value.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn parts_are_one_file_whichever_is_given() {
    let whole = Gguf::open(fixture("whole.gguf")).unwrap();
    for number in 1..=3 {
        let joined = Gguf::open(fixture(&part(number))).unwrap();
        assert_eq!(tensors(&joined), tensors(&whole));
        assert_eq!(joined.tensors().iter().map(|info| info.part).collect::<Vec<_>>(), [0, 0, 1, 1, 2]);
        assert_eq!(joined.paths().count(), 3);
        let keys = |file: &Gguf| file.metadata().map(|(key, _)| key.to_owned()).collect::<Vec<_>>();
        assert_eq!(keys(&joined), keys(&whole));
        assert_eq!(joined.strings("tokenizer.ggml.tokens").unwrap(), ["<s>", "a", "b"]);
        let bytes = |number| fixture(&part(number)).metadata().unwrap().len();
        assert_eq!(joined.file_bytes(), (1..=3).map(bytes).sum());
    }
}

#[test]
fn incomplete_and_foreign_parts_are_refused() {
    let second = |path: &Path| path.join(part(2));
    for (edit, expected) in [
        (
            &(|at: &Path| fs::remove_file(second(at)).unwrap()) as &dyn Fn(&Path),
            "part 2 of 3 of the model is missing: cannot read split-00002-of-00003.gguf: No such file or directory \
             (os error 2)",
        ),
        (
            &|at| fs::copy(at.join(part(3)), second(at)).map(|_| ()).unwrap(),
            "split-00002-of-00003.gguf: this is a part of another model: split.no is 2, not 1",
        ),
        (
            &|at| set(&second(at), "split.count", 4),
            "split-00002-of-00003.gguf: this is a part of another model: split.count is 4, not 3",
        ),
        (
            &|at| set(&second(at), "split.tensors.count", 6),
            "split-00002-of-00003.gguf: this is a part of another model: split.tensors.count is 6, not 5",
        ),
        (
            &|at| (1..=3).for_each(|number| set(&at.join(part(number)), "split.tensors.count", 6)),
            "split.tensors.count is 6, but the parts have 5 tensors",
        ),
        (
            &|at| fs::copy(fixture("whole.gguf"), second(at)).map(|_| ()).unwrap(),
            "split-00002-of-00003.gguf: this is a part of another model: split.no is missing, not 1",
        ),
        (
            &|at| fs::write(second(at), "GGUF").unwrap(),
            "split-00002-of-00003.gguf: byte 4: the version needs 4 more bytes, but the file has 4 bytes in all \
             (truncated download?)",
        ),
        (
            &|at| {
                let bytes = fs::read(second(at)).unwrap();
                let name = b"blk.0.attn_k.weight";
                let start = bytes.windows(name.len()).position(|window| window == name).unwrap();
                let mut bytes = bytes;
                bytes[start..start + name.len()].copy_from_slice(b"blk.0.attn_q.weight");
                fs::write(second(at), bytes).unwrap();
            },
            "tensor blk.0.attn_q.weight is in an earlier part, and again in split-00002-of-00003.gguf",
        ),
        (
            &|at| set(&at.join(part(1)), "split.no", 1),
            "split-00001-of-00003.gguf is a part of a split model, whose name must end in -00002-of-00003.gguf: the \
             other parts are found by their names",
        ),
    ] {
        assert_eq!(refusal(edit), expected);
    }
}

#[test]
fn a_renamed_part_and_a_part_in_memory_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let renamed = folder.path().join("model.gguf");
    fs::copy(fixture(&part(1)), &renamed).unwrap();
    let message = Gguf::open(&renamed).err().unwrap().to_string();
    assert!(message.contains("whose name must end in -00001-of-00003.gguf"), "{message}");
    let message = Gguf::from_bytes(fs::read(&renamed).unwrap()).err().unwrap().to_string();
    assert_eq!(message, "split.count is 3: a part of a split model must be opened by its path");
}

/// A source that returns as many zeros as it is told, or fails.
struct Zeros(Result<usize, &'static str>);

impl bespoke_gguf::TensorSource for Zeros {
    fn data(
        &self,
        _: &bespoke_gguf::TensorInfo,
    ) -> Result<bespoke_gguf::TensorData<'_>, Box<dyn std::error::Error + Send + Sync>> {
        Ok(vec![0; self.0?].into())
    }
}

#[test]
fn a_model_may_have_its_data_elsewhere() {
    let mut header = Writer::new();
    header.set("general.architecture", "llama").unwrap();
    header.tensor("a", &[4, 2], GgmlType::F32).unwrap();
    let data = |source| {
        let file = Gguf::with_source(&header, Zeros(source)).unwrap();
        assert_eq!(file.architecture().unwrap(), "llama");
        file.data(file.require("a").unwrap()).map(|data| data.len()).map_err(|error| error.to_string())
    };
    assert_eq!(data(Ok(32)), Ok(32));
    assert_eq!(data(Ok(31)), Err("tensor a: 31 bytes of data instead of 32".into()));
    assert_eq!(data(Err("unreadable")), Err("tensor a: unreadable".into()));
}
