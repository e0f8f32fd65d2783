//! Perplexity and comparison on the emulator: against float64 logits, and of a model with itself and with a quantised
//! copy.

use std::ops::ControlFlow;
use std::path::PathBuf;

use bespoke::device::{Checks, Selector, open_with};
use bespoke::engine::{Engine, EngineOptions};
use bespoke::tokenizer::Tokenizer;
use bespoke_gguf::{Gguf, Writer};
use bespoke_kernels::shape::ModelShape;
use bespoke_logits::Reference;
use bespoke_perplexity::{Cut, Text, Window, check_vocabularies, compare, perplexity, windows};
use bespoke_quantize::Quantization;

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures").join(name)
}

fn load(gguf: &Gguf, context: u32) -> Engine {
    let shape = ModelShape::from_gguf(gguf, "model").unwrap();
    let device = open_with(Selector::Emulator, Checks::NONE).unwrap().device;
    let options = EngineOptions { context: Some(context), ..EngineOptions::default() };
    Engine::load(device, gguf, &shape, &options, &|_, _| ()).unwrap()
}

fn go_on(_: u64) -> ControlFlow<()> {
    ControlFlow::Continue(())
}

/// −ln p of `token`, in double precision.
fn surprise(logits: &[f32], token: u32) -> f64 {
    let sum: f64 = logits.iter().map(|&logit| f64::from(logit).exp()).sum();
    sum.ln() - f64::from(logits[token as usize])
}

#[test]
fn perplexity_is_that_of_float64_logits() {
    // The error of the logits themselves: inputs of a product have 16 bits, in stacks with Q4_K 14 bits.
    for (name, tolerance) in [("llama-q8_0", 1e-4), ("qwen2-q4_k_m", 5e-4)] {
        let reference = Reference::read(&fixture(&format!("{name}.safetensors"))).unwrap();
        let (tokens, count) = (&reference.tokens, reference.tokens.len());
        let vocab = reference.logits.len() / count;
        let logits: Vec<&[f32]> = reference.logits.chunks_exact(vocab).collect();
        // The logits of the reference are those of a window with all tokens.
        let scored = 40;
        let surprises: Vec<f64> = (scored..count).map(|i| surprise(logits[i - 1], tokens[i])).collect();
        let n = surprises.len() as f64;
        let loss = surprises.iter().sum::<f64>() / n;
        let squares = surprises.iter().map(|surprise| surprise * surprise).sum::<f64>() / n;
        // As llama.cpp's tool computes it.
        let error = ((squares - loss * loss) / (n - 1.0)).sqrt() * loss.exp();

        let gguf = Gguf::open(fixture(&format!("{name}.gguf"))).unwrap();
        let windows = [Window { start: 0, end: count, scored }];
        let text = Text { tokens, windows: &windows, bos: None };
        let result = perplexity(&mut load(&gguf, count as u32), text, &mut go_on).unwrap();
        let measured = result.score.perplexity;
        println!("{name}: {measured:?}, {} ± {error}", loss.exp());
        assert!((measured.value / loss.exp() - 1.0).abs() < tolerance, "{measured:?} for {}", loss.exp());
        assert!((measured.standard_error / error - 1.0).abs() < tolerance, "{measured:?} for {error}");
        assert_eq!((result.work.scored, result.work.positions), (count - scored, count as u64 - 1));
    }
}

/// Each window starts with an empty cache and the beginning-of-sequence token.
#[test]
fn windows_are_independent_and_start_with_the_first_token() {
    let gguf = Gguf::open(fixture("llama-q4_0.gguf")).unwrap();
    let tokens: Vec<u32> = (0..40).map(|i| 3 + i * i % 350).collect();
    let mut engine = load(&gguf, 16);
    let score = |engine: &mut Engine, tokens: &[u32], windows: &[Window], bos| {
        perplexity(engine, Text { tokens, windows, bos }, &mut go_on).unwrap().score.loss.value
    };
    let all = windows(tokens.len(), Cut { context: 16, stride: None }, None).unwrap();
    let together = score(&mut engine, &tokens, &all, Some(1));
    let alone = |engine: &mut Engine, window: &Window| {
        let mut part = tokens[window.start..window.end].to_vec();
        part[0] = 1;
        score(engine, &part, &[Window { start: 0, end: 16, scored: 9 }], None)
    };
    let mean = all.iter().map(|window| alone(&mut engine, window)).sum::<f64>() / all.len() as f64;
    assert!((together - mean).abs() < 1e-12, "{together} {mean}");
    assert_ne!(score(&mut engine, &tokens, &all, None), together);

    // An early end gives the result of the tokens so far.
    let text = Text { tokens: &tokens, windows: &all, bos: Some(1) };
    let mut stop = |done| if done == 20 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let part = perplexity(&mut engine, text, &mut stop).unwrap();
    assert_eq!((part.work.positions, part.work.scored), (20, 7));
    assert!((part.score.loss.value - alone(&mut engine, &all[0])).abs() < 1e-12);
}

#[test]
fn a_model_equals_itself_and_differs_from_its_quantised_copy() {
    let gguf = bespoke_demo::model().unwrap();
    let tokenizer = Tokenizer::from_gguf(&gguf).unwrap();
    let story = "The old fox lives in the tower. It wants a loaf of bread. At noon it finds the loaf of bread in the \
                 forest and brings it home. Now it is full.";
    let tokens = tokenizer.encode(story).unwrap();
    let context = 16;
    let windows = windows(tokens.len(), Cut { context, stride: Some(8) }, Some(3)).unwrap();
    let text = Text { tokens: &tokens, windows: &windows, bos: None };
    let mut reference = load(&gguf, context);

    let same = compare(&mut reference, &mut load(&gguf, context), text, &mut go_on).unwrap();
    assert_eq!((same.divergence.mean.value, same.divergence.max), (0.0, 0.0));
    assert_eq!((same.ratio.value, same.ratio.standard_error, same.same_top.value), (1.0, 0.0, 1.0));

    let quantised = Quantization::new(&gguf, "q4_0".parse().unwrap(), true).unwrap().to_bytes().unwrap();
    let quantised = Gguf::from_bytes(quantised).unwrap();
    check_vocabularies(&gguf, &quantised).unwrap();
    let other = compare(&mut reference, &mut load(&quantised, context), text, &mut go_on).unwrap();
    println!("{}", bespoke_perplexity::text::comparison(&other));
    let divergence = other.divergence;
    assert!(divergence.mean.value > 1e-4 && divergence.mean.value < 1.0, "{divergence:?}");
    assert!(divergence.median <= divergence.percentile_99 && divergence.percentile_99 <= divergence.max);
    assert!(divergence.median >= 0.0 && divergence.mean.value < divergence.max);
    assert!((0.5..=1.0).contains(&other.same_top.value), "{:?}", other.same_top);
    let ratio = (other.model.loss.value - other.reference.loss.value).exp();
    assert!((other.ratio.value - ratio).abs() < 1e-12 && other.ratio.standard_error > 0.0);
    // The reference's score is that of the perplexity command.
    let alone = perplexity(&mut reference, text, &mut go_on).unwrap();
    assert_eq!(alone.score.loss.value, other.reference.loss.value);
}

#[test]
fn other_vocabularies_are_refused() {
    let demo = bespoke_demo::model().unwrap();
    let file = |tokens: Option<&[&str]>| {
        let mut header = Writer::new();
        if let Some(tokens) = tokens {
            header.set_array("tokenizer.ggml.tokens", tokens).unwrap();
        }
        Gguf::from_bytes(header.start(Vec::new()).unwrap().finish().unwrap()).unwrap()
    };
    let mut tokens = demo.strings("tokenizer.ggml.tokens").unwrap();
    check_vocabularies(&demo, &file(Some(&tokens))).unwrap();
    let replaced = tokens[7];
    tokens[7] = "other";
    for (other, message) in [
        (file(None), "metadata key tokenizer.ggml.tokens is missing".to_owned()),
        (file(Some(&tokens[..9])), "the models have different vocabularies: 512 and 9 tokens".to_owned()),
        (
            file(Some(&tokens)),
            format!(
                "the models have different vocabularies: token 7 is `{replaced}` in one and `other` in the other"
            ),
        ),
    ] {
        let error = check_vocabularies(&demo, &other).unwrap_err().to_string();
        assert!(error.contains(&message), "{error}");
    }
}
