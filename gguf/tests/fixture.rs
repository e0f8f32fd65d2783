//! Values of a file written by the `gguf` Python package, compared with the package's own.

use bespoke_gguf::{GgmlType, Gguf, Value, dequantize};

fn fixture() -> Gguf {
    Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/blocks.gguf")).expect("the fixture opens")
}

#[test]
fn every_type_has_the_values_of_the_reference() {
    use GgmlType::*;
    let file = fixture();
    let types =
        [F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, MXFP4];
    for ty in types {
        let name = ty.name().to_lowercase();
        let info = file.require(&name).unwrap();
        assert_eq!((info.ty, info.cols(), info.rows()), (ty, 512, 2));
        let mut ours = vec![0.0; info.elements() as usize];
        dequantize(ty, &file.data(info).unwrap(), &mut ours).unwrap();

        let mut reference = vec![0.0; ours.len()];
        let info = file.require(&format!("{name}.values")).unwrap();
        dequantize(F32, &file.data(info).unwrap(), &mut reference).unwrap();
        let differs = (0..ours.len()).find(|&i| ours[i].to_bits() != reference[i].to_bits());
        if let Some(i) = differs {
            panic!("{ty} element {i}: ours {} reference {}", ours[i], reference[i]);
        }
    }
}

#[test]
fn every_kind_of_metadata_reads_back() {
    let file = fixture();
    let expected = [
        ("uint8", Value::U8(200)),
        ("int8", Value::I8(-100)),
        ("uint16", Value::U16(60000)),
        ("int16", Value::I16(-30000)),
        ("uint32", Value::U32(4_000_000_000)),
        ("int32", Value::I32(-2_000_000_000)),
        ("uint64", Value::U64(1 << 63)),
        ("int64", Value::I64(-(1 << 62))),
        ("float32", Value::F32(0.1)),
        ("float64", Value::F64(0.1)),
        ("bool", Value::Bool(true)),
        ("string", Value::String("grüße ▁ 🦀")),
    ];
    for (kind, value) in expected {
        assert_eq!(file.get(&format!("kind.{kind}")), Some(value));
    }
    assert_eq!(file.architecture().unwrap(), "fixture");
    assert_eq!(file.strings("array.string").unwrap(), ["", "a", "▁b"]);
    assert_eq!(file.i32s("array.int32").unwrap(), [-1, 0, 1]);
    assert_eq!(file.f32s("array.float32").unwrap(), [0.5, -2.0]);
    let Some(Value::Array(bools)) = file.get("array.bool") else { panic!("no array") };
    assert_eq!(bools.iter().collect::<Vec<_>>(), [Value::Bool(true), Value::Bool(false)]);
}

#[test]
fn getters_name_the_key_and_the_found_value() {
    let file = fixture();
    let messages = [
        file.str("no.such.key").unwrap_err(),
        file.str("kind.uint8").unwrap_err(),
        file.u32("kind.int8").unwrap_err(),
        file.f32("kind.string").unwrap_err(),
        file.strings("array.int32").unwrap_err(),
        file.require("blk.0.attn_q.weight").unwrap_err(),
    ]
    .map(|error| error.to_string());
    assert_eq!(
        messages,
        [
            "metadata key no.such.key is missing",
            "metadata key kind.uint8: expected a string, found the u8 200",
            "metadata key kind.int8: expected an unsigned 32-bit integer, found the i8 -100",
            "metadata key kind.string: expected a float, found a string",
            "metadata key array.int32: expected an array of strings, found an array of 3 i32s",
            "tensor blk.0.attn_q.weight is missing",
        ]
    );
    assert_eq!(file.opt_u32("no.such.key").unwrap(), None);
    assert!(file.opt_u32("kind.string").is_err());
}

#[test]
fn wrong_lengths_and_unsupported_types_are_errors() {
    let mut out = [0.0; 256];
    let message =
        |ty, bytes: usize, out: &mut [f32]| dequantize(ty, &vec![0; bytes], out).unwrap_err().to_string();
    assert_eq!(message(GgmlType::Q4_K, 143, &mut out), "143 bytes of Q4_K do not have 256 elements");
    assert_eq!(message(GgmlType::Q4_K, 144, &mut out[..32]), "144 bytes of Q4_K do not have 32 elements");
    assert_eq!(message(GgmlType::IQ3_S, 110, &mut out), "dequantising IQ3_S is not supported");
}
