//! Launches the kernels that the build script emitted, through their generated stubs, on the emulator.

use bespoke::device::{Buffer, Device, Selector, StubLauncher, StubRecorder, open};
use bespoke_codegen::launch::{KernelSource, LaunchConfig, Launcher};
use bespoke_codegen::ptx::Target;
use bespoke_kernels::kernels::state::Row;
use kernels::choose_greedy_n32_t32;

/// Kernels emitted by this crate's build script.
mod kernels {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

fn emulator() -> Box<dyn Device> {
    open(Selector::Emulator).unwrap().device
}

/// Values of 32 candidates, with the largest at index `best`.
fn values(best: usize) -> [f32; 32] {
    std::array::from_fn(|i| if i == best { 3.0 } else { -1.0 })
}

/// Buffers of the kernel `choose_greedy`, except the candidates.
struct Sequence {
    tokens: Buffer<u32>,
    sequence: Buffer<u32>,
    finished: Buffer<u32>,
    state: Buffer<u32>,
}

impl Sequence {
    /// Allocates a sequence of `positions` tokens, of which the first is the prompt.
    fn new(device: &dyn Device, positions: usize) -> Sequence {
        let mut sequence = vec![0u32; positions];
        sequence[0] = 7;
        Sequence {
            tokens: device.buffer_of("tokens", &(100..132).collect::<Vec<u32>>()).unwrap(),
            sequence: device.buffer_of("sequence", &sequence).unwrap(),
            finished: device.buffer_of("finished", &[0u32; 5]).unwrap(),
            state: device
                .buffer_of("state", &Row { prompt: 1, chooses: true, ..Row::default() }.words())
                .unwrap(),
        }
    }

    fn choose<L: Launcher>(&self, launcher: &mut L, values: &Buffer<f32>) -> Result<(), L::Error> {
        choose_greedy_n32_t32::launch(
            launcher,
            values.pointer(),
            self.tokens.pointer(),
            self.sequence.pointer(),
            self.finished.pointer(),
            self.state.pointer(),
        )
    }
}

/// Each launch chooses a token and advances the position, so the second reads the output of the first.
#[test]
fn stubs_launch_in_order() {
    let device = &*emulator();
    let buffers = Sequence::new(device, 4);
    let mut launcher = StubLauncher::new(device);
    for best in [5, 30] {
        let values = device.buffer_of("values", &values(best)).unwrap();
        buffers.choose(&mut launcher, &values).unwrap();
    }
    assert_eq!(device.read(&buffers.sequence).unwrap(), [7, 105, 130, 0]);
    assert_eq!(device.read(&buffers.finished).unwrap(), [0, 105, 130, 0, 0]);
    assert_eq!(device.read(&buffers.state).unwrap()[..2], [2, 1]);
}

/// Recorded launches run with every replay of the sequence.
#[test]
fn stubs_are_recorded_for_a_graph() {
    let device = &*emulator();
    let values = device.buffer_of("values", &values(5)).unwrap();
    let buffers = Sequence::new(device, 5);
    let mut recorder = StubRecorder::new(device);
    for _ in 0..2 {
        buffers.choose(&mut recorder, &values).unwrap();
    }
    let mut both = recorder.sequence().unwrap();
    assert_eq!(device.read(&buffers.state).unwrap()[0], 0, "a recorded launch ran");
    let graph = both.capture().unwrap();
    assert_eq!(graph.kernels, ["choose_greedy_n32_t32"; 2]);
    both.replay().unwrap();
    both.replay().unwrap();
    assert_eq!(device.read(&buffers.sequence).unwrap(), [7, 105, 105, 105, 105]);
    assert_eq!(device.read(&buffers.state).unwrap()[0], 4);
}

/// The emulator reports a buffer that is too small, with the kernel's line.
#[test]
fn a_short_buffer_is_named_with_the_kernels_line() {
    let device = &*emulator();
    let values = device.buffer_of("values", &values(5)).unwrap();
    let buffers = Sequence::new(device, 1);
    let error = buffers.choose(&mut StubLauncher::new(device), &values).unwrap_err().to_string();
    for part in ["choose_greedy_n32_t32", "kernels-gen/src/kernels/argmax.rs:", "thread", "`sequence`"] {
        assert!(error.contains(part), "no {part:?} in: {error}");
    }
}

/// The emulator is an sm_90 device: a kernel only for newer GPUs is an error with advice.
#[test]
fn a_kernel_that_was_emitted_for_newer_gpus_is_refused() {
    static NEWER: KernelSource = KernelSource { name: "newer", target: Target::Sm120, ptx: "", cubin: None };
    let device = &*emulator();
    let config = LaunchConfig { grid: [1, 1, 1], block: [32, 1, 1], dynamic_shared: 0 };
    let error = StubLauncher::new(device).launch(&[&NEWER], config, &[]).unwrap_err();
    assert_eq!(
        error.to_string(),
        "kernel `newer` was emitted for sm_120; bespoke PTX emulator (compute capability 9.0) runs none of these targets"
    );
    assert!(error.advice().unwrap().contains(".target(Target::Sm80)"));
}
