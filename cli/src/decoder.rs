//! What answers one request after another: an engine, or a scheduler over it that speculates.

use std::ops::ControlFlow;

use bespoke::engine::{Engine, EngineError, Slots};
use bespoke::generation::{Generation, Request, Summary, Token};
use bespoke::scheduler::{Event, Scheduler};
use bespoke::speculation::Speculation;
use bespoke::tokenizer::Tokenizer;

use crate::advice::engine_error;

/// What answers one request after another.
pub struct Decoder<'a> {
    kind: Kind<'a>,
    tokenizer: Option<&'a Tokenizer>,
    device: String,
    context: u32,
    /// Number of positions that the last answer has used.
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
        engine: &'a mut Engine,
        draft: Option<&'a mut Engine>,
        speculation: Speculation,
        tokenizer: Option<&'a Tokenizer>,
    ) -> Result<Decoder<'a>, EngineError> {
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
        match &mut self.kind {
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
                let summary = if cancelled { generation.cancel() } else { generation.finish() };
                self.position = engine.position();
                Ok(summary)
            }
            Kind::Scheduler(scheduler) => {
                let summary = answer(scheduler, request, on_token)?;
                let used = request.prompt.len() + summary.tokens.len();
                self.position = u32::try_from(used).unwrap_or(u32::MAX).min(self.context);
                Ok(summary)
            }
        }
    }
}

/// Runs a scheduler until the only request is answered.
fn answer(
    scheduler: &mut Scheduler<'_, Slots<'_>>,
    request: &Request<'_>,
    on_token: &mut dyn FnMut(&Token) -> miette::Result<ControlFlow<()>>,
) -> miette::Result<Summary> {
    let id = scheduler.add(request).map_err(engine_error)?;
    loop {
        let mut cancelled = false;
        for event in scheduler.step().map_err(engine_error)? {
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
