//! What share of the PTX ISA the emulator runs: `coverage.txt`, held to the truth, and `ISA.md` written from it.
//!
//! With `UPDATE_EXPECT=1` the file is rewritten, as other expected texts of the workspace are.

mod needs;

use std::collections::BTreeSet;
use std::fmt::Write;

use bespoke_emulator::{Module, ParseError, ParseErrorKind};

const COVERAGE: &str = include_str!("coverage.txt");
/// What stands before and after the table in the document.
const BEFORE: &str = include_str!("before.md");
const AFTER: &str = include_str!("agreement.md");

/// A line of the table.
struct Family {
    group: &'static str,
    supported: bool,
    text: &'static str,
    /// Mnemonic and operands of each alternative.
    forms: Vec<String>,
}

fn families() -> Vec<Family> {
    let mut group = "";
    let mut families = Vec::new();
    for line in COVERAGE.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        if let Some(heading) = line.strip_prefix("== ") {
            group = heading;
            continue;
        }
        let (state, text) = line.split_once(' ').expect("`yes` or `no`, then an instruction");
        let text = text.trim();
        families.push(Family { group, supported: state == "yes", text, forms: expand(text) });
    }
    families
}

/// Every choice of the alternatives, which are written without blanks; with blanks, braces are a vector's.
fn expand(text: &str) -> Vec<String> {
    for (open, _) in text.match_indices('{') {
        let Some(length) = text[open..].find('}') else { break };
        let choices = &text[open + 1..open + length];
        let alone = choices.contains(' ') || !choices.contains(',') && choices.starts_with(['%', '_']);
        if alone {
            continue;
        }
        let (before, after) = (&text[..open], &text[open + length + 1..]);
        return choices.split(',').flat_map(|choice| expand(&format!("{before}{choice}{after}"))).collect();
    }
    vec![text.to_string()]
}

/// A text with an instruction.
fn module(target: &str, version: &str, instruction: &str) -> String {
    // An assembler takes a list or a prototype only where it is used.
    let list = if instruction.contains("LIST") { "LIST: .branchtargets L, M;" } else { "" };
    let prototype = match instruction.contains("PROTOTYPE") {
        true => "PROTOTYPE: .callprototype (.param .b32 _) _ (.param .b32 _);",
        false => "",
    };
    format!(
        ".version {version}\n.target {target}\n.address_size 64\n.func (.param .b32 r) f(.param .b32 a)\n{{\n.reg .b32 t;\n\
         ld.param.b32 t, [a];\nst.param.b32 [r], t;\nret;\n}}\n.func g(.reg .b32 a)\n{{\nret;\n}}\n\
         .visible .entry k(.param .u64 data)\n{{\n.reg .pred %p, %q;\n.reg .b16 %h<8>;\n.reg .b32 %r<16>, %s;\n\
         .reg .b64 %x<8>;\n.shared .align 16 .b8 tile[64];\n.shared .align 8 .b64 bar;\n.local .align 8 .b8 own[16];\n\
         .param .b32 arg;\n{list}{prototype}\n{};\nL:\nM:\nret;\n}}\n",
        instruction.replace("call f, (%r0), PLAIN", "call g, (%r0)")
    )
}

/// Loads an instruction for the platform that has most of what runs.
fn loads(instruction: &str) -> Result<(), ParseError> {
    Module::load(&module("sm_100a", "9.0", instruction)).map(drop).map_err(|errors| errors[0].clone())
}

#[test]
fn the_table_is_true() {
    let mut wrong = String::new();
    for family in families() {
        for form in &family.forms {
            match (family.supported, loads(form)) {
                (true, Err(error)) => drop(writeln!(wrong, "`{form}` is not loaded: {error}")),
                (false, Ok(())) => drop(writeln!(wrong, "`{form}` is loaded after all")),
                (false, Err(error)) if !is_lack(error.kind) => {
                    let _ = writeln!(wrong, "`{form}` is PTX, and refused as {}: {error}", error.kind);
                }
                _ => {}
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// Whether a text with this is valid PTX, if not for every target.
fn is_lack(kind: ParseErrorKind) -> bool {
    matches!(kind, ParseErrorKind::Unsupported | ParseErrorKind::Target)
}

#[test]
fn refusals_name_the_instruction() {
    for family in families().iter().filter(|family| !family.supported) {
        for form in &family.forms {
            let opcode = form.split(['.', ' ']).next().unwrap_or_default();
            let error = loads(form).err().unwrap_or_default().message;
            let special = form.split(' ').any(|word| error.contains(word));
            assert!(special || error.contains(opcode), "`{form}`: {error}");
        }
    }
}

/// `7 of 8 (88%)`.
fn share(part: usize, whole: usize) -> String {
    format!("{part} of {whole} ({:.0}%)", 100.0 * part as f64 / whole as f64)
}

fn document() -> String {
    let families = families();
    let mut groups: Vec<&str> = families.iter().map(|family| family.group).collect();
    groups.dedup();
    let mut summary = "| instructions | opcodes | forms |\n| --- | --- | --- |\n".to_string();
    let mut details = String::new();
    let (mut all, mut covered) = (0, 0);
    for group in groups {
        let members: Vec<&Family> = families.iter().filter(|family| family.group == group).collect();
        let opcodes = |wanted: bool| -> BTreeSet<&str> {
            let of =
                members.iter().filter(|family| family.supported || !wanted).flat_map(|family| &family.forms);
            of.map(|form| form.split(['.', ' ']).next().unwrap_or_default()).collect()
        };
        let count = |wanted: bool| -> usize {
            members.iter().filter(|family| family.supported || !wanted).map(|family| family.forms.len()).sum()
        };
        (all, covered) = (all + count(false), covered + count(true));
        let opcodes = share(opcodes(true).len(), opcodes(false).len());
        let _ = writeln!(summary, "| {group} | {opcodes} | {} |", share(count(true), count(false)));
        let missing = members.iter().filter(|family| !family.supported);
        let missing: String = missing.map(|family| format!("- `{}`\n", family.text)).collect();
        if !missing.is_empty() {
            let _ = write!(details, "\n### {group}\n\n{missing}");
        }
    }
    let _ = writeln!(summary, "| all | | {} |", share(covered, all));
    format!("{BEFORE}\n{summary}\n## What is refused\n{details}\n{AFTER}")
}

#[test]
fn the_document_is_what_the_table_makes_of_it() {
    expect_test::expect_file!["../../ISA.md"].assert_eq(&document());
}
