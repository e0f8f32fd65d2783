//! The opcode table: one row per opcode family, with its class, lowest target, PTX version and decoder.
//!
//! To add an instruction, add a row (or an opcode to a row) here, its semantics to the decoder's file under `exec/`,
//! and a line to `tests/isa/instructions.txt`. If its results do not depend on its operands as those of its class do
//! ([`dependence`]), say how by `depends`. If [`UNSUPPORTED`] names the instruction, remove it there.
//!
//! Requirements follow the "PTX ISA Notes" and "Target ISA Notes" of PTX ISA 9.0. A requirement that is met by every
//! target from sm_75 and every version from PTX 6.3 is omitted. Where the manual is stricter than ptxas, the table
//! follows ptxas; `tests/isa` compares the emulator with ptxas.

use std::collections::HashMap;
use std::sync::LazyLock;

use crate::code::cursor::InstructionCursor;
use crate::code::value_flow::{Dependence, Elements};
use crate::context::Exec;
use crate::exec::{
    atomic, atomic_128, atomic_vector, bits, cluster, collective, compare, control, convert, copy, float,
    float_special, half, integer, load_store, load_store_256, matrix_move, mbarrier, mma, moves, print,
    remote, stack, tensor_maps, wgmma, wmma,
};
use crate::load::ast::{Instruction, Operand};
use crate::load::error::ParseError;
use crate::load::requirement::{CLUSTERS, Form, Requirement, since};
use crate::load::types::Ty;
use crate::load::unsupported;
use crate::profile::Class::{self, Control, Float, Integer, Matrix, Memory, Move, Warp};
use crate::profile::traffic::{ProfileTraits, TrafficKind};

/// Decodes an instruction: takes its modifiers and operands, and returns the function that executes it.
type Decoder = for<'c, 'd, 'f> fn(&'c mut InstructionCursor<'d, 'f>) -> Result<Exec, ParseError>;

/// Row of the opcode table: opcodes with a common class, requirements and decoder.
pub(crate) struct Family {
    /// Opcodes of the family, separated by `|`.
    opcodes: &'static str,
    /// Modifiers that an instruction must have, as for [`Instruction::matches`]. If several rows match, the first row
    /// applies.
    form: &'static str,
    class: Class,
    traffic: TrafficKind,
    /// Dependence of results on operands, where it differs from the default of the class.
    dependence: Option<Dependence>,
    /// Requirements by modifiers. An instruction must meet every requirement whose modifiers match.
    requirements: &'static [(&'static str, Requirement)],
    pub(crate) decode: Decoder,
}

const fn family(opcodes: &'static str, form: &'static str, class: Class, decode: Decoder) -> Family {
    Family { opcodes, form, class, traffic: TrafficKind::None, dependence: None, requirements: &[], decode }
}

impl Family {
    const fn requires(self, requirements: &'static [(&'static str, Requirement)]) -> Family {
        Family { requirements, ..self }
    }

    const fn traffic(self, traffic: TrafficKind) -> Family {
        Family { traffic, ..self }
    }

    const fn depends(self, dependence: Dependence) -> Family {
        Family { dependence: Some(dependence), ..self }
    }
}

/// Form that matches all modifiers.
const ANY: &str = "";
/// Accesses of 256 bits per lane by four elements.
const WIDE_V4: &str = "v4 b64|u64|s64|f64";
const HALF: &str = "f16|f16x2|bf16|bf16x2";
const SINGLE_OR_DOUBLE: &str = "f32|f64";
const FLOAT: &str = "f16|f16x2|bf16|bf16x2|f32|f64";
const INTEGER: &str = "u16|s16|u32|s32|u64|s64|u16x2|s16x2";

/// All opcode families that the emulator implements.
const FAMILIES: &[Family] = &[
    // Arithmetic.
    family("add|sub|mul", HALF, Float, half::decode).requires(&[("bf16|bf16x2", since(90, (7, 8)))]),
    family("fma", HALF, Float, half::decode)
        .requires(&[("bf16|bf16x2", since(80, (7, 0))), ("relu", since(80, (7, 0)))]),
    family("neg", HALF, Float, half::decode).requires(&[("bf16|bf16x2", since(80, (7, 0)))]),
    family("abs", HALF, Float, half::decode)
        .requires(&[("f16|f16x2", since(75, (6, 5))), ("bf16|bf16x2", since(80, (7, 0)))]),
    family("min|max", HALF, Float, half::decode)
        .requires(&[(ANY, since(80, (7, 0))), ("xorsign", since(86, (7, 2)))]),
    family("min|max", SINGLE_OR_DOUBLE, Float, float::decode)
        .requires(&[("NaN", since(80, (7, 0))), ("xorsign", since(86, (7, 2)))]),
    family("add|sub|mul|fma|mad|div|neg|abs", SINGLE_OR_DOUBLE, Float, float::decode),
    family("add|min|max", INTEGER, Integer, integer::decode)
        .requires(&[("u16x2|s16x2", since(90, (8, 0))), ("relu", since(90, (8, 0)))]),
    family("sub|mul|mad|div|rem|neg|abs|addc|subc|madc", INTEGER, Integer, integer::decode),
    family("mul24|mad24|sad|dp4a|dp2a", ANY, Integer, integer::decode),
    family("tanh|ex2", HALF, Float, half::decode)
        .requires(&[("f16|f16x2", since(75, (7, 0))), ("bf16|bf16x2", since(90, (7, 8)))]),
    family("tanh", ANY, Float, float_special::decode).requires(&[(ANY, since(75, (7, 0)))]),
    family("rcp|sqrt|rsqrt|ex2|lg2|sin|cos|copysign|testp", ANY, Float, float_special::decode),
    // Bits.
    family("szext|bmsk", ANY, Integer, bits::decode).requires(&[(ANY, since(75, (7, 6)))]),
    family("and|or|xor|not|shl|shr|lop3|shf|bfe|bfi|brev", ANY, Integer, bits::decode)
        .depends(Dependence::Bits),
    family("cnot|bfind|popc|clz|fns", ANY, Integer, bits::decode),
    family("prmt", ANY, Move, bits::decode),
    // Comparison and selection.
    family("setp|set", FLOAT, Float, compare::decode)
        .requires(&[("bf16|bf16x2", since(90, (7, 8))), ("u16|s16|u32|s32 f16|f16x2", since(75, (6, 5)))]),
    family("setp|set", ANY, Integer, compare::decode),
    family("selp|slct", ANY, Move, compare::decode),
    // Moves and conversion.
    family("mov", ANY, Move, moves::decode).requires(&[("b128", since(75, (8, 3)))]),
    family("cvta", ANY, Move, moves::decode)
        .depends(Dependence::Lane)
        .requires(&[("shared::cta", since(75, (7, 8)))]),
    family("cvt", ANY, Move, convert::decode).requires(&[
        ("pack", since(75, (6, 5))),
        ("bf16", since(80, (7, 0))),
        ("f32 bf16", since(80, (7, 1))),
        ("bf16 u8|s8|u16|s16|u32|s32|u64|s64|f16|bf16|f64", since(90, (7, 8))),
        ("u8|s8|u16|s16|u32|s32|u64|s64|f16|f64 bf16", since(90, (7, 8))),
        ("f16x2|bf16x2", since(80, (7, 0))),
        ("relu", since(80, (7, 0))),
        ("satfinite tf32|f16|bf16", since(75, (8, 1))),
        ("satfinite f16x2|bf16x2 f32", since(75, (8, 1))),
        ("tf32", since(80, (7, 0))),
        ("rn|rz tf32", since(90, (7, 8))),
        ("rn|rz satfinite tf32", since(100, (8, 6))),
        // sm_89 is a lower target than sm_90, but got these types in a later PTX version.
        ("e4m3x2|e5m2x2", since(89, (8, 1)).or_from(90, (7, 8))),
    ]),
    // Addresses.
    family("isspacep", ANY, Move, cluster::decode)
        .depends(Dependence::Lane)
        .requires(&[("shared::cta", since(75, (7, 8)))]),
    family("mapa|getctarank", ANY, Move, cluster::decode)
        .depends(Dependence::Lane)
        .requires(&[(ANY, CLUSTERS)]),
    // Memory.
    family("ld", "v8", Memory, load_store_256::decode)
        .traffic(TrafficKind::Load)
        .requires(&[(ANY, since(100, (8, 8)))]),
    family("ld", WIDE_V4, Memory, load_store_256::decode)
        .traffic(TrafficKind::Load)
        .requires(&[(ANY, since(100, (8, 8)))]),
    family("st", "v8", Memory, load_store_256::decode)
        .traffic(TrafficKind::Store)
        .requires(&[(ANY, since(100, (8, 8)))]),
    family("st", WIDE_V4, Memory, load_store_256::decode)
        .traffic(TrafficKind::Store)
        .requires(&[(ANY, since(100, (8, 8)))]),
    family("ld|ldu", ANY, Memory, load_store::decode).traffic(TrafficKind::Load).requires(&[
        ("shared::cta", since(75, (7, 8))),
        ("b128", since(75, (8, 3))),
        ("sys b128", since(75, (8, 4))),
    ]),
    family("st|red", "async", Memory, remote::decode).requires(&[(ANY, since(90, (8, 1)))]),
    family("st", ANY, Memory, load_store::decode).traffic(TrafficKind::Store).requires(&[
        ("shared::cta", since(75, (7, 8))),
        ("b128", since(75, (8, 3))),
        ("sys b128", since(75, (8, 4))),
    ]),
    family("atom", "b128", Memory, atomic_128::decode)
        .traffic(TrafficKind::Store)
        .requires(&[(ANY, since(90, (8, 3))), ("sys", since(90, (8, 4)))]),
    family("atom|red", "v2|v4|v8", Memory, atomic_vector::decode)
        .traffic(TrafficKind::Store)
        .requires(&[(ANY, since(90, (8, 1)))]),
    family("atom|red", ANY, Memory, atomic::decode)
        .traffic(TrafficKind::Store)
        .requires(&[("shared::cta", since(75, (7, 8))), ("bf16|bf16x2", since(90, (7, 8)))]),
    family("prefetch", ANY, Memory, load_store::decode).requires(&[
        ("L2::evict_last|L2::evict_normal", since(80, (7, 4))),
        ("tensormap", since(90, (8, 0))),
    ]),
    family("prefetchu", ANY, Memory, load_store::decode),
    family("createpolicy", ANY, Move, load_store::decode)
        .depends(Dependence::Lane)
        .requires(&[(ANY, since(80, (7, 4)))]),
    // Asynchronous copies.
    family("cp", "mbarrier arrive", Control, copy::decode)
        .requires(&[(ANY, since(80, (7, 0))), ("shared::cta", since(80, (7, 8)))]),
    family("cp", "bulk commit_group|wait_group", Control, copy::decode).requires(&[(ANY, since(90, (8, 0)))]),
    family("cp", "commit_group|wait_group|wait_all", Control, copy::decode)
        .requires(&[(ANY, since(80, (7, 0)))]),
    family("cp", "bulk prefetch", Memory, copy::decode).requires(&[(ANY, since(90, (8, 0)))]),
    family("cp", "bulk tensor", Memory, copy::decode)
        .requires(&[(ANY, since(90, (8, 0))), ("shared::cta global", since(90, (8, 6)))]),
    family("cp", "bulk", Memory, copy::decode)
        .traffic(TrafficKind::BulkCopy)
        .requires(&[(ANY, since(90, (8, 0))), ("shared::cta global", since(90, (8, 6)))]),
    family("cp", ANY, Memory, copy::decode)
        .traffic(TrafficKind::AsyncCopy)
        .requires(&[("async", since(80, (7, 0)))]),
    family("tensormap", "replace", Memory, tensor_maps::decode)
        .requires(&[(ANY, since(90, (8, 3)).specific())]),
    family("tensormap", ANY, Memory, tensor_maps::decode).requires(&[(ANY, since(90, (8, 3)))]),
    // Control flow and synchronisation.
    family("bra", ANY, Control, control::decode).traffic(TrafficKind::Branch).depends(Dependence::Branch),
    family("ret|exit|trap|brkpt|nanosleep", ANY, Control, control::decode),
    // The loader expands all other calls.
    family("call", "vprintf", Control, print::decode),
    family("alloca|stacksave|stackrestore", ANY, Move, stack::decode)
        .depends(Dependence::Effect)
        .requires(&[(ANY, since(75, (7, 3)))]),
    family("barrier", "cluster", Control, cluster::decode)
        .requires(&[("release|relaxed|acquire", since(90, (8, 0)))]),
    family("bar|barrier", ANY, Control, control::decode).requires(&[("cta", since(75, (7, 8)))]),
    family("fence", ANY, Control, load_store::decode).requires(&[
        ("proxy alias", since(75, (7, 5))),
        ("proxy async", since(90, (8, 0))),
        ("tensormap::generic", since(90, (8, 3))),
        ("mbarrier_init", since(90, (8, 0))),
    ]),
    family("membar", ANY, Control, load_store::decode),
    family("griddepcontrol", ANY, Control, control::decode).requires(&[(ANY, since(90, (7, 8)))]),
    family("setmaxnreg", ANY, Control, control::decode).requires(&[(ANY, since(90, (8, 0)).specific())]),
    family("mbarrier", ANY, Control, mbarrier::decode).requires(&[
        ("shared::cta", since(75, (7, 8))),
        (ANY, since(80, (7, 0))),
        ("parity", since(80, (7, 1))),
        ("try_wait", since(90, (7, 8))),
        ("expect_tx|complete_tx", since(90, (8, 0))),
        ("acquire|release", since(80, (8, 0))),
        ("arrive|arrive_drop|test_wait|try_wait relaxed", since(90, (8, 6))),
        ("shared::cluster", since(90, (8, 0))),
    ]),
    // Warps.
    family("vote", "uni", Warp, collective::decode).depends(Dependence::Warp),
    family("shfl|vote|activemask", ANY, Warp, collective::decode),
    family("match", ANY, Warp, collective::decode).depends(Dependence::Warp),
    family("redux", ANY, Warp, collective::decode)
        .depends(Dependence::Warp)
        .requires(&[(ANY, since(80, (7, 0)))]),
    family("elect", ANY, Warp, collective::decode)
        .depends(Dependence::Warp)
        .requires(&[(ANY, since(90, (8, 0)))]),
    // Matrices.
    family("mma", ANY, Matrix, mma::decode).requires(&[
        ("m16n8k4|m16n8k16|m16n8k32", since(80, (7, 0))),
        ("m16n8k8", since(75, (6, 5))),
        ("bf16|tf32|f64", since(80, (7, 0))),
        ("m16n8k4|m16n8k8|m16n8k16 f64", since(90, (7, 8))),
        ("e4m3|e5m2", since(89, (8, 4))),
        ("m16n8k16|f16 e4m3|e5m2", since(89, (8, 7))),
    ]),
    family("ldmatrix", ANY, Memory, matrix_move::decode)
        .traffic(TrafficKind::MatrixRows)
        .depends(Dependence::MatrixLoad)
        .requires(&[("shared::cta", since(75, (7, 8))), (ANY, since(75, (6, 5)))]),
    family("stmatrix", ANY, Memory, matrix_move::decode)
        .traffic(TrafficKind::MatrixRows)
        .requires(&[("shared::cta", since(75, (7, 8))), (ANY, since(90, (7, 8)))]),
    family("movmatrix", ANY, Matrix, matrix_move::decode)
        .depends(Dependence::Shuffle)
        .requires(&[(ANY, since(75, (7, 8)))]),
    family("wmma", "load|store", Memory, wmma::decode).requires(&[("bf16|tf32|f64", since(80, (7, 0)))]),
    family("wgmma", "mma_async", Matrix, wgmma::decode::decode).depends(Dependence::Effect).requires(&[
        (ANY, since(90, (8, 0)).only()),
        ("s8 u8", since(90, (8, 4))),
        ("u8 s8", since(90, (8, 4))),
    ]),
    family("wgmma", ANY, Control, wgmma::decode::decode).requires(&[(ANY, since(90, (8, 0)).only())]),
    family("wmma", ANY, Matrix, wmma::decode).requires(&[("bf16|tf32|f64", since(80, (7, 0)))]),
];

/// Requirements of modifiers, for all opcodes.
const MODIFIER_REQUIREMENTS: &[(&str, Requirement)] = &[
    (
        "L1::evict_first|L1::evict_last|L1::evict_normal|L1::evict_unchanged|L1::no_allocate",
        since(75, (7, 4)),
    ),
    ("L2::64B|L2::128B", since(75, (7, 4))),
    ("L2::256B|L2::cache_hint", since(80, (7, 4))),
    ("shared::cluster", CLUSTERS),
    ("cluster", CLUSTERS),
];

/// Valid PTX that the emulator does not implement: opcodes, and the modifiers of the unsupported forms.
const UNSUPPORTED: &[(&str, &str)] = &[
    ("add|sub|fma", "f32 f16|bf16"),
    ("fma", "oob"),
    ("lop3", "and|or"),
    ("cvt", "rs"),
    ("isspacep", "const|param|param::entry|param::func"),
    ("ld|st", "v8 b8|u8|s8|b16|u16|s16"),
    ("st", "bulk"),
    ("applypriority|discard|istypep|multimem", ANY),
    ("cp", "reduce shared::cluster"),
    ("cp", "reduce min|max f16|bf16"),
    ("cp", "tile::gather4|tile::scatter4|im2col|im2col::w|im2col::w::128|im2col_no_offs"),
    ("tensormap", "swizzle_atomicity"),
    ("pmevent|clusterlaunchcontrol", ANY),
    ("redux", "f32"),
    ("mma", "sp|sp::ordered_metadata"),
    ("tcgen05", ANY),
    ("wgmma", "sp|b1"),
    ("tex|tld4|txq|suld|sust|sured|suq", ANY),
    ("vadd|vsub|vabsdiff|vmin|vmax|vshl|vshr|vmad|vset", ANY),
    ("vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2|vset2", ANY),
    ("vadd4|vsub4|vavrg4|vabsdiff4|vmin4|vmax4|vset4", ANY),
];

/// Rows of [`FAMILIES`] by opcode, in table order.
static BY_OPCODE: LazyLock<HashMap<&str, Vec<&Family>>> = LazyLock::new(|| {
    let mut rows: HashMap<&str, Vec<&Family>> = HashMap::new();
    for family in FAMILIES {
        for opcode in family.opcodes.split('|') {
            rows.entry(opcode).or_default().push(family);
        }
    }
    rows
});

/// Whether the emulator implements some form of the opcode.
pub(crate) fn is_known(opcode: &str) -> bool {
    BY_OPCODE.contains_key(opcode)
}

/// Row of the opcode table for an instruction.
pub(crate) fn find(instruction: &Instruction) -> Option<&'static Family> {
    let rows = BY_OPCODE.get(instruction.opcode.as_str())?;
    rows.iter().copied().find(|family| instruction.matches(family.form))
}

/// Class and memory traffic of an instruction, for profiles.
pub(crate) fn profile_traits(instruction: &Instruction) -> Option<ProfileTraits> {
    find(instruction).map(|family| ProfileTraits::new(family.class, family.traffic, instruction))
}

/// Whether an instruction on integers has a constant among its fragments.
fn has_constants(instruction: &Instruction) -> bool {
    let is_constant = |operand: &Operand| match operand {
        Operand::Vector(elements) => elements.iter().any(|element| matches!(element, Operand::Int(_))),
        _ => false,
    };
    instruction.has("s32") && instruction.operands.iter().any(is_constant)
}

/// How the results of an instruction depend on its operands.
pub(crate) fn dependence(instruction: &Instruction) -> Dependence {
    let Some(family) = find(instruction) else { return Dependence::Effect };
    match (family.dependence, family.class) {
        (Some(dependence), _) => dependence,
        (None, Integer | Float) if is_packed(instruction) => Dependence::Halves,
        (None, Integer | Float) => Dependence::Lane,
        (None, Move) if instruction.opcode == "cvt" => dependence_of_conversion(instruction),
        (None, Move) => Dependence::Bits,
        (None, Warp) => Dependence::Shuffle,
        // The elements of constants cannot be replaced for a trial.
        (None, Matrix) if instruction.has("b1") || has_constants(instruction) => Dependence::Warp,
        (None, Matrix) if instruction.has("s32") => Dependence::IntegerMatrix,
        (None, Matrix) => Dependence::Matrix,
        (None, Memory) => match instruction.opcode.as_str() {
            "stmatrix" => {
                let count = [("x1", 1), ("x2", 2)].into_iter().find(|(name, _)| instruction.has(name));
                Dependence::MatrixStore(count.map_or(4, |(_, count)| count))
            }
            "ld" | "ldu" => Elements::of(instruction).map_or(Dependence::Effect, Dependence::Load),
            "st" if !instruction.has("async") => {
                Elements::of(instruction).map_or(Dependence::Effect, Dependence::Store)
            }
            _ => Dependence::Effect,
        },
        (None, Control) => Dependence::Effect,
    }
}

/// Whether the instruction computes each half of its result from halves of its operands.
fn is_packed(instruction: &Instruction) -> bool {
    let of_halves = ["add", "sub", "mul", "fma", "min", "max", "neg", "abs", "ex2", "tanh"];
    of_halves.contains(&instruction.opcode.as_str()) && instruction.matches("f16x2|bf16x2|u16x2|s16x2")
}

fn dependence_of_conversion(conversion: &Instruction) -> Dependence {
    let mut types = conversion.modifiers.iter().filter_map(|modifier| Ty::parse(modifier));
    let is_pair = |ty: Ty| matches!(ty, Ty::F16x2 | Ty::Bf16x2 | Ty::E4m3x2 | Ty::E5m2x2);
    match (types.next(), types.next()) {
        (Some(target), Some(source)) if is_pair(target) && is_pair(source) => Dependence::Halves,
        (Some(target), Some(_)) if is_pair(target) && conversion.operands.len() > 2 => Dependence::PackedPair,
        // Truncates or extends an integer.
        (Some(target), Some(source))
            if !target.is_float() && !source.is_float() && !conversion.has("sat") =>
        {
            Dependence::Bits
        }
        _ => Dependence::Lane,
    }
}

/// Looks up an opcode with its modifiers: whether it is unsupported, and its requirements.
pub(crate) fn look_up(instruction: &Instruction) -> Form {
    let unsupported = instruction.modifiers.iter().any(|modifier| unsupported::is_type(modifier))
        || UNSUPPORTED.iter().any(|(opcodes, form)| {
            opcodes.split('|').any(|opcode| opcode == instruction.opcode) && instruction.matches(form)
        });
    let own = find(instruction).map_or(&[][..], |family| family.requirements);
    let requirements = MODIFIER_REQUIREMENTS.iter().chain(own);
    let requirements = requirements.filter(|(form, _)| instruction.matches(form)).map(|&(_, needed)| needed);
    Form { unsupported, requirements: requirements.collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Mnemonics in `tests/isa/instructions.txt` on lines whose first word `accept` accepts, split at dots and braces.
    fn mnemonics(accept: impl Fn(&str) -> bool) -> Vec<&'static str> {
        let lines = include_str!("../../tests/isa/instructions.txt").lines();
        let lines =
            lines.filter(|line| !line.starts_with(['#', '='])).filter_map(|line| line.split_once(' '));
        let mnemonics = lines.filter(|(state, _)| accept(state)).map(|(_, text)| {
            let text = text.trim();
            text.split(' ').next().unwrap_or(text)
        });
        mnemonics.flat_map(|mnemonic| mnemonic.split(['.', '{', '}', ','])).collect()
    }

    #[test]
    fn every_opcode_has_a_line_of_test_data() {
        let listed = mnemonics(|state| state != "no");
        let opcodes = FAMILIES.iter().flat_map(|family| family.opcodes.split('|'));
        let missing: Vec<&str> = opcodes.filter(|opcode| !listed.contains(opcode)).collect();
        assert!(missing.is_empty(), "not in tests/isa/instructions.txt: {missing:?}");
    }
}
