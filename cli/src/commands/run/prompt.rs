//! The prompt of a run: its tokens, and the context that it and the answer need.

use bespoke::engine::{self, EngineError, check_prompt};
use bespoke::generation::room;
use bespoke::tokenizer::Tokenizer;
use bespoke_chat::Message;
use miette::{IntoDiagnostic, miette};

use super::{RunArgs, UNLIMITED};
use crate::advice::{context_full, engine_error};
use crate::chat_template::ChatFormat;
use crate::console::counted;
use crate::model::Model;

/// Tokens to generate without `--n`.
const DEFAULT_TOKENS: u32 = 128;

/// The tokens of a text: in the model's chat template with `--chat`, and as the demo model reads it.
pub fn encode(text: &str, args: &RunArgs, model: &Model, tokenizer: &Tokenizer) -> miette::Result<Vec<u32>> {
    let text = if args.chat {
        let format = ChatFormat::new(&args.template, &model.gguf, tokenizer)?;
        let system = args.template.system.iter().map(|text| Message::new("system", text));
        let messages: Vec<Message> = system.chain([Message::new("user", text)]).collect();
        format.prompt(&messages)?
    } else if model.is_demo {
        bespoke_demo::normalised_prompt(text)
    } else {
        text.to_owned()
    };
    tokenizer.encode(&text).into_diagnostic()
}

/// Maximum number of tokens to generate.
pub fn max_tokens(args: &RunArgs) -> u32 {
    args.n.unwrap_or(if args.chat { UNLIMITED } else { DEFAULT_TOKENS })
}

/// Number of positions of the context: that of `--ctx`, or as many as the prompt and the answer need.
///
/// # Errors
/// If the prompt is no valid prompt of the model, or does not fit the context, or if `--keep` does not.
pub fn context(prompt: &[u32], args: &RunArgs, model: &Model) -> miette::Result<u32> {
    let limit = args.n.filter(|&n| n != UNLIMITED);
    // The last token needs no position in the cache.
    let positions = prompt.len() as u64 + u64::from(limit.unwrap_or(DEFAULT_TOKENS).saturating_sub(1));
    let max = u64::from(model.shape.dimensions.context);
    let default = max.min(positions.max(engine::DEFAULT_CONTEXT.into())) as u32;
    let context = args.decode.context(model).unwrap_or(default);
    check_prompt(prompt, model.shape.dimensions.vocab).map_err(engine_error)?;
    if room(prompt.len(), context).is_err() {
        let needed = match limit {
            Some(_) => positions,
            None => max.min(positions).max(prompt.len() as u64),
        };
        if prompt.len() as u64 > max {
            return Err(miette!(
                help = format!(
                    "shorten the prompt, or use --ctx {needed}: text gets worse beyond {max} positions"
                ),
                "the prompt does not fit the context: it has {}, the context {}, and the model was trained for {max}",
                counted(prompt.len(), "token"),
                counted(context as usize, "position")
            ));
        }
        return Err(context_full(prompt.len(), context, needed));
    }
    match args.keep.filter(|&keep| keep >= context) {
        Some(keep) => Err(engine_error(EngineError::KeepTooLarge { keep, context })),
        None => Ok(context),
    }
}
