//! A kernel for each form: a thread reads a row of operands and writes a row of results.

use super::forms::{Form, bits};
use super::values::ROWS;

/// Words of 8 bytes per row: the operands of a thread, or its results.
const COLUMNS: usize = 16;
/// Threads per CTA.
pub const THREADS: u32 = 128;
/// Number of kernels in a module, limited by the assembler.
pub const MODULE: usize = 40;

/// Start of a module, with a function for the forms that call one.
const HEADER: &str = ".version 8.7\n.target sm_90\n.address_size 64\n\
    .func (.param .b32 r) mixed(.param .b32 a, .param .b32 b)\n{\n    .reg .b32 %a, %b;\n    \
    ld.param.b32 %a, [a];\n    ld.param.b32 %b, [b];\n    mad.lo.u32 %a, %a, 31, %b;\n    \
    st.param.b32 [r], %a;\n    ret;\n}\n";

/// PTX of a module with a kernel `form_N` for each form.
pub fn module(forms: &[&Form]) -> String {
    let kernels = forms.iter().enumerate().map(|(at, form)| kernel(at, form));
    format!("{HEADER}{}", kernels.collect::<String>())
}

fn kernel(at: usize, form: &Form) -> String {
    let mut text = format!(
        ".visible .entry form_{at}(.param .u64 in, .param .u64 out, .param .u64 scratch){}\n{{\n    \
         .shared .align 16 .b8 own[{}];\n    .reg .pred %p, %q;\n    .reg .b32 %s, %thread, %row, %n, %k;\n    \
         .reg .b64 %in, %out, %m, %t;\n",
        if form.body.contains("%peer") { " .reqnctapercluster 2, 1, 1" } else { "" },
        16 * THREADS
    );
    let declare = |(names, kinds): (&str, &Vec<String>)| -> String {
        let each = kinds.iter().enumerate();
        each.map(|(at, kind)| format!("    .reg .b{} {names}{at};\n", bits(kind))).collect()
    };
    text += &declare(("%i", &form.operands));
    text += &declare(("%o", &form.results));
    text += &format!(
        "    mov.u32 %thread, %tid.x;\n    mov.u32 %row, %ctaid.x;\n    mad.lo.u32 %row, %row, {THREADS}, %thread;\n    \
         mov.u32 %s, own;\n    mad.lo.u32 %s, %thread, 16, %s;\n    ld.param.u64 %in, [in];\n    \
         mad.wide.u32 %in, %row, {stride}, %in;\n    ld.param.u64 %out, [out];\n    \
         mad.wide.u32 %out, %row, {stride}, %out;\n    ld.param.u64 %m, [scratch];\n    \
         mad.wide.u32 %m, %row, 16, %m;\n",
        stride = 8 * COLUMNS
    );
    text += &special(&form.body);
    for (at, kind) in form.operands.iter().enumerate() {
        text += &format!("    ld.global.b{} %i{at}, [%in+{}];\n", bits(kind), 8 * at);
    }
    text += &format!("    {}\n", form.body);
    for (at, kind) in form.results.iter().enumerate() {
        text += &format!("    st.global.b{} [%out+{}], %o{at};\n", bits(kind), 8 * at);
    }
    text + "    ret;\n}\n"
}

/// Set-up code for bodies that need special registers or memory; else empty.
fn special(body: &str) -> String {
    let mut text = String::new();
    if body.contains("%b]") || body.contains("%b,") {
        text += &format!("    .shared .align 8 .b64 barriers[{THREADS}];\n    .reg .b32 %b;\n    ");
        text += "mov.u32 %b, barriers;\n    mad.lo.u32 %b, %thread, 8, %b;\n";
    }
    if body.contains("%w") {
        text +=
            &format!("    .shared .align 128 .b8 warps[{}];\n    .reg .b32 %w;\n    ", THREADS / 32 * 4096);
        text += "mov.u32 %w, warps;\n    shr.u32 %n, %thread, 5;\n    mad.lo.u32 %w, %n, 4096, %w;\n";
    }
    if body.contains("%peer") {
        text += "    .reg .b32 %peer;\n    mov.u32 %peer, %cluster_ctarank;\n    xor.b32 %peer, %peer, 1;\n";
    }
    text
}

/// Size of the operands of all rows, and of their results.
pub const BYTES: usize = 8 * COLUMNS * ROWS;
/// Size of the scratch memory of all threads.
pub const SCRATCH: usize = 16 * ROWS;

/// Encodes operands as the kernels read them: each row is `COLUMNS` little-endian u64, and missing operands are 0.
pub fn encode(rows: &[Vec<u64>]) -> Vec<u8> {
    let mut bytes = vec![0u8; BYTES];
    for (row, values) in rows.iter().enumerate() {
        for (column, value) in values.iter().enumerate() {
            let at = 8 * (row * COLUMNS + column);
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
    }
    bytes
}

/// Decodes the results of each row from the bytes that a kernel writes.
pub fn decode(bytes: &[u8], form: &Form) -> Vec<Vec<u64>> {
    let word = |row: usize, column: usize| {
        let at = 8 * (row * COLUMNS + column);
        bytes[at..at + 8].iter().rev().fold(0u64, |word, &byte| word << 8 | byte as u64)
    };
    (0..ROWS).map(|row| (0..form.results.len()).map(|column| word(row, column)).collect()).collect()
}
