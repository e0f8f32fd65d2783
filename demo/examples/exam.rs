//! How often a model answers questions right that its training did not see:
//!
//! ```text
//! cargo run --release -p bespoke-demo --example exam -- [MODEL.gguf] [COUNT]
//! ```
//!
//! Without a file it is the demo model inside the binary; a file is one that `demo/train.py` wrote, or what
//! `bespoke quantize` made of it.

use std::error::Error;

use bespoke::device::{Selector, open};
use bespoke::engine::{Engine, EngineOptions};
use bespoke::tokenizer::Tokenizer;
use bespoke_demo::{self as demo, Question, Sign};
use bespoke_gguf::Gguf;
use bespoke_kernels::shape::ModelShape;

/// That of the test suite: its 200 questions are the first of these.
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
