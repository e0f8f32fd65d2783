//! Plans by different tuning rules, over the weights of one engine.

use bespoke::device::{Selector, open};
use bespoke::engine::{Engine, EngineOptions, Variants};
use bespoke_gguf::Gguf;
use bespoke_kernels::plan::Tuning;
use bespoke_kernels::shape::ModelShape;
use bespoke_logits::nmse;

/// Rules that change every kind of launch.
const RULES: &str = include_str!("../../tests/fixtures/rules.toml");

#[test]
fn variants_compute_what_the_engine_computes() {
    let gguf =
        Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/llama-q4_k_m.gguf")).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "fixture").unwrap();
    let device = open(Selector::Emulator).unwrap().device;
    let options = EngineOptions { context: Some(160), ..EngineOptions::default() };
    let mut engine = Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap();
    let prompt = [5, 17, 300];
    engine.start(&prompt).unwrap();
    prompt.iter().for_each(|_| engine.step().unwrap());
    let expected = engine.logits().unwrap();

    let mut variants = Variants::new(&mut engine);
    let same = variants.plan(&Tuning::default()).unwrap();
    let other = variants.plan(&Tuning::parse(RULES).unwrap()).unwrap();
    let (mut same, mut other) = (variants.make(same).unwrap(), variants.make(other).unwrap());
    assert_ne!(same.plan().kernels, other.plan().kernels);
    assert!(variants.logits(&mut same, &prompt).unwrap() == expected, "the same kernels, other logits");
    let logits = variants.logits(&mut other, &prompt).unwrap();
    let error = nmse(&logits, &expected).unwrap();
    assert!(error < 1e-10, "NMSE {error:e}");
    // In turns, at a depth where the context is split.
    for variant in [&mut same, &mut other] {
        assert!(variants.time(variant, 140, 1).unwrap() > 0.0);
    }
    assert!(variants.time(&mut same, 140, 21).is_err(), "the cache has 160 positions");
}
