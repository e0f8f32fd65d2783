//! A PTX file and its launches, on the emulator.

use std::collections::BTreeMap;

use bespoke::device::{self, Journal};
use bespoke_emulator as emulator;
use emulator::{FindingKind, Kernel, LaunchConfig, Memory, Module, ParseError, ProgrammaticOrder};

use super::expected::{Prepared, expected, prepare};
use super::launches::{Argument, Extent, Launch, Launches};
use super::report::{Finding, Report};
use super::residency::Multiprocessors;
use super::triton::Metadata;
use super::values::{Element, Number, hex};
use super::{CheckError, Options};

/// A PTX text that the emulator has parsed.
pub struct Loaded {
    /// Name of the PTX file in messages.
    pub name: String,
    module: Module,
    text: String,
}

impl Loaded {
    /// Parses a PTX text; messages refer to it as `name`.
    ///
    /// # Errors
    /// [`CheckError::Ptx`] with all errors and unsupported features; [`CheckError::Nothing`] if there is no kernel.
    pub fn parse(name: &str, text: &str) -> Result<Loaded, CheckError> {
        let refused = |problems: Vec<ParseError>| CheckError::Ptx {
            name: name.to_owned(),
            text: text.to_owned(),
            problems,
        };
        let module = Module::load(text).map_err(refused)?;
        if module.kernels().next().is_none() {
            return Err(CheckError::Nothing(format!("{name} has no kernel (no `.entry`)")));
        }
        Ok(Loaded { name: name.to_owned(), module, text: text.to_owned() })
    }

    /// Kernels of the file, in the order of the text.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.module.kernels()
    }

    /// Runs the launches in order under the checks of the options, and compares the buffers with their expected
    /// contents.
    ///
    /// A finding ends its launch, and the next launch runs. After a finding nothing is compared, since results are
    /// incomplete.
    ///
    /// # Errors
    /// If a launch names an unknown kernel or buffer, or a buffer cannot be allocated.
    pub fn check(&self, launches: &Launches, options: &Options) -> Result<Report, CheckError> {
        let journal = Journal::new(options.lints || options.profile);
        journal.loaded(self.kernels().map(Kernel::name), &self.text);
        // A buffer's content is held twice: here, and in the memory of the device.
        let limit = device::emulator_memory() / 2;
        let first = prepare(launches, limit)?;
        let expected = expected(launches, &first, limit)?;
        let memory = Memory::new();
        let buffers = allocate(&memory, &first)?;
        let mut bound = Vec::new();
        for (index, launch) in launches.launches.iter().enumerate() {
            let metadata = match &launch.triton {
                Some(path) => Some(Metadata::read(&launches.folder.join(path))?),
                None => None,
            };
            let name = launch.kernel.as_ref().or(metadata.as_ref().map(|metadata| &metadata.name));
            let name = name.map_or(String::new(), |name| format!(" (`{name}`)"));
            let place = || format!("launch {}{name}", index + 1);
            let launch = match &metadata {
                Some(metadata) => self.bind_triton(launch, metadata, &buffers, &memory),
                None => self.bind(launch, &buffers),
            };
            bound.push(launch.map_err(|what| CheckError::launches(place(), what))?);
        }
        if bound.is_empty() {
            return Err(CheckError::launches("the launches", "there are none: add `[[launch]]`"));
        }
        let profile = journal.profiles();
        let Options { checks, instruction_limit, .. } = *options;
        let run = emulator::Options { profile, checks, instruction_limit, ..emulator::Options::default() };
        let count = options.multiprocessors.or(launches.multiprocessors);
        let multiprocessors = Multiprocessors::of(&self.module, count);
        let mut order = ProgrammaticOrder::new();
        for (index, Bound { kernel, config, params, programmatic }) in bound.iter().enumerate() {
            let residency = multiprocessors.hold(kernel, config);
            let resident_ctas = residency.map_or(run.resident_ctas, |residency| residency.ctas.max(1));
            let run = emulator::Options { resident_ctas, ..run };
            let outcome = match programmatic {
                true => order.run_programmatic(kernel, &memory, config, params, &run),
                false => order.run(kernel, &memory, config, params, &run),
            };
            journal.record(outcome.map_err(|mut finding| {
                if let (FindingKind::Residency, Some(residency)) = (finding.kind, residency) {
                    let launch = format!("launch {}: {}", index + 1, finding.detail);
                    finding.detail = format!("{launch}; {}", residency.reason());
                }
                finding
            }));
        }
        let mut report = Report::new(&self.name, journal.entries(), options);
        if !report.findings.is_empty() {
            return Ok(report);
        }
        for (name, expected) in &expected {
            let mut got = vec![0; expected.bytes()];
            let address = buffers[name].address;
            memory.read(address, &mut got).map_err(|error| CheckError::Nothing(error.to_string()))?;
            if let Some(text) = expected.difference(&got) {
                report.findings.push(Finding::wrong_result("", format!("buffer `{name}`: {text}")));
            }
        }
        Ok(report)
    }

    /// Resolves a launch's kernel and encodes its arguments.
    fn bind(&self, launch: &Launch, buffers: &BTreeMap<&str, Placed>) -> Result<Bound<'_>, String> {
        let name =
            launch.kernel.as_ref().ok_or("`kernel` is missing, or the metadata of Triton, `triton`")?;
        let block = launch.block.as_ref().ok_or("`block` is missing, or the metadata of Triton, `triton`")?;
        let config = LaunchConfig {
            grid: axes(&launch.grid, "grid")?,
            block: axes(block, "block")?,
            dynamic_shared: launch.shared.unwrap_or(0),
            cluster: match &launch.cluster {
                Some(extent) => Some(axes(extent, "cluster")?),
                None => None,
            },
            cooperative: launch.cooperative,
        };
        let kernel = self.find(name)?;
        let params = encode_all(kernel, kernel.params().len(), &launch.args, buffers)?;
        Ok(Bound { kernel, config, params, programmatic: launch.programmatic })
    }

    /// Binds a launch by the metadata that Triton wrote for the kernel.
    fn bind_triton(
        &self,
        launch: &Launch,
        metadata: &Metadata,
        buffers: &BTreeMap<&str, Placed>,
        memory: &Memory,
    ) -> Result<Bound<'_>, String> {
        let given = [
            ("block", launch.block.is_some()),
            ("cluster", launch.cluster.is_some()),
            ("shared", launch.shared.is_some()),
            ("cooperative", launch.cooperative),
        ];
        if let Some((name, _)) = given.into_iter().find(|&(_, given)| given) {
            return Err(format!("`{name}` is in the metadata of Triton, `triton`: leave one of them out"));
        }
        let kernel = self.find(launch.kernel.as_ref().unwrap_or(&metadata.name))?;
        let config = metadata.config(axes(&launch.grid, "grid")?);
        let count = metadata.arguments(kernel.params().len());
        let mut params = encode_all(kernel, count, &launch.args, buffers)?;
        let scratch = metadata.scratch(memory, &config)?;
        for (param, address) in kernel.params()[count..].iter().zip(scratch) {
            let bytes = address.to_le_bytes();
            if param.size as usize != bytes.len() {
                return Err(format!("parameter {} is no pointer to scratch memory", param.name));
            }
            params[param.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
        }
        let programmatic = launch.programmatic || metadata.is_programmatic();
        Ok(Bound { kernel, config, params, programmatic })
    }

    /// The kernel called `name`.
    fn find(&self, name: &str) -> Result<&Kernel, String> {
        self.module.kernel(name).ok_or_else(|| {
            let names: Vec<&str> = self.kernels().map(Kernel::name).collect();
            format!("{} has no such kernel; its kernels: {}", self.name, names.join(", "))
        })
    }
}

fn axes(extent: &Extent, what: &str) -> Result<[u32; 3], String> {
    extent.axes().ok_or_else(|| format!("{what} has more than three axes"))
}

/// The parameter block with the arguments of the first `count` parameters; the rest is zero.
fn encode_all(
    kernel: &Kernel,
    count: usize,
    args: &[Argument],
    buffers: &BTreeMap<&str, Placed>,
) -> Result<Vec<u8>, String> {
    if count != args.len() {
        return Err(format!("{} args for {count} parameters", args.len()));
    }
    let mut params = vec![0; kernel.param_bytes() as usize];
    for (index, (param, argument)) in kernel.params().iter().zip(args).enumerate() {
        let bytes = encode(argument, param.ty, buffers)
            .map_err(|what| format!("argument {} (.{} {}): {what}", index + 1, param.ty, param.name))?;
        if bytes.len() != param.size as usize {
            let (given, wanted) = (bytes.len(), param.size);
            return Err(format!("argument {} ({}): {given} bytes for {wanted}", index + 1, param.name));
        }
        params[param.offset as usize..][..bytes.len()].copy_from_slice(&bytes);
    }
    Ok(params)
}

/// Parses a PTX text and checks it: [`Loaded::parse`], then [`Loaded::check`].
///
/// # Errors
/// If the text is invalid, or the launches do not match it.
pub fn ptx(name: &str, text: &str, launches: &Launches, options: &Options) -> Result<Report, CheckError> {
    Loaded::parse(name, text)?.check(launches, options)
}

/// A launch with its kernel resolved and its arguments encoded.
struct Bound<'a> {
    kernel: &'a Kernel,
    config: LaunchConfig,
    params: Vec<u8>,
    programmatic: bool,
}

/// A buffer in the device's memory.
struct Placed {
    address: u64,
    bytes: u64,
}

fn allocate<'a>(
    memory: &Memory,
    buffers: &BTreeMap<&'a str, Prepared>,
) -> Result<BTreeMap<&'a str, Placed>, CheckError> {
    let mut placed = BTreeMap::new();
    for (&name, prepared) in buffers {
        let address = memory.alloc(name, prepared.bytes);
        if let Some(content) = &prepared.content {
            memory.write(address, content).map_err(|error| CheckError::Nothing(error.to_string()))?;
        }
        placed.insert(name, Placed { address, bytes: prepared.bytes });
    }
    Ok(placed)
}

/// The bytes of an argument for a parameter of PTX type `ty`.
fn encode(argument: &Argument, ty: &str, buffers: &BTreeMap<&str, Placed>) -> Result<Vec<u8>, String> {
    let find = |name: &str| {
        let known = buffers.keys().copied().collect::<Vec<_>>().join(", ");
        buffers.get(name).ok_or_else(|| format!("there is no buffer `{name}`; the buffers: {known}"))
    };
    match argument {
        Argument::Buffer(name) => Ok(find(name)?.address.to_le_bytes().to_vec()),
        Argument::Within(within) => {
            let Placed { address, bytes } = find(&within.buffer)?;
            match within.offset <= *bytes {
                true => Ok((address + within.offset).to_le_bytes().to_vec()),
                false => Err(format!(
                    "`offset` is {}, but buffer `{}` has {bytes} bytes",
                    within.offset, within.buffer
                )),
            }
        }
        Argument::Bytes(bytes) => hex(&bytes.hex).ok_or_else(|| "`hex` must be pairs of digits".to_owned()),
        Argument::Number(number) => {
            let element =
                element(ty, *number).ok_or_else(|| "give its bytes as { hex = \"…\" }".to_owned())?;
            let what = number.value();
            element.encode(*number).ok_or_else(|| format!("{what} is not a value of this type"))
        }
    }
}

/// Element type of a parameter, for a number; untyped `.b32` and `.b64` take the number's own type.
fn element(ty: &str, number: Number) -> Option<Element> {
    let float = matches!(number, Number::Float(_));
    Some(match ty {
        "u8" | "b8" => Element::U8,
        "s8" => Element::I8,
        "u16" | "b16" => Element::U16,
        "s16" => Element::I16,
        "b32" if float => Element::F32,
        "u32" | "b32" => Element::U32,
        "s32" => Element::I32,
        "b64" if float => Element::F64,
        "u64" | "b64" => Element::U64,
        "s64" => Element::I64,
        "f16" => Element::F16,
        "bf16" => Element::Bf16,
        "f32" => Element::F32,
        "f64" => Element::F64,
        _ => return None,
    })
}
