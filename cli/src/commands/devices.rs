//! `bespoke devices`: the devices of this machine, built-in kernels, the cache of machine code.

use std::path::PathBuf;

use bespoke::builtin;
use bespoke::device::{self, Bytes, DeviceInfo};
use bespoke_codegen::ptx::Target;
use clap::ValueEnum;
use comfy_table::{Table, presets};
use serde::{Serialize, Serializer};

use crate::console::{self, counted, outln};

/// List the devices of this machine, with their limits
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  bespoke devices
  bespoke devices --format json")]
pub struct DevicesArgs {
    /// Output format
    #[arg(long, value_enum, default_value_t = Format::Text)]
    format: Format,
}

/// Output format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Format {
    /// A table.
    Text,
    /// One JSON object: sizes in bytes, rates per second.
    Json,
}

/// The devices and what is there for them.
#[derive(Serialize)]
struct Report {
    devices: Vec<Device>,
    /// Why GPUs cannot be used.
    #[serde(serialize_with = "messages")]
    failures: Vec<device::Error>,
    built_in: Vec<BuiltIn>,
    /// Folder of the cache of machine code; none without a cache.
    cache: Option<PathBuf>,
}

/// A device.
#[derive(Serialize)]
struct Device {
    /// Target of its kernels; none for a GPU that is too old.
    target: Option<Target>,
    #[serde(flatten)]
    info: DeviceInfo,
}

/// Built-in kernels for a target.
#[derive(Serialize)]
struct BuiltIn {
    target: Target,
    kernels: usize,
    /// Kernels with machine code.
    cubins: usize,
}

/// Errors as their messages.
fn messages<S: Serializer>(errors: &[device::Error], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(errors.iter().map(ToString::to_string))
}

fn report() -> Report {
    let mut report = Report { devices: Vec::new(), failures: Vec::new(), built_in: Vec::new(), cache: None };
    for device in device::list() {
        match device {
            Ok(info) => {
                let target = Target::for_device(info.compute.0, info.compute.1);
                report.devices.push(Device { target, info });
            }
            Err(error) => report.failures.push(error),
        }
    }
    let built_in = |&target: &Target| BuiltIn {
        target,
        kernels: builtin::kernel_count(target),
        cubins: builtin::cubin_count(target),
    };
    report.built_in = builtin::targets().iter().map(built_in).collect();
    report.cache = device::cache().map(|cache| cache.folder().to_owned());
    report
}

/// Prints the table of devices, and below the table the reason if GPUs cannot be used.
pub fn execute(args: &DevicesArgs) -> miette::Result<()> {
    let report = report();
    if args.format == Format::Json {
        return console::json(&report);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "device",
        "name",
        "compute",
        "target",
        "SMs",
        "memory",
        "L2",
        "shared/CTA",
        "peak GB/s",
        "driver",
    ]);
    table.add_rows(report.devices.iter().map(row));
    outln!("{}", table.trim_fmt())?;
    for error in &report.failures {
        outln!("\nCUDA is not available: {error}")?;
        if let Some(advice) = error.advice() {
            outln!("  help: {advice}")?;
        }
    }
    let built: Vec<String> = report.built_in.iter().map(built_in).collect();
    outln!("\nbuilt in: {}", built.join(", "))?;
    outln!("{}", cached())?;
    Ok(())
}

/// Number of built-in kernels for a target, as a cell of the table.
fn built_in(&BuiltIn { target, kernels, cubins }: &BuiltIn) -> String {
    match cubins {
        0 => format!("{target} ({})", counted(kernels, "kernel")),
        cubins if cubins == kernels => {
            format!("{target} ({}, with machine code)", counted(kernels, "kernel"))
        }
        cubins => format!("{target} ({}, {cubins} with machine code)", counted(kernels, "kernel")),
    }
}

/// Describes the cache of machine code: folder, number of kernels, and size.
fn cached() -> String {
    let Some(cache) = device::cache() else {
        return format!(
            "no cache of machine code besides the driver's: {} names no folder",
            device::CACHE_VARIABLE
        );
    };
    let folder = cache.folder().display();
    match cache.contents() {
        Ok(contents) => {
            format!(
                "cache of machine code: {folder} ({}, {})",
                counted(contents.entries, "kernel"),
                Bytes(contents.bytes)
            )
        }
        Err(error) => format!("cache of machine code: {folder}: {error}"),
    }
}

fn row(Device { target, info }: &Device) -> [String; 10] {
    let (major, minor) = info.compute;
    let unknown = || "-".to_owned();
    let target = target.map_or_else(|| "none".to_owned(), |target| target.to_string());
    [
        info.kind.to_string(),
        info.name.clone(),
        format!("{major}.{minor}"),
        target,
        info.multiprocessors.to_string(),
        Bytes(info.memory_total).to_string(),
        if info.l2_bytes == 0 { unknown() } else { Bytes(info.l2_bytes).to_string() },
        Bytes(info.shared_per_block_optin.into()).to_string(),
        info.peak_bandwidth.map_or_else(unknown, |bytes| format!("{:.0}", bytes as f64 / 1e9)),
        info.driver.clone().unwrap_or_else(unknown),
    ]
}
