//! `bespoke devices`: the devices of this machine, built-in kernels, the cache of machine code.

use bespoke::builtin;
use bespoke::device::{self, Bytes, DeviceInfo};
use bespoke_codegen::ptx::Target;
use comfy_table::{Table, presets};

use crate::console::outln;

/// List the devices of this machine, with their limits
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  bespoke devices
  bespoke devices -v")]
pub struct DevicesArgs {}

/// Prints the table of devices, and below the table the reason if GPUs cannot be used.
pub fn execute(_: &DevicesArgs) -> miette::Result<()> {
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
    let mut failures = Vec::new();
    for device in device::list() {
        match device {
            Ok(info) => {
                table.add_row(row(&info));
            }
            Err(error) => failures.push(error),
        }
    }
    outln!("{}", table.trim_fmt())?;
    for error in failures {
        outln!("\nCUDA is not available: {error}")?;
        if let Some(advice) = error.advice() {
            outln!("  help: {advice}")?;
        }
    }
    let built: Vec<String> = builtin::targets().iter().map(|&target| built_in(target)).collect();
    outln!("\nbuilt in: {}", built.join(", "))?;
    outln!("{}", cached())?;
    Ok(())
}

/// Number of built-in kernels for a target, as a cell of the table.
fn built_in(target: Target) -> String {
    let (kernels, cubins) = (builtin::kernel_count(target), builtin::cubin_count(target));
    match cubins {
        0 => format!("{target} ({kernels} kernels)"),
        cubins if cubins == kernels => format!("{target} ({kernels} kernels, with machine code)"),
        cubins => format!("{target} ({kernels} kernels, {cubins} with machine code)"),
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
                "cache of machine code: {folder} ({} kernels, {})",
                contents.entries,
                Bytes(contents.bytes)
            )
        }
        Err(error) => format!("cache of machine code: {folder}: {error}"),
    }
}

fn row(info: &DeviceInfo) -> [String; 10] {
    let (major, minor) = info.compute;
    let unknown = || "-".to_owned();
    let target =
        Target::for_device(major, minor).map_or_else(|| "none".to_owned(), |target| target.to_string());
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
