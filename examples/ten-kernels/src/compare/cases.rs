//! The kernels with their CUDA twins, and arguments for their launches.

use bespoke_codegen::Recorded;
use half::f16;
use ten_kernels::*;

/// Sizes of the arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// For the emulator.
    Small,
    /// For a GPU.
    Large,
}

/// Argument of a launch.
pub enum Argument {
    /// A buffer that the kernel reads.
    Input(Vec<u8>),
    /// A buffer of so many bytes that the kernel writes, zero before the first launch; compared as elements of the type.
    Output(Element, usize),
    /// A buffer of so many bytes that the kernel uses, zero before the first launch.
    Scratch(usize),
    /// A `u32`.
    U32(u32),
}

/// Type of an output's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Element {
    /// Compared bit by bit.
    Bits,
    /// Compared with a tolerance.
    F16,
    /// Compared with a tolerance.
    F32,
    /// Compared with a tolerance.
    F64,
}

/// Launch of a kernel and of its twin.
pub struct Launch {
    /// What is computed, as the table of times shows it.
    pub what: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    pub arguments: Vec<Argument>,
}

/// A kernel and its twin.
pub struct Case {
    /// Name in tables and of files.
    pub name: &'static str,
    pub record: fn() -> Recorded,
    /// Source of the kernel.
    pub rust: &'static str,
    /// Source of the twin.
    pub cuda: &'static str,
    /// Definition that the twin is compiled with, as an option of nvcc.
    pub define: Option<&'static str>,
    /// Bytes of dynamic shared memory.
    pub dynamic_shared: u32,
    pub launch: fn(Size) -> Vec<Launch>,
}

/// Taps of a Gaussian filter, as in `cuda/convolution.cu`.
fn gaussian() -> [[f32; convolution::FILTER]; convolution::FILTER] {
    let binomial = [1.0, 4.0, 6.0, 4.0, 1.0];
    binomial.map(|row| binomial.map(|column| row * column / 256.0))
}

/// CTAs of kernels whose threads loop over the input: eight per multiprocessor of an H200.
const CTAS: u32 = 8 * 132;
const BINS: u32 = 1000;
const K: usize = 8;

macro_rules! sources {
    ($name:literal) => {
        (include_str!(concat!("../", $name, ".rs")), include_str!(concat!("../../cuda/", $name, ".cu")))
    };
}

/// All kernels.
pub fn cases() -> Vec<Case> {
    let case = |name, record, (rust, cuda), launch| Case {
        name,
        record,
        rust,
        cuda,
        define: None,
        dynamic_shared: 0,
        launch,
    };
    vec![
        case("sgemm", sgemm::sgemm, sources!("sgemm"), sgemm_launch),
        case("softmax", softmax::softmax, sources!("softmax"), softmax_launch),
        Case {
            dynamic_shared: hgemm::SHARED,
            ..case("hgemm", hgemm::hgemm, sources!("hgemm"), hgemm_launch)
        },
        Case {
            dynamic_shared: 4 * BINS,
            ..case("histogram", histogram::histogram, sources!("histogram"), histogram_launch)
        },
        Case {
            define: Some("-DELEMENT=float"),
            ..case("dot-f32", dot::dot::<f32, 4>, sources!("dot"), dot_f32_launch)
        },
        Case {
            define: Some("-DELEMENT=double"),
            ..case("dot-f64", dot::dot::<f64, 2>, sources!("dot"), dot_f64_launch)
        },
        Case {
            define: Some("-DELEMENT=int"),
            ..case("dot-i32", dot::dot::<i32, 4>, sources!("dot"), dot_i32_launch)
        },
        case(
            "convolution",
            || convolution::convolution(&gaussian()),
            sources!("convolution"),
            convolution_launch,
        ),
        case("scan", scan::scan, sources!("scan"), scan_launch),
        case("top-k", top_k::top_k::<K>, sources!("top_k"), top_k_launch),
        case("lu", lu::lu, sources!("lu"), lu_launch),
        case("bytes", bytes::bytes, sources!("bytes"), bytes_launch),
    ]
}

/// Numbers that look random, the same in every run.
fn numbers(count: usize) -> impl Iterator<Item = u32> {
    let next = |state: &u32| Some(state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223));
    std::iter::successors(Some(12_345u32), next).skip(1).map(|state| state >> 8).take(count)
}

/// An input of `count` elements, each made of a random number of 24 bits.
fn input<const BYTES: usize>(count: usize, element: impl Fn(u32) -> [u8; BYTES]) -> Argument {
    Argument::Input(numbers(count).flat_map(element).collect())
}

/// From −1 to 1.
fn unit(n: u32) -> f32 {
    n as f32 / (1 << 23) as f32 - 1.0
}

fn f32s(count: usize) -> Argument {
    input(count, |n| unit(n).to_le_bytes())
}

fn sgemm_launch(size: Size) -> Vec<Launch> {
    let n = if size == Size::Small { 128 } else { 2048 };
    let all = n * n;
    let ctas = n as u32 / sgemm::TILE;
    vec![Launch {
        what: format!("sgemm, {n} × {n} × {n}"),
        grid: [ctas, ctas, 1],
        block: [sgemm::THREADS, 1, 1],
        dynamic_shared: 0,
        arguments: vec![
            f32s(all),
            f32s(all),
            Argument::Output(Element::F32, 4 * all),
            Argument::U32(n as u32),
            Argument::U32(n as u32),
        ],
    }]
}

fn hgemm_launch(size: Size) -> Vec<Launch> {
    let n = if size == Size::Small { 128 } else { 4096 };
    let all = n * n;
    let ctas = n as u32 / hgemm::TILE;
    let halves = || input(all, |n| f16::from_f32(unit(n)).to_le_bytes());
    vec![Launch {
        what: format!("hgemm, {n} × {n} × {n}"),
        grid: [ctas, ctas, 1],
        block: [hgemm::THREADS, 1, 1],
        dynamic_shared: hgemm::SHARED,
        arguments: vec![
            halves(),
            halves(),
            Argument::Output(Element::F16, 2 * all),
            Argument::U32(n as u32),
            Argument::U32(n as u32),
        ],
    }]
}

fn softmax_launch(size: Size) -> Vec<Launch> {
    let shapes: &[(usize, usize)] =
        if size == Size::Small { &[(2, 1100)] } else { &[(4096, 4096), (4096, 32_768)] };
    let launch = |&(rows, width): &(usize, usize)| Launch {
        what: format!("softmax, {rows} rows of {width}"),
        grid: [rows as u32, 1, 1],
        block: [softmax::THREADS, 1, 1],
        dynamic_shared: 0,
        arguments: vec![
            f32s(rows * width),
            Argument::Output(Element::F32, 4 * rows * width),
            Argument::U32(width as u32),
        ],
    };
    shapes.iter().map(launch).collect()
}

/// A number of elements and of CTAs.
fn stream(size: Size) -> (usize, u32) {
    if size == Size::Small { (1 << 14, 3) } else { (64 << 20, CTAS) }
}

fn histogram_launch(size: Size) -> Vec<Launch> {
    let (length, ctas) = stream(size);
    vec![Launch {
        what: format!("histogram, {length} samples, {BINS} bins"),
        grid: [ctas, 1, 1],
        block: [histogram::THREADS, 1, 1],
        dynamic_shared: 4 * BINS,
        arguments: vec![
            input(length, |n| (unit(n) * 0.52 + 0.5).to_le_bytes()),
            Argument::Output(Element::Bits, 4 * BINS as usize),
            Argument::U32(length as u32),
            Argument::U32(BINS),
        ],
    }]
}

fn dot_launch<const BYTES: usize>(
    size: Size,
    name: &str,
    element: Element,
    value: impl Fn(u32) -> [u8; BYTES],
) -> Vec<Launch> {
    let (length, ctas) = stream(size);
    vec![Launch {
        what: format!("dot product, {length} {name}"),
        grid: [ctas, 1, 1],
        block: [dot::THREADS, 1, 1],
        dynamic_shared: 0,
        arguments: vec![
            input(length, &value),
            input(length, &value),
            Argument::Output(element, BYTES * ctas as usize),
            Argument::U32(length as u32),
        ],
    }]
}

fn dot_f32_launch(size: Size) -> Vec<Launch> {
    dot_launch(size, "f32", Element::F32, |n| unit(n).to_le_bytes())
}

fn dot_f64_launch(size: Size) -> Vec<Launch> {
    dot_launch(size, "f64", Element::F64, |n| f64::from(unit(n)).to_le_bytes())
}

fn dot_i32_launch(size: Size) -> Vec<Launch> {
    dot_launch(size, "i32", Element::Bits, u32::to_le_bytes)
}

fn convolution_launch(size: Size) -> Vec<Launch> {
    let n = if size == Size::Small { 70 } else { 4096 };
    let ctas = (n as u32).div_ceil(convolution::TILE);
    vec![Launch {
        what: format!("convolution, {n} × {n}"),
        grid: [ctas, ctas, 1],
        block: [convolution::THREADS.0, convolution::THREADS.1, 1],
        dynamic_shared: 0,
        arguments: vec![
            f32s(n * n),
            Argument::Output(Element::F32, 4 * n * n),
            Argument::U32(n as u32),
            Argument::U32(n as u32),
        ],
    }]
}

fn scan_launch(size: Size) -> Vec<Launch> {
    let lengths: &[u32] = if size == Size::Small { &[40 * scan::TILE] } else { &[1 << 20, 64 << 20] };
    let launch = |&length: &u32| Launch {
        what: format!("scan, {length} elements"),
        grid: [length / scan::TILE, 1, 1],
        block: [scan::THREADS, 1, 1],
        dynamic_shared: 0,
        arguments: vec![
            input(length as usize, u32::to_le_bytes),
            Argument::Output(Element::Bits, 4 * length as usize),
            Argument::Scratch(8 * (length / scan::TILE) as usize),
            Argument::Scratch(4),
        ],
    };
    lengths.iter().map(launch).collect()
}

fn top_k_launch(size: Size) -> Vec<Launch> {
    let (rows, length) = if size == Size::Small { (3, 500) } else { (8192, 8192) };
    vec![Launch {
        what: format!("top {K}, {rows} rows of {length}"),
        grid: [rows as u32, 1, 1],
        block: [32, 1, 1],
        dynamic_shared: 0,
        arguments: vec![
            f32s(rows * length),
            Argument::Output(Element::Bits, 4 * rows * K),
            Argument::Output(Element::Bits, 4 * rows * K),
            Argument::U32(length as u32),
        ],
    }]
}

fn lu_launch(size: Size) -> Vec<Launch> {
    let count: usize = if size == Size::Small { 11 } else { 100_000 };
    let elements = count * lu::N * lu::N;
    vec![Launch {
        what: format!("LU, {count} matrices of {0} × {0}", lu::N),
        grid: [(count as u32).div_ceil(lu::THREADS / lu::N as u32), 1, 1],
        block: [lu::THREADS, 1, 1],
        dynamic_shared: 0,
        arguments: vec![
            input(elements, |n| f64::from(unit(n)).to_le_bytes()),
            Argument::Output(Element::F64, 8 * elements),
            Argument::Output(Element::Bits, 4 * count * lu::N),
            Argument::U32(count as u32),
        ],
    }]
}

fn bytes_launch(size: Size) -> Vec<Launch> {
    let (length, ctas) = stream(size);
    // Letters with the frequencies of an English text.
    let letters = b"eeeeeeeeeeeetttttttttaaaaaaaaooooooooiiiiiiinnnnnnnsssssshhhhhhrrrrrrddddlllluuucccmmmwwffggyyppbbvk     ";
    vec![Launch {
        what: format!("bytes, {length}"),
        grid: [ctas, 1, 1],
        block: [bytes::THREADS, 1, 1],
        dynamic_shared: 0,
        arguments: vec![
            input(length, |n| [letters[n as usize % letters.len()]]),
            Argument::Output(Element::Bits, 4 * 256),
            Argument::U32(length as u32),
        ],
    }]
}
