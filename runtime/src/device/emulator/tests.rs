use super::super::signature::signatures;
use super::*;

/// `sum[i] = a[i] + b[i]` and `data[i] *= 2` for `i < n`, one thread for each element.
const PTX: &str = include_str!("../testdata/vectors.ptx");
const N: u32 = 100;

fn floats(bytes: &[u8]) -> Vec<f32> {
    bytes.chunks_exact(4).map(|word| f32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}

fn bytes(floats: &[f32]) -> Vec<u8> {
    floats.iter().flat_map(|float| float.to_le_bytes()).collect()
}

fn params(addresses: &[Address], n: u32) -> Vec<u8> {
    let mut params: Vec<u8> = addresses.iter().flat_map(|address| address.0.to_le_bytes()).collect();
    params.extend(n.to_le_bytes());
    params
}

fn launch(kernel: Kernel, params: Vec<u8>) -> Launch {
    Launch { kernel, grid: [4, 1, 1], block: [32, 1, 1], dynamic_shared: 0, params, programmatic: false }
}

/// A device with `a`, `b` and `sum`, and `sum = 2 · (a + b)` as two launches.
struct Fixture {
    device: EmulatorDevice,
    module: Module,
    buffers: [Allocation; 3],
}

impl Fixture {
    fn new() -> Fixture {
        Fixture::checked(Checks::ALL)
    }

    fn checked(checks: Checks) -> Fixture {
        let device = EmulatorDevice::new(checks);
        let module = device.load("vectors", PTX).expect("the PTX is well-formed");
        let buffers = ["a", "b", "sum"].map(|name| device.alloc(name, 4 * u64::from(N)).expect("memory"));
        let fixture = Fixture { device, module, buffers };
        let a: Vec<f32> = (0..N).map(|i| i as f32).collect();
        let b: Vec<f32> = (0..N).map(|i| 0.5 * i as f32).collect();
        fixture.device.upload(fixture.buffers[0].address(), &bytes(&a)).expect("inside");
        fixture.device.upload(fixture.buffers[1].address(), &bytes(&b)).expect("inside");
        fixture
    }

    fn addresses(&self) -> [Address; 3] {
        [0, 1, 2].map(|buffer: usize| self.buffers[buffer].address())
    }

    fn sequence(&self) -> Box<dyn LaunchSequence> {
        let kernel = |name| self.module.kernel(name).expect("it is in the PTX");
        let [a, b, sum] = self.addresses();
        let launches = vec![
            launch(kernel("vector_add"), params(&[a, b, sum], N)),
            launch(kernel("vector_double"), params(&[sum], N)),
        ];
        self.device.sequence(launches).expect("launches that fit")
    }

    fn sum(&self) -> Vec<f32> {
        let mut out = vec![0; 4 * N as usize];
        self.device.download(self.addresses()[2], &mut out).expect("inside");
        floats(&out)
    }
}

#[test]
fn launches_run_in_order_eagerly_and_as_a_graph() {
    let fixture = Fixture::new();
    let mut sequence = fixture.sequence();
    sequence.run_eager().expect("no finding");
    sequence.wait().expect("nothing to wait for");
    let eager = fixture.sum();
    let expected: Vec<f32> = (0..N).map(|i| 3.0 * i as f32).collect();
    assert_eq!(eager, expected);

    fixture.device.fill(fixture.addresses()[2], 4 * u64::from(N), 0).expect("inside");
    assert!(matches!(sequence.replay(), Err(Error::NotCaptured)));
    let report = sequence.capture().expect("always");
    assert_eq!(report.kernels, ["vector_add", "vector_double"]);
    assert_eq!((report.nodes, report.edges, report.programmatic_edges), (2, 1, 0));
    assert_eq!(sequence.capture().expect("again"), report);
    sequence.replay().expect("no finding");
    assert_eq!(fixture.sum(), eager);
}

#[test]
fn programmatic_launches_must_wait() {
    let fixture = Fixture::new();
    let outcome = |ptx: &str| {
        let module = fixture.device.load("vectors", ptx).expect("the PTX is well-formed");
        let kernel = |name| module.kernel(name).expect("it is in the PTX");
        let [a, b, sum] = fixture.addresses();
        let first = launch(kernel("vector_add"), params(&[a, b, sum], N));
        let second = launch(kernel("vector_double"), params(&[sum], N));
        let launches = vec![first, Launch { programmatic: true, ..second }];
        fixture.device.sequence(launches).expect("launches that fit").run_eager()
    };
    let error = outcome(PTX).expect_err("nothing waits").to_string();
    assert!(error.contains("missing griddepcontrol.wait in kernel `vector_double`"), "{error}");
    let waits = PTX.replace("ld.param.u32", "griddepcontrol.wait;\n    ld.param.u32");
    let waits = waits.replace(".version 7.0", ".version 7.8").replace("sm_80", "sm_90");
    outcome(&waits).expect("both wait");
}

#[test]
fn without_checks_only_bounds_are_checked() {
    let fixture = Fixture::checked(Checks::NONE);
    let run = |name: &str| {
        let kernel = fixture.module.kernel(name).expect("it is in the PTX");
        let [a, b, sum] = fixture.addresses();
        let first = fixture.module.kernel("vector_add").expect("it is in the PTX");
        let first = launch(first, params(&[a, b, sum], N));
        let second = Launch { programmatic: true, ..launch(kernel, params(&[sum], N)) };
        fixture.device.sequence(vec![first, second]).expect("launches that fit").run_eager()
    };
    run("vector_double").expect("the wait is not checked");
    let error = run("out_of_bounds").expect_err("it writes past the end").to_string();
    assert!(error.contains("out of bounds in kernel `out_of_bounds`"), "{error}");
}

#[test]
fn every_launch_is_timed() {
    let fixture = Fixture::new();
    let mut sequence = fixture.sequence();
    assert_eq!(sequence.profile().expect("no finding").len(), 2);
    sequence.capture().expect("always");
    assert!(sequence.time_replays(2).expect("no finding") > 0.0);
}

#[test]
fn an_allocation_that_does_not_fit_reports_the_sizes() {
    let device = EmulatorDevice::with_info(DeviceInfo { memory_total: 4096, ..info() }, Checks::ALL, None);
    let first = device.alloc("first", 3072).expect("it fits");
    assert_eq!(device.memory().expect("known"), MemoryInfo { free: 1024, total: 4096 });
    let error = device.alloc("KV cache", 2048).expect_err("it does not fit");
    assert_eq!(
        error.to_string(),
        "out of memory on bespoke PTX emulator: `KV cache` needs 2.00 KiB, and 1.00 KiB of 4.00 KiB is free"
    );
    drop(first);
    device.alloc("KV cache", 4096).expect("the first one is gone");
}

#[test]
fn host_visible_memory_is_zero_and_bounds_checked() {
    let device = EmulatorDevice::new(Checks::ALL);
    let visible = device.alloc_host_visible("tokens", 8).expect("memory");
    let mut out = [1u8; 8];
    visible.read(0, &mut out).expect("inside");
    assert_eq!(out, [0; 8]);
    device.upload(visible.address(), &[1, 2, 3, 4, 5, 6, 7, 8]).expect("inside");
    visible.read(5, &mut out[..3]).expect("inside");
    assert_eq!(out[..3], [6, 7, 8]);
    let error = visible.read(6, &mut out[..3]).expect_err("past the end");
    assert_eq!(error.to_string(), "read of 3 bytes at 6 of host-visible memory that has 8");
}

#[test]
fn an_unknown_kernel_is_an_error_that_lists_the_kernels() {
    let error = Fixture::new().module.kernel("multiply").expect_err("no such kernel");
    assert_eq!(
        error.to_string(),
        "module `vectors` has no kernel `multiply`; it has `out_of_bounds`, `vector_add`, `vector_double`"
    );
}

#[test]
fn signatures_agree_with_the_emulator() {
    for ptx in [PTX, include_str!("../testdata/chain.ptx")] {
        let module = emulator::Module::parse(ptx).expect("the PTX is well-formed");
        for entry in signatures(ptx).expect("the PTX is well-formed") {
            let kernel = module.kernel(&entry.name).expect("the emulator finds it");
            let read = kernel.params().iter().map(|param| (param.offset as usize, param.size as usize));
            assert!(read.eq(entry.parameters.iter().map(|parameter| (parameter.offset, parameter.bytes))));
        }
    }
}

#[test]
fn a_parse_error_shows_the_ptx_line() {
    let device = EmulatorDevice::new(Checks::ALL);
    let broken = PTX.replacen("add.f32", "addd.f32", 1);
    let error = device.load("broken", &broken).expect_err("no such instruction").to_string();
    assert!(error.starts_with("module `broken`: "), "{error}");
    assert!(error.lines().any(|line| line.starts_with("  > ") && line.contains("addd.f32")), "{error}");
}

#[test]
fn invalid_launches_are_refused() {
    let fixture = Fixture::new();
    let refuse = |change: fn(&mut Launch)| {
        let kernel = fixture.module.kernel("vector_double").expect("it is in the PTX");
        let mut launch = launch(kernel, params(&fixture.addresses()[2..], N));
        change(&mut launch);
        fixture.device.sequence(vec![launch]).err().expect("it cannot run").to_string()
    };
    assert_eq!(
        refuse(|launch| launch.params.truncate(8)),
        "launch 0 (`vector_double`): 8 bytes of parameters for a kernel that declares 12"
    );
    assert_eq!(
        refuse(|launch| launch.grid[1] = 0),
        "launch 0 (`vector_double`): a grid of [4, 0, 1] CTAs of [32, 1, 1] threads is empty"
    );
    assert_eq!(
        refuse(|launch| launch.grid[2] = 65_536),
        "launch 0 (`vector_double`): a grid of [4, 1, 65536] CTAs; [2147483647, 65535, 65535] is the maximum"
    );
    assert_eq!(
        refuse(|launch| launch.block = [1024, 2, 1]),
        "launch 0 (`vector_double`): CTAs of 2048 threads; 1024 is the maximum"
    );
    assert_eq!(
        refuse(|launch| launch.dynamic_shared = 232_449),
        "launch 0 (`vector_double`): 232449 bytes of shared memory for each CTA (232449 dynamic); bespoke PTX emulator has 232448"
    );
}

#[test]
fn a_finding_names_launch_kernel_and_allocation() {
    let fixture = Fixture::new();
    let kernel = fixture.module.kernel("out_of_bounds").expect("it is in the PTX");
    let launch = launch(kernel, params(&fixture.addresses()[2..], N));
    let mut sequence = fixture.device.sequence(vec![launch]).expect("it fits");
    let error = sequence.run_eager().expect_err("it writes past the end");
    let Error::Fault { index: 0, kernel, finding } = error else { panic!("{error}") };
    assert_eq!(kernel, "out_of_bounds");
    assert!(finding.contains("sum"), "the finding names the allocation: {finding}");
}
