//! Random kernels as trees of statements. Any subset of a kernel's statements can be lowered to valid IR.
//!
//! Values have names. A name that is not defined where it is used means zero, so that a statement can be deleted
//! without regard to the uses of its results.

use bespoke_codegen::ir::{Access, Atomic, Compare, Op, Ordering, Type};

/// Name of a value.
pub type Id = u32;

/// An operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    pub ty: Type,
    pub source: Source,
}

/// Source of an operand: a named value, or the raw bits of a constant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    Value(Id),
    Bits(u64),
}

impl Operand {
    pub fn value(ty: Type, id: Id) -> Operand {
        Operand { ty, source: Source::Value(id) }
    }

    pub fn bits(ty: Type, bits: u64) -> Operand {
        Operand { ty, source: Source::Bits(bits & ty.mask()) }
    }
}

/// A random kernel and its launch.
#[derive(Clone, Debug)]
pub struct Program {
    /// Number of CTAs of the launch.
    pub ctas: u32,
    /// Number of threads per CTA, a multiple of 32.
    pub threads: u32,
    /// Whether the kernel declares its number of threads (`.reqntid`).
    pub fixed_threads: bool,
    /// Seed of the initial memory contents.
    pub seed: u64,
    /// Statements that all threads reach. Only here, outside divergent code, may threads wait for each other.
    pub body: Vec<Stmt>,
    /// Statements after the body, in which threads may return.
    pub tail: Vec<Stmt>,
    /// Values that each thread stores at the end, unless it has returned.
    pub stored: Vec<Operand>,
    /// Whether the layout ends with an additional unreachable block.
    pub unreachable: bool,
}

/// A statement.
#[derive(Clone, Debug)]
pub enum Stmt {
    /// An instruction that does not access memory.
    Compute {
        op: Op,
        ty: Type,
        args: Vec<Operand>,
        results: Vec<Id>,
    },
    Load {
        ty: Type,
        access: Access,
        place: Place,
        results: Vec<Id>,
    },
    Store {
        ty: Type,
        access: Access,
        place: Place,
        values: Vec<Operand>,
    },
    /// An atomic operation: in the table, on a word that only this operation changes; elsewhere, on the thread's own
    /// word.
    Atomic {
        op: Atomic,
        ty: Type,
        ordering: Ordering,
        place: Place,
        values: Vec<Operand>,
        result: Option<Id>,
    },
    /// Each thread stores a value in shared memory and loads the value of the thread `by` indices after it.
    Exchange {
        value: Operand,
        by: u32,
        result: Id,
    },
    /// Each thread stores 8 bytes in shared memory; each warp then loads matrices from them.
    LoadMatrix {
        matrices: u8,
        transposed: bool,
        value: Operand,
        results: Vec<Id>,
    },
    /// An asynchronous copy of `bytes` bytes to shared memory; the thread then loads the first four.
    CopyAsync {
        bytes: u8,
        place: Place,
        result: Id,
    },
    /// A load that is executed, and in bounds, only if `index < bound`; the result is `otherwise` if not.
    Guarded {
        index: Operand,
        bound: u32,
        ty: Type,
        otherwise: Operand,
        result: Id,
    },
    If(If),
    Loop(Loop),
    Return,
}

/// A branch, and the values that its two arms merge.
#[derive(Clone, Debug)]
pub struct If {
    pub condition: Operand,
    pub then: Vec<Stmt>,
    pub otherwise: Vec<Stmt>,
    /// If `otherwise` is empty: whether the branch goes directly to the join, without a block.
    pub direct: bool,
    pub merges: Vec<Merge>,
}

/// A value that each arm of a branch defines differently.
#[derive(Clone, Debug)]
pub struct Merge {
    pub id: Id,
    pub then: Operand,
    pub otherwise: Operand,
}

/// A loop with a counter.
#[derive(Clone, Debug)]
pub struct Loop {
    /// Name of the counter in the body.
    pub counter: Id,
    pub ty: Type,
    pub start: u64,
    pub step: i64,
    pub trips: Trips,
    /// Comparison of the counter with its limit.
    pub compare: Compare,
    /// Whether the condition is tested after the body, which then runs at least once.
    pub test_at_end: bool,
    pub carried: Vec<Carried>,
    pub body: Vec<Stmt>,
    /// Condition, if any, to leave the loop at the end of the body.
    pub leave: Option<Operand>,
}

/// Trip count of a loop.
#[derive(Clone, Copy, Debug)]
pub enum Trips {
    Constant(u32),
    /// A run-time trip count: the operand modulo 4.
    Modulo4(Operand),
}

/// A variable that a loop carries from one iteration to the next.
#[derive(Clone, Debug)]
pub struct Carried {
    /// Name of the value in the loop.
    pub inside: Id,
    /// Name of the value after the loop.
    pub after: Id,
    pub init: Operand,
    pub next: Operand,
}

/// Memory that a kernel may access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// A global buffer that no thread writes.
    Input,
    /// The thread's part of a global buffer.
    Scratch,
    /// The thread's part of shared memory.
    Shared,
    /// A global buffer that all threads change by atomics only.
    Table,
}

impl Region {
    /// Number of bytes of the region that a thread may access.
    pub fn bytes(self) -> u32 {
        match self {
            Region::Input => 4096,
            Region::Scratch => 64,
            Region::Shared => 32,
            Region::Table => 256,
        }
    }
}

/// An address: `region + index · scale + step + offset`, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub region: Region,
    pub index: Option<Index>,
    /// Constant added to the pointer, in bytes.
    pub step: i32,
    /// Constant offset of the access, in bytes.
    pub offset: i32,
}

/// Run-time index in an address.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    /// The index before masking, a u32.
    pub value: Operand,
    /// Mask applied to the index; none if the index is known to be in bounds.
    pub mask: Option<u32>,
    /// Whether the parameter with the value -16, and then 16, is added to the index: the first sum may wrap.
    pub wraps: bool,
    /// Constant added to the index.
    pub add: i32,
    pub scale: u32,
    pub form: Form,
}

/// Instructions that compute a byte offset from an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Wide product of index and scale.
    Wide,
    /// Wide product of signed numbers.
    WideSigned,
    /// Index converted to 64 bits, times the scale.
    Converted,
    /// Index converted to 64 bits, shifted left.
    Shifted,
    /// 32-bit product of index and scale.
    Narrow,
    /// Signed 32-bit index, shifted left.
    NarrowSigned,
}

/// Visits every statement list: the body, the tail, and nested lists; outer lists first.
pub fn lists(program: &mut Program, visit: &mut impl FnMut(&mut Vec<Stmt>)) {
    fn walk(list: &mut Vec<Stmt>, visit: &mut impl FnMut(&mut Vec<Stmt>)) {
        visit(list);
        for stmt in list {
            match stmt {
                Stmt::If(inner) => {
                    walk(&mut inner.then, visit);
                    walk(&mut inner.otherwise, visit);
                }
                Stmt::Loop(inner) => walk(&mut inner.body, visit),
                _ => {}
            }
        }
    }
    walk(&mut program.body, visit);
    walk(&mut program.tail, visit);
}

/// Visits every statement, outer statements first.
pub fn stmts(program: &mut Program, visit: &mut impl FnMut(&mut Stmt)) {
    lists(program, &mut |list| list.iter_mut().for_each(&mut *visit));
}

/// Visits every operand of the program.
pub fn operands(program: &mut Program, visit: &mut impl FnMut(&mut Operand)) {
    stmts(program, &mut |stmt| own_operands(stmt, visit));
    program.stored.iter_mut().for_each(visit);
}

/// Visits the operands of a statement, except those of nested statements.
fn own_operands(stmt: &mut Stmt, visit: &mut impl FnMut(&mut Operand)) {
    if let Some(place) = place(stmt)
        && let Some(index) = &mut place.index
    {
        visit(&mut index.value);
    }
    match stmt {
        Stmt::Compute { args, .. } => args.iter_mut().for_each(visit),
        Stmt::Store { values, .. } | Stmt::Atomic { values, .. } => values.iter_mut().for_each(visit),
        Stmt::Exchange { value, .. } | Stmt::LoadMatrix { value, .. } => visit(value),
        Stmt::Guarded { index, otherwise, .. } => [index, otherwise].into_iter().for_each(visit),
        Stmt::If(inner) => {
            visit(&mut inner.condition);
            inner.merges.iter_mut().flat_map(|merge| [&mut merge.then, &mut merge.otherwise]).for_each(visit);
        }
        Stmt::Loop(inner) => {
            inner.leave.iter_mut().for_each(&mut *visit);
            if let Trips::Modulo4(operand) = &mut inner.trips {
                visit(operand);
            }
            inner.carried.iter_mut().flat_map(|c| [&mut c.init, &mut c.next]).for_each(visit);
        }
        Stmt::Load { .. } | Stmt::CopyAsync { .. } | Stmt::Return => {}
    }
}

/// The address that the statement accesses, if there is one.
pub fn place(stmt: &mut Stmt) -> Option<&mut Place> {
    match stmt {
        Stmt::Load { place, .. }
        | Stmt::Store { place, .. }
        | Stmt::Atomic { place, .. }
        | Stmt::CopyAsync { place, .. } => Some(place),
        _ => None,
    }
}
