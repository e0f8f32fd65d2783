//! Output of a generation: text, token ids or log-probabilities, token by token.

use std::collections::VecDeque;
use std::fmt::Write as _;

use bespoke::generation::{FinishReason, Summary, Token};
use bespoke::tokenizer::{DecodeStream, Tokenizer};
use serde::Serialize;

use crate::console::{TextStream, Unwritable};

/// What is written to standard output while tokens are generated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Streamed {
    /// Nothing.
    Nothing,
    /// The text.
    Text,
    /// Token ids, separated by commas.
    Ids,
    /// A line for each token: its text, its log-probability, and the most likely tokens with theirs.
    Logprobs,
}

/// A token with its log-probability, as in the JSON output.
#[derive(Serialize)]
pub struct TokenLogprob {
    token: u32,
    /// The token's text, U+FFFD for parts of characters; without a vocabulary, none.
    text: Option<String>,
    /// Natural logarithm of the token's probability; `null` for −∞.
    logprob: f64,
    /// The most likely tokens at this position.
    #[serde(skip_serializing_if = "Option::is_none")]
    top: Option<Vec<TokenLogprob>>,
}

/// Streams tokens to standard output, and keeps their log-probabilities.
pub struct Printer<'a> {
    /// The model's vocabulary, for texts.
    pub tokenizer: Option<&'a Tokenizer>,
    streamed: Streamed,
    text: TextStream,
    first: bool,
    held: Option<Held<'a>>,
    /// Log-probabilities of the tokens so far.
    pub logprobs: Vec<TokenLogprob>,
}

/// Output of tokens that a stop string may still cut off.
struct Held<'a> {
    /// The text of all tokens, before any of it is held back.
    stream: DecodeStream<'a>,
    /// Bytes of that text.
    generated: usize,
    /// Bytes of the text that no stop string can cut off any more.
    released: usize,
    /// Outputs, each with the number of text bytes before its token.
    outputs: VecDeque<(usize, String)>,
}

impl Held<'_> {
    /// Adds a token's output; returns the outputs that are certain now.
    fn push(&mut self, token: &Token, output: String) -> String {
        self.outputs.push_back((self.generated, output));
        self.generated += self.stream.push(token.id).len();
        self.released += token.text.len();
        let mut certain = String::new();
        while self.outputs.front().is_some_and(|(start, _)| *start < self.released) {
            certain.extend(self.outputs.pop_front().map(|(_, output)| output));
        }
        certain
    }
}

impl<'a> Printer<'a> {
    /// Creates a printer. With `stops`, the tokens of a stop string are not written.
    pub fn new(tokenizer: Option<&'a Tokenizer>, streamed: Streamed, stops: bool) -> Self {
        let held = tokenizer.filter(|_| stops).map(|tokenizer| Held {
            stream: tokenizer.decode_stream(),
            generated: 0,
            released: 0,
            outputs: VecDeque::new(),
        });
        let text = TextStream::new();
        Printer { tokenizer, streamed, text, first: true, held, logprobs: Vec::new() }
    }

    /// Writes a token.
    pub fn token(&mut self, token: &Token) -> Result<(), Unwritable> {
        let mut output = match self.streamed {
            Streamed::Nothing | Streamed::Logprobs => String::new(),
            Streamed::Text => token.text.clone(),
            Streamed::Ids => format!("{}{}", if self.first { "" } else { "," }, token.id),
        };
        self.first = false;
        if let Some(logprobs) = &token.logprobs {
            let named = |token: u32, logprob: f64, top| TokenLogprob {
                token,
                text: self.text_of(token),
                logprob,
                top,
            };
            let top = logprobs.top.iter().map(|&(token, logprob)| named(token, logprob, None)).collect();
            let entry = named(token.id, logprobs.logprob, Some(top));
            if self.streamed == Streamed::Logprobs {
                output = format!("{}\n", line(&entry));
            }
            self.logprobs.push(entry);
        }
        if let Some(held) = self.held.as_mut().filter(|_| self.streamed != Streamed::Text) {
            output = held.push(token, output);
        }
        self.text.write(&output)
    }

    /// Writes what remains after the last token, and ends the line.
    pub fn end(&mut self, summary: &Summary) -> Result<(), Unwritable> {
        let rest = &summary.rest;
        let is_cut = summary.reason == FinishReason::StopString;
        for (_, output) in self.held.iter_mut().filter(|_| !is_cut).flat_map(|held| held.outputs.drain(..)) {
            self.text.write(&output)?;
        }
        match self.streamed {
            Streamed::Nothing | Streamed::Logprobs => Ok(()),
            Streamed::Text => self.text.write(&format!("{rest}\n")),
            Streamed::Ids => self.text.write("\n"),
        }
    }

    /// Text of a token, or the spelling of a token without text.
    fn text_of(&self, token: u32) -> Option<String> {
        let bytes = self.tokenizer?.piece_or_name(token);
        (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
    }
}

/// Line of a token: `7 " 4" -0.0012  " 4" -0.0012  " 5" -7.1000`.
fn line(entry: &TokenLogprob) -> String {
    let named = |entry: &TokenLogprob| {
        let text = entry.text.as_ref().map_or_else(|| entry.token.to_string(), |text| format!("{text:?}"));
        format!("{text} {:.4}", entry.logprob)
    };
    let mut line = format!("{:>6}  {:<24}", entry.token, named(entry));
    for top in entry.top.iter().flatten() {
        // Formatting into a string cannot fail.
        let _ = write!(line, "  {}", named(top));
    }
    line.trim_end().to_owned()
}
