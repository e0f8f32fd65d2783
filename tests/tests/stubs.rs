//! Kernels emitted by a build script and launched through their generated stubs, on the emulator.

use bespoke::device::{Allocation, Device, Selector, StubLauncher, open};
use bespoke_codegen::launch::DevicePointer;
use kernels::choose_greedy_n32_t32;

/// What this crate's build script emitted.
mod kernels {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

fn emulator() -> Box<dyn Device> {
    open(Selector::Emulator).unwrap().device
}

/// A buffer with this content.
fn buffer(device: &dyn Device, name: &str, words: &[u32]) -> Allocation {
    let memory = device.alloc(name, 4 * words.len() as u64).unwrap();
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    device.upload(memory.address(), &bytes).unwrap();
    memory
}

fn words(device: &dyn Device, memory: &Allocation) -> Vec<u32> {
    let mut bytes = vec![0; memory.bytes() as usize];
    device.download(memory.address(), &mut bytes).unwrap();
    bytes.chunks_exact(4).map(|four| u32::from_le_bytes([four[0], four[1], four[2], four[3]])).collect()
}

fn pointer<T>(memory: &Allocation) -> DevicePointer<T> {
    DevicePointer::new(memory.address().0)
}

/// Candidates of which the one at `best` is the largest, as f32 bits.
fn values(best: usize) -> Vec<u32> {
    (0..32).map(|i| if i == best { 3.0f32 } else { -1.0 }.to_bits()).collect()
}

/// Two stubs in a row: each chooses a token and advances the position, so the second sees what the first wrote.
#[test]
fn stubs_launch_in_order() {
    let device = &*emulator();
    let tokens = buffer(device, "tokens", &(100..132).collect::<Vec<u32>>());
    let sequence = buffer(device, "sequence", &[7, 0, 0, 0]);
    let finished = buffer(device, "finished", &[0; 4]);
    let state = buffer(device, "state", &[0, 1, 0, 0]);
    let mut launcher = StubLauncher::new(device);
    for best in [5, 30] {
        let values = buffer(device, "values", &values(best));
        choose_greedy_n32_t32::launch(
            &mut launcher,
            pointer(&values),
            pointer(&tokens),
            pointer(&sequence),
            pointer(&finished),
            pointer(&state),
        )
        .unwrap();
    }
    assert_eq!(words(device, &sequence), [7, 105, 130, 0]);
    assert_eq!(words(device, &finished), [0, 105, 130, 0]);
    assert_eq!(words(device, &state)[..2], [2, 1]);
}

/// A buffer that is too small is found by the emulator, at the kernel's own line.
#[test]
fn a_short_buffer_is_named_with_the_kernels_line() {
    let device = &*emulator();
    let values = buffer(device, "values", &values(5));
    let tokens = buffer(device, "tokens", &[1; 32]);
    let sequence = buffer(device, "sequence", &[7]);
    let finished = buffer(device, "finished", &[0; 4]);
    let state = buffer(device, "state", &[0, 1, 0, 0]);
    let mut launcher = StubLauncher::new(device);
    let error = choose_greedy_n32_t32::launch(
        &mut launcher,
        pointer(&values),
        pointer(&tokens),
        pointer(&sequence),
        pointer(&finished),
        pointer(&state),
    )
    .unwrap_err()
    .to_string();
    for part in ["choose_greedy_n32_t32", "kernels-gen/src/kernels/argmax.rs:", "thread", "`sequence`"] {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
}
