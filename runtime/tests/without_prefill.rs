//! Models without prefill steps: decode steps process their prompts, also those of several sequences.

use std::ops::ControlFlow;

use bespoke::device::{Checks, Selector, open_with};
use bespoke::engine::{Engine, EngineError, EngineOptions, Slots};
use bespoke::generation::Request;
use bespoke::scheduler::{Event, Scheduler};
use bespoke_gguf::{GgmlType, Gguf, TensorInfo, Writer};
use bespoke_kernels::shape::ModelShape;

fn fixture(name: &str) -> Gguf {
    Gguf::open(format!("{}/../tests/fixtures/{name}.gguf", env!("CARGO_MANIFEST_DIR"))).unwrap()
}

/// A model whose first layer has a gate of Q4_K and an up of Q8_0, of zeros: prefill steps do not support blocks of different
/// widths side by side.
fn of_different_widths() -> Gguf {
    let file = fixture("llama-q4_k_m");
    let is_up = |info: &TensorInfo| info.name == "blk.0.ffn_up.weight";
    let mut header = Writer::new();
    file.metadata().for_each(|(key, _)| header.copy(&file, key).unwrap());
    for info in file.tensors() {
        let ty = if is_up(info) { GgmlType::Q8_0 } else { info.ty };
        header.tensor(&info.name, &info.dims, ty).unwrap();
    }
    let mut data = header.start(Vec::new()).unwrap();
    for info in file.tensors() {
        let bytes = data.next().unwrap().0.bytes;
        if is_up(info) {
            data.write(&vec![0; bytes as usize]).unwrap();
        } else {
            data.write(file.tensor_data(info).unwrap().read(0..bytes, &mut Vec::new()).unwrap()).unwrap();
        }
    }
    Gguf::from_bytes(data.finish().unwrap()).unwrap()
}

fn load(gguf: &Gguf, options: EngineOptions) -> Result<Engine, EngineError> {
    let shape = ModelShape::from_gguf(gguf, "fixture").unwrap();
    let device = open_with(Selector::Emulator, Checks::NONE).unwrap().device;
    let options = EngineOptions { context: Some(96), ..options };
    Engine::load(device, gguf, &shape, &options, &|_, _| ())
}

#[test]
fn several_sequences_have_the_tokens_of_one_alone() {
    let gguf = of_different_widths();
    let prompts: [Vec<u32>; 2] = [70, 5].map(|length| (0..length).map(|i| (7 + 13 * i) % 300).collect());
    let mut alone = load(&gguf, EngineOptions::default()).unwrap();
    let expected = prompts.each_ref().map(|prompt| {
        let request = Request { max_tokens: 4, ..Request::new(prompt) };
        let mut scheduler = Scheduler::new(Slots::new(&mut alone).unwrap(), None);
        scheduler.generate(&request, |_| ControlFlow::Continue(())).unwrap().tokens
    });
    let mut engine = load(&gguf, EngineOptions { parallel: 2, ..EngineOptions::default() }).unwrap();
    let mut scheduler = Scheduler::new(Slots::new(&mut engine).unwrap(), None);
    let ids = prompts
        .each_ref()
        .map(|prompt| scheduler.add(&Request { max_tokens: 4, ..Request::new(prompt) }).unwrap());
    let mut found = [Vec::new(), Vec::new()];
    while !scheduler.is_idle() {
        for event in scheduler.step().unwrap() {
            if let Event::Finished { id, summary } = event {
                found[ids.iter().position(|&it| it == id).unwrap()] = summary.tokens;
            }
        }
    }
    assert_eq!(found, expected);
}

/// An engine that wants no prefill steps does not plan one for the size of its pool.
#[test]
fn prefill_steps_that_nobody_wants_are_not_planned() {
    let options = EngineOptions { parallel: 2, prefill: false, ..EngineOptions::default() };
    let engine = load(&of_different_widths(), options).unwrap();
    assert_eq!(engine.plan().params.pages, 4);
}
