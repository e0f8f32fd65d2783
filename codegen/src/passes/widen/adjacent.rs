//! Adjacent accesses that were not joined, with the reason.

use rustc_hash::FxHashMap;

use super::{MAX_BYTES, Span, kind};
use crate::ir::{Access, Block, Cache, Function, Op, Type, Value};
use crate::passes::Remarks;
use crate::passes::analysis::divisibility::Divisibility;
use crate::passes::remarks::{AccessKind, Missed, NotWidened};

/// Key of accesses that differ only in their offset: kind, pointer, type, access at offset 0, and cache policy.
type Alike = (AccessKind, Value, Type, Access, Option<Value>);

/// Adds a remark for each run of adjacent accesses of a block that vectors could replace.
pub(super) fn missed(function: &Function, divisibility: &Divisibility, block: Block, remarks: &mut Remarks) {
    let insts = &function.block(block).insts;
    // Accesses with equal keys, each with its position in the block; groups are in the order of their first access.
    let mut groups: Vec<Vec<(usize, Span)>> = Vec::new();
    let mut numbers: FxHashMap<Alike, usize> = FxHashMap::default();
    for (position, &inst) in insts.iter().enumerate() {
        let data = function.inst(inst);
        let Some(span) = Span::of(function, data) else { continue };
        let access = span.access;
        if access.cache == Cache::Volatile || access.ordering.is_some() || span.bytes() * 2 > MAX_BYTES {
            continue;
        }
        let alike = (kind(data), span.pointer, span.ty, Access { offset: 0, ..access }, span.policy);
        let next = groups.len();
        let number = *numbers.entry(alike).or_insert(next);
        if number == next {
            groups.push(Vec::new());
        }
        groups[number].push((position, span));
    }
    for mut group in groups {
        group.sort_by_key(|(position, span)| (span.access.offset, *position));
        for run in group.chunk_by(|(_, a), (_, b)| a.range().1 == b.range().0).filter(|run| run.len() > 1) {
            let Some(why) = reason(function, divisibility, block, run) else { continue };
            let first = run.iter().map(|(position, _)| *position).min().unwrap_or_default();
            let data = function.inst(insts[first]);
            let accesses = run.len();
            let missed = Missed::Adjacent { access: kind(data), accesses, ty: run[0].1.ty, why };
            remarks.missed(data.loc, missed);
        }
    }
}

/// Why no two accesses of a run were joined. None if the addresses are known not to be aligned for a vector, or if no
/// instruction between two aligned accesses prevents joining them.
fn reason(
    function: &Function,
    divisibility: &Divisibility,
    block: Block,
    run: &[(usize, Span)],
) -> Option<NotWidened> {
    let needed = u64::from(run[0].1.bytes()) * 2;
    let start = |span: &Span| divisibility.of(span.pointer).offset_by(span.access.offset.into());
    let aligned = run.windows(2).find(|pair| start(&pair[0].1).is_multiple_of(needed));
    let Some([(a, _), (b, _)]) = aligned else {
        let residue = start(&run[0].1);
        let known = (0..64).map(|bit| 1 << bit).take_while(|&bytes| residue.is_multiple_of(bytes)).last()?;
        return (1 << residue.bits.min(63) < needed).then_some(NotWidened::Alignment { known, needed });
    };
    let between = &function.block(block).insts[a.min(b) + 1..*a.max(b)];
    let mut between = between.iter().map(|&inst| function.inst(inst));
    let writes = |op: Op| op.has_effect() && !matches!(op, Op::Shuffle(_) | Op::Vote(_));
    let found = between.clone().find(|data| writes(data.op));
    let found = found.or_else(|| between.find(|data| matches!(data.op, Op::Load(_))))?;
    Some(NotWidened::Between { at: found.loc })
}
