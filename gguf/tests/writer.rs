//! Written files read back; misuse of the writer is an error.

use bespoke_gguf::{GgmlType, Gguf, Value, Writer};

#[test]
fn pieces_of_any_size_make_the_same_file() {
    let write = |piece: usize| {
        let mut writer = Writer::new();
        writer.set("general.name", "pieces").unwrap();
        writer.set_array("ids", &[1i32, -2]).unwrap();
        writer.tensor("a", &[5], GgmlType::F32).unwrap();
        writer.tensor("b", &[32, 3], GgmlType::Q4_0).unwrap();
        let expected_len = writer.file_bytes();
        let mut data = writer.start(Vec::new()).unwrap();
        for tensor in [&[1u8; 20][..], &[2u8; 54]] {
            tensor.chunks(piece).for_each(|chunk| data.write(chunk).unwrap());
        }
        let bytes = data.finish().unwrap();
        assert_eq!(bytes.len() as u64, expected_len);
        bytes
    };
    let whole = write(1000);
    assert_eq!(write(1), whole);
    assert_eq!(write(7), whole);

    let file = Gguf::from_bytes(whole).unwrap();
    assert_eq!(file.get("general.name"), Some(Value::String("pieces")));
    assert_eq!(file.i32s("ids").unwrap(), [1, -2]);
    assert_eq!(*file.data(file.require("a").unwrap()).unwrap(), [1; 20]);
    assert_eq!(*file.data(file.require("b").unwrap()).unwrap(), [2; 54]);
}

#[test]
fn misuse_is_an_error() {
    let mut writer = Writer::new();
    writer.set("k", 1u32).unwrap();
    assert!(writer.set("k", 2u32).unwrap_err().to_string().starts_with("metadata key k appears twice"));
    writer.tensor("a", &[4], GgmlType::F32).unwrap();
    assert!(
        writer
            .tensor("a", &[4], GgmlType::F32)
            .unwrap_err()
            .to_string()
            .starts_with("tensor a appears twice")
    );
    let partial = writer.tensor("b", &[31], GgmlType::Q8_0).unwrap_err().to_string();
    assert_eq!(
        partial,
        "tensor b: rows of 31 elements are not a whole number of Q8_0 blocks, which have 32 elements"
    );

    let mut data = writer.start(Vec::new()).unwrap();
    assert_eq!(data.write(&[0; 17]).unwrap_err().to_string(), "a: 17 bytes of data, but only 16 are missing");
    data.write(&[0; 10]).unwrap();
    assert_eq!(data.finish().unwrap_err().to_string(), "a: 6 bytes of data are missing");
}
