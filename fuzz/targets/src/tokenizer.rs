//! Tokenizers: hostile metadata, then text to ids and back.
//!
//! Properties: ids are in the vocabulary; decoding token by token and at once gives the same text, and a vocabulary
//! with a token for every byte gives back the text itself.

use arbitrary::{Arbitrary, Unstructured};
use bespoke::tokenizer::{EncodeOptions, Tokenizer};
use bespoke_gguf::{GgmlType, Gguf, Writer};

/// Metadata of a tokenizer, and a text.
#[derive(Arbitrary)]
struct Input<'a> {
    model: Model,
    pre: Option<u8>,
    /// Whether the vocabulary begins with a token for each byte.
    bytes: bool,
    tokens: Vec<&'a str>,
    types: Vec<u8>,
    scores: Option<Vec<f32>>,
    /// Pairs of token numbers, or texts.
    merges: Vec<Merge<'a>>,
    bos: Option<u16>,
    eos: Option<u16>,
    unknown: Option<u16>,
    add_bos: Option<bool>,
    add_eos: Option<bool>,
    space_prefix: Option<bool>,
    special: bool,
    ids: Vec<u16>,
    text: &'a str,
}

#[derive(Arbitrary)]
enum Model {
    Bpe,
    Scores,
    Gemma4,
}

#[derive(Arbitrary)]
enum Merge<'a> {
    /// Both parts by their numbers; the vocabulary gets the joined token.
    Tokens(u8, u8),
    /// The text of the merge.
    Text(&'a str),
}

/// Names of pre-tokenizers; an unknown one is the last.
const PRE: [&str; 8] =
    ["default", "llama-bpe", "qwen2", "gpt-2", "smollm", "dbrx", "tekken", "none of these"];

pub fn run(data: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let Some(file) = file(&input) else { return };
    let tokenizer = match Tokenizer::from_gguf(&file) {
        Ok(tokenizer) => tokenizer,
        Err(error) => return drop(error.to_string()),
    };
    assert!(!tokenizer.is_empty());
    let options = EncodeOptions { bos: false, eos: false, special: input.special };
    match tokenizer.encode_with(input.text, options) {
        Ok(ids) => {
            assert!(ids.iter().all(|&id| (id as usize) < tokenizer.len()), "an id outside the vocabulary");
            decoded(&tokenizer, &ids);
            let plain = !input.special && matches!(input.model, Model::Bpe) && input.bytes;
            // A token of another type than byte or text may have no text.
            if plain && input.types.is_empty() {
                assert_eq!(tokenizer.decode(&ids), input.text);
            }
        }
        Err(error) => drop(error.to_string()),
    }
    let ids: Vec<u32> = input.ids.iter().map(|&id| id.into()).collect();
    decoded(&tokenizer, &ids);
    drop(tokenizer.encode(input.text).map_err(|error| error.to_string()));
}

/// Decodes at once and one by one.
fn decoded(tokenizer: &Tokenizer, ids: &[u32]) {
    let mut stream = tokenizer.decode_stream();
    let mut text: String = ids.iter().map(|&id| stream.push(id).to_owned()).collect();
    text += &stream.finish();
    let whole = tokenizer.decode(ids);
    // At the start of a text, the space that encoding adds is removed.
    assert!(text == whole || text.strip_prefix(' ') == Some(&whole), "{text:?} and {whole:?}");
}

/// A file with the metadata; none if a key has no value that a file can hold.
fn file(input: &Input<'_>) -> Option<Gguf> {
    let mut header = Writer::new();
    let model = match input.model {
        Model::Bpe => "gpt2",
        Model::Scores => "llama",
        Model::Gemma4 => "gemma4",
    };
    header.set("general.architecture", "llama").ok()?;
    header.set("tokenizer.ggml.model", model).ok()?;
    if let Some(pre) = input.pre {
        header.set("tokenizer.ggml.pre", PRE[pre as usize % PRE.len()]).ok()?;
    }
    let mut tokens: Vec<String> = Vec::new();
    let mut types: Vec<i32> = Vec::new();
    if input.bytes {
        let byte_name = |byte: u8| match input.model {
            Model::Bpe => bespoke::tokenizer::byte_to_char(byte).to_string(),
            _ => format!("<0x{byte:02X}>"),
        };
        tokens.extend((0..=255).map(byte_name));
        types.resize(256, if matches!(input.model, Model::Bpe) { 1 } else { 6 });
    }
    tokens.extend(input.tokens.iter().map(|&token| token.to_owned()));
    types.extend(input.types.iter().map(|&ty| i32::from(ty % 9)));
    types.resize(tokens.len(), 1);
    let mut merges = Vec::new();
    for merge in &input.merges {
        merges.push(match merge {
            Merge::Tokens(left, right) if !tokens.is_empty() => {
                let token = |number: u8| tokens[number as usize % tokens.len()].clone();
                let (left, right) = (token(*left), token(*right));
                tokens.push(format!("{left}{right}"));
                types.push(1);
                format!("{left} {right}")
            }
            Merge::Tokens(..) => String::new(),
            Merge::Text(text) => (*text).to_owned(),
        });
    }
    header.set_array("tokenizer.ggml.tokens", &tokens).ok()?;
    header.set_array("tokenizer.ggml.token_type", &types).ok()?;
    match &input.scores {
        Some(scores) => header.set_array("tokenizer.ggml.scores", scores).ok()?,
        None => {
            let scores: Vec<f32> = (0..tokens.len()).map(|number| -(number as f32)).collect();
            header.set_array("tokenizer.ggml.scores", &scores).ok()?;
        }
    }
    header.set_array("tokenizer.ggml.merges", &merges).ok()?;
    for (key, id) in [("bos", input.bos), ("eos", input.eos), ("unknown", input.unknown)] {
        if let Some(id) = id {
            header.set(&format!("tokenizer.ggml.{key}_token_id"), u32::from(id)).ok()?;
        }
    }
    for (key, value) in [
        ("add_bos_token", input.add_bos),
        ("add_eos_token", input.add_eos),
        ("add_space_prefix", input.space_prefix),
    ] {
        if let Some(value) = value {
            header.set(&format!("tokenizer.ggml.{key}"), value).ok()?;
        }
    }
    header.tensor("token_embd.weight", &[1], GgmlType::F32).ok()?;
    let data = header.start(Vec::new()).ok()?;
    let mut data = data;
    data.write(&[0; 4]).ok()?;
    Gguf::from_bytes(data.finish().ok()?).ok()
}
