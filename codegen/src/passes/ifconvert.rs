//! If-conversion: replaces a branch around a few cheap instructions by these instructions and selects.
//!
//! ```text
//!   branch v0, block1, block2(v1)          v2 = add.u32 v1, v1
//! block1:                            →     v3 = select.u32 v0, v2, v1
//!   v2 = add.u32 v1, v1                    jump block2(v3)
//!   jump block2(v2)
//! ```
//!
//! Selects between predicates become `and` and `or`. A `&&` or `||` with a cheap right side thereby becomes a single
//! condition.

use cranelift_entity::SecondaryMap;
use smallvec::SmallVec;

use super::remarks::{BranchKept, Done, Missed};
use super::{Pass, Remarks};
use crate::ir::{Binary, Block, BlockCall, Function, Inst, InstData, Op, Type, Unary, Value};

/// The if-conversion pass; see the module.
pub struct IfConvert;

impl Pass for IfConvert {
    fn name(&self) -> &'static str {
        "ifconvert"
    }

    fn apply(&self, function: &mut Function, remarks: &mut Remarks) -> bool {
        let preds = function.predecessors();
        let mut entries: Entries = SecondaryMap::new();
        for &block in &function.layout {
            entries[block] = preds[block].len();
        }
        let mut changed = false;
        for block in function.layout.clone() {
            while convert(function, &mut entries, block, remarks) {
                changed = true;
            }
        }
        if changed {
            let entry = function.layout[0];
            function.layout.retain(|&block| block == entry || entries[block] > 0);
        }
        changed
    }

    fn missed(&self, function: &Function, remarks: &mut Remarks) {
        let preds = function.predecessors();
        let mut entries: Entries = SecondaryMap::new();
        for &block in &function.layout {
            entries[block] = preds[block].len();
        }
        for &block in &function.layout {
            if let Some(why) = kept(function, &entries, block) {
                remarks.missed(function.terminator(block).loc, Missed::Branch { why });
            }
        }
    }
}

/// Maximum number of instructions per branch that are executed speculatively.
const MAX_COST: usize = 8;
/// Maximum number of selects that replace a branch.
const MAX_SELECTS: usize = 4;

/// Number of edges to each block; 0 for a block that has been converted.
type Entries = SecondaryMap<Block, usize>;

/// One side of a branch, up to the block where both sides join.
struct Arm {
    /// The block of the side, if there is one.
    block: Option<Block>,
    insts: Vec<Inst>,
    dest: BlockCall,
}

fn convert(function: &mut Function, entries: &mut Entries, block: Block, remarks: &mut Remarks) -> bool {
    let branch = function.terminator(block);
    if branch.op != Op::Branch {
        return false;
    }
    let (condition, loc) = (branch.args[0], branch.loc);
    let dests = branch.dests.clone();
    let arm = |dest: &BlockCall| {
        let cheap = |arm: &Arm| arm.insts.iter().all(|&inst| is_cheap(function.inst(inst)));
        side(function, entries, block, dest).filter(cheap)
    };
    let Some((yes, no)) = joined(&dests, [arm(&dests[0]), arm(&dests[1])]) else { return false };
    let pairs: Vec<(Value, Value)> =
        yes.dest.args.iter().copied().zip(no.dest.args.iter().copied()).collect();
    let selects = selects(&yes, &no);
    let cost = cost(function, &yes, &no);
    if selects > MAX_SELECTS || cost > MAX_COST || yes.dest.block == block {
        return false;
    }
    remarks.done(loc, Done::IfConverted { selects });
    let mut out: Vec<Inst> = function.block(block).insts.clone();
    out.pop();
    out.extend(yes.insts.iter().chain(&no.insts));
    let mut builder = Builder { function, out, loc };
    let args = pairs.iter().map(|&(a, b)| builder.select(condition, a, b)).collect();
    builder.jump(BlockCall { block: yes.dest.block, args });
    let out = builder.out;
    function.block_mut(block).insts = out;
    // The two edges of the branch have become one.
    entries[yes.dest.block] -= 1;
    for arm in [yes.block, no.block].into_iter().flatten() {
        entries[arm] = 0;
    }
    true
}

/// The sides of a branch up to the block where both join, given the side through each target's block.
fn joined(dests: &[BlockCall], sides: [Option<Arm>; 2]) -> Option<(Arm, Arm)> {
    let direct = |dest: &BlockCall| Arm { block: None, insts: Vec::new(), dest: dest.clone() };
    match sides {
        [Some(yes), Some(no)] if yes.dest.block == no.dest.block => Some((yes, no)),
        [Some(yes), _] if yes.dest.block == dests[1].block => Some((yes, direct(&dests[1]))),
        [_, Some(no)] if no.dest.block == dests[0].block => Some((direct(&dests[0]), no)),
        _ if dests[0].block == dests[1].block => Some((direct(&dests[0]), direct(&dests[1]))),
        _ => None,
    }
}

/// Number of selections that both sides need.
fn selects(yes: &Arm, no: &Arm) -> usize {
    yes.dest.args.iter().zip(&no.dest.args).filter(|(a, b)| a != b).count()
}

/// Number of instructions of both sides. Instructions without operands, such as constants, cost nothing.
fn cost(function: &Function, yes: &Arm, no: &Arm) -> usize {
    let costs = |inst: &&Inst| !function.inst(**inst).args.is_empty();
    yes.insts.iter().chain(&no.insts).filter(costs).count()
}

/// Why a branch is kept whose sides join after at most one block each; none for other branches.
fn kept(function: &Function, entries: &Entries, block: Block) -> Option<BranchKept> {
    let branch = function.terminator(block);
    if branch.op != Op::Branch {
        return None;
    }
    let dests = &branch.dests;
    let sides = [0, 1].map(|index| side(function, entries, block, &dests[index]));
    let (yes, no) = joined(dests, sides).filter(|(yes, _)| yes.dest.block != block)?;
    let insts = || yes.insts.iter().chain(&no.insts).map(|&inst| function.inst(inst));
    if let Some(data) = insts().find(|data| !data.op.is_movable()) {
        return Some(BranchKept::Effect { at: data.loc });
    }
    if let Some(data) = insts().find(|data| !is_cheap(data)) {
        return Some(BranchKept::Slow { at: data.loc });
    }
    let (instructions, selects) = (cost(function, &yes, &no), selects(&yes, &no));
    if instructions > MAX_COST {
        return Some(BranchKept::TooLong { instructions, most: MAX_COST });
    }
    (selects > MAX_SELECTS).then_some(BranchKept::TooManySelects { selects, most: MAX_SELECTS })
}

/// The side through the target block of a branch in `block`, if only the branch leads to the target block, and that
/// block ends in a jump.
fn side(function: &Function, entries: &Entries, block: Block, dest: &BlockCall) -> Option<Arm> {
    if entries[dest.block] != 1 || dest.block == block {
        return None;
    }
    let data = function.block(dest.block);
    let (&last, insts) = data.insts.split_last()?;
    let jump = function.inst(last);
    // Cleanup removes the parameters of a block with one predecessor first.
    if jump.op != Op::Jump || !data.params.is_empty() {
        return None;
    }
    Some(Arm { block: Some(dest.block), insts: insts.to_vec(), dest: jump.dests[0].clone() })
}

/// Whether the instruction is movable and takes at most a few cycles.
fn is_cheap(data: &InstData) -> bool {
    let slow = match data.op {
        Op::Binary(Binary::Div | Binary::DivApprox | Binary::Rem) => true,
        Op::Unary(unary) => {
            !matches!(unary, Unary::Neg | Unary::Not | Unary::Abs | Unary::Popc | Unary::Clz | Unary::Brev)
        }
        _ => false,
    };
    data.op.is_movable() && !slow
}

struct Builder<'a> {
    function: &'a mut Function,
    out: Vec<Inst>,
    loc: Option<crate::ir::Loc>,
}

impl Builder<'_> {
    fn push(&mut self, op: Op, ty: Type, args: &[Value], dests: Vec<BlockCall>) -> Option<Value> {
        let results: &[Type] = if op.is_terminator() { &[] } else { &[ty] };
        let data = InstData {
            op,
            ty,
            args: SmallVec::from_slice(args),
            dests,
            results: SmallVec::new(),
            loc: self.loc,
        };
        let inst = self.function.create_inst(data, results);
        self.out.push(inst);
        self.function.inst(inst).results.first().copied()
    }

    fn select(&mut self, condition: Value, a: Value, b: Value) -> Value {
        if a == b {
            return a;
        }
        let ty = self.function.value_type(a);
        self.push(Op::Select, ty, &[condition, a, b], Vec::new()).unwrap_or(a)
    }

    fn jump(&mut self, dest: BlockCall) {
        self.push(Op::Jump, Type::U32, &[], vec![dest]);
    }
}
