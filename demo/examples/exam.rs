//! Share of held-out questions that a model answers correctly:
//!
//! ```text
//! cargo run --release -p bespoke-demo --example exam -- [MODEL.gguf] [COUNT]
//! ```
//!
//! Without a file, the demo model inside the binary; else a file of `demo/train.py`, quantised or not.

use std::error::Error;

use bespoke::device::{Selector, open};
use bespoke::engine::{Engine, EngineOptions};
use bespoke::tokenizer::Tokenizer;
use bespoke_demo::{self as demo, Question, Sign};
use bespoke_gguf::Gguf;
use bespoke_kernels::shape::ModelShape;

/// The test suite's seed: its 200 questions are the first ones.
const SEED: u64 = 4;

fn main() -> Result<(), Box<dyn Error>> {
    let (mut path, mut count) = (None, 1000);
    for argument in std::env::args().skip(1) {
        match argument.parse() {
            Ok(number) => count = number,
            Err(_) => path = Some(argument),
        }
    }
    let gguf = path.map_or_else(demo::model, Gguf::open)?;
    let tokenizer = Tokenizer::from_gguf(&gguf)?;
    let shape = ModelShape::from_gguf(&gguf, demo::NAME)?;
    let device = open(Selector::Auto)?.device;
    let mut engine = Engine::load(device, &gguf, &shape, &EngineOptions::default(), &|_, _| ())?;
    let questions = Question::held_out(SEED, count);
    let mut wrong = Vec::new();
    for question in &questions {
        let said = demo::ask(&mut engine, &tokenizer, question)?;
        if said != question.answer().to_string() {
            println!("{question} {said}, but {}", question.answer());
            wrong.push(question);
        }
    }
    for sign in [Sign::Plus, Sign::Minus, Sign::Times] {
        let all = questions.iter().filter(|question| question.sign == sign).count();
        let wrong = wrong.iter().filter(|question| question.sign == sign).count();
        println!("{sign:?}: {} of {all} right", all - wrong);
    }
    println!("{} of {} right on {}", questions.len() - wrong.len(), count, engine.device().info().name);
    Ok(())
}
