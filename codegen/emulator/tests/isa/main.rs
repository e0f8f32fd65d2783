//! Tests of the instructions listed in `instructions.txt`, from which `ISA.md` is generated.
//!
//! `UPDATE_EXPECT=1` rewrites `ISA.md`.

mod requirements;

use std::collections::BTreeSet;
use std::fmt::Write;

use bespoke_emulator::{Module, ParseError, ParseErrorKind};

const INSTRUCTIONS: &str = include_str!("instructions.txt");
/// Text of `ISA.md` before and after the generated part.
const BEFORE: &str = include_str!("before.md");
const AFTER: &str = include_str!("agreement.md");
/// Tables of the agreement with a device, written by `isa_check --markdown`.
const TABLES: &str = include_str!("tables.md");

/// Line of `instructions.txt`.
struct Line {
    /// Heading above the line.
    group: &'static str,
    /// `no` if the instruction is not supported, otherwise the targets and versions that have the instruction.
    requirement: &'static str,
    text: &'static str,
    /// Mnemonic and operands of each alternative that the line describes.
    forms: Vec<String>,
}

impl Line {
    fn is_supported(&self) -> bool {
        self.requirement != "no"
    }
}

fn lines() -> Vec<Line> {
    let mut group = "";
    let mut lines = Vec::new();
    for line in INSTRUCTIONS.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(heading) = line.strip_prefix("== ") {
            group = heading;
            continue;
        }
        let (requirement, text) = line.split_once(' ').expect("a requirement, then an instruction");
        let text = text.trim();
        lines.push(Line { group, requirement, text, forms: expand(text) });
    }
    lines
}

/// Expands the alternatives in braces to all combinations. Braces with blanks, or around one register, are vector
/// operands instead.
fn expand(text: &str) -> Vec<String> {
    for (open, _) in text.match_indices('{') {
        let Some(length) = text[open..].find('}') else { break };
        let choices = &text[open + 1..open + length];
        let is_vector = choices.contains(' ') || !choices.contains(',') && choices.starts_with(['%', '_']);
        if is_vector {
            continue;
        }
        let (before, after) = (&text[..open], &text[open + length + 1..]);
        return choices.split(',').flat_map(|choice| expand(&format!("{before}{choice}{after}"))).collect();
    }
    vec![text.to_string()]
}

/// Text of a module with one kernel per instruction.
fn module<'i>(target: &str, version: &str, instructions: impl IntoIterator<Item = &'i str>) -> String {
    let mut text = format!(
        ".version {version}\n.target {target}\n.address_size 64\n\
         .func (.param .b32 r) f(.param .b32 a)\n{{\n.reg .b32 t;\n\
         ld.param.b32 t, [a];\nst.param.b32 [r], t;\nret;\n}}\n.func g(.reg .b32 a)\n{{\nret;\n}}\n"
    );
    for (number, instruction) in instructions.into_iter().enumerate() {
        // ptxas accepts a list of branch targets or a prototype only if an instruction uses it.
        let list = if instruction.contains("LIST") { "LIST: .branchtargets L, M;" } else { "" };
        let prototype = match instruction.contains("PROTOTYPE") {
            true => "PROTOTYPE: .callprototype (.param .b32 _) _ (.param .b32 _);",
            false => "",
        };
        let wide = if instruction.contains(".b128 ") { ".reg .b128 %w<4>;" } else { "" };
        let instruction = instruction.replace("call f, (%r0), PLAIN", "call g, (%r0)");
        let _ = writeln!(
            text,
            ".visible .entry k{number}(.param .u64 data)\n{{\n.reg .pred %p, %q;\n.reg .b16 %h<8>;\n\
             .reg .b32 %r<16>, %s;\n.reg .b64 %x<8>;\n.shared .align 16 .b8 tile[64];\n\
             .shared .align 8 .b64 bar;\n.local .align 8 .b8 own[16];\n.param .b32 arg;\n{wide}{list}{prototype}\n\
             {instruction};\nL:\nM:\nret;\n}}"
        );
    }
    text
}

/// Loads an instruction for a target that supports all instructions of the emulator.
fn load(instruction: &str) -> Result<(), ParseError> {
    // Later targets do not have `wgmma`.
    let target = if instruction.starts_with("wgmma") { "sm_90a" } else { "sm_100a" };
    let text = module(target, "9.0", [instruction]);
    Module::load(&text).map(drop).map_err(|errors| errors[0].clone())
}

#[test]
fn supported_instructions_load_and_others_are_unsupported() {
    let mut wrong = String::new();
    for line in lines() {
        for form in &line.forms {
            match (line.is_supported(), load(form)) {
                (true, Err(error)) => drop(writeln!(wrong, "`{form}` does not load: {error}")),
                (false, Ok(())) => drop(writeln!(wrong, "`{form}` loads")),
                // The instruction is valid PTX, but perhaps not for this target.
                (false, Err(error))
                    if !matches!(error.kind, ParseErrorKind::Unsupported | ParseErrorKind::Target) =>
                {
                    let _ =
                        writeln!(wrong, "`{form}` is valid PTX, but the error is {}: {error}", error.kind);
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

#[test]
fn errors_name_the_instruction() {
    for line in lines().iter().filter(|line| !line.is_supported()) {
        for form in &line.forms {
            let opcode = form.split(['.', ' ']).next().unwrap_or_default();
            let error = load(form).err().unwrap_or_default().message;
            let names_operand = form.split(' ').any(|word| error.contains(word));
            assert!(names_operand || error.contains(opcode), "`{form}`: {error}");
        }
    }
}

/// Share of a whole as text, such as `7 of 8 (88%)`.
fn share(part: usize, whole: usize) -> String {
    format!("{part} of {whole} ({:.0}%)", 100.0 * part as f64 / whole as f64)
}

/// Text of `ISA.md`.
fn document() -> String {
    let lines = lines();
    let mut groups: Vec<&str> = lines.iter().map(|line| line.group).collect();
    groups.dedup();
    let mut summary = "| instructions | opcodes | forms |\n| --- | --- | --- |\n".to_string();
    let mut details = String::new();
    let (mut all, mut supported) = (0, 0);
    for group in groups {
        let members: Vec<&Line> = lines.iter().filter(|line| line.group == group).collect();
        let forms = |only_supported: bool| {
            let lines = members.iter().filter(move |line| line.is_supported() || !only_supported);
            lines.flat_map(|line| &line.forms)
        };
        let opcodes = |only_supported: bool| {
            let opcode = |form: &'_ String| form.split(['.', ' ']).next().unwrap_or_default().to_string();
            forms(only_supported).map(opcode).collect::<BTreeSet<String>>().len()
        };
        let (group_supported, group_all) = (forms(true).count(), forms(false).count());
        (all, supported) = (all + group_all, supported + group_supported);
        let opcodes = share(opcodes(true), opcodes(false));
        let _ = writeln!(summary, "| {group} | {opcodes} | {} |", share(group_supported, group_all));
        let missing = members.iter().filter(|line| !line.is_supported());
        let missing: String = missing.map(|line| format!("- `{}`\n", line.text)).collect();
        if !missing.is_empty() {
            let _ = write!(details, "\n### {group}\n\n{missing}");
        }
    }
    let _ = writeln!(summary, "| all | | {} |", share(supported, all));
    format!("{BEFORE}\n{summary}\n## Unsupported instructions\n{details}\n{AFTER}\n{TABLES}")
}

#[test]
fn the_document_is_up_to_date() {
    expect_test::expect_file!["../../ISA.md"].assert_eq(&document());
}
