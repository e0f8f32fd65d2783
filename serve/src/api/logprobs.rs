//! Log-probabilities of tokens, as in OpenAI's chats.

use bespoke::tokenizer::Tokenizer;
use serde_json::{Value, json};

use crate::answers::TokenInfo;

/// Entries of tokens, each with the most likely ones.
pub fn entries(tokenizer: &Tokenizer, tokens: &[TokenInfo]) -> Vec<Value> {
    let entry = |token: u32, logprob: f64| {
        let bytes = token_bytes(tokenizer, token);
        json!({"token": String::from_utf8_lossy(bytes), "logprob": finite(logprob), "bytes": bytes})
    };
    let whole = |(token, logprobs): &TokenInfo| {
        let mut whole = entry(*token, logprobs.logprob);
        whole["top_logprobs"] = logprobs.top.iter().map(|&(token, logprob)| entry(token, logprob)).collect();
        whole
    };
    tokens.iter().map(whole).collect()
}

/// Bytes of a token in text; of a token without text, its name.
pub fn token_bytes(tokenizer: &Tokenizer, token: u32) -> &[u8] {
    match tokenizer.piece(token) {
        [] => tokenizer.token(token).unwrap_or_default().as_bytes(),
        piece => piece,
    }
}

/// A log-probability as a number that JSON has.
pub fn finite(logprob: f64) -> f64 {
    logprob.max(-9999.0)
}
