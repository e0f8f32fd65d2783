//! Measures the steps of the product on a GPU with compute capability 9.0.

mod step;

use std::error::Error;
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use bespoke::device::{self, Kind, Selector};
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};
use step::{Matrices, Step, steps};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// Measures C = A·Bᵀ of square f16 matrices, one step of `hopper-gemm` after the other.
///
/// Checks elements of each result against sums in f64, and prints the median time and the share of the peak of the tensor
/// cores.
#[derive(Parser)]
struct Arguments {
    /// Rows and columns of the matrices, multiples of 128
    #[arg(value_delimiter = ',', default_values_t = [4096, 8192])]
    sizes: Vec<u32>,
    /// Only steps whose names contain this
    #[arg(long, default_value = "", hide_default_value = true)]
    only: String,
    /// Dense f16 products of the GPU in 10¹² operations a second, by its data sheet
    #[arg(long, default_value_t = 989.4)]
    peak: f64,
    /// Write the PTX of the steps to this folder instead of measuring them
    #[arg(long, value_name = "DIR")]
    emit: Option<PathBuf>,
    /// auto, cuda, cuda:N or emulator; the emulator has no times
    #[arg(long, default_value = "auto")]
    device: Selector,
}

fn main() -> ExitCode {
    match run(&Arguments::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: &Arguments) -> Result<()> {
    if let Some(size) = arguments.sizes.iter().find(|size| !size.is_multiple_of(128) || **size == 0) {
        return Err(format!("{size} is not a multiple of 128").into());
    }
    let steps = || steps().into_iter().filter(|step: &Step| step.name.contains(&arguments.only));
    if let Some(folder) = &arguments.emit {
        fs::create_dir_all(folder)?;
        for step in steps() {
            fs::write(folder.join(format!("{}.ptx", step.name.replace([' ', ','], "-"))), step.ptx()?)?;
        }
        return Ok(());
    }
    let device = device::open(arguments.device)?.device;
    let info = device.info();
    println!("{}, {} multiprocessors", info.name, info.multiprocessors);
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(["step", "size", "ms", "TFLOPS", "of the peak"]);
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for &size in &arguments.sizes {
        let matrices = Matrices::new(&*device, size as usize)?;
        for step in steps() {
            let time = step.time(&*device, &matrices)?;
            let mut row = vec![step.name, size.to_string()];
            if info.kind == Kind::Emulator {
                row.extend(["–"; 3].map(str::to_owned));
            } else {
                let rate = 2.0 * f64::from(size).powi(3) / time / 1e9;
                row.extend([
                    format!("{time:.3}"),
                    format!("{rate:.0}"),
                    format!("{:.1}%", rate / arguments.peak * 100.0),
                ]);
            }
            table.add_row(row);
        }
    }
    println!("{table}");
    Ok(())
}
