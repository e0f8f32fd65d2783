//! Behaviour of the engine on a failing device.

mod hooked;

use std::path::PathBuf;

use bespoke::device::{self, Device, Error, GraphReport, MemoryInfo};
use bespoke::engine::{Engine, EngineError, EngineOptions};
use bespoke_gguf::Gguf;
use bespoke_kernels::shape::ModelShape;
use hooked::{Call, Hooked, Hooks, Operation, Verdict, emulator};

fn load_on(device: Box<dyn Device>) -> Result<Engine, EngineError> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures/llama-q8_0.gguf");
    let gguf = Gguf::open(path).unwrap();
    let shape = ModelShape::from_gguf(&gguf, "fixture").unwrap();
    let options = EngineOptions { context: Some(64), ..EngineOptions::default() };
    Engine::load(device, &gguf, &shape, &options, &|_, _| ())
}

fn load(hooks: impl Hooks + 'static) -> Result<Engine, EngineError> {
    load_on(Box::new(Hooked::new(hooks)))
}

/// Loads a model on a device with `hooks`, which must fail, and returns the error.
fn failure(hooks: impl Hooks + 'static) -> EngineError {
    load(hooks).err().expect("loading succeeded")
}

/// Decodes a short prompt; returns the tokens and the last logits.
fn decode(engine: &mut Engine) -> (Vec<u32>, Vec<f32>) {
    engine.start(&[5, 17, 300]).unwrap();
    for _ in 0..10 {
        engine.step().unwrap();
    }
    engine.wait().unwrap();
    ((1..=10).map(|position| engine.token(position).unwrap()).collect(), engine.logits().unwrap())
}

/// Hooks that change the report of every captured graph, or refuse the capture.
struct Graph(fn(GraphReport) -> device::Result<GraphReport>);

impl Hooks for Graph {
    fn captured(&self, report: GraphReport) -> device::Result<GraphReport> {
        self.0(report)
    }
    fn before(&self, call: Call<'_>) -> Verdict {
        assert_ne!(call.operation, Operation::Replay, "a refused graph was replayed");
        Verdict::Run
    }
}

#[test]
fn eager_launches_give_the_same_tokens() {
    let mut replaying = load_on(emulator()).unwrap();
    assert!(replaying.graph().is_some());
    let mut eager = load(Graph(|_| Err(Error::Capture(Box::new(Error::NotCaptured))))).unwrap();
    assert!(eager.graph().is_none());
    assert!(decode(&mut replaying) == decode(&mut eager), "tokens or logits differ");
}

#[test]
fn other_failures_of_capture_are_errors() {
    let error = failure(Graph(|_| Err(Error::Access("the device is gone".to_owned()))));
    assert!(matches!(&error, EngineError::Device(Error::Access(_))), "{error}");
    assert_eq!(error.to_string(), "the device is gone");
}

/// Kernel of the plan's fourth launch, and the number of launches.
fn fourth_launch() -> (String, usize) {
    let engine = load_on(emulator()).unwrap();
    let plan = engine.plan();
    (plan.kernels[plan.launches[3].kernel].name.clone(), plan.launches.len())
}

#[test]
fn a_graph_without_a_node_is_refused() {
    let error = failure(Graph(|mut report| {
        report.kernels.remove(3);
        report.nodes -= 1;
        Ok(report)
    }));
    assert!(matches!(error, EngineError::GraphMismatch(_)), "{error}");
    let (_, launches) = fourth_launch();
    let (error, expected) = (error.to_string(), format!("{} nodes for {launches} launches", launches - 1));
    assert!(error.contains(&expected), "{error}");
}

#[test]
fn a_graph_with_another_kernel_is_refused() {
    let error = failure(Graph(|mut report| {
        report.kernels[3] = "(memcpy)".to_owned();
        Ok(report)
    }));
    assert!(matches!(error, EngineError::GraphMismatch(_)), "{error}");
    let (kernel, _) = fourth_launch();
    let (error, expected) = (error.to_string(), format!("node 3 is (memcpy), launch 3 is {kernel}"));
    assert!(error.contains(&expected), "{error}");
}

/// Hooks that fail the allocation with this name.
struct Full(&'static str);

impl Hooks for Full {
    fn before(&self, Call { name, bytes: needed, .. }: Call<'_>) -> Verdict {
        if name != self.0 {
            return Verdict::Run;
        }
        let (device, name) = ("a full device".to_owned(), name.to_owned());
        Verdict::Fail(Error::OutOfMemory { device, name, needed, free: 1 << 10, total: 1 << 20 })
    }
}

#[test]
fn an_allocation_that_fails_is_named() {
    // A device buffer and the host-visible buffer.
    for name in ["logits", "finished"] {
        let error = failure(Full(name));
        assert!(matches!(&error, EngineError::Device(Error::OutOfMemory { .. })), "{error}");
        let text = error.to_string();
        assert!(text.starts_with(&format!("out of memory on a full device: `{name}` needs ")), "{text}");
        assert!(text.ends_with("and 1.00 KiB of 1.00 MiB is free"), "{text}");
    }
}

/// Hooks that report this number of free bytes, and panic on an allocation.
struct Free(u64);

impl Hooks for Free {
    fn memory(&self, real: MemoryInfo) -> MemoryInfo {
        MemoryInfo { free: self.0, ..real }
    }
    fn before(&self, Call { operation, name, .. }: Call<'_>) -> Verdict {
        assert_ne!(operation, Operation::Alloc, "`{name}` was allocated on a device that is too small");
        Verdict::Run
    }
}

#[test]
fn a_model_that_does_not_fit_is_refused_before_anything_is_allocated() {
    let bytes = load_on(emulator()).unwrap().plan().total_bytes();
    let error = failure(Free(bytes - 1));
    let EngineError::DoesNotFit(error) = error else { panic!("{error}") };
    assert_eq!(error.needs.total(), bytes);
    assert_eq!((error.free, error.needs.positions, error.fits), (bytes - 1, 64, Some(63)));
    let (text, needed) = (error.to_string(), device::Bytes(bytes));
    for part in [
        format!("it needs {needed} (weights "),
        format!("{} is free; a context of 63 positions would fit", device::Bytes(bytes - 1)),
    ] {
        assert!(text.contains(&part), "no {part:?} in: {text}");
    }
}

/// Hooks that report this number of free bytes; allocations succeed.
struct JustEnough(u64);

impl Hooks for JustEnough {
    fn memory(&self, real: MemoryInfo) -> MemoryInfo {
        MemoryInfo { free: self.0, ..real }
    }
}

#[test]
fn a_model_that_exactly_fits_is_loaded() {
    let bytes = load_on(emulator()).unwrap().plan().total_bytes();
    assert!(load(JustEnough(bytes)).is_ok());
}
