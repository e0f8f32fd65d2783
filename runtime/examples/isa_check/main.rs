//! Runs every instruction form of `forms.txt`, `wgmma.txt` and `tensor_maps.txt` on a device and on the emulator, with
//! edge values of its types and random values, and reports where the results differ in bits.
//!
//! `isa_check [--device auto|cuda|cuda:N|emulator] [--only TEXT] [--show N] [--markdown FILE] [--ptx DIR]`
//!
//! The tables of `codegen/emulator/ISA.md` are the output with `--markdown codegen/emulator/tests/isa/tables.md`.

mod comparison;
mod forms;
mod instructions;
mod kernels;
mod report;
mod tensor_maps;
mod values;
mod wgmma;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use bespoke::device::{self, Selector};
use clap::Parser;

use comparison::Comparison;

/// The command line.
#[derive(Parser)]
struct Arguments {
    /// auto, cuda, cuda:N or emulator
    #[arg(long, default_value = "auto")]
    device: Selector,
    /// Only families whose name or heading contains TEXT
    #[arg(long)]
    only: Option<String>,
    /// Number of differences to print for each form
    #[arg(long, default_value_t = 2)]
    show: usize,
    /// Write the tables to a file too
    #[arg(long)]
    markdown: Option<PathBuf>,
    /// Write the modules into an existing folder, and run nothing
    #[arg(long)]
    ptx: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    if let Some(folder) = &arguments.ptx {
        for (name, text) in [instructions::modules(), wgmma::modules(), tensor_maps::modules()].concat() {
            std::fs::write(folder.join(format!("{name}.ptx")), text)?;
        }
        return Ok(());
    }
    let opened = device::open(arguments.device)?;
    let emulator = device::open(Selector::Emulator)?.device;
    let info = opened.device.info();
    println!("{} against the emulator: {}", info.name, opened.reason);
    let comparison = Comparison {
        device: &*opened.device,
        emulator: &*emulator,
        only: arguments.only.as_deref(),
        show: arguments.show,
    };
    let mut table = instructions::compare(&comparison)?;
    let (major, minor) = info.compute;
    match (major, minor) {
        (9, 0) => table.extend(wgmma::compare(&comparison)?),
        _ => println!(
            "skipped: wgmma, which exists only for compute capability 9.0; this device has {major}.{minor}"
        ),
    }
    match major {
        9.. => table.extend(tensor_maps::compare(&comparison)?),
        _ => println!(
            "skipped: tensor maps, which need compute capability 9.0 or later; this device has {major}.{minor}"
        ),
    }
    print!("{}", report::differences(&table));
    let text = report::table(&table);
    println!("{}\n\n{text}", report::summary(&table, &info.name));
    if let Some(path) = &arguments.markdown {
        std::fs::write(path, &text)?;
    }
    Ok(())
}
