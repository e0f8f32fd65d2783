//! Hostile files: specific corruptions with their exact messages, and random ones, which must not panic.

use bespoke_gguf::{GgmlType, Gguf, Writer, dequantize};
use expect_test::{Expect, expect};
use proptest::prelude::*;

/// A valid file with a few keys and tensors.
fn valid() -> Vec<u8> {
    let mut writer = Writer::new();
    writer.set("general.architecture", "llama").unwrap();
    writer.set("general.alignment", 32u32).unwrap();
    writer.set("llama.use_parallel_residual", true).unwrap();
    writer.set_array("tokenizer.ggml.tokens", &["<s>", "▁a", "b"]).unwrap();
    writer.set_array("tokenizer.ggml.scores", &[0.0f32, -1.0]).unwrap();
    writer.tensor("norm", &[8], GgmlType::F32).unwrap();
    writer.tensor("ffn", &[64, 2], GgmlType::Q8_0).unwrap();
    let mut data = writer.start(Vec::new()).unwrap();
    data.write(&[1; 32]).unwrap();
    data.write(&[2; 136]).unwrap();
    data.finish().unwrap()
}

/// Position of the first `needle` in `bytes`.
fn find(bytes: &[u8], needle: &[u8]) -> usize {
    bytes.windows(needle.len()).position(|window| window == needle).expect("the needle is in the file")
}

/// Error message of opening a valid file after `corrupt` has changed its bytes.
fn message(corrupt: impl FnOnce(&mut Vec<u8>)) -> String {
    let mut bytes = valid();
    corrupt(&mut bytes);
    Gguf::from_bytes(bytes).err().expect("the corruption is noticed").to_string()
}

/// Error message of opening a valid file in which `new` overwrites the bytes at `offset`.
fn at(offset: usize, new: &[u8]) -> String {
    message(|bytes| bytes[offset..offset + new.len()].copy_from_slice(new))
}

/// Error message of opening a valid file in which `new` overwrites the bytes that start `skip` bytes after the end of
/// the first occurrence of `anchor`.
fn after(anchor: &str, skip: usize, new: &[u8]) -> String {
    message(|bytes| {
        let at = find(bytes, anchor.as_bytes()) + anchor.len() + skip;
        bytes[at..at + new.len()].copy_from_slice(new);
    })
}

/// Compares the error messages in `table`, one per line, with `expected`.
fn check(table: &[(&str, String)], expected: Expect) {
    let lines: String = table.iter().map(|(what, message)| format!("{what}: {message}\n")).collect();
    expected.assert_eq(&lines);
}

/// Offsets of fields after a tensor's name: rank (4 bytes), dimensions (8 bytes each), type, offset.
const RANK: usize = 0;
const DIM_0: usize = 4;
const TYPE_1D: usize = 12;
const TYPE_2D: usize = 20;
const OFFSET_2D: usize = 24;

#[test]
fn the_valid_file_is_valid() {
    let file = Gguf::from_bytes(valid()).unwrap();
    let ffn = file.require("ffn").unwrap();
    assert_eq!((ffn.rows(), ffn.cols(), ffn.bytes), (2, 64, 136));
    assert_eq!(*file.data(ffn).unwrap(), [2; 136]);
    assert_eq!(file.version(), 3);
}

#[test]
fn header() {
    check(
        &[
            ("an empty file", message(|b| b.clear())),
            ("another magic", at(0, b"PK\x03\x04")),
            ("cut in the version", message(|b| b.truncate(6))),
            ("big endian", at(4, &[0, 0, 0, 3])),
            ("version 1", at(4, &[1])),
            ("version 4", at(4, &[4])),
            ("too many tensors", at(8, &[0xff; 8])),
            ("too many keys", at(16, &[0, 0, 0, 1])),
        ],
        expect![[r#"
            an empty file: not a GGUF file: it is empty; download it again
            another magic: not a GGUF file: it starts with "PK\x03\x04", not "GGUF"
            cut in the version: byte 4: the version needs 4 more bytes, but the file has 6 bytes in all (truncated download?)
            big endian: the file is big endian (its version field reads 0x03000000); convert it to little endian first
            version 1: GGUF version 1 is not supported (versions 2 and 3 are); re-convert the model with a current llama.cpp
            version 4: GGUF version 4 is not supported (versions 2 and 3 are)
            too many tensors: the header declares 18446744073709551615 tensors, more than the file's 544 bytes can hold (truncated download?)
            too many keys: the header declares 16777216 metadata keys, more than the file's 544 bytes can hold (truncated download?)
        "#]],
    );
}

#[test]
fn metadata() {
    check(
        &[
            ("endless key", at(24, &[0xff; 8])),
            ("key not UTF-8", at(32, &[0xff])),
            ("unknown kind", after("general.architecture", 0, &[13])),
            ("endless string", after("general.architecture", 4, &[0, 0, 1])),
            ("alignment 48", after("general.alignment", 4, &[48])),
            ("alignment 0", after("general.alignment", 4, &[0])),
            ("alignment a float", after("general.alignment", 0, &[6])),
            ("bool 2", after("use_parallel_residual", 4, &[2])),
            ("array of arrays", after("ggml.tokens", 4, &[9])),
            ("endless string array", after("ggml.tokens", 8, &[0xff; 8])),
            ("endless float array", after("ggml.scores", 8, &[0xff; 8])),
            (
                "duplicate key",
                message(|b| {
                    let at = find(b, b"ggml.scores");
                    b[at..at + 11].copy_from_slice(b"ggml.tokens");
                }),
            ),
        ],
        expect![[r#"
            endless key: byte 32: a metadata key needs 18446744073709551615 more bytes, but the file has 544 bytes in all (truncated download?)
            key not UTF-8: byte 32: a metadata key is not UTF-8
            unknown kind: metadata key general.architecture: byte 52: unknown metadata value kind 13 (kinds are 0 to 12)
            endless string: metadata key general.architecture: byte 64: a string needs 65536 more bytes, but the file has 544 bytes in all (truncated download?)
            alignment 48: metadata key general.alignment is 48, which is not a power of two
            alignment 0: metadata key general.alignment is 0, which is not a power of two
            alignment a float: metadata key general.alignment: expected an unsigned 32-bit integer, found the f32 4.5e-44
            bool 2: metadata key llama.use_parallel_residual: byte 141: a bool must be 0 or 1, not 2
            array of arrays: metadata key tokenizer.ggml.tokens: byte 175: arrays of arrays are not supported
            endless string array: metadata key tokenizer.ggml.tokens: byte 256: a string needs 25769803785 more bytes, but the file has 544 bytes in all (truncated download?)
            endless float array: metadata key tokenizer.ggml.scores: byte 264: an array needs 18446744073709551615 more bytes, but the file has 544 bytes in all (truncated download?)
            duplicate key: metadata key tokenizer.ggml.tokens appears twice (again at byte 219)
        "#]],
    );
}

#[test]
fn tensors() {
    check(
        &[
            ("rank 5", after("norm", RANK, &[5])),
            ("no elements", after("norm", DIM_0, &[0])),
            ("endless dimension", after("norm", DIM_0, &[0xff; 8])),
            ("retired type", after("norm", TYPE_1D, &[4])),
            ("partial Q8_0 block", after("ffn", DIM_0, &[63])),
            ("longer than the file", after("ffn", DIM_0, &[96])),
            ("overflowing product", after("ffn", DIM_0, &[0, 0, 0, 0, 0, 0, 0, 0x80])),
            ("partial Q4_K block", after("ffn", TYPE_2D, &[12])),
            ("misaligned", after("ffn", OFFSET_2D, &[33])),
            ("overlapping", after("ffn", OFFSET_2D, &[0])),
            ("offset near 2^64", after("ffn", OFFSET_2D, &[0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])),
            ("cut data", message(|b| b.truncate(b.len() - 100))),
            ("cut directory", message(|b| b.truncate(310))),
        ],
        expect![[r#"
            rank 5: tensor norm: 5 dimensions at byte 284; GGUF allows at most 4
            no elements: tensor norm: dimension 0 is zero
            endless dimension: tensor norm: dimensions [18446744073709551615] of F32 overflow the address space
            retired type: tensor norm: ggml type 4 at byte 296 is unknown (retired, or newer than this program)
            partial Q8_0 block: tensor ffn: rows of 63 elements are not a whole number of Q8_0 blocks, which have 32 elements
            longer than the file: tensor ffn: data ends at byte 588, but the file has 544 bytes (truncated download?)
            overflowing product: tensor ffn: dimensions [9223372036854775808, 2] of Q8_0 overflow the address space
            partial Q4_K block: tensor ffn: rows of 64 elements are not a whole number of Q4_K blocks, which have 256 elements
            misaligned: tensor ffn: offset 33 is not a multiple of the alignment 32
            overlapping: tensors norm and ffn overlap at byte 352
            offset near 2^64: tensor ffn: data ends at byte 18446744073709552072, but the file has 544 bytes (truncated download?)
            cut data: tensor ffn: data ends at byte 520, but the file has 444 bytes (truncated download?)
            cut directory: tensor 1 of the directory: byte 308: a tensor's name needs 8 more bytes, but the file has 310 bytes in all (truncated download?)
        "#]],
    );
}

#[test]
fn duplicate_tensors() {
    let mut writer = Writer::new();
    writer.tensor("a", &[8], GgmlType::F32).unwrap();
    writer.tensor("b", &[8], GgmlType::F32).unwrap();
    let mut data = writer.start(Vec::new()).unwrap();
    data.write(&[0; 32]).unwrap();
    data.write(&[0; 32]).unwrap();
    let mut bytes = data.finish().unwrap();
    let at = find(&bytes, b"b");
    bytes[at] = b'a';
    let message = Gguf::from_bytes(bytes).err().expect("two tensors of one name").to_string();
    assert_eq!(message, "tensor a appears twice (again at byte 57)");
}

#[test]
fn missing_files_and_folders_are_errors() {
    let message = Gguf::open("no/such/model.gguf").err().expect("no file").to_string();
    assert_eq!(message, "cannot read no/such/model.gguf: No such file or directory (os error 2)");
    let message = Gguf::open(env!("CARGO_MANIFEST_DIR")).err().expect("a folder").to_string();
    assert!(message.ends_with("is a directory"), "{message}");
    #[cfg(unix)]
    {
        // Nothing writes to this pipe, so opening it would wait for ever.
        let pipe = std::env::temp_dir().join(format!("bespoke-gguf-pipe-{}", std::process::id()));
        assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
        let (sender, receiver) = std::sync::mpsc::channel();
        let opened = pipe.clone();
        std::thread::spawn(move || sender.send(Gguf::open(opened).err().expect("a pipe").to_string()));
        let message = receiver.recv_timeout(std::time::Duration::from_secs(20));
        std::fs::remove_file(&pipe).unwrap();
        let message = message.expect("it does not wait");
        assert!(message.contains("it is a pipe or a device"), "{message}");
    }
}

/// Opens a file of `bytes` and, if it is accepted, reads all metadata and data.
fn exercise(bytes: Vec<u8>) {
    let Ok(file) = Gguf::from_bytes(bytes) else { return };
    for (key, value) in file.metadata() {
        let _ = (format!("{value}"), file.str(key), file.u32(key), file.strings(key), file.f32s(key));
    }
    for info in file.tensors() {
        let mut out = vec![0.0; info.elements() as usize];
        let _ = dequantize(info.ty, &file.data(info).unwrap(), &mut out);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    /// A few bytes overwritten, and the file truncated.
    #[test]
    fn damage_never_panics(
        edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<prop::sample::Index>()),
    ) {
        let mut bytes = valid();
        for (index, byte) in edits {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        exercise(bytes);
    }

    /// Eight bytes replaced by an extreme number: a count, length, dimension or offset.
    #[test]
    fn extreme_numbers_never_panic(
        at in any::<prop::sample::Index>(),
        number in prop_oneof![Just(u64::MAX), Just(1 << 63), Just(1 << 62), Just(u64::from(u32::MAX)), 0..9u64],
    ) {
        let mut bytes = valid();
        let at = at.index(bytes.len() - 8);
        bytes[at..at + 8].copy_from_slice(&number.to_le_bytes());
        exercise(bytes);
    }
}
