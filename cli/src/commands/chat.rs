//! `bespoke chat`: a conversation with a chat model.

mod command;
mod conversation;
mod input;

use std::path::PathBuf;

use bespoke::engine::{self, EngineError, EngineOptions};
use miette::IntoDiagnostic;

use crate::advice::engine_error;
use crate::chat_template::{ChatFormat, TemplateArgs};
use crate::commands::run::token_limit;
use crate::console::note;
use crate::decoder::Decoder;
use crate::sampling::{DrawsWithTemp, SamplingArgs};
use crate::session::{DecodeArgs, SpeculationArgs};
use crate::{interrupt, model};
use command::Command;
use conversation::Conversation;
use input::{Input, Line};

/// Talk to a chat model
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Ctrl-C stops an answer, Ctrl-D ends the program; /help lists the commands. `bespoke run MODEL --chat -p QUESTION` \
answers one question.

Examples:
  bespoke chat model.gguf
  bespoke chat model.gguf --system \"You are a terse assistant.\" --temp 0.7
  bespoke chat model.gguf --chat-template llama3
  bespoke chat model.gguf --template-var enable_thinking=false
  bespoke chat model.gguf --load yesterday.json
  echo \"What is the capital of France?\" | bespoke chat model.gguf"
)]
pub struct ChatArgs {
    #[arg(help = model::MODEL)]
    pub model: PathBuf,
    /// Maximum length of an answer in tokens, or -1 for no limit [default: -1]
    #[arg(short, long, aliases = ["predict", "n-predict"], value_name = "N", value_parser = token_limit)]
    pub n: Option<u32>,
    /// When the context is full, keep its first N tokens and the newer half of the others, and continue; a conversation
    /// that is too long loses its oldest messages [default: end the answer]
    #[arg(long, value_name = "N")]
    pub keep: Option<u32>,
    /// End an answer before this text. May be repeated
    #[arg(long, value_name = "TEXT", allow_hyphen_values = true, value_parser = crate::input::stop_text)]
    pub stop: Vec<String>,
    /// Continue the conversation of this file, which /save wrote
    #[arg(long, value_name = "FILE")]
    pub load: Option<PathBuf>,
    /// Neither read nor write the file with earlier input lines
    #[arg(long)]
    pub no_history: bool,
    /// Speculation.
    #[command(flatten)]
    pub speculation: SpeculationArgs,
    /// Template and system prompt.
    #[command(flatten)]
    pub template: TemplateArgs,
    /// Check of the sampling options.
    #[command(flatten)]
    draws: DrawsWithTemp,
    /// Sampling.
    #[command(flatten)]
    pub sampling: SamplingArgs,
    /// Device, context and mode.
    #[command(flatten)]
    pub decode: DecodeArgs,
}

/// Reads lines, and answers or executes them, until the input ends.
pub fn execute(args: &ChatArgs) -> miette::Result<()> {
    let model = model::open_model_with(&args.model, args.decode.load)?;
    let device = args.decode.device.start_opening();
    let tokenizer = model.tokenizer().into_diagnostic()?;
    let format = ChatFormat::new(&args.template, &model.gguf, &tokenizer)?;
    tracing::debug!("{}", format.origin());
    let sampling = args.sampling.params(Some(&tokenizer))?;
    let messages = match &args.load {
        Some(path) => conversation::read(path)?,
        None => Vec::new(),
    };
    let context = model.shape.dimensions.context.min(engine::DEFAULT_CONTEXT);
    let context = args.decode.context(&model).unwrap_or(context);
    if let Some(keep) = args.keep.filter(|&keep| keep >= context) {
        return Err(engine_error(EngineError::KeepTooLarge { keep, context }));
    }
    let mut input = Input::new(!args.no_history)?;
    let options = args.decode.options(&model, context)?;
    let options = EngineOptions { sampling: sampling.clone(), ..options };
    let mut engines = args.speculation.load(device, &model, &args.decode, options)?;
    let decoder =
        Decoder::new(&mut engines, args.speculation.speculation(), Some(&tokenizer)).map_err(engine_error)?;
    let mut conversation = Conversation::new(decoder, &tokenizer, &format, sampling, args, messages);
    if input.is_terminal() {
        note!("/help lists the commands; Ctrl-C stops an answer; Ctrl-D ends the program");
    }
    loop {
        interrupt::end_on_next();
        let text = match input.next()? {
            Line::Text(text) => text,
            Line::End => return Ok(()),
        };
        let outcome = match Command::parse(&text) {
            Ok(Command::Exit) => return Ok(()),
            Ok(command) => conversation.execute(command),
            Err(report) => Err(report),
        };
        match outcome {
            // A script must not go on with the next line as if nothing had happened.
            Err(report) if !input.is_terminal() => return Err(report),
            Err(report) => note!("{report:?}"),
            Ok(()) => {}
        }
    }
}
