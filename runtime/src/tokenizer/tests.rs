//! Hand-made vocabularies with ids that can be checked by hand.

use std::sync::LazyLock;

use bespoke_gguf::{Gguf, Writer};
use proptest::prelude::*;

use super::{Tokenizer, TokenizerError, byte_to_char};

const NORMAL: i32 = 1;
const UNKNOWN: i32 = 2;
const CONTROL: i32 = 3;
const USER_DEFINED: i32 = 4;
const BYTE: i32 = 6;

/// A file with only a tokenizer. `edit` may add keys.
fn file(model: &str, tokens: &[(String, i32)], edit: impl FnOnce(&mut Writer)) -> Gguf {
    let mut writer = Writer::new();
    writer.set("tokenizer.ggml.model", model).unwrap();
    let (texts, types): (Vec<&str>, Vec<i32>) = tokens.iter().map(|(text, ty)| (text.as_str(), *ty)).unzip();
    writer.set_array("tokenizer.ggml.tokens", &texts).unwrap();
    writer.set_array("tokenizer.ggml.token_type", &types).unwrap();
    edit(&mut writer);
    Gguf::from_bytes(writer.start(Vec::new()).unwrap().finish().unwrap()).unwrap()
}

/// Byte tokens with ids 0 to 255, then the tokens `more`.
fn byte_level(more: &[(&str, i32)]) -> Vec<(String, i32)> {
    let bytes = (0..=255).map(|byte| (byte_to_char(byte).to_string(), NORMAL));
    bytes.chain(more.iter().map(|(text, ty)| (text.to_string(), *ty))).collect()
}

/// Ids: h·e 256, l·l 257, he·ll 258, hell·o 259, Ġ·hello 260, <|end|> 261, <|keep|> 262.
fn hello(pre: &str) -> Tokenizer {
    let more = [
        ("he", NORMAL),
        ("ll", NORMAL),
        ("hell", NORMAL),
        ("hello", NORMAL),
        ("Ġhello", NORMAL),
        ("<|end|>", CONTROL),
        ("<|keep|>", USER_DEFINED),
    ];
    let file = file("gpt2", &byte_level(&more), |writer| {
        writer.set("tokenizer.ggml.pre", pre).unwrap();
        let merges = ["h e", "l l", "he ll", "hell o", "Ġ hello"];
        writer.set_array("tokenizer.ggml.merges", &merges).unwrap();
        writer.set("tokenizer.ggml.eos_token_id", 262u32).unwrap();
        writer.set("tokenizer.ggml.add_bos_token", false).unwrap();
    });
    Tokenizer::from_gguf(&file).unwrap()
}

/// `<unk>`, `<s>`, `</s>`, 256 byte tokens from id 3, then from id 259 the tokens `more` with falling scores.
fn sentence_piece(more: &[&str], edit: impl FnOnce(&mut Writer)) -> Gguf {
    let mut tokens = vec![("<unk>".to_string(), UNKNOWN), ("<s>".into(), CONTROL), ("</s>".into(), CONTROL)];
    tokens.extend((0..=255u8).map(|byte| (format!("<{byte:#04X}>"), BYTE)));
    tokens.extend(more.iter().map(|text| (text.to_string(), NORMAL)));
    let scores: Vec<f32> =
        (0..tokens.len()).map(|id| if id < 259 { 0.0 } else { 259.0 - id as f32 }).collect();
    file("llama", &tokens, |writer| {
        writer.set_array("tokenizer.ggml.scores", &scores).unwrap();
        writer.set("tokenizer.ggml.bos_token_id", 1u32).unwrap();
        writer.set("tokenizer.ggml.eos_token_id", 2u32).unwrap();
        edit(writer);
    })
}

const TEXTS: [&str; 10] = [
    "",
    "Hello, world!",
    "  two  spaces\tand a tab ",
    "naïve café, Zürich, Ærøskøbing",
    "日本語のテキスト、中文，한국어",
    "🦀🚀 family: 👨‍👩‍👧‍👦 flag: 🇩🇪",
    "line one\nline two\r\n\n\n  indented\n",
    "it's 3.14159, 1234567890 and 0xDEADBEEF; they'll've WE'RE",
    "fn main() { println!(\"{}\", a[i] += 1); } // αβγ ∑∫√",
    "control \u{0}\u{1}\u{7f} and \u{feff}marks",
];

#[test]
fn text_round_trips_through_sentence_piece() {
    let file = sentence_piece(&["▁", "l", "o", "lo", "▁lo", "日", "é"], |_| ());
    let tokenizer = Tokenizer::from_gguf(&file).unwrap();
    for text in TEXTS {
        assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()), text);
    }
}

#[test]
fn byte_level_merges_by_rank() {
    let tokenizer = hello("gpt-2");
    let a = b'a' as u32;
    let space = 32;
    for (text, ids) in [
        ("hello", vec![259]),
        ("hello hello", vec![259, 260]),
        ("hel", vec![256, b'l' as u32]),
        ("a  hello", vec![a, space, 260]),
        ("hello<|end|>a", vec![259, 261, a]),
        ("<|end", "<|end".bytes().map(u32::from).collect()),
        ("<|keep|><|keep|>", vec![262, 262]),
        ("é", vec![0xc3, 0xa9]),
    ] {
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
    }
    assert_eq!(tokenizer.decode(&[260, 261, 262, 999]), " hello<|keep|>");
    assert_eq!(tokenizer.token(260).as_deref(), Some("Ġhello"));
    assert_eq!(tokenizer.id("<|end|>"), Some(261));
    // Token 262 is declared as an end token; token 261 is an end token by its name.
    assert!(tokenizer.is_end(262) && tokenizer.is_end(261) && !tokenizer.is_end(260));
}

#[test]
fn digits_split_as_the_pattern_says() {
    let more: Vec<(&str, i32)> = ["12", "123", "1234", "45"].map(|text| (text, NORMAL)).to_vec();
    let ids = |pre: &str| {
        let file = file("gpt2", &byte_level(&more), |writer| {
            writer.set("tokenizer.ggml.pre", pre).unwrap();
            writer.set_array("tokenizer.ggml.merges", &["1 2", "12 3", "123 4", "4 5"]).unwrap();
            writer.set("tokenizer.ggml.add_bos_token", false).unwrap();
        });
        Tokenizer::from_gguf(&file).unwrap().encode("12345").unwrap()
    };
    let digits: Vec<u32> = b"12345".map(u32::from).to_vec();
    assert_eq!(ids("gpt-2"), [258, b'5' as u32], "any number of digits");
    assert_eq!(ids("llama-bpe"), [257, 259], "three digits at most");
    assert_eq!(ids("smaug-bpe"), [257, 259]);
    assert_eq!(ids("deepseek-v3"), [257, 259]);
    assert_eq!(ids("qwen2"), digits, "one digit");
    assert_eq!(ids("starcoder"), digits);
    assert_eq!(ids("tekken"), digits);
    assert_eq!(ids("of-the-future"), ids("gpt-2"), "an unknown pattern");
}

#[test]
fn every_pattern_round_trips() {
    for pre in ["default", "deepseek-coder", "deepseek-v3", "falcon", "tekken", "gpt-4o", "command-r", "dbrx"]
    {
        let tokenizer = hello(pre);
        for text in TEXTS {
            assert_eq!(tokenizer.decode(&tokenizer.encode(text).unwrap()), text, "{pre}");
        }
    }
}

#[test]
fn sentence_piece_merges_by_score() {
    // Ids from 259: ▁ a b ab ba ▁a
    let file = sentence_piece(&["▁", "a", "b", "ab", "ba", "▁a"], |_| ());
    let tokenizer = Tokenizer::from_gguf(&file).unwrap();
    for (text, ids) in [
        ("ab", vec![1, 259, 262]), // ab has a better score than ▁a
        ("ba", vec![1, 259, 263]),
        ("aab", vec![1, 264, 262]),
        ("a b", vec![1, 264, 259, 261]),
        ("é", vec![1, 259, 3 + 0xc3, 3 + 0xa9]),
        ("a</s>b", vec![1, 264, 2, 259, 261]),
        ("<0x41>", [1, 259].into_iter().chain("<0x41>".bytes().map(|byte| 3 + u32::from(byte))).collect()),
        ("<s>a", vec![1, 264]),
        ("", vec![1]),
    ] {
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
    }
    assert_eq!(tokenizer.bos(), Some(1));
    assert!(tokenizer.is_end(2) && !tokenizer.is_end(1));
}

#[test]
fn a_trained_vocabulary_encodes_like_sentence_piece() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tokenizer/fixtures/sentence_piece.gguf");
    let file = Gguf::open(path).unwrap();
    let tokenizer = Tokenizer::from_gguf(&file).unwrap();
    let ids = file.i32s("test.ids").unwrap();
    let mut rest = &ids[..];
    for (text, length) in
        file.strings("test.texts").unwrap().into_iter().zip(file.i32s("test.lengths").unwrap())
    {
        let (expected, more) = rest.split_at(length as usize);
        rest = more;
        let ours = tokenizer.encode(text).unwrap();
        assert!(
            ours.iter().map(|&id| id as i32).eq(expected.iter().copied()),
            "{text:?}: {ours:?} not {expected:?}"
        );
        assert_eq!(tokenizer.decode(&ours), text);
    }
    assert!(rest.is_empty());
}

#[test]
fn sentence_piece_without_space_prefix_or_bos() {
    let file = sentence_piece(&["▁", "a"], |writer| {
        writer.set("tokenizer.ggml.add_space_prefix", false).unwrap();
        writer.set("tokenizer.ggml.add_bos_token", false).unwrap();
    });
    let tokenizer = Tokenizer::from_gguf(&file).unwrap();
    assert_eq!(tokenizer.encode("a a").unwrap(), [260, 259, 260]);
    assert_eq!(tokenizer.decode(&[259, 260]), " a");
}

#[test]
fn streams_emit_complete_characters() {
    let tokenizer = hello("gpt-2");
    let stream = |ids: &[u32]| {
        let mut stream = tokenizer.decode_stream();
        let mut texts: Vec<String> = ids.iter().map(|&id| stream.push(id).to_string()).collect();
        texts.push(stream.finish());
        texts
    };
    let crab: Vec<u32> = "🦀".bytes().map(u32::from).collect();
    assert_eq!(stream(&crab), ["", "", "", "🦀", ""]);
    assert_eq!(stream(&[259, 0xc3, 0xa9, 261]), ["hello", "", "é", "", ""], "control tokens are no text");
    assert_eq!(stream(&[0xf0, 0x9f, 259]), ["", "", "\u{fffd}hello", ""], "a character that breaks off");
    assert_eq!(stream(&[0xff, 259]), ["\u{fffd}", "hello", ""], "a byte of no character");
    assert_eq!(stream(&[259, 0xe6, 0x97]), ["hello", "", "", "\u{fffd}"], "a character that never ends");
    assert_eq!(stream(&[0xc3, 0xc3, 0xa9]), ["", "\u{fffd}", "é", ""]);
}

#[test]
fn inconsistent_vocabularies_are_errors() {
    let message =
        |file: Gguf| Tokenizer::from_gguf(&file).err().map(|error: TokenizerError| error.to_string());
    let gpt2 = |more: &[(&str, i32)], merges: &[&str]| {
        file("gpt2", &byte_level(more), |writer| {
            writer.set("tokenizer.ggml.pre", "gpt-2").unwrap();
            writer.set_array("tokenizer.ggml.merges", merges).unwrap();
        })
    };
    let table = [
        (
            Gguf::from_bytes(Writer::new().start(Vec::new()).unwrap().finish().unwrap()).unwrap(),
            "metadata key tokenizer.ggml.tokens is missing",
        ),
        (
            file("bert", &byte_level(&[]), |_| ()),
            "tokenizer.ggml.model `bert` is not supported (`gpt2` and `llama` are)",
        ),
        (file("gpt2", &byte_level(&[]), |_| ()), "metadata key tokenizer.ggml.merges is missing"),
        (gpt2(&[("a", NORMAL)], &["a b"]), "tokens 97 and 256 are both `a`"),
        (gpt2(&[], &["a b"]), "merge 0, `a b`, needs a token `ab`, which is not in the vocabulary"),
        (gpt2(&[("ab", NORMAL)], &["a b", "ab"]), "merge 1, `ab`, has no space between two tokens"),
        (
            file("gpt2", &[("a".into(), NORMAL), ("b".into(), NORMAL), ("ab".into(), NORMAL)], |writer| {
                writer.set_array("tokenizer.ggml.merges", &["a b"]).unwrap();
            }),
            "no token stands for the byte 0x00: not every text can be encoded",
        ),
        (
            file("llama", &[("a".into(), NORMAL)], |writer| {
                writer.set_array("tokenizer.ggml.scores", &[0.0f32, 1.0]).unwrap();
            }),
            "tokenizer.ggml.scores has 2 entries for 1 tokens",
        ),
        (
            file("llama", &[("a".into(), NORMAL)], |writer| {
                writer.set_array("tokenizer.ggml.scores", &[0.0f32]).unwrap();
            }),
            "the file asks for a beginning-of-sequence token but has no tokenizer.ggml.bos_token_id",
        ),
        (
            file("llama", &[("a".into(), NORMAL)], |writer| {
                writer.set_array("tokenizer.ggml.scores", &[0.0f32]).unwrap();
                writer.set("tokenizer.ggml.bos_token_id", 7u32).unwrap();
            }),
            "tokenizer.ggml.bos_token_id is 7, but there are 1 tokens",
        ),
    ];
    for (file, expected) in table {
        assert_eq!(message(file).as_deref(), Some(expected));
    }
}

/// Tokenizers with different pre-tokenisation patterns, and one without.
static SEVERAL: LazyLock<Vec<Tokenizer>> = LazyLock::new(|| {
    let sentence_piece = Tokenizer::from_gguf(&sentence_piece(&["▁", "a", "▁a", "é", "日"], |_| ())).unwrap();
    ["gpt-2", "llama-bpe", "qwen2", "tekken", "default"]
        .map(hello)
        .into_iter()
        .chain([sentence_piece])
        .collect()
});

proptest! {
    #[test]
    fn any_text_round_trips(text in any::<String>()) {
        for tokenizer in SEVERAL.iter() {
            let ids = tokenizer.encode(&text).unwrap();
            prop_assert_eq!(&tokenizer.decode(&ids), &text);
        }
    }

    #[test]
    fn a_stream_decodes_like_decode(ids in prop::collection::vec(0..270u32, 0..40)) {
        let tokenizer = &SEVERAL[0];
        let mut stream = tokenizer.decode_stream();
        let mut text: String = ids.iter().map(|&id| stream.push(id).to_string()).collect();
        text += &stream.finish();
        prop_assert_eq!(text, tokenizer.decode(&ids));
    }
}
