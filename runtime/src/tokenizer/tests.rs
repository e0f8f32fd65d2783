//! Hand-made vocabularies with ids that can be checked by hand.

use std::sync::LazyLock;

use bespoke_gguf::{Gguf, Writer};
use proptest::prelude::*;

use super::{EncodeOptions, STRIP_KEYS, Tokenizer, TokenizerError, byte_to_char};

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
    assert_eq!(tokenizer.decode(&[260, 261, 262, 999]), " hello<|keep|>[token 999]");
    assert_eq!(tokenizer.token(260), Some("Ġhello"));
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

/// `tests/references/tokenizer_ids.py --make-fixture` wrote the file: a vocabulary whose merges cross all boundaries, texts,
/// and for each pre-tokenizer the ids of an independent splitting with Hugging Face's BPE.
#[test]
fn every_pre_tokenizer_encodes_like_the_published_one() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/src/tokenizer/fixtures/byte_level.gguf");
    let fixture = Gguf::open(path).unwrap();
    let lengths = fixture.i32s("test.lengths").unwrap();
    let ids = fixture.i32s("test.ids").unwrap();
    let mut rest = &ids[..];
    let stored: Vec<&[i32]> = lengths
        .iter()
        .map(|&length| {
            let (list, more) = rest.split_at(length as usize);
            rest = more;
            list
        })
        .collect();
    let texts = fixture.strings("test.texts").unwrap();
    let index = fixture.i32s("test.index").unwrap();
    let names = fixture.strings("test.pre").unwrap();
    assert_eq!(index.len(), names.len() * texts.len());
    for (pre, row) in names.iter().zip(index.chunks(texts.len())) {
        let mut writer = Writer::new();
        for key in ["model", "tokens", "token_type", "merges", "bos_token_id", "add_bos_token"] {
            writer.copy(&fixture, &format!("tokenizer.ggml.{key}")).unwrap();
        }
        writer.set("tokenizer.ggml.pre", *pre).unwrap();
        let file = Gguf::from_bytes(writer.start(Vec::new()).unwrap().finish().unwrap()).unwrap();
        let tokenizer = Tokenizer::from_gguf(&file).unwrap();
        for (text, &at) in texts.iter().zip(row) {
            let ours = tokenizer.encode(text).unwrap();
            let expected = stored[at as usize];
            assert!(
                ours.iter().map(|&id| id as i32).eq(expected.iter().copied()),
                "{pre} {text:?}: {ours:?} not {expected:?}"
            );
        }
    }
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

/// A file with byte tokens, the tokens `more` and these merges.
fn gpt2(more: &[(&str, i32)], merges: &[&str], edit: impl FnOnce(&mut Writer)) -> Gguf {
    file("gpt2", &byte_level(more), |writer| {
        writer.set("tokenizer.ggml.pre", "gpt-2").unwrap();
        writer.set_array("tokenizer.ggml.merges", merges).unwrap();
        edit(writer);
    })
}

/// A `llama` file with the token `a` and this score.
fn one_token(score: f32, edit: impl FnOnce(&mut Writer)) -> Gguf {
    file("llama", &[("a".into(), NORMAL)], |writer| {
        writer.set_array("tokenizer.ggml.scores", &[score]).unwrap();
        edit(writer);
    })
}

#[test]
fn inconsistent_vocabularies_are_errors() {
    let message =
        |file: Gguf| Tokenizer::from_gguf(&file).err().map(|error: TokenizerError| error.to_string());
    let table = [
        (
            Gguf::from_bytes(Writer::new().start(Vec::new()).unwrap().finish().unwrap()).unwrap(),
            "metadata key tokenizer.ggml.model is missing",
        ),
        (
            file("bert", &byte_level(&[]), |_| ()),
            "tokenizer.ggml.model `bert`, WordPiece, is not supported (`gpt2`, byte-level BPE, `llama`, \
             SentencePiece's BPE, and `gemma4` are)",
        ),
        (
            file("mine", &byte_level(&[]), |_| ()),
            "tokenizer.ggml.model `mine` is not supported (`gpt2`, byte-level BPE, `llama`, SentencePiece's BPE, and \
             `gemma4` are)",
        ),
        (file("gpt2", &[], |_| ()), "tokenizer.ggml.tokens is empty"),
        (file("gpt2", &byte_level(&[]), |_| ()), "metadata key tokenizer.ggml.merges is missing"),
        (
            gpt2(&[], &["a b"], |_| ()),
            "tokenizer.ggml.merges[0], `a b`, needs a token `ab`, which is not in the vocabulary",
        ),
        (
            gpt2(&[("ab", NORMAL)], &["a b", "ab"], |_| ()),
            "tokenizer.ggml.merges[1], `ab`, has no space between two tokens",
        ),
        (
            gpt2(&[("", NORMAL)], &[""], |_| ()),
            "tokenizer.ggml.merges[0], ``, has no space between two tokens",
        ),
        (
            gpt2(&[("x".repeat(20_000).as_str(), NORMAL)], &[], |_| ()),
            "tokenizer.ggml.tokens[256] has 20000 bytes; a token has at most 16384",
        ),
        (
            gpt2(&[("c1", 7)], &[], |_| ()),
            "tokenizer.ggml.token_type[256] is 7, which is not a type of token (0 to 6 are)",
        ),
        (
            gpt2(&[], &[], |writer| writer.set("tokenizer.ggml.eos_token_id", -1i32).unwrap()),
            "metadata key tokenizer.ggml.eos_token_id: expected an unsigned 32-bit integer, found the i32 -1",
        ),
        (
            gpt2(&[], &[], |writer| writer.set("tokenizer.ggml.add_eos_token", true).unwrap()),
            "the file asks for an end-of-sequence token (tokenizer.ggml.add_eos_token) but has no tokenizer.ggml.eos_token_id",
        ),
        (
            file("llama", &[("a".into(), NORMAL)], |writer| {
                writer.set_array("tokenizer.ggml.scores", &[0.0f32, 1.0]).unwrap();
            }),
            "tokenizer.ggml.scores has 2 entries for 1 tokens",
        ),
        (one_token(f32::NAN, |_| ()), "tokenizer.ggml.scores[0] is not a number"),
        (
            one_token(0.0, |_| ()),
            "the file asks for a beginning-of-sequence token (tokenizer.ggml.add_bos_token) but has no tokenizer.ggml.bos_token_id",
        ),
        (
            one_token(0.0, |writer| writer.set("tokenizer.ggml.bos_token_id", 7u32).unwrap()),
            "tokenizer.ggml.bos_token_id is 7, but there are 1 tokens",
        ),
    ];
    for (file, expected) in table {
        assert_eq!(message(file).as_deref(), Some(expected));
    }
    for (key, value) in [("tokens", 7u32), ("token_type", 7), ("merges", 7), ("model", 7), ("pre", 7)] {
        let mut writer = Writer::new();
        let key = format!("tokenizer.ggml.{key}");
        writer.set(&key, value).unwrap();
        let strings = [("model", "gpt2"), ("pre", "gpt-2")];
        for (other, value) in strings.map(|(other, value)| (format!("tokenizer.ggml.{other}"), value)) {
            if other != key {
                writer.set(&other, value).unwrap();
            }
        }
        for other in ["tokens", "merges"].map(|other| format!("tokenizer.ggml.{other}")) {
            if other != key {
                writer.set_array(&other, &["a"]).unwrap();
            }
        }
        let found = message(Gguf::from_bytes(writer.start(Vec::new()).unwrap().finish().unwrap()).unwrap());
        let found = found.unwrap();
        assert!(found.starts_with(&format!("metadata key {key}: expected ")), "{found}");
    }
    let unknown = message(file("gpt2", &byte_level(&[]), |writer| {
        writer.set("tokenizer.ggml.pre", "no-such").unwrap();
    }));
    let unknown = unknown.unwrap();
    assert!(unknown.starts_with("tokenizer.ggml.pre `no-such` is not supported: "), "{unknown}");
    assert!(unknown.contains("llama-bpe, llama3"), "{unknown}");
}

#[test]
fn a_byte_without_a_token_is_left_out_and_separates() {
    // Ids: a 0, b 1, ab 2.
    let tokens = ["a", "b", "ab"].map(|token| (token.to_string(), NORMAL));
    let file = file("gpt2", &tokens, |writer| {
        writer.set("tokenizer.ggml.pre", "gpt-2").unwrap();
        writer.set_array("tokenizer.ggml.merges", &["a b"]).unwrap();
    });
    let tokenizer = Tokenizer::from_gguf(&file).unwrap();
    for (text, ids) in [("ab", vec![2]), ("a\u{4}b", vec![0, 1]), ("éab", vec![2]), ("!a!b", vec![0, 1])] {
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
    }
}

#[test]
fn of_equal_tokens_the_first_is_used() {
    let file =
        gpt2(&[("he", NORMAL), ("he", NORMAL), ("<|x|>", CONTROL), ("<|x|>", CONTROL)], &["h e"], |_| ());
    let tokenizer = Tokenizer::from_gguf(&file).unwrap();
    assert_eq!(tokenizer.encode("he<|x|>").unwrap(), [256, 258]);
    assert_eq!(tokenizer.decode(&[257]), "he");
}

#[test]
fn a_character_without_byte_tokens_is_unknown() {
    // Ids: <unk> 0, ▁ 1, a 2, <0x21> 3.
    let tokens = [("<unk>", UNKNOWN), ("▁", NORMAL), ("a", NORMAL), ("<0x21>", BYTE)];
    let file = file("llama", &tokens.map(|(token, ty)| (token.to_string(), ty)), |writer| {
        writer.set_array("tokenizer.ggml.scores", &[0.0f32; 4]).unwrap();
        writer.set("tokenizer.ggml.add_bos_token", false).unwrap();
    });
    let tokenizer = Tokenizer::from_gguf(&file).unwrap();
    for (text, ids) in [("a!", vec![1, 2, 3]), ("éàa", vec![1, 0, 2]), ("é!é", vec![1, 0, 3, 0])] {
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
    }
}

#[test]
fn of_equal_scores_the_leftmost_pair_is_merged() {
    // Ids: a 0, aa 1, aaa 2.
    let tokens = ["a", "aa", "aaa"].map(|token| (token.to_string(), NORMAL));
    let file = file("llama", &tokens, |writer| {
        writer.set_array("tokenizer.ggml.scores", &[-1.0f32; 3]).unwrap();
        writer.set("tokenizer.ggml.add_space_prefix", false).unwrap();
        writer.set("tokenizer.ggml.add_bos_token", false).unwrap();
    });
    let tokenizer = Tokenizer::from_gguf(&file).unwrap();
    assert_eq!(tokenizer.encode("aaaa").unwrap(), [2, 0]);
    assert_eq!(tokenizer.encode("aaaaa").unwrap(), [2, 1]);
}

#[test]
fn tokens_that_contain_each_other_take_bounded_time() {
    let tokens: Vec<(String, i32)> = (1..=256).map(|count| ("a".repeat(count), NORMAL)).collect();
    let scores: Vec<f32> = (0..256).map(|score| score as f32).collect();
    let file = file("llama", &tokens, |writer| {
        writer.set_array("tokenizer.ggml.scores", &scores).unwrap();
        writer.set("tokenizer.ggml.add_space_prefix", false).unwrap();
        writer.set("tokenizer.ggml.add_bos_token", false).unwrap();
    });
    let tokenizer = Tokenizer::from_gguf(&file).unwrap();
    let ids = tokenizer.encode(&"a".repeat(1 << 16)).unwrap();
    assert_eq!(ids, vec![255; 256]);
}

#[test]
fn user_defined_tokens_are_matched_and_control_tokens_only_if_asked() {
    let tokenizer = hello("gpt-2");
    let plain = EncodeOptions { special: false, ..EncodeOptions::default() };
    let end: Vec<u32> = "<|end|>".bytes().map(u32::from).collect();
    assert_eq!(tokenizer.encode_with("<|end|><|keep|>", plain).unwrap(), [&end[..], &[262]].concat());
}

#[test]
fn beginning_and_end_tokens_are_added_as_the_file_and_the_caller_ask() {
    let file =
        sentence_piece(&["▁", "a"], |writer| writer.set("tokenizer.ggml.add_eos_token", true).unwrap());
    let tokenizer = Tokenizer::from_gguf(&file).unwrap();
    let table = [
        (true, true, vec![1, 259, 260, 2]),
        (true, false, vec![1, 259, 260]),
        (false, false, vec![259, 260]),
    ];
    for (bos, eos, ids) in table {
        let options = EncodeOptions { bos, eos, ..EncodeOptions::default() };
        assert_eq!(tokenizer.encode_with("a", options).unwrap(), ids);
    }
}

#[test]
fn white_space_after_a_special_token_of_phi3_belongs_to_it() {
    let file =
        sentence_piece(&["▁", "a", "\n"], |writer| writer.set("general.architecture", "phi3").unwrap());
    let tokenizer = Tokenizer::from_gguf(&file).unwrap();
    assert_eq!(tokenizer.encode("</s>\n a").unwrap(), [1, 2, 259, 260]);
    assert_eq!(tokenizer.encode("<s>\n").unwrap(), [1, 259, 261], "`<s>` keeps it");
}

#[test]
fn white_space_beside_a_token_of_a_folder_belongs_to_it() {
    let marks = [("<l>", USER_DEFINED), ("<r>", USER_DEFINED), ("<lr>", CONTROL)];
    let file = gpt2(&marks, &[], |writer| {
        writer.set_array(STRIP_KEYS[0], &[256i32, 258]).unwrap();
        writer.set_array(STRIP_KEYS[1], &[257i32, 258]).unwrap();
    });
    let tokenizer = Tokenizer::from_gguf(&file).unwrap();
    let [a, b, space] = [b'a', b'b', b' '].map(u32::from);
    for (text, ids) in [
        ("a  <l> b", vec![a, 256, space, b]),
        ("a <r>\n\u{3000}b", vec![a, space, 257, b]),
        ("a <lr> b", vec![a, 258, b]),
        ("<r>  <l>", vec![257, 256]),
        (" <lr> ", vec![258]),
    ] {
        assert_eq!(tokenizer.encode(text).unwrap(), ids, "{text:?}");
    }
}

#[test]
fn gemma4_merges_text_in_which_spaces_are_marks() {
    // Ids: ▁ 0, a 1, ▁a 2, \n 3, \n\n 4, <0xC3> 5, <0xA9> 6, <bos> 7.
    let tokens = ["▁", "a", "▁a", "\n", "\n\n", "<0xC3>", "<0xA9>"].map(|token| (token.to_string(), NORMAL));
    let tokens: Vec<_> = tokens.into_iter().chain([("<bos>".to_string(), CONTROL)]).collect();
    let file = file("gemma4", &tokens, |writer| {
        writer.set_array("tokenizer.ggml.merges", &["▁ a"]).unwrap();
        writer.set("tokenizer.ggml.bos_token_id", 7u32).unwrap();
        writer.set("tokenizer.ggml.add_bos_token", false).unwrap();
    });
    let tokenizer = Tokenizer::from_gguf(&file).unwrap();
    assert_eq!(tokenizer.encode("a a  é\n\n\n").unwrap(), [7, 1, 2, 0, 0, 5, 6, 3, 3, 3]);
    assert_eq!(tokenizer.encode("\n\na").unwrap(), [7, 4, 1]);
    assert_eq!(tokenizer.decode(&[7, 1, 2, 5, 6, 4]), "a aé\n\n");
}

/// Vocabularies by the names of the tokens after the byte tokens, their type, and the names of those that end a
/// generation.
#[test]
fn end_tokens_are_known_by_name() {
    let table: [(&[&str], i32, &[&str]); 11] = [
        (&["<|im_start|>", "<|im_end|>", "<|endoftext|>"], CONTROL, &["<|im_end|>", "<|endoftext|>"]),
        (&["<|end|>", "<|return|>", "<|call|>"], CONTROL, &["<|return|>", "<|call|>"]),
        (&["<bos>", "<eos>", "<end_of_turn>"], NORMAL, &["<eos>", "<end_of_turn>"]),
        (&["<eos>", "</s>", "<end_of_turn>"], USER_DEFINED, &["<eos>", "<end_of_turn>"]),
        (&["</s>"], CONTROL, &["</s>"]),
        (&["</s>"], USER_DEFINED, &["</s>"]),
        (&["</s>"], NORMAL, &[]),
        (&["<fim_prefix>"], NORMAL, &[]),
        (&["</s>", "<|plamo:eos|>"], USER_DEFINED, &[]),
        (&["<PAD>", "[PAD]", "<fim-repo>"], NORMAL, &["<PAD>", "[PAD]", "<fim-repo>"]),
        (&["<REPO>", "<reponame>", "<|prefix|>"], USER_DEFINED, &["<REPO>", "<reponame>"]),
    ];
    for (names, ty, expected) in table {
        let tokens: Vec<(&str, i32)> = names.iter().map(|&name| (name, ty)).collect();
        let tokenizer = Tokenizer::from_gguf(&gpt2(&tokens, &[], |_| ())).unwrap();
        let found: Vec<&str> =
            tokenizer.end_tokens().iter().map(|&id| tokenizer.token(id).unwrap()).collect();
        assert_eq!(found, expected, "{names:?}");
        for (id, name) in (256..).zip(names) {
            // Ends are marks: no text, and one token in a prompt. Other tokens keep their types.
            let is_text = ty != CONTROL && !expected.contains(name) && !name.ends_with("fix|>");
            assert_eq!(tokenizer.decode(&[id]), if is_text { *name } else { "" });
            let ids = tokenizer.encode(name).unwrap();
            assert_eq!(ids == [id], ty != NORMAL || !is_text, "{name}: {ids:?}");
        }
    }
}

#[test]
fn end_tokens_are_known_by_key() {
    let ends =
        |edit: fn(&mut Writer)| Tokenizer::from_gguf(&gpt2(&[], &[], edit)).unwrap().end_tokens().to_vec();
    assert!(ends(|_| ()).is_empty());
    assert_eq!(ends(|writer| writer.set("tokenizer.ggml.eot_token_id", 7u32).unwrap()), [7]);
    // Ollama's files.
    let list = |writer: &mut Writer| {
        writer.set_array("tokenizer.ggml.eos_token_ids", &[9i32, 7, -1, 256]).unwrap();
    };
    assert_eq!(ends(list), [7, 9]);
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
        for (index, tokenizer) in SEVERAL.iter().enumerate() {
            let ids = tokenizer.encode(&text).unwrap();
            // SentencePiece marks spaces by `▁`, so it cannot tell one from the other.
            let expected = if index + 1 == SEVERAL.len() { text.replace('▁', " ") } else { text.clone() };
            prop_assert_eq!(tokenizer.decode(&ids), expected);
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

#[test]
fn ids_outside_the_vocabulary_are_shown() {
    let tokenizer = hello("gpt-2");
    assert_eq!(tokenizer.decode(&[259, 263, 261, 260]), "hello[token 263] hello");
    let mut stream = tokenizer.decode_stream();
    assert_eq!(
        [259, u32::MAX, 260].map(|id| stream.push(id).to_owned()),
        ["hello", "[token 4294967295]", " hello"]
    );
}

/// Keys that change how text is encoded, or which tokens are chosen, are refused by name.
#[test]
fn keys_of_the_tokenizer_are_not_ignored() {
    let error = |edit: fn(&mut Writer)| {
        Tokenizer::from_gguf(&gpt2(&[], &[], edit)).err().map(|error| error.to_string())
    };
    for edit in [
        (|writer| writer.set("tokenizer.ggml.padding_token_id", 0u32).unwrap()) as fn(&mut Writer),
        |writer| writer.set("tokenizer.ggml.normalizer.lowercase", false).unwrap(),
        |writer| writer.set_array::<i32>("tokenizer.ggml.suppress_tokens", &[]).unwrap(),
        |writer| writer.set("tokenizer.huggingface.json", "{}").unwrap(),
        |writer| writer.set("tokenizer.ggml.reverse_text", true).unwrap(),
    ] {
        assert_eq!(error(edit), None);
    }
    for (edit, key) in [
        (
            (|writer| writer.set("tokenizer.ggml.normalizer.lowercase", true).unwrap()) as fn(&mut Writer),
            "normalizer.lowercase",
        ),
        (|writer| writer.set_array("tokenizer.ggml.suppress_tokens", &[1]).unwrap(), "suppress_tokens"),
    ] {
        let expected = format!("metadata key tokenizer.ggml.{key} is not supported: ");
        assert!(error(edit).is_some_and(|error| error.starts_with(&expected)), "{key}");
    }
}

#[test]
fn declared_ends_do_not_need_a_tokenizer() {
    let file = file("bert", &[("a".into(), NORMAL)], |writer| {
        writer.set("tokenizer.ggml.eos_token_id", 7u32).unwrap();
        writer.set("tokenizer.ggml.eot_token_id", 3u32).unwrap();
        writer.set("tokenizer.ggml.eom_token_id", 100u32).unwrap();
        writer.set("tokenizer.ggml.fim_pad_token_id", "x").unwrap();
    });
    assert_eq!(super::declared_end_tokens(&file, 100), [3, 7]);
}
