//! Helpers that wrap a few lines of PTX in a kernel, run the kernel and check its results.

use bespoke_emulator::{Finding, LaunchConfig, Memory, Module, Options, Stats, run};

/// Header of the PTX text of every module.
pub const HEADER: &str = ".version 8.1\n.target sm_90\n.address_size 64\n";

/// Runs `body` once per row, one lane per row, and compares the results with the rows' last values.
///
/// A row consists of the values of the inputs `%a`, `%b`, `%c` and `%e` (as many as there are widths, minus one) and
/// the expected value of `%d`. `widths` are in bits. The kernel declares predicates `%p` and `%q`, and temporaries
/// `%h0…`, `%t0…` and `%x0…` of 16, 32 and 64 bits.
#[track_caller]
pub fn check(body: &str, widths: &[u32], rows: &[&[u64]]) {
    let (got, text) = evaluate(body, widths, rows);
    for (row, got) in rows.iter().zip(got) {
        let (inputs, expected) = row.split_at(row.len() - 1);
        let expected = expected[0];
        assert_eq!(
            got, expected,
            "`{body}` of {inputs:#x?} gave {got:#x}, not {expected:#x}; the kernel:\n{text}"
        );
    }
}

/// Variant of [`check`] for `f32` operands and results. All NaNs count as equal.
#[track_caller]
pub fn check_f32(body: &str, rows: &[&[f32]]) {
    let inputs = rows[0].len() - 1;
    let bits: Vec<Vec<u64>> =
        rows.iter().map(|row| row.iter().map(|x| x.to_bits() as u64).collect()).collect();
    let slices: Vec<&[u64]> = bits.iter().map(Vec::as_slice).collect();
    let (got, _) = evaluate(body, &vec![32; inputs + 1], &slices);
    for (row, got) in rows.iter().zip(got) {
        let (inputs, expected) = row.split_at(row.len() - 1);
        let got = f32::from_bits(got as u32);
        let same = got.to_bits() == expected[0].to_bits() || got.is_nan() && expected[0].is_nan();
        assert!(same, "`{body}` of {inputs:?} gave {got:e}, not {:e}", expected[0]);
    }
}

/// Runs `body` as in [`check`]; returns the value of `%d` for each row, and the kernel's text.
#[track_caller]
pub fn evaluate(body: &str, widths: &[u32], rows: &[&[u64]]) -> (Vec<u64>, String) {
    let (inputs, output) = (&widths[..widths.len() - 1], widths[widths.len() - 1]);
    let names = ["%a", "%b", "%c", "%e"];
    let mut declared = String::new();
    let mut loads = String::new();
    for (at, bits) in inputs.iter().enumerate() {
        let name = names[at];
        declared += &format!("    .reg .b{bits} {name};\n");
        loads += &format!("    ld.global.b{bits} {name}, [%in{}];\n", offset(8 * at));
    }
    let text = format!(
        "{HEADER}.visible .entry snippet(.param .u64 in, .param .u64 out)\n{{\n{declared}    .reg .b{output} %d;\n    \
         .reg .pred %p, %q;\n    .reg .b16 %h<4>;\n    .reg .b32 %t<8>, %row;\n    .reg .b64 %x<4>, %in, %out, %o;\n    \
         mov.u32 %row, %tid.x;\n    ld.param.u64 %in, [in];\n    mad.wide.u32 %in, %row, 32, %in;\n    \
         ld.param.u64 %out, [out];\n    mul.wide.u32 %o, %row, 8;\n    add.u64 %out, %out, %o;\n{loads}    {body}\n    \
         st.global.b{output} [%out], %d;\n    ret;\n}}\n"
    );
    dump(&text);
    let memory = Memory::new();
    let (input, out) =
        (memory.alloc("in", 32 * rows.len() as u64), memory.alloc("out", 8 * rows.len() as u64));
    for (at, row) in rows.iter().enumerate() {
        for (column, value) in row[..inputs.len()].iter().enumerate() {
            let address = input + (32 * at + 8 * column) as u64;
            memory.write(address, &value.to_le_bytes()).expect("inside");
        }
    }
    let module = Module::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let kernel = module.kernel("snippet").expect("declared above");
    let params = [input.to_le_bytes(), out.to_le_bytes()].concat();
    let config = LaunchConfig::linear(1, rows.len() as u32);
    if let Err(finding) = run(kernel, &memory, &config, &params, &Options::default()) {
        panic!("{finding}\n{text}");
    }
    let got = (0..rows.len() as u64).map(|row| {
        let mut bytes = [0; 8];
        memory.read(out + 8 * row, &mut bytes).expect("inside");
        u64::from_le_bytes(bytes)
    });
    (got.collect(), text)
}

fn offset(bytes: usize) -> String {
    if bytes == 0 { String::new() } else { format!("+{bytes}") }
}

/// Writes the kernel's text to the folder that `EMULATOR_TEST_PTX` names, for an assembler to check.
fn dump(text: &str) {
    if let Ok(folder) = std::env::var("EMULATOR_TEST_PTX") {
        use std::hash::{DefaultHasher, Hash, Hasher};
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        let path = format!("{folder}/{:016x}.ptx", hasher.finish());
        std::fs::write(path, text).expect("the folder is writable");
    }
}

/// Text of a kernel that loads its pointer parameter `data` to `%data`, declares registers, and executes `body`.
pub fn kernel(directives: &str, body: &str) -> String {
    let text = format!(
        "{HEADER}.file 1 \"gemv.rs\"\n.visible .entry kernel(.param .u64 data){directives}\n{{\n    .reg .pred %p, \
         %q;\n    .reg .b16 %h<8>;\n    .reg .b32 %r<32>;\n    .reg .f32 %f<8>;\n    .reg .b64 %x<32>, %data;\n    \
         ld.param.u64 %data, [data];\n{body}\n}}\n"
    );
    dump(&text);
    text
}

/// Runs a [`kernel`] on the 32-bit words of `data`, in place.
pub fn launch(text: &str, config: LaunchConfig, words: &mut [u32]) -> Result<Stats, Box<Finding>> {
    launch_with(text, config, words, &Options::default())
}

/// Variant of [`launch`] with options.
pub fn launch_with(
    text: &str,
    config: LaunchConfig,
    words: &mut [u32],
    options: &Options,
) -> Result<Stats, Box<Finding>> {
    let memory = Memory::new();
    let data = memory.alloc("data", 4 * words.len() as u64);
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    memory.write(data, &bytes).expect("inside");
    let module = Module::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let kernel = module.kernel("kernel").expect("the kernel's name");
    let stats = run(kernel, &memory, &config, &data.to_le_bytes(), options)?;
    let mut bytes = vec![0; 4 * words.len()];
    memory.read(data, &mut bytes).expect("inside");
    for (word, bytes) in words.iter_mut().zip(bytes.chunks(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    Ok(stats)
}

/// List of `n` words with the same value.
pub fn words(n: usize, value: u32) -> Vec<u32> {
    vec![value; n]
}
