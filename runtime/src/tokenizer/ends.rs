//! Tokens that are known by their names: ends of a generation, and marks of models of code.

use std::collections::HashMap;

use bespoke_gguf::Gguf;

/// Keys that declare such tokens.
pub const END_KEYS: [&str; 6] = [
    "tokenizer.ggml.eos_token_id",
    "tokenizer.ggml.eot_token_id",
    "tokenizer.ggml.eom_token_id",
    "tokenizer.ggml.fim_pad_token_id",
    "tokenizer.ggml.fim_rep_token_id",
    "tokenizer.ggml.fim_sep_token_id",
];

/// Key of further such tokens, an array, in Ollama's files and in models made of Hugging Face folders.
pub const END_LIST_KEY: &str = "tokenizer.ggml.eos_token_ids";

/// End of a sequence in SentencePiece's vocabularies. Elsewhere it may be text, such as HTML.
pub const SENTENCE_END: &str = "</s>";

/// Tokens below `vocab` that keys of the metadata declare as ends of a generation, sorted: for files whose tokenizer
/// cannot be read.
pub fn declared_end_tokens(file: &Gguf, vocab: u32) -> Vec<u32> {
    let declared = END_KEYS.iter().filter_map(|key| file.opt_u32(key).ok()?);
    let listed = file.opt_i32s(END_LIST_KEY).ok().flatten().unwrap_or_default();
    let listed = listed.into_iter().filter_map(|id| u32::try_from(id).ok());
    let mut ends: Vec<u32> = declared.chain(listed).filter(|&id| id < vocab).collect();
    ends.sort_unstable();
    ends.dedup();
    ends
}

/// Names of tokens that end a generation by convention. Many files declare only one of several end tokens, so llama.cpp
/// recognises these names, too.
const END_NAMES: [&str; 33] = [
    SENTENCE_END,
    "<eos>",
    "[EOS]",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[e~[",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|calls|>",
    "<|flush|>",
    "<end_of_turn>",
    "<turn|>",
    "<|tool_response>",
    "<end_of_utterance>",
    "<｜end▁of▁sentence｜>",
    // Borders of files and repositories in models of code.
    "<|fim_pad|>",
    "<fim_pad>",
    "<fim-pad>",
    "<PAD>",
    "[PAD]",
    "<|fim_repo|>",
    "<|repo_name|>",
    "<fim-repo>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// Names of the marks around the text to fill in. Some files declare them as text.
const FILL_IN_NAMES: [&str; 24] = [
    "<|fim_prefix|>",
    "<|fim_suffix|>",
    "<|fim_middle|>",
    "<fim_prefix>",
    "<fim_suffix>",
    "<fim_middle>",
    "<fim-prefix>",
    "<fim-suffix>",
    "<fim-middle>",
    "<|code_prefix|>",
    "<|code_suffix|>",
    "<|code_middle|>",
    "<|prefix|>",
    "<|suffix|>",
    "<|middle|>",
    "<｜fim▁begin｜>",
    "<｜fim▁hole｜>",
    "<｜fim▁end｜>",
    "<PRE>",
    "<SUF>",
    "<MID>",
    "▁<PRE>",
    "▁<SUF>",
    "▁<MID>",
];

/// A name that does not end a generation if the vocabulary has all the names of `with`.
struct Exception {
    name: &'static str,
    with: &'static [&'static str],
}

/// OpenAI's harmony and Solar end a message, not the turn, with `<|end|>`. `</s>` is text in PLaMo, and an HTML tag in
/// Gemma.
const EXCEPTIONS: [Exception; 5] = [
    Exception { name: "<|end|>", with: &["<|return|>", "<|call|>"] },
    Exception { name: "<|end|>", with: &["<|calls|>", "<|flush|>"] },
    Exception { name: SENTENCE_END, with: &["<|tool_response>"] },
    Exception { name: SENTENCE_END, with: &["<|plamo:eos|>"] },
    Exception { name: SENTENCE_END, with: &["<eos>", "<end_of_turn>"] },
];

/// Ids of the marks around the text to fill in.
pub fn fill_in(ids: &HashMap<&str, u32>) -> Vec<u32> {
    FILL_IN_NAMES.iter().filter_map(|name| ids.get(name).copied()).collect()
}

/// Ids of the tokens with names that end a generation by convention.
pub fn by_name(ids: &HashMap<&str, u32>) -> Vec<u32> {
    let is_exception = |name: &str| {
        EXCEPTIONS.iter().any(|exception| {
            exception.name == name && exception.with.iter().all(|name| ids.contains_key(name))
        })
    };
    END_NAMES.iter().filter(|name| !is_exception(name)).filter_map(|name| ids.get(name).copied()).collect()
}
