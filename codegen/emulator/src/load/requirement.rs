//! Targets and PTX ISA versions, and errors for instructions that are not available for a text's `.target` or
//! `.version`.

use crate::load::ast::{Instruction, Operand, Special};
use crate::load::error::{ParseError, ParseErrorKind};

/// A PTX ISA version, major and minor.
pub(crate) type IsaVersion = (u32, u32);

/// Last minor version of each major version but the newest (PTX ISA, "Release Notes").
const LAST_MINOR: [IsaVersion; 8] = [(1, 5), (2, 3), (3, 2), (4, 3), (5, 0), (6, 5), (7, 8), (8, 8)];
/// The newest PTX version known here. Later minor versions are accepted.
pub(crate) const NEWEST: IsaVersion = (9, 0);

/// Whether the version exists, or may come with the newest major version.
pub(crate) fn is_released((major, minor): IsaVersion) -> bool {
    let last = LAST_MINOR.iter().find(|&&(known, _)| known == major);
    last.map_or(major == NEWEST.0, |&(_, last)| minor <= last)
}

/// Platform of a PTX text: its `.version` and the last `.target`; `None` before the directive is read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Platform {
    pub(crate) version: Option<IsaVersion>,
    pub(crate) target: Option<&'static Target>,
}

/// Architecture that `.target` can name.
#[derive(Debug)]
pub(crate) struct Target {
    pub(crate) name: &'static str,
    pub(crate) number: u32,
    /// First PTX version that supports the target.
    pub(crate) since: IsaVersion,
}

impl Target {
    pub(crate) fn named(name: &str) -> Option<&'static Target> {
        TARGETS.iter().find(|target| target.name == name)
    }

    /// Whether `name` is a target newer than all targets in [`TARGETS`].
    pub(crate) fn is_newer_than_known(name: &str) -> bool {
        let number = name.strip_prefix("sm_").map(|rest| rest.strip_suffix(['a', 'f']).unwrap_or(rest));
        let number = number.and_then(|digits| digits.parse::<u32>().ok());
        number.is_some_and(|number| TARGETS.iter().all(|known| known.number < number))
    }

    /// Whether the target includes features of a single architecture (suffix `a`) or family (suffix `f`).
    fn is_specific(&self) -> bool {
        self.name.ends_with(['a', 'f'])
    }
}

const fn target(name: &'static str, number: u32, since: IsaVersion) -> Target {
    Target { name, number, since }
}

/// All known targets (PTX ISA, "Release Notes").
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

/// Options that `.target` accepts in addition to an architecture.
pub(crate) const TARGET_OPTIONS: &[&str] =
    &["texmode_unified", "texmode_independent", "debug", "map_f64_to_f32"];

/// Lowest target and PTX version for which an instruction is available.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Requirement {
    target: u32,
    /// Whether the instruction is available only for targets that end in `a` or `f`.
    specific: bool,
    /// Whether the instruction is available for no later target.
    only: bool,
    version: IsaVersion,
    /// `(target, version)`: for this target and later targets, this earlier version is sufficient.
    earlier: Option<(u32, IsaVersion)>,
}

/// Requires at least this target and PTX version.
pub(crate) const fn since(target: u32, version: IsaVersion) -> Requirement {
    Requirement { target, specific: false, only: false, version, earlier: None }
}

impl Requirement {
    /// Restricts the requirement to targets that end in `a` or `f`.
    pub(crate) const fn specific(self) -> Requirement {
        Requirement { specific: true, ..self }
    }

    /// Restricts the requirement to the target itself with the suffix `a`.
    pub(crate) const fn only(self) -> Requirement {
        Requirement { specific: true, only: true, ..self }
    }

    /// Lowers the required version for `target` and later targets.
    pub(crate) const fn or_from(self, target: u32, version: IsaVersion) -> Requirement {
        Requirement { earlier: Some((target, version)), ..self }
    }
}

/// Lowest target and PTX version that support thread block clusters.
pub(crate) const CLUSTERS: Requirement = since(90, (7, 8));

/// Result of looking up an opcode with its modifiers in the opcode table, independent of the operands.
#[derive(Debug, Default)]
pub(crate) struct Form {
    /// Whether the instruction is valid PTX that the emulator does not implement.
    pub(crate) unsupported: bool,
    pub(crate) requirements: Vec<Requirement>,
}

/// Function that looks up an instruction in the opcode table. The table refers to decoders, which are in a layer above
/// the parser, so the parser gets the function as an argument.
pub(crate) type LookUp = fn(&Instruction) -> Form;

impl Platform {
    /// Error message for `name` if the platform does not meet the requirements.
    pub(crate) fn missing(&self, name: &str, requirements: &[Requirement]) -> Option<String> {
        let missing = requirements.iter().find_map(|requirement| self.missing_requirement(requirement))?;
        Some(format!("`{name}` {missing}"))
    }

    /// Error message if the platform does not meet the requirements of an instruction's operands.
    pub(crate) fn missing_for_operands(&self, instruction: &Instruction) -> Option<String> {
        match &operand_requirements(instruction)[..] {
            [] => None,
            requirements => self.missing(&instruction.text(), requirements),
        }
    }

    /// Error message if the platform does not support a directive about clusters.
    pub(crate) fn missing_for_cluster_directive(&self, directive: &str) -> Option<String> {
        self.missing(&format!(".{directive}"), &[CLUSTERS])
    }

    /// Error for `shfl` and `vote` without `.sync`. PTX 6.4 removed these forms for sm_70 and later targets; the
    /// emulator implements them for no target.
    pub(crate) fn refuse_without_sync(&self, instruction: &Instruction) -> Option<ParseError> {
        if !matches!(instruction.opcode.as_str(), "shfl" | "vote") || instruction.has("sync") {
            return None;
        }
        let text = instruction.text();
        let removed = self.target.is_some_and(|target| target.number >= 70)
            && self.version.is_some_and(|version| version >= (6, 4));
        Some(match removed {
            true => {
                let message = format!("`{text}` needs `.sync` for sm_70 or later as of PTX 6.4");
                instruction.error(ParseErrorKind::Target, message)
            }
            false => {
                let message = format!("the emulator does not support `{text}`");
                instruction.error(ParseErrorKind::Unsupported, message)
            }
        })
    }

    /// Describes a requirement that the platform does not meet: `needs …, but the text names …`; `None` if the platform
    /// meets it.
    fn missing_requirement(&self, requirement: &Requirement) -> Option<String> {
        let (mut needs, mut has) = (Vec::new(), Vec::new());
        if let Some(target) = self.target
            && (target.number < requirement.target
                || requirement.only && target.number > requirement.target
                || requirement.specific && !target.is_specific())
        {
            needs.push(match requirement.specific {
                true if requirement.only => format!("`.target` sm_{}a,", requirement.target),
                true => format!(
                    "`.target` sm_{}a, or another target that ends in `a` or `f`,",
                    requirement.target
                ),
                false => format!("`.target` sm_{}", requirement.target),
            });
            has.push(target.name.to_string());
        }
        let earlier =
            requirement.earlier.filter(|(from, _)| self.target.is_some_and(|target| target.number >= *from));
        let least = earlier.map_or(requirement.version, |(_, version)| version);
        if let Some(version) = self.version
            && version < least
        {
            needs.push(format!("`.version` {}.{}", least.0, least.1));
            has.push(format!("{}.{}", version.0, version.1));
        }
        let (needs, has) = (needs.join(" and "), has.join(" and "));
        let later = if needs.ends_with(',') { "" } else { " or later," };
        (!needs.is_empty()).then(|| format!("needs {needs}{later} but the text names {has}"))
    }
}

/// Requirements of the instruction's operands that not every target or version meets.
fn operand_requirements(instruction: &Instruction) -> Vec<Requirement> {
    let mut requirements = Vec::new();
    if instruction.operands.iter().any(is_cluster_register) {
        requirements.push(CLUSTERS);
    }
    let is_reserved = |operand: &Operand| matches!(operand, Operand::Special(Special::ReservedShared(_)));
    if instruction.operands.iter().any(is_reserved) {
        requirements.push(since(80, (7, 6)));
    }
    if instruction.opcode == "mbarrier" && (instruction.has("arrive") || instruction.has("arrive_drop")) {
        if instruction.operands.first() == Some(&Operand::Sink) {
            requirements.push(since(80, (7, 1)));
        }
        if instruction.operands.len() > 2 && !instruction.has("noComplete") {
            requirements.push(since(90, (7, 8)));
        }
    }
    requirements
}

/// Whether the operand is, or contains, a special register for clusters.
fn is_cluster_register(operand: &Operand) -> bool {
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
        Operand::Vector(elements) | Operand::Tensor(_, elements) => elements.iter().any(is_cluster_register),
        _ => false,
    }
}
