//! One interface to the two ways of answering a request: a [`Generation`] over an engine, or a [`Scheduler`] that speculates.

use std::ops::ControlFlow;

use bespoke::engine::{Engine, EngineError, Slots};
use bespoke::generation::{Generation, Request, Summary, Token};
use bespoke::scheduler::{Event, Scheduler, SequenceId};
use bespoke::speculation::Speculation;
use bespoke::tokenizer::Tokenizer;

use crate::advice::engine_error;
use crate::session::Engines;

/// Answers one request after another.
pub struct Decoder<'a> {
    kind: Kind<'a>,
    tokenizer: Option<&'a Tokenizer>,
    device: String,
    context: u32,
    /// Number of positions of the context that the last answer has used.
    position: u32,
}

enum Kind<'a> {
    Engine(&'a mut Engine),
    Scheduler(Box<Scheduler<'a, Slots<'a>>>),
}

impl<'a> Decoder<'a> {
    /// A decoder over an engine, and a draft model if there is one. Without speculation, the next prompt reuses the cache to the
    /// token; with it, pages of earlier prompts.
    pub fn new(
        engines: &'a mut Engines,
        speculation: Speculation,
        tokenizer: Option<&'a Tokenizer>,
    ) -> Result<Decoder<'a>, EngineError> {
        let Engines { engine, draft } = engines;
        let device = engine.device().info().name.clone();
        let context = engine.plan().params.context;
        let kind = if speculation.most == 0 {
            Kind::Engine(engine)
        } else {
            let scheduler = Scheduler::new(Slots::new(engine)?, tokenizer).with_speculation(speculation);
            let scheduler = match draft {
                Some(draft) => scheduler.with_draft_model(Box::new(Slots::new(draft)?)),
                None => scheduler,
            };
            Kind::Scheduler(Box::new(scheduler))
        };
        Ok(Decoder { kind, tokenizer, device, context, position: 0 })
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
    pub fn position(&self) -> u32 {
        self.position
    }

    /// Generates the answer to a request, and calls `on_token` with each token, until generation ends, or this function or
    /// that of the request breaks.
    pub fn generate(
        &mut self,
        request: &Request<'_>,
        on_token: &mut dyn FnMut(&Token) -> miette::Result<ControlFlow<()>>,
    ) -> miette::Result<Summary> {
        let summary = match &mut self.kind {
            Kind::Engine(engine) => {
                let mut generation =
                    Generation::start(engine, self.tokenizer, request).map_err(engine_error)?;
                let mut cancelled = false;
                for token in &mut generation {
                    cancelled = on_token(&token.map_err(engine_error)?)?.is_break();
                    if cancelled {
                        break;
                    }
                }
                if cancelled { generation.cancel() } else { generation.finish() }
            }
            Kind::Scheduler(scheduler) => {
                let id = scheduler.add(request).map_err(engine_error)?;
                let answer = answer(scheduler, id, request, on_token);
                if answer.is_err() {
                    scheduler.cancel(id);
                }
                answer?
            }
        };
        self.position = summary.context_used;
        Ok(summary)
    }
}

/// Runs a scheduler until request `id` is answered.
fn answer(
    scheduler: &mut Scheduler<'_, Slots<'_>>,
    id: SequenceId,
    request: &Request<'_>,
    on_token: &mut dyn FnMut(&Token) -> miette::Result<ControlFlow<()>>,
) -> miette::Result<Summary> {
    loop {
        let mut cancelled = false;
        for event in scheduler.step().map_err(engine_error)? {
            // Events of a sequence that was cancelled before may follow.
            if event.id() != id {
                continue;
            }
            match event {
                Event::Prompt { processed, total, .. } => {
                    let position = processed.min(total - 1);
                    cancelled |= request.on_prompt_token.is_some_and(|call| call(position).is_break());
                }
                Event::Token { token, .. } if !cancelled => cancelled = on_token(&token)?.is_break(),
                Event::Token { .. } => {}
                Event::Finished { summary, .. } => return Ok(summary),
                Event::Failed { error, .. } => return Err(engine_error(error)),
            }
        }
        if let Some(summary) = cancelled.then(|| scheduler.cancel(id)).flatten() {
            return Ok(summary);
        }
    }
}

#[cfg(test)]
mod tests {
    use bespoke::device::{Selector, open};
    use bespoke::engine::EngineOptions;
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
        let mut ask = |text: &str, outcome: &dyn Fn() -> miette::Result<ControlFlow<()>>| {
            let prompt = tokenizer.encode(text).unwrap();
            let stop_tokens = tokenizer.end_tokens();
            let request = Request { max_tokens: 8, stop_tokens, ..Request::new(&prompt) };
            decoder.generate(&request, &mut |_| outcome())
        };
        assert_eq!(
            ask("17 + 25 =", &|| Err(miette!("the disk is full"))).unwrap_err().to_string(),
            "the disk is full"
        );
        let next = ask("86 * 7 =", &|| Ok(ControlFlow::Continue(()))).unwrap();
        assert_eq!(next.text.trim(), "602");
    }
}
