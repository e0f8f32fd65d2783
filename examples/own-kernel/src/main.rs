//! Launches the kernel on a GPU or on the emulator, and prints its error against double precision.
//!
//! `own-kernel [auto|cuda[:N]|emulator]`

use std::error::Error;
use std::process::ExitCode;

use bespoke::device::{self, Buffer, Device, Kind, StubLauncher, StubRecorder};
use bespoke_codegen::launch::Launcher;
use own_kernel::kernel::SHAPE;
use own_kernel::kernels::add_norm_quantize;
use own_kernel::reference::{Errors, Input, Output};

const ROWS: usize = 16;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let selector = std::env::args().nth(1).unwrap_or_else(|| "auto".to_owned());
    let device = device::open(selector.parse()?)?.device;
    let input = Input::example(ROWS, SHAPE.cols as usize);
    let step = Step::new(&*device, &input)?;
    step.launch(&mut StubLauncher::new(&*device))?;

    let errors = Errors::of(&step.output(&*device)?, &input);
    println!("{ROWS} rows of {} on {}", SHAPE.cols, device.info().name);
    println!("largest error of a scale: {:.1e}", errors.scale);
    println!("largest error of an element: {:.3} of a step", errors.steps);
    if !errors.are_small() {
        return Err(format!("the result is wrong: {errors:?}").into());
    }

    // Times the same launch as a graph; every replay adds to `hidden` again.
    let mut recorder = StubRecorder::new(&*device);
    step.launch(&mut recorder)?;
    let mut sequence = recorder.sequence()?;
    sequence.capture()?;
    let replays = if device.info().kind == Kind::Emulator { 3 } else { 1000 };
    println!("{:.4} ms a launch", sequence.time_replays(replays)?);
    Ok(())
}

/// The kernel's arguments in device memory.
struct Step {
    hidden: Buffer<f32>,
    update: Buffer<f32>,
    weight: Buffer<f32>,
    quants: Buffer<i8>,
    scales: Buffer<f32>,
    epsilon: f32,
}

impl Step {
    fn new(device: &dyn Device, input: &Input) -> device::Result<Step> {
        Ok(Step {
            hidden: device.buffer_of("hidden", &input.hidden)?,
            update: device.buffer_of("update", &input.update)?,
            weight: device.buffer_of("weight", &input.weight)?,
            quants: device.buffer("quants", input.hidden.len())?,
            scales: device.buffer("scales", ROWS)?,
            epsilon: input.epsilon,
        })
    }

    fn launch<L: Launcher>(&self, launcher: &mut L) -> Result<(), L::Error> {
        add_norm_quantize::launch(
            launcher,
            [ROWS as u32, 1, 1],
            self.hidden.pointer(),
            self.update.pointer(),
            self.weight.pointer(),
            self.quants.pointer(),
            self.scales.pointer(),
            self.epsilon,
        )
    }

    fn output(&self, device: &dyn Device) -> device::Result<Output> {
        Ok(Output {
            hidden: device.read(&self.hidden)?,
            quants: device.read(&self.quants)?,
            scales: device.read(&self.scales)?,
        })
    }
}
