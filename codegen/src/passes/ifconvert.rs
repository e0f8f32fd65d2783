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

use super::Pass;
use crate::ir::{Binary, Block, BlockCall, Function, Inst, InstData, Op, Type, Unary, Value};

/// The if-conversion pass; see the module.
pub struct IfConvert;

impl Pass for IfConvert {
    fn name(&self) -> &'static str {
        "ifconvert"
    }

    fn run(&self, function: &mut Function) -> bool {
        let preds = function.predecessors();
        let mut entries: Entries = SecondaryMap::new();
        for &block in &function.layout {
            entries[block] = preds[block].len();
        }
        let mut changed = false;
        for block in function.layout.clone() {
            while convert(function, &mut entries, block) {
                changed = true;
            }
        }
        if changed {
            let entry = function.layout[0];
            function.layout.retain(|&block| block == entry || entries[block] > 0);
        }
        changed
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

fn convert(function: &mut Function, entries: &mut Entries, block: Block) -> bool {
    let branch = function.terminator(block);
    if branch.op != Op::Branch {
        return false;
    }
    let (condition, loc) = (branch.args[0], branch.loc);
    let dests = branch.dests.clone();
    let lonely = |dest: &BlockCall| entries[dest.block] == 1 && dest.block != block;
    let arm = |dest: &BlockCall| if lonely(dest) { through(function, dest) } else { None };
    let direct = |dest: &BlockCall| Arm { block: None, insts: Vec::new(), dest: dest.clone() };
    let (yes, no) = match (arm(&dests[0]), arm(&dests[1])) {
        (Some(yes), Some(no)) if yes.dest.block == no.dest.block => (yes, no),
        (Some(yes), _) if yes.dest.block == dests[1].block => (yes, direct(&dests[1])),
        (_, Some(no)) if no.dest.block == dests[0].block => (direct(&dests[0]), no),
        _ if dests[0].block == dests[1].block => (direct(&dests[0]), direct(&dests[1])),
        _ => return false,
    };
    let pairs: Vec<(Value, Value)> =
        yes.dest.args.iter().copied().zip(no.dest.args.iter().copied()).collect();
    let selects = pairs.iter().filter(|(a, b)| a != b).count();
    // Instructions without operands, such as constants, cost nothing.
    let costs = |inst: &&Inst| !function.inst(**inst).args.is_empty();
    let cost = yes.insts.iter().chain(&no.insts).filter(costs).count();
    if selects > MAX_SELECTS || cost > MAX_COST || yes.dest.block == block {
        return false;
    }
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

/// The side through the target block, if that block contains only cheap instructions and a jump.
fn through(function: &Function, dest: &BlockCall) -> Option<Arm> {
    let data = function.block(dest.block);
    let (&last, insts) = data.insts.split_last()?;
    let jump = function.inst(last);
    let cheap = insts.iter().all(|&inst| is_cheap(function.inst(inst)));
    // Cleanup removes the parameters of a block with one predecessor first.
    if jump.op != Op::Jump || !data.params.is_empty() || !cheap {
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
