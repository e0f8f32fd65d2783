//! Log-probabilities of tokens, as in OpenAI's chats.

use bespoke::tokenizer::Tokenizer;
use serde_json::{Value, json};

use crate::answers::TokenInfo;

/// Entries of tokens, each with the most likely ones.
pub fn entries(tokenizer: &Tokenizer, tokens: &[TokenInfo]) -> Vec<Value> {
    let entry = |token: u32, logprob: f64| {
        let bytes = tokenizer.piece_or_name(token);
        json!({"token": String::from_utf8_lossy(bytes), "logprob": finite(logprob), "bytes": bytes})
    };
    let whole = |(token, logprobs): &TokenInfo| {
        let mut whole = entry(*token, logprobs.logprob);
        whole["top_logprobs"] = logprobs.top.iter().map(|&(token, logprob)| entry(token, logprob)).collect();
        whole
    };
    tokens.iter().map(whole).collect()
}

/// A log-probability as a number that JSON has.
pub fn finite(logprob: f64) -> f64 {
    logprob.max(-9999.0)
}
