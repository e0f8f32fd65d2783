//! Comparison of copies of boxes of tensors.
//!
//! Each mnemonic of `tensor_maps.txt` has a kernel, each form has a tensor map, and each of its coordinates is a launch.
//! Loads compare shared memory afterwards; stores and reductions compare the tensor's memory.

mod kernel;
mod list;

use std::error::Error;

use bespoke::device::{Address, Device, Kernel};
use bespoke_codegen::launch::params;

use super::comparison::{Comparison, download, run, word};
use super::report::Agreement;
use super::values::{Random, random};
use list::{Form, families};

/// Threads of a CTA.
const THREADS: u32 = 128;
/// Size of the box's shared memory.
const TILE: usize = 16 << 10;
/// Bytes behind a loaded box that are compared too.
const BEHIND: usize = 128;

/// Random memory that a launch starts with.
struct Input {
    tensor: Vec<u8>,
    /// Content of shared memory.
    tile: Vec<u8>,
}

impl Input {
    fn new(form: &Form, generator: &mut Random) -> Input {
        // Only sums of floats depend on their values; copies keep all bits.
        let kind = match form.element.as_str() {
            "f16" if form.reduces() => "uh",
            "bf16" if form.reduces() => "ub",
            "f32" if form.reduces() => "uf",
            "f64" if form.reduces() => "ud",
            _ => "b64",
        };
        let bytes = if kind == "ud" || kind == "b64" { 8 } else { 4 };
        let mut content = |size: usize| -> Vec<u8> {
            let words = (0..size.div_ceil(bytes)).flat_map(|_| {
                let value = if kind == "b64" { generator.next() } else { random(kind, generator) };
                value.to_le_bytes().into_iter().take(bytes)
            });
            words.take(size).collect()
        };
        Input { tensor: content(form.tensor_bytes()), tile: content(TILE) }
    }
}

/// Names and texts of all modules.
pub fn modules() -> Vec<(String, String)> {
    vec![("tensor-maps".to_string(), kernel::module(&mnemonics()))]
}

/// Mnemonics of all forms, each once.
fn mnemonics() -> Vec<String> {
    let mut all: Vec<String> =
        families().flat_map(|(.., forms)| forms).map(|form| form.mnemonic.clone()).collect();
    all.sort();
    all.dedup();
    all
}

/// Compares all wanted families.
pub fn compare(comparison: &Comparison) -> Result<Vec<Agreement>, Box<dyn Error>> {
    let mnemonics = mnemonics();
    let modules = comparison.load("tensor maps", &kernel::module(&mnemonics))?;
    let mut generator = Random::new(4);
    let mut table = Vec::new();
    for (group, name, forms) in families().filter(|(group, name, _)| comparison.wants(group, name)) {
        let mut line = comparison.line(group, name);
        for form in &forms {
            line.start_form();
            let at = mnemonics.binary_search(&form.mnemonic).unwrap_or_default();
            for coordinates in &form.coordinates {
                let input = Input::new(form, &mut generator);
                let place = format!("{} at {coordinates:?}", form.name);
                let (expected, got) =
                    comparison.both(&modules, (&format!("copy_{at}"), &place), |device, kernel| {
                        launch(device, kernel, form, coordinates, &input)
                    })?;
                let (expected, got) = match (expected, got) {
                    (Ok(expected), Ok(got)) => (expected, got),
                    (expected, got) => {
                        let message =
                            |side: Result<Vec<u8>, String>| side.err().unwrap_or("no error".to_string());
                        line.differ(format!(
                            "{place}: encoding the tensor map: {}; the emulator: {}",
                            message(expected),
                            message(got)
                        ));
                        continue;
                    }
                };
                let (ty, bytes) = form.result();
                let words = expected.chunks(bytes).map(word).zip(got.chunks(bytes).map(word));
                for (at, both) in words.enumerate() {
                    line.compare(ty, both, || format!("{place}: the word at byte {}", at * bytes));
                }
            }
        }
        table.push(line);
    }
    Ok(table)
}

/// Copies a box on a device. Returns for a load the box, the bytes behind it, and a word that is 1 if the mbarrier
/// completed; otherwise the tensor's memory. The inner error is that the device does not encode the tensor map.
fn launch(
    device: &dyn Device,
    kernel: Kernel,
    form: &Form,
    coordinates: &[i32],
    input: &Input,
) -> Result<Result<Vec<u8>, String>, Box<dyn Error>> {
    let alloc = |name: &str, bytes: usize| device.alloc(name, bytes as u64);
    let (tensor, tile) = (alloc("tensor", input.tensor.len())?, alloc("box", TILE + 16)?);
    device.upload(tensor.address(), &input.tensor)?;
    device.upload(tile.address(), &input.tile)?;
    let mut space = match device.encode_tensor_map(&form.map(tensor.address().0)) {
        Ok(map) => map.to_vec(),
        Err(error) => return Ok(Err(error.to_string())),
    };
    space.extend(params(&[&tile.address().0, &(form.box_bytes() as u32)]));
    // The kernel has five parameters for coordinates.
    space.extend((0..5).flat_map(|at| coordinates.get(at).unwrap_or(&0).to_le_bytes()));
    run(device, kernel, (1, THREADS), space)?;
    if !form.loads() {
        return Ok(Ok(download(device, tensor.address(), input.tensor.len())?));
    }
    let mut found = download(device, tile.address(), form.shared_bytes() + BEHIND)?;
    found.extend(download(device, Address(tile.address().0 + TILE as u64), 4)?);
    Ok(Ok(found))
}
