//! Vectorisation of memory accesses: merges two adjacent scalar accesses, and then two adjacent pairs, into a vector
//! access where the address is known to be sufficiently aligned.
//!
//! ```text
//!   v1 = load.f32 v0 + 8          v1, v2 = load.f32 x2 v0 + 8
//!   v2 = load.f32 v0 + 12    →    store.f32 x2 v0 + 16, v1, v2
//!   store.f32 v0 + 16, v1
//!   store.f32 v0 + 20, v2
//! ```
//!
//! A load moves up to the adjacent load, a store moves down to the adjacent store. An access may be moved only across
//! accesses that cannot overlap it: in another address space, to other bytes from the same pointer, or to read-only
//! memory; and never across an instruction that synchronises with other threads.

mod adjacent;

use smallvec::SmallVec;

use super::analysis::divisibility::Divisibility;
use super::edit::Aliases;
use super::remarks::{AccessKind, Done};
use super::{Pass, Remarks};
use crate::ir::{Access, Block, Cache, Function, Inst, InstData, Op, Type, Value};

/// The vectorisation pass; see the module.
pub struct Widen;

impl Pass for Widen {
    fn name(&self) -> &'static str {
        "widen"
    }

    fn apply(&self, function: &mut Function, remarks: &mut Remarks) -> bool {
        let divisibility = Divisibility::new(function);
        let mut aliases = Aliases::default();
        let mut changed = false;
        for block in function.layout.clone() {
            changed |= widen(function, &divisibility, &mut aliases, block, remarks);
        }
        aliases.apply(function);
        changed
    }

    fn missed(&self, function: &Function, remarks: &mut Remarks) {
        let divisibility = Divisibility::new(function);
        for &block in &function.layout {
            adjacent::missed(function, &divisibility, block, remarks);
        }
    }
}

/// Whether an access is a load or a store.
fn kind(data: &InstData) -> AccessKind {
    if matches!(data.op, Op::Load(_)) { AccessKind::Load } else { AccessKind::Store }
}

/// Maximum size of an access in bytes.
const MAX_BYTES: u32 = 16;

/// Memory of an access: consecutive elements at a pointer plus a constant offset.
#[derive(Clone, Copy)]
struct Span {
    pointer: Value,
    /// Address space of the pointer; all shared memory of a cluster is one.
    space: Type,
    ty: Type,
    access: Access,
    policy: Option<Value>,
}

impl Span {
    fn of(function: &Function, data: &InstData) -> Option<Span> {
        let (Op::Load(access) | Op::Store(access)) = data.op else { return None };
        let space = match function.value_type(data.args[0]) {
            Type::Cluster => Type::Shared,
            space => space,
        };
        let policy = data.args.last().copied().filter(|_| access.hinted);
        Some(Span { pointer: data.args[0], space, ty: data.ty, access, policy })
    }

    fn bytes(&self) -> u32 {
        u32::from(self.access.vector) * self.ty.bytes()
    }

    /// Byte offsets from the pointer: of the first byte, and of the end.
    fn range(&self) -> (i64, i64) {
        let start = i64::from(self.access.offset);
        (start, start + i64::from(self.bytes()))
    }

    /// Whether the memory does not change while the kernel runs.
    fn is_read_only(&self) -> bool {
        self.access.is_read_only() || self.space == Type::Constant
    }

    /// Whether the two accesses cannot conflict: neither writes bytes that the other accesses.
    fn is_disjoint(&self, other: &Span) -> bool {
        let ((a, b), (c, d)) = (self.range(), other.range());
        let nobody_writes = self.is_read_only() || other.is_read_only();
        nobody_writes || self.space != other.space || (self.pointer == other.pointer && (b <= c || d <= a))
    }

    /// Both accesses as one vector access, if possible.
    fn joined(&self, other: &Span, divisibility: &Divisibility) -> Option<Span> {
        let offset = self.access.offset.min(other.access.offset);
        let alike = Access { offset, ..self.access } == Access { offset, ..other.access };
        let same = self.pointer == other.pointer && self.ty == other.ty && self.policy == other.policy;
        let adjacent = self.access.offset.abs_diff(other.access.offset) == self.bytes();
        let bytes = self.bytes() * 2;
        let fits = self.access.vector <= 2 && bytes <= MAX_BYTES;
        let start = divisibility.of(self.pointer).offset_by(offset.into());
        (alike && same && adjacent && fits && start.is_multiple_of(bytes.into())).then(|| Span {
            access: Access { offset, vector: self.access.vector * 2, ..self.access },
            ..*self
        })
    }
}

/// An access that a later access may be merged with.
struct Candidate {
    span: Span,
    /// Index of the access among the instructions that the block keeps.
    position: usize,
    inst: Inst,
    is_load: bool,
}

fn widen(
    function: &mut Function,
    divisibility: &Divisibility,
    aliases: &mut Aliases,
    block: Block,
    remarks: &mut Remarks,
) -> bool {
    let old = function.inst_count();
    let insts = function.block(block).insts.clone();
    let mut kept: Vec<Option<Inst>> = Vec::with_capacity(insts.len());
    let mut open: Vec<Candidate> = Vec::new();
    // Indices and spans of the stores since the last instruction with another side effect.
    let mut stores: Vec<(usize, Span)> = Vec::new();
    let mut changed = false;
    for mut inst in insts {
        let data = function.inst(inst);
        let span = Span::of(function, data)
            .filter(|span| span.access.cache != Cache::Volatile && span.access.ordering.is_none());
        let Some(mut span) = span else {
            match data.op {
                // The addresses of a matrix load may be anywhere in shared memory.
                Op::LoadMatrix { .. } => {
                    open.retain(|other| other.is_load || other.span.space != Type::Shared)
                }
                Op::Shuffle(_) | Op::Vote(_) => {}
                // Inline PTX and called functions may read any memory.
                Op::Inline(_) | Op::Call(_) if !data.op.is_pure() => {
                    open.clear();
                    stores.clear();
                }
                op if op.has_effect() => {
                    open.clear();
                    stores.clear();
                }
                _ => {}
            }
            kept.push(Some(inst));
            continue;
        };
        let is_load = matches!(data.op, Op::Load(_));
        // An open store that overlaps this access cannot move down past it.
        open.retain(|other| other.is_load || span.is_disjoint(&other.span));
        let mut position = kept.len();
        kept.push(Some(inst));
        // Two scalars become a pair, and two pairs a vector of four.
        while let Some((index, joined)) = open.iter().enumerate().find_map(|(index, other)| {
            let joined = span.joined(&other.span, divisibility).filter(|_| other.is_load == is_load)?;
            let (up, moved) = if position < other.position {
                (position..other.position, &other.span)
            } else {
                (other.position..position, &span)
            };
            let passes = |(at, store): &(usize, Span)| !up.contains(at) || store.is_disjoint(moved);
            (!is_load || stores.iter().all(passes)).then_some((index, joined))
        }) {
            let other = open.swap_remove(index);
            let in_order = if span.access.offset < other.span.access.offset {
                [inst, other.inst]
            } else {
                [other.inst, inst]
            };
            let (stays, goes) = if is_load {
                (position.min(other.position), position.max(other.position))
            } else {
                (position.max(other.position), position.min(other.position))
            };
            inst = join(function, aliases, &joined, in_order, is_load);
            kept[stays] = Some(inst);
            kept[goes] = None;
            (span, position) = (joined, stays);
            changed = true;
        }
        if !is_load {
            stores.push((position, span));
        }
        open.push(Candidate { span, position, inst, is_load });
    }
    let insts: Vec<Inst> = kept.into_iter().flatten().collect();
    // The vectors, without those that became parts of wider ones.
    for &inst in insts.iter().filter(|inst| inst.as_u32() as usize >= old) {
        let data = function.inst(inst);
        let Some(span) = Span::of(function, data) else { continue };
        let access = kind(data);
        remarks.done(data.loc, Done::Widened { access, elements: span.access.vector, ty: span.ty });
    }
    function.block_mut(block).insts = insts;
    changed
}

/// Builds the merged access. Results of merged loads are replaced by its results.
fn join(
    function: &mut Function,
    aliases: &mut Aliases,
    span: &Span,
    [low, high]: [Inst; 2],
    is_load: bool,
) -> Inst {
    let (low, high) = (function.inst(low).clone(), function.inst(high).clone());
    let mut args: SmallVec<[Value; 4]> = SmallVec::from_slice(&[span.pointer]);
    let (op, types) = if is_load {
        (Op::Load(span.access), vec![span.ty; span.access.vector.into()])
    } else {
        let half = usize::from(span.access.vector / 2);
        args.extend(low.args[1..=half].iter().chain(&high.args[1..=half]).copied());
        (Op::Store(span.access), Vec::new())
    };
    args.extend(span.policy);
    let data = InstData { op, ty: span.ty, args, dests: Vec::new(), results: SmallVec::new(), loc: low.loc };
    let inst = function.create_inst(data, &types);
    for (&from, &to) in low.results.iter().chain(&high.results).zip(&function.inst(inst).results.clone()) {
        aliases.replace(from, to);
    }
    inst
}
