//! Output of a generation: text, token ids or log-probabilities, token by token.

use std::fmt::Write as _;
use std::io::Write;

use bespoke::generation::Token;
use bespoke::tokenizer::Tokenizer;
use serde::Serialize;

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
    first: bool,
    /// Log-probabilities of the tokens so far.
    pub logprobs: Vec<TokenLogprob>,
}

impl<'a> Printer<'a> {
    /// Creates a printer.
    pub fn new(tokenizer: Option<&'a Tokenizer>, streamed: Streamed) -> Self {
        Printer { tokenizer, streamed, first: true, logprobs: Vec::new() }
    }

    /// Writes a token.
    pub fn token(&mut self, token: &Token) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        match self.streamed {
            Streamed::Nothing | Streamed::Logprobs => {}
            Streamed::Text => write!(out, "{}", token.text)?,
            Streamed::Ids => write!(out, "{}{}", if self.first { "" } else { "," }, token.id)?,
        }
        self.first = false;
        if let Some(logprobs) = &token.logprobs {
            let named =
                |token: u32, logprob: f64, top| TokenLogprob { token, text: self.text(token), logprob, top };
            let top = logprobs.top.iter().map(|&(token, logprob)| named(token, logprob, None)).collect();
            let entry = named(token.id, logprobs.logprob, Some(top));
            if self.streamed == Streamed::Logprobs {
                writeln!(out, "{}", line(&entry))?;
            }
            self.logprobs.push(entry);
        }
        out.flush()
    }

    /// Writes the text that remains after the last token, and ends the line.
    pub fn end(&mut self, rest: &str) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        match self.streamed {
            Streamed::Nothing | Streamed::Logprobs => Ok(()),
            Streamed::Text => writeln!(out, "{rest}"),
            Streamed::Ids => writeln!(out),
        }
    }

    /// Text of a token, or the spelling of a token without text.
    fn text(&self, token: u32) -> Option<String> {
        let tokenizer = self.tokenizer?;
        match tokenizer.piece(token) {
            [] => tokenizer.token(token).map(str::to_owned),
            piece => Some(String::from_utf8_lossy(piece).into_owned()),
        }
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
