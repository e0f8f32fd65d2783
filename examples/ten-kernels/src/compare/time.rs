//! Times of the kernels and their twins on a device.

use std::fs;
use std::path::Path;

use bespoke::device::{
    Allocation, Device, Kind, Launch as DeviceLaunch, LaunchSequence, MachineCode, ModuleSource,
};
use bespoke_codegen::launch::Argument as _;
use bespoke_codegen::ptx::Target;
use comfy_table::Table;
use half::f16;

use crate::Result;
use crate::cases::{Argument, Case, Element, Launch, Size};

/// Pairs of measurements of a kernel and its twin.
const ROUNDS: usize = 15;
/// Launches of a graph.
const LAUNCHES: usize = 20;
/// Least milliseconds of a measurement.
const MEASUREMENT: f64 = 5.0;

/// Table of the median times of all launches. Fails if a kernel and its twin have different results.
pub fn table(device: &dyn Device, target: Target, cases: &[Case], folder: &Path) -> Result<Table> {
    let mut table = crate::table(&["launch", "ours, µs", "nvcc, µs", "ratio"]);
    let is_emulator = device.info().kind == Kind::Emulator;
    let size = if is_emulator { Size::Small } else { Size::Large };
    for case in cases {
        for launch in (case.launch)(size) {
            let [ours, twin] =
                ["ours", "twin"].map(|which| Bound::new(device, target, case, &launch, folder, which));
            let (mut ours, mut twin) = (ours?, twin?);
            compare(&launch, &ours.outputs(device)?, &twin.outputs(device)?)?;
            let cells = if is_emulator {
                ["–"; 3].map(str::to_owned)
            } else {
                let [ours, twin] = measure(&mut ours, &mut twin)?;
                [format!("{:.1}", ours * 1e3), format!("{:.1}", twin * 1e3), format!("{:.3}", ours / twin)]
            };
            table.add_row([launch.what].into_iter().chain(cells));
        }
    }
    Ok(table)
}

/// A kernel with arguments in device memory, which has run once.
struct Bound {
    /// The launch, [`LAUNCHES`] times.
    sequence: Box<dyn LaunchSequence>,
    /// Buffers of the arguments, with the size of outputs.
    buffers: Vec<(Allocation, Option<usize>)>,
}

impl Bound {
    /// Loads the kernel `which` of a case from the folder, and runs it once.
    fn new(
        device: &dyn Device,
        target: Target,
        case: &Case,
        launch: &Launch,
        folder: &Path,
        which: &str,
    ) -> Result<Bound> {
        let read = |extension: &str| {
            let path = folder.join(format!("{}.{which}.{extension}", case.name));
            fs::read(&path).map_err(|error| format!("{}: {error}; write it by --emit", path.display()))
        };
        let (ptx, cubin) = (String::from_utf8(read("ptx")?)?, read("cubin")?);
        let machine_code = Some(MachineCode { compute: target.compute(), cubin: &cubin });
        let module = device.load_source(&ModuleSource { name: case.name, ptx: &ptx, machine_code })?;
        let kernel =
            module.kernels().next().ok_or_else(|| format!("no kernel in {}.{which}.ptx", case.name))?;
        let mut params = Vec::new();
        let mut buffers = Vec::new();
        let mut buffer = |bytes: usize, output: bool, params: &mut Vec<u8>| -> Result<_> {
            let memory = device.alloc(case.name, bytes as u64)?;
            let address = memory.address();
            device.fill(address, bytes as u64, 0)?;
            address.0.append(params);
            buffers.push((memory, output.then_some(bytes)));
            Ok(address)
        };
        for argument in &launch.arguments {
            match argument {
                Argument::Input(bytes) => {
                    let address = buffer(bytes.len(), false, &mut params)?;
                    device.upload(address, bytes)?;
                }
                Argument::Output(_, bytes) => drop(buffer(*bytes, true, &mut params)?),
                Argument::Scratch(bytes) => drop(buffer(*bytes, false, &mut params)?),
                Argument::U32(value) => value.append(&mut params),
            }
        }
        let launch = DeviceLaunch {
            kernel: kernel.clone(),
            grid: launch.grid,
            block: launch.block,
            dynamic_shared: launch.dynamic_shared,
            params,
            programmatic: false,
        };
        device.sequence(vec![launch.clone()])?.run_eager()?;
        device.wait()?;
        Ok(Bound { sequence: device.sequence(vec![launch; LAUNCHES])?, buffers })
    }

    /// Contents of the outputs.
    fn outputs(&self, device: &dyn Device) -> Result<Vec<Vec<u8>>> {
        let outputs = self.buffers.iter().filter_map(|(memory, bytes)| Some((memory, (*bytes)?)));
        let read = |(memory, bytes): (&Allocation, usize)| {
            let mut content = vec![0; bytes];
            device.download(memory.address(), &mut content)?;
            Ok(content)
        };
        outputs.map(read).collect()
    }
}

/// Fails at the first element that differs: of floats, by more than a fraction of the largest.
fn compare(launch: &Launch, ours: &[Vec<u8>], twin: &[Vec<u8>]) -> Result<()> {
    let types = launch.arguments.iter().filter_map(|argument| match argument {
        Argument::Output(element, _) => Some(*element),
        _ => None,
    });
    for (number, ((element, ours), twin)) in types.zip(ours).zip(twin).enumerate() {
        let (size, tolerance) = match element {
            Element::Bits => (4, 0.0),
            Element::F16 => (2, 1e-3),
            Element::F32 => (4, 1e-5),
            Element::F64 => (8, 1e-10),
        };
        let values =
            |bytes: &[u8]| -> Vec<f64> { bytes.chunks(size).map(|bytes| value(element, bytes)).collect() };
        let (ours, twin) = (values(ours), values(twin));
        let largest = twin.iter().fold(0.0f64, |largest, value| largest.max(value.abs()));
        // A NaN is not close.
        let is_close = |(a, b): (&f64, &f64)| (a - b).abs() <= tolerance * largest;
        if let Some(at) = ours.iter().zip(&twin).position(|pair| !is_close(pair)) {
            let (a, b) = (ours[at], twin[at]);
            return Err(format!(
                "{}: element {at} of output {number} is {a}, but {b} of the twin",
                launch.what
            )
            .into());
        }
    }
    Ok(())
}

/// Value of an element.
fn value(element: Element, bytes: &[u8]) -> f64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    let bits = u64::from_le_bytes(word);
    match element {
        Element::Bits => bits as f64,
        Element::F16 => f16::from_bits(bits as u16).to_f64(),
        Element::F32 => f32::from_bits(bits as u32).into(),
        Element::F64 => f64::from_bits(bits),
    }
}

/// Median times of a launch of each in milliseconds, measured in turns.
fn measure(ours: &mut Bound, twin: &mut Bound) -> Result<[f64; 2]> {
    let mut both = [ours, twin];
    let mut times = [Vec::new(), Vec::new()];
    for bound in &mut both {
        bound.sequence.capture()?;
    }
    let warm = both[0].sequence.time_replays(3)?.max(both[1].sequence.time_replays(3)?);
    let replays = (MEASUREMENT / warm).ceil().clamp(1.0, 1000.0) as u32;
    for _ in 0..ROUNDS {
        for (bound, times) in both.iter_mut().zip(&mut times) {
            times.push(bound.sequence.time_replays(replays)? / LAUNCHES as f64);
        }
    }
    Ok(times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }))
}
