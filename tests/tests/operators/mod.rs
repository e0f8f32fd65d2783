//! Mutation operators on PTX text.

pub mod equal;
mod moves;

use std::fs;
use std::path::Path;

use moves::{MOVES, Move, Reorder, WAITS_FOR_LAUNCHES};

/// A mutant: the PTX of a kernel with one change.
pub struct Mutant {
    /// Name of the operator.
    pub operator: &'static str,
    /// Line of the kernel's source: file name and text.
    pub source: String,
    /// PTX text of the mutant.
    pub text: String,
}

/// Replacement of an instruction (second argument), given the previous instruction (first argument); `None` if the
/// operator does not apply. `%mutant` is a spare 32-bit register.
type Change = fn(&str, &str) -> Option<String>;

/// Mutation operators with their names.
pub struct Operators {
    /// Operators that change one instruction, by name.
    changes: &'static [(&'static str, Change)],
    /// Operators that move lines, by name.
    moves: &'static [(&'static str, Reorder)],
}

impl Operators {
    /// Sites of each operator in the PTX lines of a kernel.
    fn sites(&self, lines: &[&str]) -> Vec<(&'static str, Vec<Site>)> {
        let everywhere = |edit: &dyn Fn(usize) -> Option<Edit>| -> Vec<Site> {
            (0..lines.len()).filter_map(|at| Some(Site { at, edit: edit(at)? })).collect()
        };
        let changed = self.changes.iter().map(|&(name, change)| {
            let edit = |at: usize| change(before(lines, at), lines[at].trim()).map(Edit::Replaced);
            (name, everywhere(&edit))
        });
        let moved = self.moves.iter().map(|&(name, reorder)| {
            let edit = |at: usize| reorder(lines, at).map(Edit::Moved);
            (name, everywhere(&edit))
        });
        changed.chain(moved).collect()
    }
}

/// Edit of a kernel's PTX lines.
enum Edit {
    /// Replaces the line by this text.
    Replaced(String),
    /// Moves a range of lines.
    Moved(Move),
}

/// A line to which an operator applies.
struct Site {
    at: usize,
    edit: Edit,
}

impl Site {
    /// PTX of the kernel with the edit made.
    fn text(&self, lines: &[&str]) -> String {
        let mut text: Vec<&str> = lines.to_vec();
        match &self.edit {
            Edit::Replaced(by) => text[self.at] = by,
            Edit::Moved(Move { lines: moved, before }) if *before >= moved.end => {
                text[moved.start..*before].rotate_left(moved.len());
            }
            Edit::Moved(Move { lines: moved, before }) => text[*before..moved.end].rotate_right(moved.len()),
        }
        text.join("\n").replacen("\n{\n", "\n{\n\t.reg .b32 %mutant;\n", 1) + "\n"
    }
}

/// The instruction before a line.
fn before<'t>(lines: &[&'t str], at: usize) -> &'t str {
    let mut earlier = lines[..at].iter().rev().map(|line| line.trim());
    earlier.find(|line| !line.is_empty() && !line.starts_with(".loc")).unwrap_or("")
}

/// Mutants of a kernel: for each operator the first and the middle one of its sites.
pub fn mutants(ptx: &str, operators: &Operators) -> Vec<Mutant> {
    let lines: Vec<&str> = ptx.lines().collect();
    let mut mutants = Vec::new();
    for (operator, sites) in operators.sites(&lines) {
        let mut chosen = vec![0, sites.len() / 2];
        chosen.dedup();
        for site in chosen.into_iter().filter_map(|site| sites.get(site)) {
            mutants.push(Mutant { operator, source: source(&lines, site.at), text: site.text(&lines) });
        }
    }
    mutants
}

/// Source line of an instruction, by the `.loc` before it.
fn source(lines: &[&str], at: usize) -> String {
    let fields = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let loc =
        lines[..=at].iter().rev().find(|line| line.trim().starts_with(".loc ")).map(|line| fields(line));
    let Some([_, file, number, ..]) = loc.as_deref() else { return "no line".to_owned() };
    let declared = lines.iter().find_map(|line| line.strip_prefix(&format!(".file {file} ")));
    let path = declared.unwrap_or("").trim().trim_matches('"');
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path));
    let line =
        number.parse::<usize>().ok().and_then(|number| Some(text.ok()?.lines().nth(number - 1)?.to_owned()));
    let name = path.rsplit_once("kernels/").map_or(path, |(_, name)| name);
    format!("{name}: {}", line.as_deref().unwrap_or("").trim())
}

/// Operators for mutants of a single kernel.
pub const OF_KERNELS: Operators = Operators { changes: &CHANGES, moves: &MOVES };
/// Operators for launch dependencies, in kernels that let their successors start early.
pub const OF_LAUNCHES: Operators = Operators { changes: &DEPENDENCIES, moves: &WAITS_FOR_LAUNCHES };
/// Operators for launch dependencies, without the one that inserts `griddepcontrol.launch_dependents`.
pub const OF_WAITS: Operators = Operators { changes: DEPENDENCIES.split_at(1).0, moves: &WAITS_FOR_LAUNCHES };

const CHANGES: [(&str, Change); 27] = [
    ("drop a barrier", |_, i| drop_if(i.starts_with("bar.sync"))),
    ("drop a warp barrier", |_, i| drop_if(i.starts_with("bar.warp.sync"))),
    ("drop a fence", |_, i| drop_if(i.starts_with("fence.") || i.starts_with("membar."))),
    ("narrow a fence", |_, i| replaced(i, i.starts_with("fence."), ".gpu;", ".cta;")),
    ("narrow an atomic operation", |_, i| replaced(i, i.starts_with("atom."), ".gpu.", ".cta.")),
    ("drop an mbarrier arrival", |_, i| {
        drop_if(i.starts_with("mbarrier.arrive.shared") || i.starts_with("cp.async.mbarrier.arrive"))
    }),
    ("flip an mbarrier's parity", |_, i| through(i, i.contains(".parity"), "xor.b32", 1)),
    ("wait without a loop", |before, i| drop_if(before.contains("_wait.parity") && i.contains("bra"))),
    ("drop a wgmma fence", |_, i| drop_if(i.starts_with("wgmma.fence"))),
    ("drop a wgmma commit", |_, i| drop_if(i.starts_with("wgmma.commit_group"))),
    ("wait for one wgmma group less", |_, i| {
        let pending = i.strip_prefix("wgmma.wait_group.sync.aligned ")?.strip_suffix(';')?;
        Some(format!("wgmma.wait_group.sync.aligned {};", pending.parse::<u32>().ok()? + 1))
    }),
    ("expect more bytes", |_, i| through(i, i.contains(".expect_tx"), "add.u32", 16)),
    ("expect fewer bytes", |_, i| through(i, i.contains(".expect_tx"), "sub.u32", 16)),
    ("expect one more arrival", |_, i| through(i, i.starts_with("mbarrier.init"), "add.u32", 1)),
    ("drop a copy", |_, i| drop_if(i.starts_with("cp.async.") && i.contains("["))),
    ("narrow a shuffle's mask", |_, i| replaced(i, i.starts_with("shfl."), "4294967295", "65535")),
    ("compare lt as le", |_, i| replaced(i, i.starts_with("setp.lt."), "setp.lt", "setp.le")),
    ("invert a comparison", |_, i| replaced(i, i.starts_with("setp.eq."), "setp.eq", "setp.ne")),
    ("invert a branch", |before, i| {
        replaced(i, i.contains(" bra ") && !before.contains("_wait."), "@!%p", "@%p")
    }),
    ("swap selected values", |_, i| swapped(i, i.starts_with("selp."), 1)),
    ("swap operands", |_, i| swapped(i, i.starts_with("sub."), 1)),
    ("min instead of max", |_, i| replaced(i, i.starts_with("max."), "max.", "min.")),
    ("shift by one more bit", |_, i| through(i, i.starts_with("shr.u32") && is_constant(i), "add.u32", 1)),
    ("load the next word", |_, i| moved(i, i.starts_with("ld.global") || i.starts_with("ld.shared"))),
    ("store to the next word", |_, i| moved(i, i.starts_with("st.global") || i.starts_with("st.shared"))),
    ("drop a store", |_, i| drop_if(i.starts_with("st.global") || i.starts_with("st.shared"))),
    ("drop an atomic operation", |_, i| drop_if(i.starts_with("red."))),
];

const DEPENDENCIES: [(&str, Change); 2] = [
    ("drop griddepcontrol.wait", |_, i| drop_if(i == "griddepcontrol.wait;")),
    ("launch dependents before waiting", |_, i| {
        (i == "griddepcontrol.wait;")
            .then(|| "griddepcontrol.launch_dependents; griddepcontrol.wait;".to_owned())
    }),
];

fn drop_if(applies: bool) -> Option<String> {
    applies.then(String::new)
}

fn replaced(instruction: &str, applies: bool, from: &str, to: &str) -> Option<String> {
    (applies && instruction.contains(from)).then(|| instruction.replacen(from, to, 1))
}

/// Replaces the last operand of an instruction by the result of `operation` on the operand and the constant `by`.
fn through(instruction: &str, applies: bool, operation: &str, by: u32) -> Option<String> {
    let (rest, last) = instruction.strip_suffix(';')?.rsplit_once(", ")?;
    applies.then(|| format!("{operation} %mutant, {last}, {by}; {rest}, %mutant;"))
}

fn is_constant(instruction: &str) -> bool {
    let last = instruction.trim_end_matches(';').rsplit(' ').next();
    last.is_some_and(|last| last.parse::<u32>().is_ok())
}

/// Swaps operand `first` and the next operand.
fn swapped(instruction: &str, applies: bool, first: usize) -> Option<String> {
    let mut operands: Vec<&str> = instruction.strip_suffix(';')?.split(", ").collect();
    if !applies || operands.len() < first + 2 || operands[first] == operands[first + 1] {
        return None;
    }
    operands.swap(first, first + 1);
    Some(operands.join(", ") + ";")
}

/// Adds four bytes to the address of a memory access.
fn moved(instruction: &str, applies: bool) -> Option<String> {
    let end = instruction.find(']')?;
    applies.then(|| {
        let start = instruction.find('[').unwrap_or(0);
        match instruction[start..end].split_once('+') {
            Some((base, offset)) => {
                let offset = offset.parse::<u32>().unwrap_or(0) + 4;
                format!("{}{base}+{offset}{}", &instruction[..start], &instruction[end..])
            }
            None => format!("{}+4{}", &instruction[..end], &instruction[end..]),
        }
    })
}
