//! `bespoke tokenize`: text to token ids, and back.

use std::path::PathBuf;

use bespoke::tokenizer::{EncodeOptions, Tokenizer};
use clap::{ArgGroup, ValueEnum};
use miette::{IntoDiagnostic, WrapErr, miette};
use serde::Serialize;

use crate::console::{self, exact, note, out};
use crate::input::{self, FinalNewline, TokenIds};
use crate::model;

/// Encode text as a model's token ids, or decode ids
#[derive(clap::Args, Debug)]
#[command(group(ArgGroup::new("input").args(["prompt", "file", "decode"]).required(true)))]
#[command(
    after_help = "The file may be a vocabulary without weights. A token is shown as the text that it stands for, \
and a control token by its name.

Examples:
  bespoke tokenize model.gguf -p \"The quick brown fox\"
  bespoke tokenize model.gguf -f book.txt --format json
  echo \"17 + 25 =\" | bespoke tokenize demo -f -
  bespoke tokenize model.gguf --decode 1,2,3"
)]
pub struct TokenizeArgs {
    #[arg(help = model::MODEL)]
    pub model: PathBuf,
    /// The text, or - for standard input
    #[arg(long, short, allow_hyphen_values = true)]
    pub prompt: Option<String>,
    /// A file with the text, or - for standard input; the final newline is part of the text
    #[arg(long, short)]
    pub file: Option<PathBuf>,
    /// Token ids to decode, or - for ids on standard input
    #[arg(long, value_name = "IDS")]
    pub decode: Option<TokenIds>,
    /// Leave out the beginning-of-sequence token that the file asks for
    #[arg(long)]
    pub no_bos: bool,
    /// Encode the names of control tokens as text
    #[arg(long)]
    pub no_parse_special: bool,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A line for each token: its id, and its text in quotes; or the decoded text.
    Text,
    /// One JSON object.
    Json,
}

#[derive(Serialize)]
struct Output<'a> {
    tokens: &'a [u32],
    pieces: Vec<Piece<'a>>,
    /// Decoded text.
    #[serde(skip_serializing_if = "Option::is_none")]
    text: Option<String>,
}

/// What a token stands for: text, or bytes that are not UTF-8 by themselves.
#[derive(Serialize)]
#[serde(untagged)]
enum Piece<'a> {
    Text(&'a str),
    Bytes(&'a [u8]),
}

/// Encodes the text or decodes the ids, and prints the result.
pub fn execute(args: &TokenizeArgs) -> miette::Result<()> {
    let gguf = model::open_gguf(&args.model)?;
    let tokenizer = Tokenizer::from_gguf(&gguf)
        .into_diagnostic()
        .wrap_err_with(|| format!("cannot read the tokenizer of {}", args.model.display()))?;
    if let Some(ids) = &args.decode {
        return decode(args, &tokenizer, &ids.read()?);
    }
    let text = input::prompt(args.prompt.as_deref(), args.file.as_deref(), FinalNewline::Kept)?;
    let text = text.unwrap_or_default();
    let options = EncodeOptions { bos: !args.no_bos, eos: true, special: !args.no_parse_special };
    let tokens = tokenizer.encode_with(&text, options).into_diagnostic()?;
    match args.format {
        Format::Text => {
            let mut lines = String::new();
            for &id in &tokens {
                lines += &format!("{id:>7}  \"{}\"\n", readable(tokenizer.piece_or_name(id)));
            }
            out!("{lines}")?;
            note!("{}", console::counted(tokens.len(), "token"));
        }
        Format::Json => print_json(&tokenizer, &tokens, None)?,
    }
    Ok(())
}

/// Prints the text of token ids.
fn decode(args: &TokenizeArgs, tokenizer: &Tokenizer, ids: &[u32]) -> miette::Result<()> {
    if let Some(id) = ids.iter().find(|&&id| id as usize >= tokenizer.len()) {
        return Err(miette!("token {id} does not exist: the vocabulary has {} tokens", tokenizer.len()));
    }
    let text = tokenizer.decode(ids);
    match args.format {
        Format::Text => exact(&text)?,
        Format::Json => print_json(tokenizer, ids, Some(text))?,
    }
    Ok(())
}

fn print_json(tokenizer: &Tokenizer, tokens: &[u32], text: Option<String>) -> miette::Result<()> {
    let piece = |&id| {
        let bytes = tokenizer.piece_or_name(id);
        std::str::from_utf8(bytes).map_or(Piece::Bytes(bytes), Piece::Text)
    };
    let output = Output { tokens, pieces: tokens.iter().map(piece).collect(), text };
    console::json_line(&output)
}

/// Text with escapes for quotes, control characters and bytes that are not UTF-8.
fn readable(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.utf8_chunks() {
        let quoted = format!("{:?}", chunk.valid());
        text += &quoted[1..quoted.len() - 1];
        for byte in chunk.invalid() {
            text += &format!("\\x{byte:02x}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes() {
        for (bytes, text) in [
            (&b" caf\xc3\xa9\n"[..], r" café\n"),
            (b"\xf0\x9f", r"\xf0\x9f"),
            (b"a\"\x00\\", r#"a\"\0\\"#),
            (b"it's", "it's"),
        ] {
            assert_eq!(readable(bytes), text);
        }
    }
}
