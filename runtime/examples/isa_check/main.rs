//! Runs every instruction form of `forms.txt` on a device and on the emulator, with edge values of its types and random
//! values, and reports where the results differ in bits.
//!
//! `isa_check [--device auto|cuda|cuda:N|emulator] [--only TEXT] [--show N] [--markdown FILE] [--ptx DIR]`

mod forms;
mod kernels;
mod report;
mod values;

use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;

use bespoke::device::{self, Device, Kernel, Launch, Selector};
use clap::Parser;

use forms::{Family, Form};
use report::Agreement;

/// The command line.
#[derive(Parser)]
struct Arguments {
    /// auto, cuda, cuda:N or emulator
    #[arg(long, default_value = "auto")]
    device: Selector,
    /// Only families whose name contains TEXT
    #[arg(long)]
    only: Option<String>,
    /// Number of differences to print for each form
    #[arg(long, default_value_t = 2)]
    show: usize,
    /// Write the table to a file too
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
        let families = forms::families();
        let all: Vec<&Form> = families.iter().flat_map(|family| &family.forms).collect();
        for (at, part) in all.chunks(kernels::MODULE).enumerate() {
            std::fs::write(folder.join(format!("forms-{at}.ptx")), kernels::module(part))?;
        }
        return Ok(());
    }
    let opened = device::open(arguments.device)?;
    let emulator = device::open(Selector::Emulator)?.device;
    println!("{} against the emulator: {}", opened.device.info().name, opened.reason);
    let wanted =
        |family: &Family| arguments.only.as_ref().is_none_or(|only| family.name.contains(only.as_str()));
    let families: Vec<Family> = forms::families().into_iter().filter(wanted).collect();
    let all: Vec<(usize, &Form)> = families
        .iter()
        .enumerate()
        .flat_map(|(family, of)| of.forms.iter().map(move |form| (family, form)))
        .collect();
    let mut table: Vec<Agreement> = families.iter().map(|_| Agreement::default()).collect();
    let mut generator = values::Random::new(2);
    for part in all.chunks(kernels::MODULE) {
        let forms: Vec<&Form> = part.iter().map(|&(_, form)| form).collect();
        let text = kernels::module(&forms);
        let modules = [&*opened.device, &*emulator].map(|device| device.load("isa", &text));
        let [on_device, on_emulator] = modules;
        let (on_device, on_emulator) = (on_device?, on_emulator?);
        for (at, (family, form)) in part.iter().enumerate() {
            let rows = values::rows(form, &mut generator);
            let name = format!("form_{at}");
            let on = |device: &dyn Device, module: &device::Module| -> Result<_, Box<dyn Error>> {
                let bytes = launch(device, module.kernel(&name)?, &rows)
                    .map_err(|error| format!("{}: {error}", form.mnemonic))?;
                Ok(kernels::decode(&bytes, form))
            };
            let expected = on(&*opened.device, &on_device)?;
            let got = on(&*emulator, &on_emulator)?;
            table[*family].add(form, &rows, (&expected, &got), arguments.show);
        }
    }
    print!("{}", report::differences(&families, &table));
    let text = report::table(&families, &table, &opened.device.info().name);
    println!("{text}");
    if let Some(path) = &arguments.markdown {
        std::fs::write(path, &text)?;
    }
    Ok(())
}

/// Runs the kernel of a form and returns its results.
fn launch(device: &dyn Device, kernel: Kernel, rows: &[Vec<u64>]) -> Result<Vec<u8>, Box<dyn Error>> {
    let mut bytes = kernels::encode(rows);
    let alloc = |name: &str, bytes: usize| device.alloc(name, bytes as u64);
    let (input, output) = (alloc("operands", bytes.len())?, alloc("results", bytes.len())?);
    let scratch = alloc("scratch", kernels::SCRATCH)?;
    device.upload(input.address(), &bytes)?;
    device.fill(output.address(), output.bytes(), 0)?;
    device.fill(scratch.address(), scratch.bytes(), 0)?;
    let launch = Launch {
        kernel,
        grid: [rows.len() as u32 / kernels::THREADS, 1, 1],
        block: [kernels::THREADS, 1, 1],
        dynamic_shared: 0,
        params: [&input, &output, &scratch].map(|allocation| allocation.address().0.to_le_bytes()).concat(),
        programmatic: false,
    };
    device.sequence(vec![launch])?.run_eager()?;
    device.download(output.address(), &mut bytes)?;
    Ok(bytes)
}
