//! Run-time parameters: optional pointers, and structs.

use bespoke_codegen::prelude::*;
use bespoke_testing::Launch;

/// out[i] = x[i] + bias[i] for i < 4, or x[i] without a bias.
#[kernel(threads = 1)]
fn add_bias(
    #[present(parts.contains(&"bias"))] bias: Option<Ptr<Global, u32>>,
    x: Ptr<Global, u32>,
    #[present(!in_place)]
    #[aligned(16)]
    out: Option<Ptr<Global, u32>>,
    parts: &[&str],
    in_place: bool,
) {
    let out = out.unwrap_or(x);
    for i in range(val(0u32), 4u32) {
        let mut sum = x.at(i).load();
        if let Some(bias) = bias {
            sum += bias.at(i).load();
        }
        out.at(i).store(sum);
    }
}

fn parameters(kernel: &Kernel) -> Vec<(&str, Option<u32>)> {
    kernel.params().iter().map(|parameter| (parameter.name.as_str(), parameter.align)).collect()
}

#[test]
fn a_present_pointer_is_a_parameter() {
    let kernel = add_bias(&["bias"], false).unwrap();
    assert_eq!(parameters(&kernel), [("bias", None), ("x", None), ("out", Some(16))]);
    let launch = Launch::of(&kernel).buffer(&[10u32, 20, 30, 40]).buffer(&[1u32, 2, 3, 4]);
    let done = launch.uninitialised::<u32>(4).run().unwrap();
    assert_eq!(done.buffer::<u32>(2), [11, 22, 33, 44]);
}

#[test]
fn an_absent_pointer_is_not_a_parameter() {
    let kernel = add_bias(&[], true).unwrap();
    assert_eq!(parameters(&kernel), [("x", None)]);
    let done = Launch::of(&kernel).buffer(&[1u32, 2, 3, 4]).run().unwrap();
    assert_eq!(done.buffer::<u32>(0), [1, 2, 3, 4]);
    assert_eq!(done.ptx().matches(".param .u64").count(), 1, "{}", done.ptx());
}

/// A matrix with a tile of it: pointers, numbers, arrays and a struct in a struct.
#[derive(Clone, Copy, Parameters, Carry)]
struct Matrix<T: Scalar> {
    #[aligned(16)]
    data: Ptr<Global, T>,
    size: Size,
    scales: [Val<T>; 2],
}

#[derive(Clone, Copy, Parameters, Carry)]
struct Size(Val<u32>, Val<u32>);

/// to[column][row] = from[row][column] · scales[0] + scales[1], with a run-time loop that changes the struct.
#[kernel(threads = 1)]
fn transposed<T: Number + Scalar>(
    #[parameters] mut from: Matrix<T>,
    factor: Val<T>,
    #[parameters] to: Ptr<Global, T>,
) {
    let start = from.data;
    for row in 0..from.size.0 {
        from.data = start.at(row * from.size.1);
        for column in 0..from.size.1 {
            let value = from.data.at(column).load() * from.scales[0] + from.scales[1];
            to.at(column * from.size.0 + row).store(value * factor);
        }
    }
}

#[test]
fn a_struct_is_passed_field_by_field() {
    let kernel = transposed::<i32>().unwrap();
    let expected = [
        ("from_data", Some(16)),
        ("from_size_0", None),
        ("from_size_1", None),
        ("from_scales_0", None),
        ("from_scales_1", None),
        ("factor", None),
        ("to", None),
    ];
    assert_eq!(parameters(&kernel), expected);
    let launch = Launch::of(&kernel).buffer(&[1, 2, 3, 4, 5, 6]).value(2u32).value(3u32).value(10).value(7);
    let done = launch.value(-1).uninitialised::<i32>(6).run().unwrap();
    assert_eq!(done.buffer::<i32>(1), [-17, -47, -27, -57, -37, -67]);
    let declared = done.ptx().lines().filter_map(|line| line.trim().strip_prefix(".param "));
    let types: Vec<&str> = declared.filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(types, [".u64", ".u32", ".u32", ".s32", ".s32", ".s32", ".u64"]);
}

/// A struct with a tensor map, whose tile depends on a constant of the struct's type.
#[derive(Clone, Copy, Parameters)]
struct Tiled<const N: u32> {
    #[tile([N, 8])]
    map: TensorMap<f32, 2>,
    more: Val<f32>,
}

#[kernel(threads = 32)]
fn loads_a_tile<const N: u32>(#[parameters] x: Tiled<N>, y: Ptr<Global, f32>) {
    let (tile, done) = (x.map.shared_tile(), mbarrier_array(1).at(0));
    if thread_index() == 0 {
        done.init(1);
        fence_mbarrier_init();
        done.arrive_expect(tile.size());
        x.map.load(tile, (0, 0), done, None);
    }
    barrier();
    done.wait(0, Wait::Try);
    y.at(lane()).store(tile.at((lane() % N, val(7u32))).load() + x.more);
}

#[test]
fn a_struct_can_have_a_tensor_map() {
    let kernel = loads_a_tile::<4>().unwrap();
    assert_eq!(parameters(&kernel), [("x_map", None), ("x_more", None), ("y", None)]);
    let numbers: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let done =
        Launch::of(&kernel).tensor(&numbers, [8, 8]).value(0.5f32).uninitialised::<f32>(32).run().unwrap();
    assert_eq!(done.buffer::<f32>(1)[..5], [56.5, 57.5, 58.5, 59.5, 56.5]);
}

#[kernel(threads = 1)]
fn two_of_a_name(#[parameters] x: Size, x_1: Ptr<Global, u32>) {
    x_1.store(x.0 + x.1);
}

#[test]
fn two_parameters_of_a_name_are_an_error() {
    let error = two_of_a_name().unwrap_err();
    assert_eq!(error.message, "two parameters are called `x_1`: rename one of them, or a field");
    assert!(error.file.ends_with("parameters.rs") && error.line > 0);
}
