//! Plans by different tuning rules, over the weights of one engine.

use bespoke::device::{Selector, open};
use bespoke::engine::{Engine, EngineOptions, Variants};
use bespoke_gguf::Gguf;
use bespoke_kernels::plan::Tuning;
use bespoke_kernels::shape::ModelShape;
use bespoke_logits::nmse;

/// Rules that change every kind of launch of a step of one row.
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

    let mut variants = Variants::new(&mut engine, 1).unwrap();
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

/// Rules for several rows change kernels, and no bit of a result.
#[test]
fn rules_for_several_rows_keep_every_bit() {
    let gguf =
        Gguf::open(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/fixtures/llama-q4_k_m.gguf")).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "fixture").unwrap();
    let options = EngineOptions { context: Some(64), parallel: 8, ..EngineOptions::default() };
    let prompt = [5, 17, 300];
    for (sequences, rules) in [
        (2, "role = 'ffn_down'\nrows = 2\nwarps = 4\ngroups = 1\nstages = 3"),
        (4, "role = 'ffn_gate_up'\nrows = 4\nslice = 256\nparts = 1"),
        (
            8,
            "role = 'output'\nrows = 8\nwarps = 12\ntiles = 1\n[[rule]]\nrole = 'attention'\nrows = 8\nstages = 3",
        ),
    ] {
        let device = open(Selector::Emulator).unwrap().device;
        let mut engine = Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap();
        let mut variants = Variants::new(&mut engine, sequences).unwrap();
        let tuning = Tuning::parse(&format!("version = 1\n[[rule]]\n{rules}")).unwrap();
        let [mut before, mut after] = [Tuning::default(), tuning].map(|tuning| {
            let plan = variants.plan(&tuning).unwrap();
            variants.make(plan).unwrap()
        });
        assert_ne!(before.plan().kernels, after.plan().kernels, "{rules}");
        let expected = variants.logits(&mut before, &prompt).unwrap();
        let mut rows = expected.chunks(expected.len() / sequences as usize);
        let first = rows.next().unwrap();
        assert!(rows.next().is_some_and(|second| second != first), "the sequences differ");
        assert!(variants.logits(&mut after, &prompt).unwrap() == expected, "{rules}: other bits");
        assert!(variants.time(&mut after, 40, 2).unwrap() > 0.0);
    }
    let device = open(Selector::Emulator).unwrap().device;
    let mut engine = Engine::load(device, &gguf, &shape, &options, &|_, _| ()).unwrap();
    assert!(Variants::new(&mut engine, 16).is_err(), "the engine has eight slots");
}
