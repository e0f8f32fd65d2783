//! Comparison of the forms of `forms.txt`.

use std::error::Error;

use bespoke::device::{Device, Kernel};

use super::comparison::{Comparison, download, run};
use super::forms::{self, Family, Form};
use super::report::Agreement;
use super::{kernels, values};

/// Names and texts of all modules.
pub fn modules() -> Vec<(String, String)> {
    let families = forms::families();
    let all: Vec<&Form> = families.iter().flat_map(|family| &family.forms).collect();
    let modules = all.chunks(kernels::MODULE).enumerate();
    modules.map(|(at, part)| (format!("forms-{at}"), kernels::module(part))).collect()
}

/// Compares all wanted families.
pub fn compare(comparison: &Comparison) -> Result<Vec<Agreement>, Box<dyn Error>> {
    let wanted = |family: &Family| comparison.wants(family.group, family.name);
    let families: Vec<Family> = forms::families().into_iter().filter(wanted).collect();
    let all: Vec<(usize, &Form)> = families
        .iter()
        .enumerate()
        .flat_map(|(family, of)| of.forms.iter().map(move |form| (family, form)))
        .collect();
    let mut table: Vec<Agreement> =
        families.iter().map(|family| comparison.line(family.group, family.name)).collect();
    let mut generator = values::Random::new(2);
    for part in all.chunks(kernels::MODULE) {
        let forms: Vec<&Form> = part.iter().map(|&(_, form)| form).collect();
        let modules = comparison.load("isa", &kernels::module(&forms))?;
        for (at, (family, form)) in part.iter().enumerate() {
            let rows = values::rows(form, &mut generator);
            let kernel = format!("form_{at}");
            let (expected, got) =
                comparison.both(&modules, (&kernel, &form.mnemonic), |device, kernel| {
                    Ok(kernels::decode(&launch(device, kernel, &rows)?, form))
                })?;
            add(&mut table[*family], form, &rows, (&expected, &got));
        }
    }
    Ok(table)
}

/// Compares the results of a form on both sides.
fn add(line: &mut Agreement, form: &Form, rows: &[Vec<u64>], (expected, got): (&[Vec<u64>], &[Vec<u64>])) {
    line.start_form();
    for (row, operands) in rows.iter().enumerate() {
        for (at, ty) in form.results.iter().enumerate() {
            line.compare(ty, (expected[row][at], got[row][at]), || {
                let operands: Vec<String> = operands.iter().map(|value| format!("{value:#x}")).collect();
                format!("{} of {}: result {at}", form.mnemonic, operands.join(", "))
            });
        }
    }
}

/// Runs the kernel of a form and returns its results.
fn launch(device: &dyn Device, kernel: Kernel, rows: &[Vec<u64>]) -> Result<Vec<u8>, Box<dyn Error>> {
    let bytes = kernels::encode(rows);
    let alloc = |name: &str, bytes: usize| device.alloc(name, bytes as u64);
    let (input, output) = (alloc("operands", bytes.len())?, alloc("results", bytes.len())?);
    let scratch = alloc("scratch", kernels::SCRATCH)?;
    device.upload(input.address(), &bytes)?;
    device.fill(output.address(), output.bytes(), 0)?;
    device.fill(scratch.address(), scratch.bytes(), 0)?;
    let params = [&input, &output, &scratch].map(|allocation| allocation.address().0.to_le_bytes()).concat();
    run(device, kernel, (rows.len() as u32 / kernels::THREADS, kernels::THREADS), params)?;
    download(device, output.address(), bytes.len())
}
