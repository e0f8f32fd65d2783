//! Random kernels as trees of statements, which lowering makes IR of whatever is taken out of them.
//!
//! Values have names. A name that means nothing where it is used stands for zero, so that a statement can be deleted
//! without looking at who uses its results.

use bespoke_codegen::ir::{Access, Atomic, Compare, Op, Ordering, Type};

/// The name of a value.
pub type Id = u32;

/// What an instruction takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Operand {
    pub ty: Type,
    pub source: Source,
}

/// Where an operand comes from.
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
    /// Threads a CTA: whole warps.
    pub threads: u32,
    /// Whether the kernel says how many threads it has.
    pub fixed_threads: bool,
    /// Of what memory holds at first.
    pub seed: u64,
    /// What all threads reach; only here may they wait for each other, outside of what is divergent.
    pub body: Vec<Stmt>,
    /// What follows, where threads may return.
    pub tail: Vec<Stmt>,
    /// What every thread that has not returned stores in the end.
    pub stored: Vec<Operand>,
    /// A block that nothing leads to stands behind the others.
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
    /// In the table, on a word that only this operation changes; elsewhere on a word of the thread's own.
    Atomic {
        op: Atomic,
        ty: Type,
        ordering: Ordering,
        place: Place,
        values: Vec<Operand>,
        result: Option<Id>,
    },
    /// Each thread stores a value in shared memory and loads that of the thread `by` after it.
    Exchange {
        value: Operand,
        by: u32,
        result: Id,
    },
    /// Each thread stores 8 bytes in shared memory, of which each warp loads matrices.
    LoadMatrix {
        matrices: u8,
        transposed: bool,
        value: Operand,
        results: Vec<Id>,
    },
    /// A copy of `bytes` to shared memory beside the thread, of which it loads the first four.
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

/// A branch and where its ways meet.
#[derive(Clone, Debug)]
pub struct If {
    pub condition: Operand,
    pub then: Vec<Stmt>,
    pub otherwise: Vec<Stmt>,
    /// An empty `otherwise` is no block but an edge.
    pub direct: bool,
    pub merges: Vec<Merge>,
}

/// A value that is one of two.
#[derive(Clone, Debug)]
pub struct Merge {
    pub id: Id,
    pub then: Operand,
    pub otherwise: Operand,
}

/// A counted loop.
#[derive(Clone, Debug)]
pub struct Loop {
    /// The counter, in the body.
    pub counter: Id,
    pub ty: Type,
    pub start: u64,
    pub step: i64,
    pub trips: Trips,
    /// How the counter is compared with its limit.
    pub compare: Compare,
    /// The condition stands behind the body, which then runs once at least.
    pub test_at_end: bool,
    pub carried: Vec<Carried>,
    pub body: Vec<Stmt>,
    /// Leaves the loop at the end of the body.
    pub leave: Option<Operand>,
}

/// How often a loop runs.
#[derive(Clone, Copy, Debug)]
pub enum Trips {
    Constant(u32),
    /// The operand modulo 4.
    Modulo4(Operand),
}

/// A value that goes around a loop.
#[derive(Clone, Debug)]
pub struct Carried {
    /// Its name in the loop.
    pub inside: Id,
    /// Its name behind the loop.
    pub after: Id,
    pub init: Operand,
    pub next: Operand,
}

/// Memory that a kernel may touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Region {
    /// What nobody writes.
    Input,
    /// The thread's part of a buffer.
    Scratch,
    /// The thread's part of shared memory.
    Shared,
    /// What all threads change by atomic operations.
    Table,
}

impl Region {
    /// How many bytes a thread may touch.
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
    /// What a pointer addition adds.
    pub step: i32,
    /// What stands in the access.
    pub offset: i32,
}

/// A computed part of an address.
#[derive(Clone, Copy, Debug)]
pub struct Index {
    /// A u32.
    pub value: Operand,
    /// The bits of it that count; none if it is known to be small.
    pub mask: Option<u32>,
    /// The parameter that is -16 is added, and then 16: the first sum wraps.
    pub wraps: bool,
    /// A constant summand.
    pub add: i32,
    pub scale: u32,
    pub form: Form,
}

/// How an index becomes bytes.
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
    /// The product of 32 bits.
    Narrow,
    /// The shifted index, of 32 bits and signed.
    NarrowSigned,
}

/// Shows every statement list: the body, the tail, and what lies in them; outer lists first.
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

/// Shows every statement, outer ones first.
pub fn stmts(program: &mut Program, visit: &mut impl FnMut(&mut Stmt)) {
    lists(program, &mut |list| list.iter_mut().for_each(&mut *visit));
}

/// Shows every operand.
pub fn operands(program: &mut Program, visit: &mut impl FnMut(&mut Operand)) {
    stmts(program, &mut |stmt| own_operands(stmt, visit));
    program.stored.iter_mut().for_each(visit);
}

/// Shows the operands of a statement, not of those in it.
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

/// Where the statement accesses memory.
pub fn place(stmt: &mut Stmt) -> Option<&mut Place> {
    match stmt {
        Stmt::Load { place, .. }
        | Stmt::Store { place, .. }
        | Stmt::Atomic { place, .. }
        | Stmt::CopyAsync { place, .. } => Some(place),
        _ => None,
    }
}
