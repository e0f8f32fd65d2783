//! Syntax tree of a PTX module. Register names are resolved; instructions are not decoded.

use std::collections::HashMap;

use crate::load::error::{ParseError, ParseErrorKind};
use crate::load::types::Ty;

/// Register of one function: an index into [`Function::registers`].
pub(crate) type RegId = u32;

/// Component of a special register, such as `%tid.x`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Special {
    Tid(u8),
    Ntid(u8),
    Ctaid(u8),
    Nctaid(u8),
    Laneid,
    Warpid,
    Nwarpid,
    LanemaskEq,
    LanemaskLe,
    LanemaskLt,
    LanemaskGe,
    LanemaskGt,
    Smid,
    Nsmid,
    Gridid,
    DynamicSharedSize,
    TotalSharedSize,
    Clusterid(u8),
    Nclusterid(u8),
    ClusterCtaid(u8),
    ClusterNctaid(u8),
    ClusterCtarank,
    ClusterNctarank,
    IsExplicitCluster,
    /// `%envreg0` to `%envreg31`.
    Envreg(u8),
    /// A special register that describes the shared memory reserved for the system.
    ReservedShared(ReservedShared),
    Clock,
    Clock64,
    GlobalTimer,
}

/// Value of a special register that describes the shared memory reserved for the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ReservedShared {
    /// The first address, which is also that of region 1; cooperative groups use it.
    Begin,
    End,
    /// The size in bytes.
    Capacity,
}

/// Common prefix of the names of the registers that describe reserved shared memory.
const RESERVED: &str = "%reserved_smem_offset_";

impl Special {
    /// Finds a special register by its name and component, such as `%tid` and `x`.
    pub(crate) fn parse(name: &str, component: Option<&str>) -> Option<Special> {
        let axis = match component {
            None => None,
            Some("x") => Some(0),
            Some("y") => Some(1),
            Some("z") => Some(2),
            Some(_) => return None,
        };
        Some(match (name, axis) {
            ("%tid", Some(axis)) => Special::Tid(axis),
            ("%ntid", Some(axis)) => Special::Ntid(axis),
            ("%ctaid", Some(axis)) => Special::Ctaid(axis),
            ("%nctaid", Some(axis)) => Special::Nctaid(axis),
            ("%laneid", None) => Special::Laneid,
            ("%warpid", None) => Special::Warpid,
            ("%nwarpid", None) => Special::Nwarpid,
            ("%lanemask_eq", None) => Special::LanemaskEq,
            ("%lanemask_le", None) => Special::LanemaskLe,
            ("%lanemask_lt", None) => Special::LanemaskLt,
            ("%lanemask_ge", None) => Special::LanemaskGe,
            ("%lanemask_gt", None) => Special::LanemaskGt,
            ("%smid", None) => Special::Smid,
            ("%nsmid", None) => Special::Nsmid,
            ("%gridid", None) => Special::Gridid,
            ("%dynamic_smem_size", None) => Special::DynamicSharedSize,
            ("%total_smem_size", None) => Special::TotalSharedSize,
            ("%clusterid", Some(axis)) => Special::Clusterid(axis),
            ("%nclusterid", Some(axis)) => Special::Nclusterid(axis),
            ("%cluster_ctaid", Some(axis)) => Special::ClusterCtaid(axis),
            ("%cluster_nctaid", Some(axis)) => Special::ClusterNctaid(axis),
            ("%is_explicit_cluster", None) => Special::IsExplicitCluster,
            ("%cluster_ctarank", None) => Special::ClusterCtarank,
            ("%cluster_nctarank", None) => Special::ClusterNctarank,
            ("%clock" | "%clock_hi", None) => Special::Clock,
            ("%clock64", None) => Special::Clock64,
            ("%globaltimer" | "%globaltimer_lo", None) => Special::GlobalTimer,
            (name, None) if name.starts_with(RESERVED) => {
                Special::ReservedShared(match name.strip_prefix(RESERVED)? {
                    "begin" | "1" => ReservedShared::Begin,
                    "end" => ReservedShared::End,
                    "cap" => ReservedShared::Capacity,
                    _ => return None,
                })
            }
            (name, None) => {
                let number = name.strip_prefix("%envreg")?;
                Special::Envreg(number.parse().ok().filter(|&number: &u8| number < 32)?)
            }
            _ => return None,
        })
    }

    /// Whether the special register's value changes while the kernel runs.
    pub(crate) fn is_volatile(self) -> bool {
        matches!(self, Special::Clock | Special::Clock64 | Special::GlobalTimer)
    }
}

/// Operand of an instruction as written in the text.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Operand {
    Reg(RegId),
    Special(Special),
    /// A variable, parameter or label, plus an offset in bytes.
    Symbol(String, i64),
    Int(u64),
    F32(u32),
    F64(u64),
    /// `{a, b}`: a list of operands.
    Vector(Vec<Operand>),
    /// `[base + offset]`.
    Address(Box<Operand>, i64),
    /// `[map, {a, b}]`: the address of a tensor map, and coordinates.
    Tensor(Box<Operand>, Vec<Operand>),
    /// `p|q`: two destinations.
    Pair(Box<Operand>, Box<Operand>),
    /// `!p`: a negated predicate.
    Not(Box<Operand>),
    /// `_`: a result that is discarded.
    Sink,
    /// The type of the functions that an indirect call may call.
    Prototype(Box<Prototype>),
}

/// Type of a function, in a `.callprototype` or `.calltargets` directive.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Prototype {
    /// Bytes of each result and of each parameter.
    Signature { returns: Vec<u32>, params: Vec<u32> },
    /// Names of the functions that may be called.
    Targets(Vec<String>),
}

/// Predicate that guards an instruction: `@p` or `@!p`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Guard {
    pub(crate) register: RegId,
    pub(crate) negated: bool,
}

/// An instruction with its source position.
#[derive(Clone, Debug)]
pub(crate) struct Instruction {
    pub(crate) guard: Option<Guard>,
    pub(crate) opcode: String,
    pub(crate) modifiers: Vec<String>,
    pub(crate) operands: Vec<Operand>,
    pub(crate) line: u32,
    pub(crate) column: u32,
    /// Location of the last `.loc` before the instruction: an index into [`Function::locations`].
    pub(crate) source: Option<u32>,
    /// The `{ }` scope in which the instruction's labels are looked up: an index into [`Function::scopes`].
    pub(crate) scope: usize,
}

impl Instruction {
    /// Opcode and modifiers of the instruction, as written.
    pub(crate) fn text(&self) -> String {
        let mut text = self.opcode.clone();
        for modifier in &self.modifiers {
            text.push('.');
            text.push_str(modifier);
        }
        text
    }

    /// Registers of a `setmaxnreg.inc`.
    pub(crate) fn register_increase(&self) -> Option<u32> {
        match self.operands[..] {
            [Operand::Int(count)] if self.opcode == "setmaxnreg" && self.has("inc") => Some(count as u32),
            _ => None,
        }
    }

    /// Whether the instruction has the modifier.
    pub(crate) fn has(&self, modifier: &str) -> bool {
        self.modifiers.iter().any(|found| found == modifier)
    }

    /// Whether the modifiers contain the words of `form`, in this order but not necessarily adjacent. A word may be a
    /// list of alternatives, as in `f32|f64 relu`.
    pub(crate) fn matches(&self, form: &str) -> bool {
        let mut modifiers = self.modifiers.iter();
        let mut find =
            |word: &str| modifiers.any(|modifier| word.split('|').any(|alternative| alternative == modifier));
        form.split_whitespace().all(&mut find)
    }

    /// Creates an error at the position of the opcode.
    pub(crate) fn error(&self, kind: ParseErrorKind, message: impl Into<String>) -> ParseError {
        ParseError::new(kind, (self.line, self.column), message)
    }
}

/// Source location that a `.loc` directive specifies.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Location {
    /// Index of the `.file`, line and column.
    pub(crate) at: (u32, u32, u32),
    /// Call site at which the code was inlined: an index of an earlier location of the same function.
    pub(crate) inlined_at: Option<u32>,
}

/// Address of a function or of a module's variable in the initial value of a variable.
#[derive(Clone, Debug)]
pub(crate) struct InitialAddress {
    /// Byte offset in the variable.
    pub(crate) at: u64,
    /// Name of the function or variable.
    pub(crate) name: String,
    /// Bytes added to the address.
    pub(crate) offset: i64,
    /// Line and column of the name.
    pub(crate) place: (u32, u32),
}

/// A variable in a memory space.
#[derive(Clone, Debug)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) bytes: u64,
    pub(crate) align: u32,
    /// Initial bytes; empty if the variable starts as zeros.
    pub(crate) init: Vec<u8>,
    /// Addresses in the initial bytes.
    pub(crate) addresses: Vec<InitialAddress>,
    /// Whether the variable is declared `.extern .shared name[]`: the launch gives its size.
    pub(crate) dynamic: bool,
    /// Line and column of the name.
    pub(crate) at: (u32, u32),
}

impl Variable {
    /// Error for a variable that does not fit in the `limit` bytes of its memory.
    pub(crate) fn too_large(&self, limit: u64) -> ParseError {
        let message = format!(
            "the variables up to `{}` are larger than the {limit} bytes that the emulator supports",
            self.name
        );
        ParseError::new(ParseErrorKind::Unsupported, self.at, message)
    }
}

/// One parameter of a kernel, or one parameter or result of a function.
#[derive(Clone, Debug)]
pub(crate) struct ParamDecl {
    pub(crate) name: String,
    /// Type of the parameter; for an array, type of its elements.
    pub(crate) ty: Ty,
    pub(crate) bytes: u32,
    pub(crate) align: u32,
    /// Register that holds the parameter, if it is declared with `.reg`.
    pub(crate) register: Option<RegId>,
}

/// A declared register that the function uses.
#[derive(Clone, Debug)]
pub(crate) struct Register {
    pub(crate) name: String,
    pub(crate) ty: Ty,
}

/// Directives of a kernel about thread block clusters.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Clusters {
    /// `.reqnctapercluster`: the cluster size.
    pub(crate) required: Option<[u32; 3]>,
    /// `.explicitcluster`: the launch must specify a cluster size.
    pub(crate) explicit: bool,
    /// `.maxclusterrank`: the largest number of CTAs per cluster.
    pub(crate) max_ctas: Option<u32>,
}

/// Registers of a multiprocessor.
const REGISTERS: u32 = 64 << 10;
/// Unit in which registers are allocated to a thread.
const UNIT: u32 = 8;
/// Threads of a warpgroup.
const WARPGROUP: u32 = 128;

/// Directives of a kernel that limit its registers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RegisterLimits {
    /// `.maxnreg`: registers per thread.
    pub(crate) per_thread: Option<u32>,
    /// `.minnctapersm`: CTAs that must fit a multiprocessor.
    pub(crate) min_ctas: Option<u32>,
}

impl RegisterLimits {
    /// Registers per thread at the start of a kernel with `setmaxnreg` whose CTAs have up to `threads` threads; `increase` is
    /// the largest number of registers of its `setmaxnreg.inc`. None without a limit, where ptxas ignores `setmaxnreg`.
    ///
    /// This is what ptxas 13.0 reports (`-v`): the limit, for whole warpgroups, or fewer if no warp asks for as many.
    pub(crate) fn at_entry(self, threads: Option<u32>, increase: Option<u32>) -> Option<u32> {
        let by_ctas = || {
            let threads = self.min_ctas?.checked_mul(threads?.checked_next_multiple_of(WARPGROUP)?)?;
            REGISTERS.checked_div(threads)
        };
        let registers = self.per_thread.or_else(by_ctas)?;
        let limit = (registers / UNIT * UNIT).min(256);
        Some(increase.map_or(limit, |increase| increase.min(limit)))
    }
}

/// A kernel (`.entry`) or device function (`.func`).
#[derive(Clone, Debug, Default)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) params: Vec<ParamDecl>,
    pub(crate) returns: Vec<ParamDecl>,
    pub(crate) reqntid: Option<[u32; 3]>,
    pub(crate) maxntid: Option<[u32; 3]>,
    pub(crate) clusters: Clusters,
    pub(crate) register_limits: RegisterLimits,
    pub(crate) registers: Vec<Register>,
    pub(crate) shared: Vec<Variable>,
    /// `.local` variables, and the `.param` variables declared in the body; both are in local memory.
    pub(crate) locals: Vec<Variable>,
    pub(crate) body: Vec<Instruction>,
    pub(crate) locations: Vec<Location>,
    /// Index of each scope's parent scope; scope 0 is the function's own.
    pub(crate) scopes: Vec<usize>,
    pub(crate) labels: HashMap<(usize, String), usize>,
    /// Errors in the function after which the parser continued.
    pub(crate) errors: Vec<ParseError>,
}

impl Function {
    /// Offset of each parameter in the parameter block, in bytes.
    pub(crate) fn param_offsets(&self) -> Vec<u32> {
        let mut end = 0u32;
        let place = |param: &ParamDecl| {
            let offset = end.next_multiple_of(param.align.max(1));
            end = offset + param.bytes;
            offset
        };
        self.params.iter().map(place).collect()
    }

    /// Size of the parameter block in bytes.
    pub(crate) fn param_bytes(&self) -> u32 {
        let last = self.params.last().zip(self.param_offsets().pop());
        last.map_or(0, |(param, offset)| offset + param.bytes)
    }

    /// Index of the instruction at the label `name`, looked up in `scope` and then in its parent scopes.
    pub(crate) fn label(&self, mut scope: usize, name: &str) -> Option<usize> {
        loop {
            if let Some(&at) = self.labels.get(&(scope, name.to_string())) {
                return Some(at);
            }
            if scope == 0 {
                return None;
            }
            scope = self.scopes[scope];
        }
    }
}

/// A parsed module.
#[derive(Debug, Default)]
pub(crate) struct Ast {
    /// Number of the first `.target`, such as 90 for sm_90.
    pub(crate) target: Option<u32>,
    pub(crate) files: HashMap<u32, String>,
    pub(crate) shared: Vec<Variable>,
    /// `.global` and `.const` variables.
    pub(crate) globals: Vec<Variable>,
    /// The kernels (`.entry`).
    pub(crate) functions: Vec<Function>,
    /// Device functions (`.func`) by name; `None` if a function is only declared.
    pub(crate) device: HashMap<String, Option<Function>>,
    /// Errors outside functions after which the parser continued.
    pub(crate) errors: Vec<ParseError>,
}

#[cfg(test)]
mod tests {
    use super::RegisterLimits;

    #[test]
    fn limits_come_from_directives() {
        let limits = |per_thread, min_ctas| RegisterLimits { per_thread, min_ctas };
        assert_eq!(limits(None, Some(1)).at_entry(Some(384), Some(240)), Some(168));
        assert_eq!(limits(None, Some(1)).at_entry(Some(288), None), Some(168));
        assert_eq!(limits(None, Some(1)).at_entry(Some(128), None), Some(256));
        assert_eq!(limits(None, Some(1)).at_entry(Some(256), Some(240)), Some(240));
        assert_eq!(limits(Some(100), Some(1)).at_entry(Some(384), None), Some(96));
        let without = [(Some(1), None), (None, Some(384))];
        assert!(without.iter().all(|&(ctas, threads)| limits(None, ctas).at_entry(threads, None).is_none()));
    }
}
