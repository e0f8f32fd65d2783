//! Compares the kernels with CUDA kernels with the same algorithms: machine code, source lines, and times on a GPU.

mod cases;
mod sass;
mod time;
mod tools;

use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::{fs, result};

use bespoke::device::{self, Selector};
use bespoke_codegen::ptx::Target;
use clap::Parser;
use comfy_table::{CellAlignment, Table, presets};

use cases::{Case, cases};
use tools::{Code, Tools};

type Result<T> = result::Result<T, Box<dyn Error>>;

/// Compares ten kernels with CUDA kernels with the same algorithms.
///
/// Without `--time`, compiles both, ours to PTX and the CUDA twins by nvcc, assembles both by ptxas -O3 and prints a
/// table: ours / nvcc's.
#[derive(Parser)]
struct Arguments {
    /// Target of the machine code
    #[arg(long, default_value = "sm_90")]
    target: Target,
    /// Only kernels whose names contain this
    #[arg(long, default_value = "", hide_default_value = true)]
    only: String,
    /// Folder of nvcc, ptxas and nvdisasm, instead of target/cuda-tools and PATH
    #[arg(long)]
    tools: Option<PathBuf>,
    /// Write PTX and machine code of all kernels to this folder
    #[arg(long, value_name = "DIR")]
    emit: Option<PathBuf>,
    /// Write our PTX alone to this folder; needs no nvcc
    #[arg(long, value_name = "DIR")]
    emit_ours: Option<PathBuf>,
    /// Run the kernels in a folder that --emit wrote, compare their results, and print a table of their times
    #[arg(long, value_name = "DIR", conflicts_with_all = ["emit", "emit_ours"])]
    time: Option<PathBuf>,
    /// Device of --time: auto, cuda, cuda:N or emulator; the emulator has smaller inputs and no times
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
    let cases: Vec<Case> = cases().into_iter().filter(|case| case.name.contains(&arguments.only)).collect();
    if let Some(folder) = &arguments.emit_ours {
        fs::create_dir_all(folder)?;
        for case in &cases {
            let ptx = (case.record)()?.compile(arguments.target)?.ptx;
            fs::write(folder.join(format!("{}.ptx", case.name)), ptx)?;
        }
        return Ok(());
    }
    if let Some(folder) = &arguments.time {
        let device = device::open(arguments.device)?.device;
        println!("{}", device.info().name);
        println!("{}", time::table(&*device, arguments.target, &cases, folder)?);
        return Ok(());
    }
    let tools = Tools::find(arguments.tools.as_deref())?;
    let mut table = table(&[
        "kernel",
        "registers",
        "spills",
        "instructions",
        "ratio",
        "main loop",
        "ratio",
        "shared",
        "lines",
        "ratio",
    ]);
    for case in &cases {
        let ours = tools.assemble((case.record)()?.compile(arguments.target)?.ptx, arguments.target)?;
        let twin = tools.assemble(tools.compile(case, arguments.target)?, arguments.target)?;
        table.add_row(row(case, &ours, &twin));
        if let Some(folder) = &arguments.emit {
            write(folder, case, "ours", &ours)?;
            write(folder, case, "twin", &twin)?;
        }
    }
    println!("{table}");
    Ok(())
}

/// Table with numbers in all columns but the first.
fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN).set_header(header.to_vec());
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table
}

fn row(case: &Case, ours: &Code, twin: &Code) -> Vec<String> {
    let pair = |ours: usize, twin: usize| format!("{ours} / {twin}");
    let ratio = |ours: usize, twin: usize| match twin {
        0 => String::new(),
        _ => format!("{:.2}", ours as f64 / twin as f64),
    };
    let of = |count: fn(&Code) -> u32| pair(count(ours) as usize, count(twin) as usize);
    let shared = |code: &Code| (code.shared + case.dynamic_shared) as usize;
    let lines = [case.rust, case.cuda].map(sass::source_lines);
    vec![
        case.name.to_owned(),
        of(|code| code.registers),
        of(|code| code.spills),
        pair(ours.counts.all, twin.counts.all),
        ratio(ours.counts.all, twin.counts.all),
        pair(ours.counts.main_loop, twin.counts.main_loop),
        ratio(ours.counts.main_loop, twin.counts.main_loop),
        pair(shared(ours), shared(twin)),
        pair(lines[0], lines[1]),
        ratio(lines[0], lines[1]),
    ]
}

/// Writes `NAME.WHICH.ptx` and `NAME.WHICH.cubin`.
fn write(folder: &Path, case: &Case, which: &str, code: &Code) -> Result<()> {
    fs::create_dir_all(folder)?;
    fs::write(folder.join(format!("{}.{which}.ptx", case.name)), &code.ptx)?;
    fs::write(folder.join(format!("{}.{which}.cubin", case.name)), &code.cubin)?;
    Ok(())
}
