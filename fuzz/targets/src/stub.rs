//! Arguments of launch stubs: kernels with any parameters, emitted, loaded and launched.
//!
//! The kernel stores each of its parameters. Properties: kernels that are emitted have a manifest, which
//! `bespoke inspect` reads; stub arguments, the manifest and the emulator agree on the layout of the parameters; and the
//! kernel sees the arguments' values.

use std::collections::HashSet;
use std::fs;

use arbitrary::{Arbitrary, Unstructured};
use bespoke_codegen::emit::{Emission, Entry, Geometry, Manifest};
use bespoke_codegen::hooks::{KernelOptions, aligned_parameter, parameter, record_kernel};
use bespoke_codegen::launch::{self, DevicePointer};
use bespoke_codegen::prelude::*;
use bespoke_emulator::{LaunchConfig, Memory, Module, Options, run as launch_kernel};
use bespoke_inspect::folder::Folder;

/// A kernel and its arguments.
#[derive(Arbitrary)]
struct Input<'a> {
    name: Option<&'a str>,
    summary: &'a str,
    threads: Option<u8>,
    min_blocks: Option<u8>,
    cluster: Option<u8>,
    block: Option<[u16; 3]>,
    grid: Option<[u16; 3]>,
    dynamic_shared: u32,
    arguments: Vec<(Name<'a>, Argument)>,
}

/// A parameter's name.
#[derive(Arbitrary)]
enum Name<'a> {
    /// A name that no other parameter has.
    Plain,
    /// The same, with this text behind it.
    Other(&'a str),
    /// One that generated stubs use themselves.
    Taken(u8),
}

/// Names that a stub uses.
const TAKEN: [&str; 6] = ["launcher", "launcher_", "grid", "grid_", "config", "params"];

impl Name<'_> {
    fn of(&self, index: usize) -> String {
        match self {
            Name::Plain => format!("p{index}"),
            Name::Other(text) => format!("p{index}{text}"),
            Name::Taken(number) => TAKEN[*number as usize % TAKEN.len()].to_owned(),
        }
    }
}

/// A parameter's type with the argument's value.
#[derive(Arbitrary, Clone, Copy)]
enum Argument {
    U8(u8),
    U16(u16),
    U32(u32),
    U64(u64),
    I8(i8),
    I16(i16),
    I32(i32),
    I64(i64),
    F16(u16),
    Bf16(u16),
    F32(u32),
    F16x2(u32),
    Bool(bool),
    /// The address of an element of [`VALUES`].
    Pointer(u8),
    /// The same, for a parameter with this alignment.
    Aligned(u8, u32),
}

/// Values to which pointers point.
const VALUES: [u64; 3] = [1, 0x1234_5678_9abc_def0, u64::MAX];

/// Bytes of the buffer for each argument.
const SLOT: u64 = 8;

pub fn run(data: &[u8]) {
    let Ok(input) = Input::arbitrary_take_rest(Unstructured::new(data)) else { return };
    let names = input.arguments.iter().enumerate().map(|(index, (name, _))| name.of(index));
    // Rust refuses two parameters of one name.
    if names.collect::<HashSet<_>>().len() < input.arguments.len() {
        return;
    }
    let entry = entry(&input);
    let emission = Emission::new().target(Target::Sm80).target(Target::Sm90).entry(entry);
    let folder = tempfile::tempdir().expect("a temporary folder");
    match emission.write(folder.path()) {
        Ok(_) => emitted(&input, folder.path()),
        Err(error) => drop(error.to_string()),
    }
}

fn entry(input: &Input<'_>) -> Entry {
    let number = |option: Option<u8>| option.map(u32::from);
    let options = KernelOptions {
        threads: number(input.threads).map(|threads| [threads, 1, 1]),
        min_blocks: number(input.min_blocks),
        max_registers: None,
        cluster: number(input.cluster),
        allow_spills: None,
    };
    let recorded = record_kernel("fuzzed", options, || {
        let out: Ptr<Global, u64> = parameter("out");
        for (index, (name, argument)) in input.arguments.iter().enumerate() {
            argument.store(&name.of(index), out.at(index as u32));
        }
    });
    let recorded = match input.name {
        Some(name) => recorded.map(|kernel| kernel.named(name)),
        None => recorded,
    };
    let axes = |axes: [u16; 3]| axes.map(u32::from);
    let geometry = input.grid.map_or_else(Geometry::per_launch, |grid| Geometry::fixed(axes(grid)));
    let geometry = geometry.dynamic_shared(input.dynamic_shared);
    let geometry = match (input.block, input.threads) {
        (Some(block), _) => geometry.block(axes(block)),
        (None, None) => geometry.block([1; 3]),
        (None, Some(_)) => geometry,
    };
    Entry::new(recorded, geometry).summary(input.summary)
}

impl Argument {
    /// Declares the parameter and stores its bits to `to`.
    fn store(self, name: &str, to: Ptr<Global, u64>) {
        macro_rules! stored {
            ($ty:ty) => {
                to.cast::<$ty>().store(parameter::<Val<$ty>>(name))
            };
        }
        match self {
            Argument::U8(_) => stored!(u8),
            Argument::U16(_) => stored!(u16),
            Argument::U32(_) => stored!(u32),
            Argument::U64(_) => stored!(u64),
            Argument::I8(_) => stored!(i8),
            Argument::I16(_) => stored!(i16),
            Argument::I32(_) => stored!(i32),
            Argument::I64(_) => stored!(i64),
            Argument::F16(_) => stored!(f16),
            Argument::Bf16(_) => stored!(bf16),
            Argument::F32(_) => stored!(f32),
            Argument::F16x2(_) => stored!(F16x2),
            Argument::Bool(_) => to.cast::<u8>().store(select(parameter(name), 1u8, 0u8)),
            Argument::Pointer(_) => to.store(parameter::<Ptr<Global, u64>>(name).load()),
            Argument::Aligned(_, align) => {
                to.store(aligned_parameter::<Ptr<Global, u64>>(name, align).load());
            }
        }
    }

    /// The argument as a launch stub takes it; `values` is the address of [`VALUES`].
    fn argument(self, values: u64) -> Box<dyn launch::Argument> {
        match self {
            Argument::U8(value) => Box::new(value),
            Argument::U16(value) => Box::new(value),
            Argument::U32(value) => Box::new(value),
            Argument::U64(value) => Box::new(value),
            Argument::I8(value) => Box::new(value),
            Argument::I16(value) => Box::new(value),
            Argument::I32(value) => Box::new(value),
            Argument::I64(value) => Box::new(value),
            Argument::F16(bits) => Box::new(f16::from_bits(bits)),
            Argument::Bf16(bits) => Box::new(bf16::from_bits(bits)),
            Argument::F32(bits) => Box::new(f32::from_bits(bits)),
            Argument::F16x2(bits) => {
                Box::new(launch::F16x2(f16::from_bits(bits as u16), f16::from_bits((bits >> 16) as u16)))
            }
            Argument::Bool(value) => Box::new(value),
            Argument::Pointer(index) | Argument::Aligned(index, _) => {
                Box::new(DevicePointer::<u64>::new(values).at(u64::from(index) % VALUES.len() as u64))
            }
        }
    }

    /// Bytes that the kernel stores.
    fn stored(self) -> Vec<u8> {
        let mut bytes = match self {
            Argument::Pointer(index) | Argument::Aligned(index, _) => {
                VALUES[index as usize % VALUES.len()].to_le_bytes().to_vec()
            }
            value => launch::params(&[&*value.argument(0)]),
        };
        bytes.resize(SLOT as usize, 0);
        bytes
    }
}

/// Checks the files of an emission, and launches the kernel.
fn emitted(input: &Input<'_>, folder: &std::path::Path) {
    let manifest = fs::read_to_string(folder.join("kernels.json")).expect("a manifest");
    let manifest: Manifest = serde_json::from_str(&manifest).expect("the manifest parses");
    Folder::read(folder).expect("the folder is read");
    let kernel = &manifest.kernels[0];
    let text = fs::read_to_string(folder.join(&kernel.modules[1].ptx)).expect("the PTX");
    let module = Module::load(&text).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
    let loaded = module.kernel(&kernel.name).expect("the kernel");

    let layout = kernel.parameters.iter().map(|one| (one.offset, one.bytes));
    assert!(layout.eq(loaded.params().iter().map(|one| (one.offset, one.size))), "the layout differs");
    assert_eq!(kernel.parameter_bytes, loaded.param_bytes());

    let memory = Memory::new();
    let bytes = SLOT * input.arguments.len().max(1) as u64;
    let out = memory.alloc("out", bytes);
    memory.write(out, &vec![0; bytes as usize]).expect("the whole buffer");
    let values = memory.alloc("values", size_of_val(&VALUES) as u64);
    memory.write(values, &VALUES.map(u64::to_le_bytes).concat()).expect("the whole buffer");
    let arguments: Vec<Box<dyn launch::Argument>> =
        input.arguments.iter().map(|(_, argument)| argument.argument(values)).collect();
    let pointer = DevicePointer::<u64>::new(out);
    let mut all: Vec<&dyn launch::Argument> = vec![&pointer];
    all.extend(arguments.iter().map(|argument| &**argument));
    let params = launch::params(&all);
    assert_eq!(params.len(), kernel.parameter_bytes as usize, "the stub's parameters");
    let config = LaunchConfig {
        grid: [kernel.cluster.unwrap_or(1), 1, 1],
        block: kernel.block,
        dynamic_shared: 0,
        cluster: None,
        cooperative: false,
    };
    if kernel.cluster.is_some_and(|ctas| ctas > 1) || kernel.block != [1; 3] {
        // Several threads store the same values, which is no race; but only one thread is needed.
        return;
    }
    launch_kernel(loaded, &memory, &config, &params, &Options { threads: 1, ..Options::default() })
        .unwrap_or_else(|finding| panic!("{finding}"));
    let mut found = vec![0; bytes as usize];
    memory.read(out, &mut found).expect("the whole buffer");
    for ((_, argument), found) in input.arguments.iter().zip(found.chunks(SLOT as usize)) {
        assert_eq!(found, argument.stored());
    }
}
