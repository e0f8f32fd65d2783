//! Random kernels as trees of statements. Lowering makes valid IR of any subset of the statements.
//!
//! Values have names. A name that is not defined where it is used stands for zero, so that a statement can be deleted
//! without regard to the uses of its results.

use bespoke_codegen::ir::{Access, Atomic, Compare, Op, Ordering, Type};

/// The name of a value.
pub type Id = u32;

/// An operand of an instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    pub ty: Type,
    pub source: Source,
}

/// The source of an operand.
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

/// A kernel and its launch.
#[derive(Clone, Debug)]
pub struct Program {
    /// CTAs of the launch.
    pub ctas: u32,
    /// Threads per CTA: whole warps.
    pub threads: u32,
    /// Whether the kernel fixes its number of threads.
    pub fixed_threads: bool,
    /// Seed of the initial memory.
    pub seed: u64,
    /// Statements that all threads reach. Only here, outside of divergent code, may threads wait for each other.
    pub body: Vec<Stmt>,
    /// Statements after the body; threads may return in them.
    pub tail: Vec<Stmt>,
    /// Values that every thread that has not returned stores at the end.
    pub stored: Vec<Operand>,
    /// Whether the layout ends with an unreachable block.
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
    /// On the table: on a word that only this operation changes. Elsewhere: on a word of the thread's own.
    Atomic {
        op: Atomic,
        ty: Type,
        ordering: Ordering,
        place: Place,
        values: Vec<Operand>,
        result: Option<Id>,
    },
    /// Each thread stores a value in shared memory and loads the value of the thread `by` after it.
    Exchange {
        value: Operand,
        by: u32,
        result: Id,
    },
    /// Each thread stores 8 bytes in shared memory, from which each warp loads matrices.
    LoadMatrix {
        matrices: u8,
        transposed: bool,
        value: Operand,
        results: Vec<Id>,
    },
    /// An asynchronous copy of `bytes` to shared memory, of which the thread loads the first four.
    CopyAsync {
        bytes: u8,
        place: Place,
        result: Id,
    },
    /// A load that is in bounds only if `index < bound`.
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

/// A branch and the merge of its arms.
#[derive(Clone, Debug)]
pub struct If {
    pub condition: Operand,
    pub then: Vec<Stmt>,
    pub otherwise: Vec<Stmt>,
    /// An empty `otherwise` is an edge without a block.
    pub direct: bool,
    pub merges: Vec<Merge>,
}

/// A value that depends on the arm.
#[derive(Clone, Debug)]
pub struct Merge {
    pub id: Id,
    pub then: Operand,
    pub otherwise: Operand,
}

/// A counted loop.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The counter's name in the body.
    pub counter: Id,
    pub ty: Type,
    pub start: u64,
    pub step: i64,
    pub trips: Trips,
    /// The comparison of the counter with its limit.
    pub compare: Compare,
    /// The condition is after the body, which runs at least once.
    pub test_at_end: bool,
    pub carried: Vec<Carried>,
    pub body: Vec<Stmt>,
    /// Leaves the loop at the end of the body.
    pub leave: Option<Operand>,
}

/// The trip count of a loop.
#[derive(Clone, Copy, Debug)]
pub enum Trips {
    Constant(u32),
    /// The operand modulo 4.
    Modulo4(Operand),
}

/// A loop-carried value.
#[derive(Clone, Debug)]
pub struct Carried {
    /// Its name in the loop.
    pub inside: Id,
    /// Its name after the loop.
    pub after: Id,
    pub init: Operand,
    pub next: Operand,
}

/// Memory that a kernel may access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// Memory that no thread writes.
    Input,
    /// The thread's own part of a buffer.
    Scratch,
    /// The thread's own part of shared memory.
    Shared,
    /// Memory that all threads change by atomics.
    Table,
}

impl Region {
    /// Number of bytes that a thread may access.
    pub fn bytes(self) -> u32 {
        match self {
            Region::Input => 4096,
            Region::Scratch => 64,
            Region::Shared => 32,
            Region::Table => 256,
        }
    }
}

/// An address: region + index · scale + step + offset.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub region: Region,
    pub index: Option<Index>,
    /// The summand of a pointer addition.
    pub step: i32,
    /// The offset of the access itself.
    pub offset: i32,
}

/// The computed part of an address.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    /// A u32 value.
    pub value: Operand,
    /// A mask of the bits that are used; none if the value is known to be small.
    pub mask: Option<u32>,
    /// The parameter with the value -16 is added, and then 16: the first sum wraps.
    pub wraps: bool,
    /// A constant summand.
    pub add: i32,
    pub scale: u32,
    pub form: Form,
}

/// The computation of a byte offset from an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The wide product.
    Wide,
    /// The wide product of signed numbers.
    WideSigned,
    /// The conversion times the scale.
    Converted,
    /// The conversion shifted.
    Shifted,
    /// The 32-bit product.
    Narrow,
    /// The shifted 32-bit signed index.
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

/// Visits every statement, outer ones first.
pub fn stmts(program: &mut Program, visit: &mut impl FnMut(&mut Stmt)) {
    lists(program, &mut |list| list.iter_mut().for_each(&mut *visit));
}

/// Visits every operand.
pub fn operands(program: &mut Program, visit: &mut impl FnMut(&mut Operand)) {
    stmts(program, &mut |stmt| own_operands(stmt, visit));
    program.stored.iter_mut().for_each(visit);
}

/// Visits the operands of a statement, without nested statements.
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

/// The place that the statement accesses.
pub fn place(stmt: &mut Stmt) -> Option<&mut Place> {
    match stmt {
        Stmt::Load { place, .. }
        | Stmt::Store { place, .. }
        | Stmt::Atomic { place, .. }
        | Stmt::CopyAsync { place, .. } => Some(place),
        _ => None,
    }
}
