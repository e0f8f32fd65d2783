//! Tests the device layer on one device: copies and their bandwidth, eager launches, captured graphs with and without
//! programmatic edges, large shared memory, host-visible memory, timing, and error messages.
//!
//! `device_check [--device auto|cuda|cuda:N|emulator] [--fault]`. With `--fault` the last kernel writes outside its
//! allocation, which destroys the context of a GPU.

use std::error::Error;
use std::process::ExitCode;
use std::time::Instant;

use bespoke::device::{
    self, Address, Bytes, Device, GraphReport, Kernel, Kind, Launch, LaunchSequence, Module, Selector,
};
use clap::Parser;

const VECTORS: &str = include_str!("../src/device/testdata/vectors.ptx");
const CHAIN: &str = include_str!("../src/device/testdata/chain.ptx");

/// Threads per CTA in every launch.
const THREADS: u32 = 128;
/// Launches in the chain: enough to expose a missing edge.
const STEPS: usize = 32;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

/// The command line.
#[derive(Parser)]
struct Arguments {
    /// auto, cuda, cuda:N or emulator
    #[arg(long, default_value = "auto")]
    device: Selector,
    /// End with a kernel that faults
    #[arg(long)]
    fault: bool,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => {
            println!("all checks passed");
            ExitCode::SUCCESS
        }
        Err(error) => {
            println!("FAILED: {error}");
            if let Some(advice) = error.downcast_ref::<device::Error>().and_then(device::Error::advice) {
                println!("help: {advice}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Outcome {
    for info in device::list() {
        match info {
            Ok(info) => println!("{}: {}", info.kind, info.name),
            Err(error) => println!("no GPU: {error}"),
        }
    }
    let opened = device::open(arguments.device)?;
    let device = &*opened.device;
    println!("{:#?}\nchosen: {}; {:?}", device.info(), opened.reason, device.memory()?);

    copies(device)?;
    vectors(device)?;
    for programmatic in [false, true] {
        chain(device, programmatic)?;
    }
    shared_and_host_visible(device)?;
    messages(device)?;
    if arguments.fault {
        fault(device)?;
    }
    Ok(())
}

/// Fails with the message `otherwise` unless `holds`.
fn ensure(holds: bool, otherwise: &str) -> Outcome {
    if holds { Ok(()) } else { Err(otherwise.into()) }
}

/// Checks a large upload and download, and prints their bandwidth.
fn copies(device: &dyn Device) -> Outcome {
    let bytes: usize = match device.info().kind {
        Kind::Cuda { .. } => (1 << 30) + 12_345,
        Kind::Emulator => (1 << 20) + 12_345,
    };
    let pattern = |i: usize| (i.wrapping_mul(0x9E37_79B9) >> 16) as u8;
    let sent: Vec<u8> = (0..bytes).map(pattern).collect();
    let mut back = vec![0u8; bytes];
    let buffer = device.alloc("copies", bytes as u64)?;
    // The first pass page-locks the staging buffers and touches the pages.
    for pass in 1..=2 {
        back.fill(0);
        let speed = |start: Instant| bytes as f64 / start.elapsed().as_secs_f64() / 1e9;
        let start = Instant::now();
        device.upload(buffer.address(), &sent)?;
        let up = speed(start);
        let start = Instant::now();
        device.download(buffer.address(), &mut back)?;
        let down = speed(start);
        println!("pass {pass}: {} up at {up:.1} GB/s, down at {down:.1} GB/s", Bytes(bytes as u64));
        ensure(sent == back, "the downloaded bytes differ from the uploaded ones")?;
    }
    let middle = bytes as u64 / 2;
    device.fill(buffer.address().offset(middle), 7, 0xA5)?;
    device.download(buffer.address().offset(middle - 1), &mut back[..9])?;
    let around = [sent[middle as usize - 1], sent[middle as usize + 7]];
    ensure(back[1..8] == [0xA5; 7] && [back[0], back[8]] == around, "a fill wrote other bytes")
}

/// Runs two dependent launches, eagerly and as a graph.
fn vectors(device: &dyn Device) -> Outcome {
    let n: u32 = 1000;
    let module = device.load("vectors", VECTORS)?;
    for kernel in module.kernels() {
        println!("{kernel:?}: {:?}", kernel.resources());
    }
    println!("assembler's log: {:?}", module.log());
    let values = |scale: f32| words((0..n).map(|i| (scale * i as f32).to_bits()));
    let buffers = [0, 1, 2].map(|_| device.alloc("vector", 4 * u64::from(n)));
    let [a, b, sum] = buffers;
    let (a, b, sum) = (a?, b?, sum?);
    device.upload(a.address(), &values(1.0))?;
    device.upload(b.address(), &values(0.5))?;
    let launches = vec![
        launch(module.kernel("vector_add")?, n, params(&[a.address(), b.address(), sum.address()], n)),
        launch(module.kernel("vector_double")?, n, params(&[sum.address()], n)),
    ];
    let mut sequence = device.sequence(launches)?;
    let expected = values(3.0);
    sequence.run_eager()?;
    ensure(read(device, sum.address(), n)? == expected, "eager launches gave a wrong sum")?;
    device.fill(sum.address(), 4 * u64::from(n), 0)?;
    let report = sequence.capture()?;
    println!("{report:?}");
    ensure(
        report.kernels == ["vector_add", "vector_double"],
        "the kernels of the graph differ from the launches",
    )?;
    sequence.replay()?;
    ensure(read(device, sum.address(), n)? == expected, "the replay gave a wrong sum")
}

/// Runs a chain of dependent launches, which exposes a missing edge or node.
fn chain(device: &dyn Device, programmatic: bool) -> Outcome {
    let n: u32 = match device.info().kind {
        Kind::Cuda { .. } => 1 << 20,
        Kind::Emulator => 1 << 9,
    };
    let module = device.load("chain", CHAIN)?;
    let data = device.alloc("chain", 4 * u64::from(n))?;
    let step = || -> Outcome<Launch> {
        let launch = launch(module.kernel("chain_step")?, n, params(&[data.address()], n));
        Ok(Launch { programmatic, ..launch })
    };
    let launches = (0..STEPS).map(|_| step()).collect::<Outcome<_>>()?;
    let mut sequence = device.sequence(launches)?;
    let steps =
        |count: usize| words((0..n).map(|i| (0..count).fold(i, |x, _| x.wrapping_mul(3).wrapping_add(1))));
    let reset = || device.upload(data.address(), &steps(0));

    reset()?;
    sequence.run_eager()?;
    sequence.run_eager()?;
    ensure(read(device, data.address(), n)? == steps(2 * STEPS), "two eager chains gave a wrong result")?;
    let report = sequence.capture()?;
    let GraphReport { nodes, ref kernels, edges, programmatic_edges } = report;
    println!("programmatic {programmatic}: {nodes} nodes, {edges} edges, {programmatic_edges} programmatic");
    ensure(
        kernels.iter().all(|kernel| kernel == "chain_step") && kernels.len() == STEPS,
        "a node is missing",
    )?;
    let wanted = if programmatic && device.info().compute >= (9, 0) { STEPS - 1 } else { 0 };
    ensure(programmatic_edges == wanted, "an edge has the wrong type")?;

    reset()?;
    (0..3).try_for_each(|_| sequence.replay())?;
    sequence.wait()?;
    ensure(read(device, data.address(), n)? == steps(3 * STEPS), "three queued replays gave a wrong result")?;
    time(&mut *sequence)
}

/// Prints the time of a launch, eager and in a graph.
fn time(sequence: &mut dyn LaunchSequence) -> Outcome {
    let times = sequence.profile()?;
    ensure(times.len() == STEPS && times.iter().all(|&time| time > 0.0), "a launch has no time")?;
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let replay = sequence.time_replays(20)?;
    println!("  eager {mean:.2} µs per launch, replay {:.2} µs per launch", replay * 1e3 / STEPS as f64);
    Ok(())
}

/// More dynamic shared memory than a launch has by default, and results polled in host-visible memory.
fn shared_and_host_visible(device: &dyn Device) -> Outcome {
    let module = device.load("chain", CHAIN)?;
    let visible = device.alloc_host_visible("far words", 4 * u64::from(THREADS))?;
    device.fill(visible.address(), visible.bytes(), 0xFF)?;
    device.wait()?;
    let mut out = vec![0; 4 * THREADS as usize];
    visible.read(0, &mut out)?;
    ensure(out.iter().all(|&byte| byte == 0xFF), "host-visible memory was not filled")?;
    let bytes = device.info().shared_per_block_optin.min(100 << 10);
    let params = params(&[visible.address()], bytes);
    let launch = Launch { dynamic_shared: bytes, ..launch(module.kernel("far_shared")?, THREADS, params) };
    let mut sequence = device.sequence(vec![launch])?;
    sequence.run_eager()?;
    while device.busy()? {
        std::hint::spin_loop();
    }
    visible.read(0, &mut out)?;
    ensure(out == words((0..THREADS).rev()), "far shared memory or host-visible memory holds wrong words")?;
    println!("clocks: {:?}", device.clocks());
    Ok(())
}

/// Provokes every error that leaves the device usable, and prints the messages.
fn messages(device: &dyn Device) -> Outcome {
    let module = device.load("vectors", VECTORS)?;
    let step = launch(module.kernel("vector_double")?, 32, params(&[Address(0)], 0));
    // Only the driver detects a CTA size that the kernel does not accept, during a capture.
    let odd = launch(device.load("chain", CHAIN)?.kernel("exactly_64_threads")?, 32, Vec::new());
    let broken_line = CHAIN.replacen("mad.lo.u32 %r7, %r6, 3, 1;", "mad.lo.u32 %r7, nothing, 3, 1;", 1);
    let changed = |launch: Launch| device.sequence(vec![launch]).err();
    let errors = [
        ("an unknown symbol", device.load("unknown symbol", &broken_line).err()),
        ("no PTX", device.load("no PTX", "this is no PTX").err()),
        (
            "too new a version",
            device.load("too new", &CHAIN.replacen(".version 7.8", ".version 99.9", 1)).err(),
        ),
        ("a wrong target", device.load("wrong target", &CHAIN.replacen("sm_90", "sm_20", 1)).err()),
        ("an unknown kernel", module.kernel("nothing").err()),
        ("too much memory", device.alloc("an exabyte", 1 << 60).err()),
        ("too few parameters", changed(Launch { params: vec![0; 3], ..step.clone() })),
        ("too much shared memory", changed(Launch { dynamic_shared: 1 << 20, ..step.clone() })),
        ("too large a grid", changed(Launch { grid: [1, 1 << 20, 1], ..step.clone() })),
        ("a capture that fails", device.sequence(vec![step, odd]).and_then(|mut s| s.capture()).err()),
    ];
    for (what, error) in &errors {
        match error {
            Some(error) => print_error(error),
            None => println!("--- {what} was not refused"),
        }
    }
    // The device stays usable.
    vectors(device)
}

/// Runs a kernel that writes outside its allocation. A GPU detects only writes outside every allocation, so the address
/// is far away.
fn fault(device: &dyn Device) -> Outcome {
    let module: Module = device.load("vectors", VECTORS)?;
    let wild = launch(module.kernel("out_of_bounds")?, 32, params(&[Address(1 << 44)], 0));
    let mut sequence = device.sequence(vec![wild])?;
    // Polling must report the fault too.
    let ended = || loop {
        match device.busy() {
            Ok(true) => std::hint::spin_loop(),
            Ok(false) => return Ok(()),
            Err(error) => return Err(error),
        }
    };
    let outcome = sequence.run_eager().and_then(|()| ended());
    let error = outcome.err().ok_or("an out-of-bounds write was not detected")?;
    print_error(&error);
    Ok(())
}

fn print_error(error: &device::Error) {
    println!("--- {error}");
    if let Some(advice) = error.advice() {
        println!("    help: {advice}");
    }
}

/// Creates a launch with one thread for each of `n` elements.
fn launch(kernel: Kernel, n: u32, params: Vec<u8>) -> Launch {
    let grid = [n.div_ceil(THREADS), 1, 1];
    Launch { kernel, grid, block: [THREADS, 1, 1], dynamic_shared: 0, params, programmatic: false }
}

/// Encodes the parameters of this program's kernels: addresses, then a number.
fn params(addresses: &[Address], number: u32) -> Vec<u8> {
    let mut params: Vec<u8> = addresses.iter().flat_map(|address| address.0.to_le_bytes()).collect();
    params.extend(number.to_le_bytes());
    params
}

fn words(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_le_bytes).collect()
}

/// Downloads `n` words.
fn read(device: &dyn Device, from: Address, n: u32) -> Outcome<Vec<u8>> {
    let mut out = vec![0; 4 * n as usize];
    device.download(from, &mut out)?;
    Ok(out)
}
