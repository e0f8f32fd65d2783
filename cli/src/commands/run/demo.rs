//! `bespoke run` without a model: the demo model with default prompts.

use std::time::Duration;

use bespoke::engine::EngineOptions;
use bespoke::generation::{FinishReason, Request};
use bespoke_demo::{self as demo, Question};
use miette::{IntoDiagnostic, miette};

use super::{Format, Printer, RunArgs, Streamed, generate};
use crate::advice::engine_error;
use crate::console::{note, out};
use crate::decoder::Decoder;
use crate::interrupt;
use crate::model::Model;

/// Decodes every prompt and prints the answers.
pub fn execute(args: &RunArgs, model: &Model) -> miette::Result<()> {
    if args.format != Format::Text {
        return Err(miette!("--format json needs --prompt or --tokens"));
    }
    if args.logprobs.is_some() {
        return Err(miette!("--logprobs needs --prompt or --tokens"));
    }
    let tokenizer = model.tokenizer().into_diagnostic()?;
    let context = args.decode.context(model).unwrap_or(model.shape.dimensions.context);
    let sampling = args.sampling.params(Some(&tokenizer))?;
    let options = args.decode.options(model, context)?;
    let options = EngineOptions { sampling: sampling.clone(), ..options };
    let device = args.decode.device.open_when_needed();
    let mut engines = args.speculation.load(device, model, &args.decode, options)?;
    let speculation = args.speculation.speculation();
    let mut decoder = Decoder::new(&mut engines, speculation, Some(&tokenizer)).map_err(engine_error)?;
    let (mut tokens, mut time) = (0, Duration::ZERO);
    let (mut asked, mut right, mut cut) = (0, 0, 0);
    for text in demo::PROMPTS {
        let prompt = tokenizer.encode(text).into_diagnostic()?;
        out!("{text}")?;
        let request = Request {
            sampling: sampling.clone(),
            max_tokens: args.n.unwrap_or(u32::MAX),
            keep: args.keep,
            stop_tokens: if args.ignore_eos { &[] } else { tokenizer.end_tokens() },
            stop_strings: &args.stop,
            ..Request::new(&prompt)
        };
        let generated = generate(
            &mut decoder,
            &request,
            &mut Printer::new(Some(&tokenizer), Streamed::Text, false),
            None,
        )?;
        if interrupt::requested() {
            return Ok(());
        }
        tokens += prompt.len() + generated.tokens.len();
        time += generated.prompt_time + generated.decode_time;
        if let Ok(question) = text.parse::<Question>() {
            let is_right = generated.text.trim() == question.answer().to_string();
            let is_cut = generated.reason == FinishReason::MaxTokens && !is_right;
            asked += usize::from(!is_cut);
            right += usize::from(is_right);
            cut += usize::from(is_cut);
        }
    }
    let cut = if cut > 0 { format!(", {cut} cut off by -n") } else { String::new() };
    note!(
        "{right} of {asked} answers right{cut}; {tokens} tokens, prompts included, in {:.1?} on {}",
        time,
        decoder.device()
    );
    note!(
        "ask your own question (numbers up to 999): bespoke run -p \"17 + 25 =\"; your own model: bespoke run MODEL.gguf -p TEXT"
    );
    Ok(())
}
