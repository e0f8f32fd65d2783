//! `bespoke reduce`: a small kernel that still makes a command succeed.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use bespoke_codegen::Kernel;
use bespoke_files::Scratch;
use bespoke_reduce::{Progress, reduce};
use miette::miette;

use super::opt::{invalid, read};
use crate::console::{exact, note};
use crate::interrupt;
use crate::output::{self, Force};

/// Reduce a kernel while a command succeeds, for bug reports
#[derive(clap::Args, Debug)]
#[command(after_help = "Examples:
  bespoke reduce kernel.ir --test ./interesting.sh --out small.ir
  bespoke reduce kernel.ir --test '! bespoke opt --passes widen' --out small.ir
  bespoke reduce kernel.ir --test 'grep -q mul_hi'

The command is run by the shell with the path of a kernel's file behind its own arguments. It exits with 0 if the kernel \
still shows the problem. Its output is discarded. Only kernels that the verifier accepts are tested.")]
pub struct ReduceArgs {
    /// The file with the kernel
    #[arg(value_name = "FILE.ir")]
    file: PathBuf,
    /// Shell command that exits with 0 if the kernel still shows the problem; the path of the kernel's file is appended to it
    #[arg(long, value_name = "COMMAND")]
    test: String,
    /// The file for the reduced kernel [default: print it]
    #[arg(long, short, value_name = "FILE")]
    out: Option<PathBuf>,
    #[command(flatten)]
    force: Force,
}

/// Reduces the kernel and prints or writes the result.
pub fn execute(args: &ReduceArgs) -> miette::Result<()> {
    let kernel = Kernel::parse(&read(&args.file)?).map_err(|error| invalid(&args.file, &error))?;
    if let Some(out) = &args.out {
        output::check_distinct(out, std::slice::from_ref(&args.file))?;
    }
    let out = args.out.as_deref().map(|path| output::create(path, args.force)).transpose()?;
    let folder = Scratch::create().map_err(|error| miette!("cannot create a temporary folder: {error}"))?;
    let candidate = folder.path().join("kernel.ir");
    let test = |text: &str| -> miette::Result<bool> {
        if interrupt::requested() {
            return Err(miette!("interrupted: no kernel was written"));
        }
        fs::write(&candidate, text)
            .map_err(|error| miette!("cannot write {}: {error}", candidate.display()))?;
        succeeds(&args.test, &candidate)
    };
    let tell = |Progress { tests, size }: Progress| note!("{tests} tests: {size}");
    let Some((function, Progress { tests, size })) = reduce(kernel.function(), test, tell)? else {
        return Err(miette!(
            help = "the command gets the file's path as its last argument, and must exit with 0 for the whole kernel",
            "`{}` fails for {} itself",
            args.test,
            args.file.display()
        ));
    };
    let text = function.to_string();
    match out {
        Some(file) => output::write(file, text.as_bytes())?,
        None => exact(text.trim_end())?,
    }
    note!("reduced to {size} in {tests} tests");
    Ok(())
}

/// Runs the command with the path of a file; returns whether it exits with 0.
fn succeeds(command: &str, file: &Path) -> miette::Result<bool> {
    let mut shell = if cfg!(windows) { Command::new("cmd") } else { Command::new("sh") };
    if cfg!(windows) {
        shell.arg("/C").arg(format!("{command} \"{}\"", file.display()));
    } else {
        shell.arg("-c").arg(format!("{command} \"$0\"")).arg(file);
    }
    let status = shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status();
    Ok(status.map_err(|error| miette!("cannot run `{command}`: {error}"))?.success())
}
