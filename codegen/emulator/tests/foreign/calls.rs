//! Kernels of `cuda/calls.cu`, compiled by nvcc: `printf`, cooperative launches, `alloca`, calls through pointers.

use bespoke_emulator::{FindingKind, LaunchConfig, Memory, Module, Options, run};
use expect_test::expect;

use crate::device::{Device, close, singles, words};

const PTX: &str = include_str!("cuda/calls.ptx");

#[test]
fn printed_text_is_that_of_c_in_the_order_of_the_grid() {
    let device = Device::load(PTX);
    let x: Vec<f32> = (0..96).map(|i| i as f32 / 8.0 - 1.0).collect();
    let printed = device
        .run("report", LaunchConfig::linear(3, 32), &[device.buffer(&x), device.buffer(b"row\0")])
        .printed;
    expect![[r#"
        row[0] = -1.000 (float,     0, 0x100000000)
        row[1] = -0.875 (float,     7, 0x200000000)
        row[32] = 3.000 (float,   224, 0x100000000)
        row[33] = 3.125 (float,   231, 0x200000000)
        100% of CTA 1
        row[64] = 7.000 (float,   448, 0x100000000)
        row[65] = 7.125 (float,   455, 0x200000000)
    "#]]
    .assert_eq(&printed);
}

#[test]
fn a_launch_with_a_finding_has_what_was_printed_before() {
    let module = Module::parse(PTX).expect("valid PTX");
    let memory = Memory::new();
    // The second thread reads past the end of the numbers.
    let x = memory.alloc("x", 4);
    memory.write(x, &2.5f32.to_le_bytes()).expect("inside");
    let name = memory.alloc("name", 2);
    memory.write(name, b"x\0").expect("inside");
    let params: Vec<u8> = [x, name].iter().flat_map(|address| address.to_le_bytes()).collect();
    let kernel = module.kernel("report").expect("the kernel");
    let config = LaunchConfig::linear(1, 1);
    let options = Options { threads: 1, ..Options::default() };
    let finding = |config| run(kernel, &memory, &config, &params, &options).err();
    assert_eq!(finding(config), None);
    let finding = finding(LaunchConfig { grid: [2, 1, 1], ..config }).expect("a finding");
    assert_eq!((finding.kind, finding.cta), (FindingKind::OutOfBounds, [1, 0, 0]), "{finding}");
    assert_eq!(finding.printed, "x[0] = 2.500 (float,     0, 0x100000000)\n");
}

#[test]
fn tiles_of_two_warps_reduce_in_reserved_shared_memory() {
    let device = Device::load(PTX);
    let y = device.output::<u32>(256);
    let x: Vec<u32> = (0..256).map(|i| i * i).collect();
    device.run("tile_sums", LaunchConfig::linear(1, 256), &[device.buffer(&x), y]);
    let sums: Vec<u32> = x.chunks(64).flat_map(|tile| vec![tile.iter().sum(); 64]).collect();
    assert_eq!(device.read::<u32>(y, 256), sums);
}

#[test]
fn a_failed_assertion_is_shown_with_its_text() {
    let device = Device::load(PTX);
    let y = device.output::<u32>(64);
    let mut x: Vec<u32> = (0..64).map(|i| i % 30).collect();
    device.run("asserts", LaunchConfig::linear(1, 64), &[device.buffer(&x), y]);
    assert_eq!(device.read::<u32>(y, 64), x.iter().map(|x| 2 * x).collect::<Vec<_>>());
    x[40] = 30;
    let arguments = [device.buffer(&x), y];
    let finding =
        device.try_run("asserts", LaunchConfig::linear(1, 64), &arguments).expect_err("a large number");
    assert_eq!((finding.kind, finding.thread), (FindingKind::Trap, [40, 0, 0]));
    let text = "an assertion of the kernel failed: x[threadIdx.x] < 30 && \"a small number\"";
    assert_eq!(finding.detail, text);
}

#[test]
fn a_grid_synchronises_in_a_cooperative_launch() {
    let (device, n) = (Device::load(PTX), 5000);
    let x: Vec<f32> = singles(n, 3);
    let (data, partial) = (device.buffer(&x), device.output::<f32>(8));
    let config = LaunchConfig { cooperative: true, ..LaunchConfig::linear(8, 128) };
    // The second launch starts with a new workspace.
    for total in [x.iter().sum::<f32>(), x.iter().sum::<f32>() * n as f32] {
        device.run("grid_sum", config, &[data, partial, n as u64]);
        close(&device.read::<f32>(data, n), &vec![total; n], 1e-5);
    }
}

#[test]
fn a_grid_does_not_synchronise_in_other_launches() {
    let device = Device::load(PTX);
    let arguments = [device.buffer(&[1.0f32; 512]), device.output::<f32>(4), 512];
    let finding = device.finding("grid_sum", LaunchConfig::linear(4, 128), &arguments);
    assert_eq!(finding.kind, FindingKind::Trap, "{finding}");
    let config = LaunchConfig { cooperative: true, ..LaunchConfig::linear(5000, 128) };
    let finding = device.finding("grid_sum", config, &arguments);
    assert_eq!(finding.kind, FindingKind::InvalidLaunch, "{finding}");
    assert!(finding.detail.contains("a cooperative launch of 5000 CTAs"), "{finding}");
}

#[test]
fn without_the_barrier_of_the_grid_the_sum_is_a_race() {
    // The first call of the barrier is at the arrival: the CTA's threads go on without it.
    let start = PTX.find("atom.add.release.gpu.u32").expect("the arrival");
    let wait = start + PTX[start..].find("ld.acquire.gpu.u32").expect("the wait");
    let (before, after) = PTX.split_at(wait);
    let weak = format!("{before}ld.relaxed.gpu.u32{}", &after["ld.acquire.gpu.u32".len()..]);
    let device = Device::load(&weak);
    let config = LaunchConfig { cooperative: true, ..LaunchConfig::linear(4, 128) };
    let arguments = [device.buffer(&[1.0f32; 512]), device.output::<f32>(4), 512];
    let finding = device.finding("grid_sum", config, &arguments);
    assert_eq!(finding.kind, FindingKind::Race, "{finding}");
}

#[test]
fn arrays_of_any_length_are_on_the_stack() {
    let device = Device::load(PTX);
    let digits: Vec<i32> = vec![3, 1, 4, 1, 5, 9, 2, 6, 5];
    let out = device.output::<i32>(64);
    device.run("reverse", LaunchConfig::linear(1, 64), &[device.buffer(&digits), out]);
    let reversed = |x: &[i32]| x.iter().rev().fold(0, |number, digit| number * 10 + digit);
    let expected = (0..64).map(|i| i % 8 + 1).map(|n| reversed(&digits[..n]) + reversed(&digits[1..=n]));
    assert_eq!(device.read::<i32>(out, 64), expected.collect::<Vec<_>>());
}

#[test]
fn a_stack_array_that_is_too_long_is_named() {
    let device =
        Device::load(&PTX.replace("alloca.u64 \t%rd21, %rd20, 16;", "alloca.u64 \t%rd21, 70000, 16;"));
    let arguments = [device.buffer(&[1i32; 9]), device.output::<i32>(64)];
    let finding = device.finding("reverse", LaunchConfig::linear(1, 64), &arguments);
    assert_eq!(finding.kind, FindingKind::OutOfBounds, "{finding}");
    assert!(finding.detail.contains("`alloca` of 70000 bytes; 65536 bytes"), "{finding}");
}

#[test]
fn functions_are_called_through_a_table() {
    let device = Device::load(PTX);
    let which: Vec<i32> = words(64, 5).into_iter().map(|word| (word % 3) as i32).collect();
    let x: Vec<i32> = words(64, 6).into_iter().map(|word| word as i32 >> 8).collect();
    let out = device.output::<i32>(64);
    let arguments = [device.buffer(&which), device.buffer(&x), out];
    device.run("apply", LaunchConfig::linear(1, 64), &arguments);
    let called = |(i, (&which, &x)): (usize, (&i32, &i32))| match which {
        0 => x + i as i32,
        1 => x.wrapping_mul(i as i32),
        _ => x.max(i as i32),
    };
    let expected: Vec<i32> = which.iter().zip(&x).enumerate().map(called).collect();
    assert_eq!(device.read::<i32>(out, 64), expected);
}

#[test]
fn a_call_of_what_is_no_function_is_a_trap() {
    // One function has another type, and one element of the table is not the address of a function.
    for replaced in ["0, _Z8multiplyii", "_ZNK9Rectangle4areaEv, _Z8multiplyii"] {
        let device = Device::load(&PTX.replace("_Z3addii, _Z8multiplyii", replaced));
        let which: Vec<i32> = (0..32).map(|i| (i != 7) as i32).collect();
        let arguments = [device.buffer(&which), device.buffer(&which), device.output::<i32>(32)];
        let finding = device.finding("apply", LaunchConfig::linear(1, 32), &arguments);
        assert_eq!((finding.kind, finding.thread), (FindingKind::Trap, [7, 0, 0]), "{finding}");
        assert!(finding.detail.contains("not that of a function of its type"), "{finding}");
    }
}

#[test]
fn virtual_functions_are_called_through_tables_in_memory() {
    let device = Device::load(PTX);
    let x = singles(32, 9);
    let (out, objects) = (device.output::<f32>(32), device.output::<u8>(32 * 32));
    device.run("areas", LaunchConfig::linear(1, 32), &[device.buffer(&x), out, objects]);
    let area = |(i, x): (usize, &f32)| x * i as f32 / if i % 3 == 0 { 1.0 } else { 2.0 };
    let expected: Vec<f32> = x.iter().enumerate().map(area).collect();
    assert_eq!(device.read::<f32>(out, 32), expected);
}
