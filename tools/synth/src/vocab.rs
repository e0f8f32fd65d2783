//! Byte-level BPE vocabulary of any size, which encodes any text.
//!
//! The 256 byte tokens come first, in GPT-2's byte-to-character encoding. Merges of letters follow: all pairs (with a
//! leading space as `Ġ`), then all triples, until the vocabulary has the requested size. The last four tokens are
//! special: [`SPECIAL`].

use bespoke::tokenizer::byte_to_char;
use bespoke_gguf::Writer;

use super::{SynthError, SynthSpec};

/// The special tokens at the end: beginning and end of text, and the two sides of a conversation.
pub const SPECIAL: [&str; 4] = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>"];

/// Types of tokens: `LLAMA_TOKEN_TYPE_NORMAL` and `LLAMA_TOKEN_TYPE_CONTROL`.
const NORMAL: i32 = 1;
const CONTROL: i32 = 3;

/// Tokens by id, and merges in order of rank.
fn tokens(vocab: u32) -> (Vec<String>, Vec<String>) {
    let ordinary = vocab as usize - SPECIAL.len();
    let mut tokens: Vec<String> = (0..=255).map(|byte| byte_to_char(byte).to_string()).collect();
    let mut merges = Vec::new();
    let letters: Vec<char> = (b'A'..=b'Z').chain(b'a'..=b'z').map(char::from).collect();
    let mut frontier: Vec<String> =
        letters.iter().copied().chain([byte_to_char(b' ')]).map(String::from).collect();
    while tokens.len() < ordinary {
        let pairs = frontier.iter().flat_map(|left| letters.iter().map(move |right| (left, right)));
        let mut longer = Vec::new();
        for (left, right) in pairs.take(ordinary - tokens.len()) {
            merges.push(format!("{left} {right}"));
            longer.push(format!("{left}{right}"));
        }
        tokens.extend_from_slice(&longer);
        frontier = longer;
    }
    tokens.extend(SPECIAL.map(String::from));
    (tokens, merges)
}

/// Writes the `tokenizer.*` keys.
pub fn metadata(spec: &SynthSpec, writer: &mut Writer) -> Result<(), SynthError> {
    let (tokens, merges) = tokens(spec.dimensions.vocab);
    let first_special = spec.dimensions.vocab - SPECIAL.len() as u32;
    let types: Vec<i32> =
        (0..spec.dimensions.vocab).map(|id| if id < first_special { NORMAL } else { CONTROL }).collect();
    let llama = spec.architecture.name == "llama";
    writer.set("tokenizer.ggml.model", "gpt2")?;
    writer.set("tokenizer.ggml.pre", if llama { "llama-bpe" } else { "qwen2" })?;
    writer.set_array("tokenizer.ggml.tokens", &tokens)?;
    writer.set_array("tokenizer.ggml.token_type", &types)?;
    writer.set_array("tokenizer.ggml.merges", &merges)?;
    writer.set("tokenizer.ggml.bos_token_id", first_special)?;
    writer.set("tokenizer.ggml.eos_token_id", first_special + 1)?;
    writer.set("tokenizer.ggml.add_bos_token", llama)?;
    Ok(())
}
