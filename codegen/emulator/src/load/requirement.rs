//! Which `.target` and `.version` an instruction needs.
//!
//! From the "PTX ISA Notes" and "Target ISA Notes" of each instruction in PTX ISA 9.0, of the instructions that the
//! emulator runs. What every target from sm_75 and PTX 6.3 has is not here. Where the manual is stricter than the
//! assembler, the assembler is right: `tests/isa/needs.txt` is what it says, and is held against this.

use crate::load::ast::{Instruction, Operand, Special};
use crate::load::error::{ParseError, ParseErrorKind};

/// A PTX ISA version, major and minor.
pub(crate) type IsaVersion = (u32, u32);

/// What the text says that it is for, as far as it has been read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Platform {
    pub(crate) version: Option<IsaVersion>,
    pub(crate) target: Option<&'static Target>,
}

/// A name behind `.target`.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    number: u32,
    /// The first version that knows it.
    pub(crate) since: IsaVersion,
}

impl Target {
    pub(crate) fn named(name: &str) -> Option<&'static Target> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Whether a name is that of a target later than all that are known.
    pub(crate) fn is_later(name: &str) -> bool {
        let number = name.strip_prefix("sm_").map(|rest| rest.strip_suffix(['a', 'f']).unwrap_or(rest));
        let number = number.and_then(|digits| digits.parse::<u32>().ok());
        number.is_some_and(|number| TARGETS.iter().all(|known| known.number < number))
    }

    /// Whether it has what only one architecture, or its family, has.
    fn is_specific(&self) -> bool {
        self.name.ends_with(['a', 'f'])
    }
}

const fn target(name: &'static str, number: u32, since: IsaVersion) -> Target {
    Target { name, number, since }
}

/// All targets ("Release Notes" of the manual).
const TARGETS: &[Target] = &[
    target("sm_20", 20, (2, 0)),
    target("sm_30", 30, (3, 0)),
    target("sm_32", 32, (4, 0)),
    target("sm_35", 35, (3, 1)),
    target("sm_37", 37, (4, 1)),
    target("sm_50", 50, (4, 0)),
    target("sm_52", 52, (4, 1)),
    target("sm_53", 53, (4, 2)),
    target("sm_60", 60, (5, 0)),
    target("sm_61", 61, (5, 0)),
    target("sm_62", 62, (5, 0)),
    target("sm_70", 70, (6, 0)),
    target("sm_72", 72, (6, 1)),
    target("sm_75", 75, (6, 3)),
    target("sm_80", 80, (7, 0)),
    target("sm_86", 86, (7, 1)),
    target("sm_87", 87, (7, 4)),
    target("sm_88", 88, (9, 0)),
    target("sm_89", 89, (7, 8)),
    target("sm_90", 90, (7, 8)),
    target("sm_90a", 90, (8, 0)),
    target("sm_100", 100, (8, 6)),
    target("sm_100a", 100, (8, 6)),
    target("sm_100f", 100, (8, 8)),
    target("sm_101", 101, (8, 6)),
    target("sm_101a", 101, (8, 6)),
    target("sm_101f", 101, (8, 8)),
    target("sm_103", 103, (8, 8)),
    target("sm_103a", 103, (8, 8)),
    target("sm_103f", 103, (8, 8)),
    target("sm_110", 110, (9, 0)),
    target("sm_110a", 110, (9, 0)),
    target("sm_110f", 110, (9, 0)),
    target("sm_120", 120, (8, 7)),
    target("sm_120a", 120, (8, 7)),
    target("sm_120f", 120, (8, 8)),
    target("sm_121", 121, (8, 8)),
    target("sm_121a", 121, (8, 8)),
    target("sm_121f", 121, (8, 8)),
];

/// What else may stand behind `.target`.
pub(crate) const TARGET_OPTIONS: &[&str] =
    &["texmode_unified", "texmode_independent", "debug", "map_f64_to_f32"];

/// The least that has something.
#[derive(Clone, Copy)]
struct Need {
    target: u32,
    /// Only targets with an `a` or `f` at the end have it.
    specific: bool,
    version: IsaVersion,
    /// Targets from this one on have it as of an earlier version.
    sooner: Option<(u32, IsaVersion)>,
}

const fn need(target: u32, version: IsaVersion) -> Need {
    Need { target, specific: false, version, sooner: None }
}

const SPECIFIC_TO_SM_90: Need = Need { specific: true, ..need(90, (8, 0)) };

/// Numbers of eight bits came with sm_90; sm_89, which is older, got them later.
const SMALL_FLOATS: Need = Need { sooner: Some((90, (7, 8))), ..need(89, (8, 1)) };

/// What has clusters.
const CLUSTERS: Need = need(90, (7, 8));

/// Opcodes (`*` for all) and modifiers, in this order but not necessarily beside each other, with what they need;
/// `|` stands between alternatives. An instruction needs what all of its rows say.
const NEEDS: &[(&str, &str, Need)] = &[
    // Arithmetic.
    ("add|sub|mul", "bf16|bf16x2", need(90, (7, 8))),
    ("add|min|max", "u16x2|s16x2", need(90, (8, 0))),
    ("fma|neg|abs|min|max", "bf16|bf16x2", need(80, (7, 0))),
    ("fma", "relu", need(80, (7, 0))),
    ("abs", "f16|f16x2", need(75, (6, 5))),
    ("min|max", "f16|f16x2", need(80, (7, 0))),
    ("min|max", "NaN", need(80, (7, 0))),
    ("min|max", "xorsign", need(86, (7, 2))),
    ("min|max", "relu", need(90, (8, 0))),
    ("tanh", "f32", need(75, (7, 0))),
    ("tanh|ex2", "f16|f16x2", need(75, (7, 0))),
    ("tanh|ex2", "bf16|bf16x2", need(90, (7, 8))),
    ("szext|bmsk", "", need(75, (7, 6))),
    ("setp|set", "bf16|bf16x2", need(90, (7, 8))),
    ("set", "u16|s16 f16", need(75, (6, 5))),
    // Conversion.
    ("cvt", "pack", need(75, (6, 5))),
    ("cvt", "bf16", need(80, (7, 0))),
    ("cvt", "f32 bf16", need(80, (7, 1))),
    ("cvt", "bf16 u8|s8|u16|s16|u32|s32|u64|s64|f16|bf16|f64", need(90, (7, 8))),
    ("cvt", "u8|s8|u16|s16|u32|s32|u64|s64|f16|f64 bf16", need(90, (7, 8))),
    ("cvt", "f16x2|bf16x2", need(80, (7, 0))),
    ("cvt", "relu", need(80, (7, 0))),
    ("cvt", "satfinite tf32|f16|bf16", need(75, (8, 1))),
    ("cvt", "satfinite f16x2|bf16x2 f32", need(75, (8, 1))),
    ("cvt", "tf32", need(80, (7, 0))),
    ("cvt", "rn|rz tf32", need(90, (7, 8))),
    ("cvt", "rn|rz satfinite tf32", need(100, (8, 6))),
    ("cvt", "e4m3x2|e5m2x2", SMALL_FLOATS),
    // Memory.
    (
        "*",
        "L1::evict_first|L1::evict_last|L1::evict_normal|L1::evict_unchanged|L1::no_allocate",
        need(75, (7, 4)),
    ),
    ("*", "L2::64B|L2::128B", need(75, (7, 4))),
    ("*", "L2::256B|L2::cache_hint", need(80, (7, 4))),
    ("prefetch", "L2::evict_last|L2::evict_normal", need(80, (7, 4))),
    ("createpolicy", "", need(80, (7, 4))),
    ("ld|ldu|st|atom|red|isspacep|cvta|ldmatrix|stmatrix|mbarrier", "shared::cta", need(75, (7, 8))),
    ("*", "shared::cluster", CLUSTERS),
    ("*", "cluster", CLUSTERS),
    ("mapa|getctarank", "", CLUSTERS),
    ("atom|red", "bf16|bf16x2", need(90, (7, 8))),
    ("st|red", "async", need(90, (8, 1))),
    // Order.
    ("bar|barrier", "cta", need(75, (7, 8))),
    ("barrier", "cluster release|relaxed|acquire", need(90, (8, 0))),
    ("fence", "proxy alias", need(75, (7, 5))),
    ("fence", "proxy async", need(90, (8, 0))),
    ("fence", "mbarrier_init", need(90, (8, 0))),
    ("griddepcontrol", "", need(90, (7, 8))),
    ("setmaxnreg", "", SPECIFIC_TO_SM_90),
    // Warps and matrices.
    ("redux", "", need(80, (7, 0))),
    ("elect", "", need(90, (8, 0))),
    ("mma", "m16n8k4|m16n8k16|m16n8k32", need(80, (7, 0))),
    ("mma", "m16n8k8", need(75, (6, 5))),
    ("mma|wmma", "bf16|tf32|f64", need(80, (7, 0))),
    ("ldmatrix", "", need(75, (6, 5))),
    ("stmatrix", "", need(90, (7, 8))),
    // Asynchronous copies and their barriers.
    ("cp", "async", need(80, (7, 0))),
    ("cp", "mbarrier shared::cta", need(80, (7, 8))),
    ("cp", "bulk", need(90, (8, 0))),
    ("cp", "bulk shared::cta global", need(90, (8, 6))),
    ("mbarrier", "", need(80, (7, 0))),
    ("mbarrier", "parity", need(80, (7, 1))),
    ("mbarrier", "try_wait", need(90, (7, 8))),
    ("mbarrier", "expect_tx|complete_tx", need(90, (8, 0))),
    ("mbarrier", "acquire|release", need(80, (8, 0))),
    ("mbarrier", "arrive|arrive_drop|test_wait|try_wait relaxed", need(90, (8, 6))),
    ("mbarrier", "shared::cluster", need(90, (8, 0))),
];

impl Platform {
    /// What an opcode with its modifiers needs and the text has not, in words.
    pub(crate) fn refuses_form(&self, instruction: &Instruction) -> Option<String> {
        let mut needs = NEEDS.iter().filter(|(opcodes, modifiers, _)| {
            (*opcodes == "*" || is_one_of(&instruction.opcode, opcodes)) && has(instruction, modifiers)
        });
        let lack = needs.find_map(|(_, _, need)| self.lacks(need))?;
        Some(format!("`{}` {lack}", instruction.text()))
    }

    /// What is wrong with `shfl` and `vote` that name no lanes: newer targets have no such thing, and the emulator has
    /// it for none.
    pub(crate) fn refuses_unsynchronised(&self, instruction: &Instruction) -> Option<ParseError> {
        if !matches!(instruction.opcode.as_str(), "shfl" | "vote") || has(instruction, "sync") {
            return None;
        }
        let text = instruction.text();
        let gone = self.target.is_some_and(|target| target.number >= 70)
            && self.version.is_some_and(|version| version >= (6, 4));
        Some(match gone {
            true => {
                let message = format!("`{text}` needs `.sync`, as of sm_70 and PTX 6.4");
                instruction.error(ParseErrorKind::Target, message)
            }
            false => instruction.error(ParseErrorKind::Unsupported, format!("the emulator lacks `{text}`")),
        })
    }

    /// What an instruction needs for its operands and the text has not, in words.
    pub(crate) fn refuses_operands(&self, instruction: &Instruction) -> Option<String> {
        let lack = by_operands(instruction).iter().find_map(|need| self.lacks(need))?;
        Some(format!("`{}` {lack}", instruction.text()))
    }

    /// What a directive about clusters needs and the text has not, in words.
    pub(crate) fn refuses_clusters(&self, directive: &str) -> Option<String> {
        self.lacks(&CLUSTERS).map(|lack| format!("`.{directive}` {lack}"))
    }

    /// What the text lacks of it: `needs … , and the text names …`.
    fn lacks(&self, need: &Need) -> Option<String> {
        let (mut needs, mut names) = (Vec::new(), Vec::new());
        let specific = format!("`sm_{}a`, or another target with `a` or `f`,", need.target);
        if let Some(target) = self.target
            && (target.number < need.target || need.specific && !target.is_specific())
        {
            needs.push(if need.specific { specific } else { format!("`.target` sm_{}", need.target) });
            names.push(target.name.to_string());
        }
        let sooner = need.sooner.filter(|(from, _)| self.target.is_some_and(|target| target.number >= *from));
        let least = sooner.map_or(need.version, |(_, version)| version);
        if let Some(version) = self.version
            && version < least
        {
            needs.push(format!("`.version` {}.{}", least.0, least.1));
            names.push(format!("{}.{}", version.0, version.1));
        }
        let (needs, names) = (needs.join(" and "), names.join(" and "));
        let later = if needs.ends_with(',') { "" } else { " or later," };
        (!needs.is_empty()).then(|| format!("needs {needs}{later} and the text names {names}"))
    }
}

fn is_one_of(word: &str, alternatives: &str) -> bool {
    alternatives.split('|').any(|alternative| alternative == word)
}

/// Whether the instruction's modifiers have one of each word's alternatives, in order.
fn has(instruction: &Instruction, words: &str) -> bool {
    let mut modifiers = instruction.modifiers.iter();
    words.split_whitespace().all(|word| modifiers.any(|modifier| is_one_of(modifier, word)))
}

/// What it needs for operands that not every target or version takes.
fn by_operands(instruction: &Instruction) -> Vec<Need> {
    let mut needs = Vec::new();
    if instruction.operands.iter().any(names_cluster) {
        needs.push(CLUSTERS);
    }
    if instruction.opcode == "mbarrier" && has(instruction, "arrive|arrive_drop") {
        if instruction.operands.first() == Some(&Operand::Sink) {
            needs.push(need(80, (7, 1)));
        }
        if instruction.operands.len() > 2 && !has(instruction, "noComplete") {
            needs.push(need(90, (7, 8)));
        }
    }
    needs
}

fn names_cluster(operand: &Operand) -> bool {
    match operand {
        Operand::Special(special) => matches!(
            special,
            Special::Clusterid(_)
                | Special::Nclusterid(_)
                | Special::ClusterCtaid(_)
                | Special::ClusterNctaid(_)
                | Special::ClusterCtarank
                | Special::ClusterNctarank
                | Special::IsExplicitCluster
        ),
        Operand::Vector(elements) => elements.iter().any(names_cluster),
        _ => false,
    }
}
