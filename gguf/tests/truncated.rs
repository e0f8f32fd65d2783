//! Files that change while they are open, and headers that need several reads.

use std::fs::File;
use std::path::Path;

use bespoke_gguf::{GgmlType, Gguf, Writer};

/// A file of `keys` long keys and one tensor of 64 KiB.
fn write(path: &Path, keys: u32) {
    let mut writer = Writer::new();
    writer.set("general.architecture", "llama").unwrap();
    for key in 0..keys {
        writer.set(&format!("general.note.{key}"), "n".repeat(1000).as_str()).unwrap();
    }
    writer.tensor("a", &[256, 256], GgmlType::Q8_0).unwrap();
    let mut data = writer.start(File::create(path).unwrap()).unwrap();
    data.write(&vec![7; 256 * 256 / 32 * 34]).unwrap();
    data.finish().unwrap();
}

#[test]
fn a_header_of_any_length_is_read() {
    let folder = tempfile::tempdir().unwrap();
    for keys in [0, 900, 1040, 1060, 5000] {
        let path = folder.path().join(format!("{keys}.gguf"));
        write(&path, keys);
        let (file, owned) =
            (Gguf::open(&path).unwrap(), Gguf::from_bytes(std::fs::read(&path).unwrap()).unwrap());
        assert_eq!(file.tensors(), owned.tensors());
        assert_eq!(file.file_bytes(), owned.file_bytes());
        assert!(file.metadata().eq(owned.metadata()));
        let info = file.require("a").unwrap();
        assert_eq!(file.data(info).unwrap(), owned.data(info).unwrap());
        // A piece is the same bytes as the whole.
        let (mut buffer, whole) = (Vec::new(), owned.data(info).unwrap());
        let data = file.tensor_data(info).unwrap();
        assert_eq!(data.read(34..100, &mut buffer).unwrap(), &whole[34..100]);
    }
}

#[test]
fn a_cut_header_is_named_as_in_memory() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    write(&path, 1500);
    let whole = std::fs::read(&path).unwrap();
    for len in [0, 3, 20, 30, 5000, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, 1_200_000, whole.len() - 1] {
        std::fs::write(&path, &whole[..len]).unwrap();
        let error = |result: Result<Gguf, bespoke_gguf::Error>| result.err().unwrap().to_string();
        assert_eq!(error(Gguf::open(&path)), error(Gguf::from_bytes(whole[..len].to_vec())), "{len}");
    }
}

#[test]
fn a_file_truncated_while_open_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    write(&path, 0);
    let file = Gguf::open(&path).unwrap();
    let info = file.require("a").unwrap();
    File::options().write(true).open(&path).unwrap().set_len(info.offset + 100).unwrap();
    let error = file.data(info).unwrap_err().to_string();
    assert!(error.starts_with(&format!("cannot read {}: the file had ", path.display())), "{error}");
    assert!(error.ends_with("bytes and has become shorter: it was truncated while in use"), "{error}");
    // What is left can be read.
    assert_eq!(file.tensor_data(info).unwrap().read(0..100, &mut Vec::new()).unwrap(), [7; 100]);
    assert_eq!(file.architecture().unwrap(), "llama");
}
