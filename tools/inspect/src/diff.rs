//! Differences between the kernels of two plans.
//!
//! Kernels are paired by role, the name of their launches without the layer. Code is compared line by line, ignoring
//! numbers of registers and labels and the kernel's name: an additional line would change all numbers behind it.

mod emitted;
mod side;

use serde::Serialize;
use similar::{Algorithm, DiffOp, DiffTag};

pub use side::{Code, Side, SideKernel};

/// Unchanged lines shown before and after a change.
const CONTEXT: usize = 3;

/// Differences between the kernels of two plans, called sides.
#[derive(Clone, Debug, Serialize)]
pub struct Diff {
    /// Title of the first side, such as `llama-3.1-8b for sm_90`.
    pub a: String,
    /// Title of the second side.
    pub b: String,
    /// Kernels by role, in the order of the first side.
    pub kernels: Vec<KernelDiff>,
}

/// The kernels of a role on both sides.
#[derive(Clone, Debug, Serialize)]
pub struct KernelDiff {
    /// Role: name of the kernel's launches without the layer, such as `attn_qkv`.
    pub role: String,
    /// Kernel name on the first side, if there is one.
    pub a: Option<String>,
    /// Kernel name on the second side, if there is one.
    pub b: Option<String>,
    /// Compile-time parameters and figures (geometry and costs) that differ.
    pub changes: Vec<Change>,
    /// Differences in the code, if requested.
    pub code: Option<CodeDiff>,
}

/// A compile-time parameter or figure that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// Path of a compile-time parameter, such as `schedule.grid`, or name of a figure, such as `registers`.
    pub name: String,
    /// Whether the value is a compile-time parameter; else a figure.
    pub constant: bool,
    /// Value on the first side, if there is one.
    pub a: Option<String>,
    /// Value on the second side, if there is one.
    pub b: Option<String>,
}

/// Differences between two texts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CodeDiff {
    /// Number of lines only on the second side.
    pub added: usize,
    /// Number of lines only on the first side.
    pub removed: usize,
    /// The changes, with unchanged lines around them.
    pub hunks: Vec<Hunk>,
}

/// Consecutive lines that contain changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Hunk {
    /// Number of the hunk's first line in the text of the first side, 1-based.
    pub a: usize,
    /// Number of the hunk's first line in the text of the second side, 1-based.
    pub b: usize,
    /// Lines of the hunk, each prefixed with ` ` (unchanged), `-` (removed) or `+` (added).
    pub lines: Vec<String>,
}

impl Diff {
    /// Compares the kernels of two sides: all roles or only `role`; with `code`, also the code at that stage.
    pub fn of(a: &Side, b: &Side, role: Option<&str>, code: Option<Code>) -> Diff {
        let wanted = |kernel: &&SideKernel| role.is_none_or(|role| kernel.role == role);
        let mut left: Vec<&SideKernel> = b.kernels.iter().filter(wanted).collect();
        let mut kernels = Vec::new();
        for kernel in a.kernels.iter().filter(wanted) {
            let partner = (0..left.len())
                .filter(|&index| left[index].role == kernel.role)
                .max_by_key(|&index| (kernel.in_common(left[index]), usize::MAX - index));
            let partner = partner.map(|index| left.remove(index));
            kernels.push(KernelDiff::of(Some(kernel), partner, code));
        }
        kernels.extend(left.into_iter().map(|kernel| KernelDiff::of(None, Some(kernel), code)));
        Diff { a: a.name.clone(), b: b.name.clone(), kernels }
    }
}

impl KernelDiff {
    fn of(a: Option<&SideKernel>, b: Option<&SideKernel>, code: Option<Code>) -> KernelDiff {
        let name = |kernel: Option<&SideKernel>| kernel.map(|kernel| kernel.name.clone());
        let code =
            a.zip(b).zip(code).and_then(|((a, b), code)| Some(CodeDiff::of(a.code(code)?, b.code(code)?)));
        KernelDiff {
            role: a.or(b).map(|kernel| kernel.role.clone()).unwrap_or_default(),
            a: name(a),
            b: name(b),
            changes: match (a, b) {
                (Some(a), Some(b)) => changes(a, b),
                _ => Vec::new(),
            },
            code,
        }
    }

    /// Whether the compared properties are equal on both sides.
    pub fn is_equal(&self) -> bool {
        let same_code = self.code.as_ref().is_none_or(|code| code.hunks.is_empty());
        self.a.is_some() && self.b.is_some() && self.changes.is_empty() && same_code
    }
}

fn changes(a: &SideKernel, b: &SideKernel) -> Vec<Change> {
    let mut changes = Vec::new();
    for (constant, a, b) in [(true, &a.constants, &b.constants), (false, &a.figures, &b.figures)] {
        let names = a.iter().chain(b.iter().filter(|(name, _)| !a.iter().any(|(other, _)| other == name)));
        for (name, _) in names {
            let value = |list: &[(String, String)]| {
                list.iter().find(|(other, _)| other == name).map(|(_, value)| value.clone())
            };
            let (a, b) = (value(a), value(b));
            if a != b {
                changes.push(Change { name: name.clone(), constant, a, b });
            }
        }
    }
    changes
}

impl CodeDiff {
    /// Compares two texts line by line.
    pub fn of(a: &str, b: &str) -> CodeDiff {
        let (a, b) = (lines(a), lines(b));
        let masked = |lines: &[&str]| lines.iter().map(|line| mask(line)).collect::<Vec<_>>();
        let ops = similar::capture_diff_slices(Algorithm::Patience, &masked(&a), &masked(&b));
        let mut diff = CodeDiff::default();
        for op in &ops {
            if op.tag() != DiffTag::Equal {
                diff.removed += op.old_range().len();
                diff.added += op.new_range().len();
            }
        }
        let groups = similar::group_diff_ops(ops, CONTEXT);
        diff.hunks = groups.iter().filter_map(|group| Hunk::of(group, &a, &b)).collect();
        diff
    }
}

impl Hunk {
    fn of(group: &[DiffOp], a: &[&str], b: &[&str]) -> Option<Hunk> {
        let first = group.first()?;
        let mut lines = Vec::new();
        for op in group {
            if op.tag() == DiffTag::Equal {
                lines.extend(b[op.new_range()].iter().map(|line| format!(" {line}")));
                continue;
            }
            lines.extend(a[op.old_range()].iter().map(|line| format!("-{line}")));
            lines.extend(b[op.new_range()].iter().map(|line| format!("+{line}")));
        }
        Some(Hunk { a: first.old_range().start + 1, b: first.new_range().start + 1, lines })
    }
}

/// Lines of code, without directives and comments about source lines.
fn lines(text: &str) -> Vec<&str> {
    let place = |line: &&str| [".loc ", ".file "].iter().any(|it| line.trim_start().starts_with(it));
    text.lines().filter(|line| !place(line)).collect()
}

/// Prefixes of names whose number is ignored: registers of PTX and SASS, values and blocks of the IR, labels.
const NUMBERED: [&str; 18] = [
    "%p", "%rs", "%r", "%rd", "%f", "%fd", "%h", "%hh", "%rq", "v", "block", "$L_block", "_edge", "R", "UR",
    "P", "UP", "L_x_",
];

/// A line without numbers of registers and labels, without a leading address, and without the kernel's name.
fn mask(line: &str) -> String {
    let mut masked = String::new();
    let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '%' | '$');
    // SASS: `0010  ULDC.64 UR4, c[0x0][0x208] ;`.
    let mut rest = match line.split_once("  ") {
        Some((address, rest)) if address.len() >= 4 && address.bytes().all(|it| it.is_ascii_hexdigit()) => {
            rest
        }
        _ => line,
    };
    while let Some(start) = rest.find(is_word) {
        masked.push_str(&rest[..start]);
        let word = &rest[start..];
        let (word, after) = word.split_at(word.find(|c| !is_word(c)).unwrap_or(word.len()));
        masked.push_str(if is_kernel(word) { kernel_part(word) } else { without_number(word) });
        rest = after;
    }
    masked.push_str(rest);
    masked
}

/// Whether a word is a kernel's name: only such names are that long, because they contain every compile-time constant.
fn is_kernel(word: &str) -> bool {
    word.len() > 12
        && word.matches('_').count() >= 3
        && word.bytes().any(|byte| byte.is_ascii_digit())
        && !word.starts_with("$L")
}

/// Name of a parameter without the kernel's name: `param_x`.
fn kernel_part(word: &str) -> &str {
    word.find("_param_").map_or("kernel", |at| &word[at + 1..])
}

/// Removes an ignored number: `%r` for `%r12`.
fn without_number(word: &str) -> &str {
    let name = word.trim_end_matches(|c: char| c.is_ascii_digit());
    let name_of_edge =
        name.strip_suffix("_edge").map(|rest| rest.trim_end_matches(|c: char| c.is_ascii_digit()));
    match name_of_edge.unwrap_or(name) {
        name if NUMBERED.contains(&name) => name,
        _ => word,
    }
}

/// Removes duplicate names, and keeps the order.
pub fn once<'a>(names: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    names.fold(Vec::new(), |mut seen, name| {
        if !seen.contains(&name) {
            seen.push(name);
        }
        seen
    })
}

#[cfg(test)]
mod tests;
