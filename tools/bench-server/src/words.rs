//! Prompts of ordinary words, which every tokenizer encodes and every server accepts. The number of tokens of a word
//! depends on the server's tokenizer; the server is asked how many a prompt has.

use fastrand::Rng;
use serde_json::{Value, json};

use crate::LoadError;
use crate::client::Client;
use crate::facts::Facts;

const WORDS: [&str; 32] = [
    "the", "old", "fox", "lives", "in", "a", "tower", "and", "wants", "loaf", "of", "bread", "at", "noon",
    "it", "finds", "forest", "brings", "home", "now", "is", "full", "silver", "key", "river", "house",
    "small", "bird", "sings", "under", "green", "tree",
];

/// A text of random words.
pub fn text(words: u32, rng: &mut Rng) -> String {
    let words = (0..words.max(1)).map(|_| WORDS[rng.usize(..WORDS.len())]);
    words.collect::<Vec<_>>().join(" ")
}

/// Number of words that have a number of tokens, by the tokenizer of a server.
#[derive(Clone, Copy, Debug)]
pub struct Words {
    pub tokens_per_word: f64,
}

impl Words {
    /// Measures a text of up to `tokens` tokens.
    pub async fn calibrate(
        client: &Client,
        facts: &Facts,
        tokens: u32,
        rng: &mut Rng,
    ) -> Result<Words, LoadError> {
        // A word has up to three tokens in a small vocabulary. A text that is too short gives a poor mean, one that is too long
        // does not fit into the context.
        let enough = facts.context.map_or(64, |context| (context / 4).min(64));
        let words = (tokens / 3).max(enough).clamp(1, 256);
        let body =
            json!({"model": facts.model, "prompt": text(words, rng), "max_tokens": 1, "temperature": 0});
        let answer = client.post("/v1/completions", body.to_string()).await?;
        let answer: Value = serde_json::from_str(&answer).unwrap_or_default();
        let found = answer["usage"]["prompt_tokens"].as_u64().unwrap_or_else(|| words.into());
        Ok(Words { tokens_per_word: (found as f64 / f64::from(words)).max(0.1) })
    }

    /// Number of words that have about `tokens` tokens.
    pub fn words(self, tokens: u32) -> u32 {
        (f64::from(tokens) / self.tokens_per_word).round().max(1.0) as u32
    }

    /// A text of about `tokens` tokens.
    pub fn prompt(self, tokens: u32, rng: &mut Rng) -> String {
        text(self.words(tokens), rng)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_has_the_words_for_its_tokens() {
        let words = Words { tokens_per_word: 1.6 };
        assert_eq!((words.words(160), words.words(1), words.words(0)), (100, 1, 1));
        let rng = &mut Rng::with_seed(1);
        let (one, other) = (words.prompt(80, rng), words.prompt(80, rng));
        assert_eq!(one.split(' ').count(), 50);
        assert_ne!(one, other);
    }
}
