//! A PTX file and its launches, on the emulator.

use bespoke::device::{self, Journal};
use bespoke_emulator as emulator;
use emulator::{
    FindingKind, Kernel, LaunchConfig, Memory, MemoryError, Module, ParseError, ProgrammaticOrder,
    RefusedKernel,
};

use super::arguments::{Buffers, allocate, encode_all};
use super::expected::{expected, prepare};
use super::launches::{Extent, Launch, Launches};
use super::report::{Finding, Report};
use super::residency::Multiprocessors;
use super::saved::{refuse_overwritten, save};
use super::triton::Metadata;
use super::{CheckError, Options};

/// A PTX text that the emulator has parsed.
pub struct Loaded {
    /// Name of the PTX file in messages.
    pub name: String,
    module: Module,
    text: String,
}

impl Loaded {
    /// Parses a PTX text; messages refer to it as `name`. Kernels with errors cannot be launched.
    ///
    /// # Errors
    /// [`CheckError::Ptx`] with all errors and unsupported features, if no kernel is without them or an error is in no
    /// function; [`CheckError::Nothing`] if there is no kernel.
    pub fn parse(name: &str, text: &str) -> Result<Loaded, CheckError> {
        let refused = |problems: Vec<ParseError>| CheckError::Ptx {
            name: name.to_owned(),
            text: text.to_owned(),
            launch: None,
            problems,
        };
        let module = Module::load_partly(text).map_err(refused)?;
        if module.kernels().next().is_none() {
            return Err(CheckError::Nothing(format!("{name} has no kernel (no `.entry`)")));
        }
        Ok(Loaded { name: name.to_owned(), module, text: text.to_owned() })
    }

    /// Returns the same text if it has no problems.
    ///
    /// # Errors
    /// [`CheckError::Ptx`] with all errors and unsupported features, also those of functions that no kernel calls.
    pub fn without_problems(self) -> Result<Loaded, CheckError> {
        match self.module.problems() {
            [] => Ok(self),
            problems => Err(self.refused(None, problems)),
        }
    }

    fn refused(&self, launch: Option<String>, problems: &[ParseError]) -> CheckError {
        let (name, text) = (self.name.clone(), self.text.clone());
        CheckError::Ptx { name, text, launch, problems: problems.to_vec() }
    }

    /// Kernels of the file that can be launched, in the order of the text.
    pub fn kernels(&self) -> impl Iterator<Item = &Kernel> {
        self.module.kernels()
    }

    /// Runs the launches in order under the checks of the options, compares the buffers with their expected contents, and
    /// writes the buffers with a file ([`Buffer::save`](crate::Buffer::save)) to their files.
    ///
    /// A finding ends its launch, and the next launch runs. After a finding nothing is compared, since results are
    /// incomplete, and nothing is written.
    ///
    /// # Errors
    /// If a launch names an unknown kernel or buffer, or a kernel with errors, if a buffer cannot be allocated, or if a file
    /// cannot be written.
    pub fn check(&self, launches: &Launches, options: &Options) -> Result<Report, CheckError> {
        let journal = Journal::new(options.lints || options.profile);
        journal.loaded(self.kernels().map(Kernel::name), &self.text);
        refuse_overwritten(launches)?;
        // A buffer's content is held twice: here, and in the memory of the device.
        let limit = device::emulator_memory() / 2;
        let first = prepare(launches, limit)?;
        let expected = expected(launches, &first, limit)?;
        let memory = Memory::new();
        let buffers = allocate(&memory, launches, &first)?;
        let mut bound = Vec::new();
        for (index, launch) in launches.launches.iter().enumerate() {
            let metadata = match &launch.triton {
                Some(path) => Some(Metadata::read(&launches.folder.join(path))?),
                None => None,
            };
            let launched = launch.kernel.as_ref().or(metadata.as_ref().map(|metadata| &metadata.name));
            let name = launched.map_or(String::new(), |name| format!(" (`{name}`)"));
            let place = || format!("launch {}{name}", index + 1);
            let with_errors = |kernel: &&RefusedKernel| Some(&kernel.name) == launched;
            if let Some(kernel) = self.module.refused().iter().find(with_errors) {
                return Err(self.refused(Some(place()), &kernel.errors));
            }
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
            let failed = |error: MemoryError| CheckError::Nothing(error.to_string());
            let unwritten = memory.first_uninitialised(address, got.len() as u64).map_err(failed)?;
            if let (Some(byte), true) = (unwritten, options.checks.memory) {
                let element = byte / expected.element_bytes();
                let text =
                    format!("buffer `{name}`: element {element} is uninitialised, but has an expected value");
                report.findings.push(Finding::wrong_result("", text));
                continue;
            }
            memory.read(address, &mut got).map_err(failed)?;
            if let Some(text) = expected.difference(&got) {
                report.findings.push(Finding::wrong_result("", format!("buffer `{name}`: {text}")));
            }
        }
        if report.findings.is_empty() {
            save(launches, &buffers, &memory)?;
        }
        Ok(report)
    }

    /// Resolves a launch's kernel and encodes its arguments.
    fn bind(&self, launch: &Launch, buffers: &Buffers<'_>) -> Result<Bound<'_>, String> {
        let name =
            launch.kernel.as_ref().ok_or("the launch has no kernel: give `kernel = \"NAME\"`, or Triton's metadata by `triton = \"FILE.json\"`")?;
        let block = launch.block.as_ref().ok_or("the launch has no block: give `block = [X, Y, Z]`, or Triton's metadata by `triton = \"FILE.json\"`")?;
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
        buffers: &Buffers<'_>,
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
        let (all, count) = (kernel.params().len(), metadata.arguments(kernel.params().len()));
        if count < all && launch.args.len() == all {
            return Err(format!(
                "{all} args for {count} parameters: leave out the last {}, the scratch memory that Triton appends",
                all - count
            ));
        }
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
