//! The text whose tokens `perplexity` and `compare` score.

use std::ops::ControlFlow;
use std::path::PathBuf;

use bespoke::engine::EngineError;
use bespoke::tokenizer::EncodeOptions;
use bespoke_perplexity::{Cut, Text, Window, WindowError, positions, windows};
use clap::ValueEnum;
use miette::{IntoDiagnostic, WrapErr, miette};
use serde::Serialize;

use crate::advice::engine_error;
use crate::input;
use crate::interrupt;
use crate::model::Model;
use crate::progress::Progress;
use crate::session::DecodeArgs;

/// Default length of a window, as in llama.cpp.
const WINDOW: u32 = 512;

/// Arguments for the text and its division into windows.
#[derive(clap::Args, Debug)]
pub struct TextArgs {
    /// A file with the text, in UTF-8, or - for standard input
    #[arg(long, short, value_name = "TEXT")]
    file: PathBuf,
    /// Let windows overlap: start one every N tokens, and score its last N tokens [default: windows side by side, of
    /// which the second half is scored]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    stride: Option<u32>,
    /// Stop after this number of windows
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunks: Option<u32>,
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// A few lines.
    Text,
    /// One JSON object.
    Json,
}

/// A text's tokens, divided into windows.
pub struct ScoredText {
    tokens: Vec<u32>,
    windows: Vec<Window>,
    bos: Option<u32>,
    cut: Cut,
}

/// Division of a text, as in the JSON output.
#[derive(Serialize)]
pub struct Division {
    /// Tokens of the text.
    tokens: usize,
    #[serde(flatten)]
    cut: Cut,
    windows: usize,
}

impl ScoredText {
    /// Reads and encodes the text, and divides it. `--ctx` is the length of a window.
    pub fn read(args: &TextArgs, decode: &DecodeArgs, model: &Model) -> miette::Result<ScoredText> {
        let text = input::read(&args.file)?;
        let context = decode.context(model).unwrap_or(WINDOW.min(model.shape.dimensions.context));
        let cut = Cut { context, stride: args.stride };
        let tokenizer = model.tokenizer().into_diagnostic()?;
        // Names of control tokens in a text, such as `<unk>`, are text.
        let options = EncodeOptions { special: false, ..EncodeOptions::default() };
        let tokens =
            tokenizer.encode_with(&text, options).into_diagnostic().wrap_err("cannot encode the text")?;
        // Overlapping windows continue the text; only the first one has its beginning.
        let bos = tokenizer.bos().filter(|bos| tokens.first() == Some(bos) && args.stride.is_none());
        let windows = windows(tokens.len(), cut, args.chunks).map_err(|error| match error {
            WindowError::TooShort { tokens: 4.., .. } => {
                let help = format!("use a longer text, or --ctx {} for shorter windows", tokens.len());
                miette!(help = help, "{}: {error}", args.file.display())
            }
            WindowError::TooShort { .. } => {
                miette!(help = "use a longer text", "{}: {error}", args.file.display())
            }
            error => miette!("{error}"),
        })?;
        Ok(ScoredText { tokens, windows, bos, cut })
    }

    /// Positions of a window.
    pub fn context(&self) -> u32 {
        self.cut.context
    }

    /// The division.
    pub fn division(&self) -> Division {
        Division { tokens: self.tokens.len(), cut: self.cut, windows: self.windows.len() }
    }

    /// Runs a measurement with a progress bar. Ctrl-C ends it early; the result is then that of the tokens so far.
    /// `scored` is the number of tokens that a result is about.
    pub fn measure<T>(
        &self,
        measurement: impl FnOnce(Text<'_>, bespoke_perplexity::Progress<'_>) -> Result<T, EngineError>,
        scored: impl Fn(&T) -> usize,
    ) -> miette::Result<T> {
        let text = Text { tokens: &self.tokens, windows: &self.windows, bos: self.bos };
        let bar = Progress::count("positions", positions(&self.windows));
        interrupt::defer_first();
        let result = measurement(text, &mut |done| {
            bar.set(done);
            if interrupt::requested() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        bar.finish();
        let result = result.map_err(engine_error)?;
        if interrupt::requested() {
            match scored(&result) {
                0 => return Err(miette!("interrupted before a token was scored")),
                scored => {
                    tracing::warn!("interrupted: the result is that of the first {scored} scored tokens")
                }
            }
        }
        Ok(result)
    }
}
