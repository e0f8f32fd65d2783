//! Answers to one request after another, as `run` and `chat` print them.

use std::ops::ControlFlow;

use bespoke::engine::{EngineError, Slots};
use bespoke::generation::{Request, Summary, Token};
use bespoke::scheduler::{Event, Scheduler};
use bespoke::speculation::Speculation;
use bespoke::tokenizer::Tokenizer;
use miette::Report;

use crate::advice::engine_error;
use crate::interrupt;
use crate::progress::DelayedBar;
use crate::session::Engines;

/// Answers one request after another. A prompt reuses pages of earlier ones.
pub struct Decoder<'a> {
    scheduler: Scheduler<'a, Slots<'a>>,
    device: String,
    context: u32,
    /// Number of positions of the context that the last answer has used.
    context_used: u32,
}

impl<'a> Decoder<'a> {
    /// A decoder over an engine, and a draft model if there is one.
    pub fn new(
        engines: &'a mut Engines,
        speculation: Speculation,
        tokenizer: Option<&'a Tokenizer>,
    ) -> Result<Decoder<'a>, EngineError> {
        let Engines { engine, draft } = engines;
        let device = engine.device().info().name.clone();
        let context = engine.plan().params.context;
        // The times of steps decide about drafts, so none of them may include the loading of kernels.
        let steps = if speculation.most > 0 { Slots::loaded(engine)? } else { Slots::new(engine)? };
        let mut scheduler = Scheduler::new(steps, tokenizer).with_speculation(speculation);
        if let Some(draft) = draft {
            scheduler = scheduler.with_draft_model(Box::new(Slots::loaded(draft)?));
        }
        Ok(Decoder { scheduler, device, context, context_used: 0 })
    }

    /// Name of the device.
    pub fn device(&self) -> &str {
        &self.device
    }

    /// Number of positions of the context.
    pub fn context(&self) -> u32 {
        self.context
    }

    /// Number of positions of the context that the last answer has used.
    pub fn context_used(&self) -> u32 {
        self.context_used
    }

    /// Generates the answer to a request, and prints each token, until generation ends, printing fails, or Ctrl-C requests a
    /// stop. `bar` shows the progress of the prompt.
    pub fn generate<E: Into<Report>>(
        &mut self,
        request: &Request<'_>,
        bar: Option<&DelayedBar>,
        mut print: impl FnMut(&Token) -> Result<(), E>,
    ) -> miette::Result<Summary> {
        let (mut is_streaming, mut failed) = (false, None);
        let finish_bar = || {
            if let Some(bar) = bar {
                bar.finish();
            }
        };
        let outcome = self.scheduler.generate(request, |event| {
            match event {
                // After a shift of the context, tokens that stay are processed again: without a bar.
                Event::Prompt { processed, .. } if !is_streaming => {
                    if let Some(bar) = bar {
                        bar.update(u64::from(*processed));
                    }
                }
                Event::Token { token, .. } if failed.is_none() => {
                    finish_bar();
                    is_streaming = true;
                    failed = print(token).err();
                }
                _ => {}
            }
            if failed.is_some() || interrupt::requested() {
                ControlFlow::Break(())
            } else {
                ControlFlow::Continue(())
            }
        });
        finish_bar();
        if let Some(error) = failed {
            return Err(error.into());
        }
        let summary = outcome.map_err(engine_error)?;
        self.context_used = summary.context_used;
        Ok(summary)
    }
}

#[cfg(test)]
mod tests {
    use bespoke::device::{Selector, open};
    use bespoke::engine::{Engine, EngineOptions};
    use miette::miette;

    use super::*;
    use crate::model::{LoadArgs, open_demo_with};

    /// After an error within an answer, as of a full disk, the next answer has only its own tokens.
    #[test]
    fn an_answer_after_an_error_has_its_own_tokens() {
        let model = open_demo_with(LoadArgs::default()).unwrap();
        let tokenizer = model.tokenizer().unwrap();
        let options = EngineOptions { context: Some(64), drafts: 3, ..EngineOptions::default() };
        let device = open(Selector::Emulator).unwrap().device;
        let engine = Engine::load(device, &model.gguf, &model.shape, &options, &|_, _| ()).unwrap();
        let mut engines = Engines { engine, draft: None };
        let speculation = Speculation { most: 3, always: true, lookup: true };
        let mut decoder = Decoder::new(&mut engines, speculation, Some(&tokenizer)).unwrap();
        let mut ask = |text: &str, outcome: &dyn Fn() -> miette::Result<()>| {
            let prompt = tokenizer.encode(text).unwrap();
            let stop_tokens = tokenizer.end_tokens();
            let request = Request { max_tokens: 8, stop_tokens, ..Request::new(&prompt) };
            decoder.generate(&request, None, |_| outcome())
        };
        assert_eq!(
            ask("17 + 25 =", &|| Err(miette!("the disk is full"))).unwrap_err().to_string(),
            "the disk is full"
        );
        let next = ask("86 * 7 =", &|| Ok(())).unwrap();
        assert_eq!(next.text.trim(), "602");
    }
}
