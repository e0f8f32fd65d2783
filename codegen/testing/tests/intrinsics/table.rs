//! Tables of operations on up to three operands. Each operation is one line with its GPU form and its host form.

use bespoke_codegen::prelude::*;
use bespoke_emulator::LaunchConfig;

use crate::device::{Buffer, Launch, bytes, execute, values};
use crate::host::{Host, same};

/// DSL form of an operation.
type Gpu<A, B, C, R> = Box<dyn Fn(Val<A>, Val<B>, Val<C>) -> Val<R>>;

/// Check of a result: describes the expected result if the given result is wrong.
type Judge<A, B, C, R> = Box<dyn Fn((A, B, C), R) -> Option<String>>;

/// An operation and the check of its results.
pub struct Case<A, B, C, R> {
    name: String,
    gpu: Gpu<A, B, C, R>,
    judge: Judge<A, B, C, R>,
}

/// Operations, and the operands that all of them are applied to.
pub struct Table<A, B, C, R> {
    oldest: Target,
    rows: Vec<(A, B, C)>,
    cases: Vec<Case<A, B, C, R>>,
}

/// Every pair of edge values; the third operand cycles through its type's edge values.
pub fn edges<A: Host, B: Host, C: Host>() -> Vec<(A, B, C)> {
    let pairs = A::edges().into_iter().flat_map(|a| B::edges().into_iter().map(move |b| (a, b)));
    pairs.zip(C::edges().into_iter().cycle()).map(|((a, b), c)| (a, b, c)).collect()
}

/// Applies each of `cases` to row i in thread i.
#[kernel(threads = 32)]
fn apply<A: Scalar, B: Scalar, C: Scalar, R: Scalar>(
    a: Ptr<Global, A>,
    b: Ptr<Global, B>,
    c: Ptr<Global, C>,
    out: Ptr<Global, R>,
    rows: u32,
    cases: &[Case<A, B, C, R>],
) {
    let i = block_index() * 32 + thread_index();
    if i >= rows {
        return;
    }
    let (x, y, z) = (a.at(i).load(), b.at(i).load(), c.at(i).load());
    for (index, case) in cases.iter().enumerate() {
        let program = &case.gpu;
        out.at(i * (cases.len() as u32) + (index as u32)).store(program(x, y, z));
    }
}

/// Applies each of `cases` to constant operands in one thread; the first operand is loaded unless `constant`.
#[kernel(threads = 1)]
fn apply_to_constants<A: Scalar, B: Scalar, C: Scalar, R: Scalar>(
    a: Ptr<Global, A>,
    out: Ptr<Global, R>,
    rows: &[(A, B, C)],
    constant: bool,
    cases: &[Case<A, B, C, R>],
) {
    for (i, row) in rows.iter().enumerate() {
        let x = if constant { val(row.0) } else { a.at(i).load() };
        for (index, case) in cases.iter().enumerate() {
            let program = &case.gpu;
            out.at(i * cases.len() + index).store(program(x, val(row.1), val(row.2)));
        }
    }
}

/// Maximum number of rows that the kernels with constants unroll over.
const CONSTANT_ROWS: usize = 24;

impl<A: Host, B: Host, C: Host, R: Host> Table<A, B, C, R> {
    /// A table of operands without operations.
    pub fn new(rows: Vec<(A, B, C)>) -> Self {
        Table { oldest: Target::Sm80, rows, cases: Vec::new() }
    }

    /// Sets the lowest target that supports all operations.
    pub fn needs(mut self, oldest: Target) -> Self {
        self.oldest = oldest;
        self
    }

    /// Adds an operation of three operands.
    pub fn ternary(
        self,
        name: impl Into<String>,
        gpu: impl Fn(Val<A>, Val<B>, Val<C>) -> Val<R> + 'static,
        host: impl Fn(A, B, C) -> R + 'static,
    ) -> Self {
        self.judged(name, gpu, move |(a, b, c), found| {
            let expected = host(a, b, c);
            (!same(found, expected)).then(|| format!("{expected:?} ({:#x})", expected.bits()))
        })
    }

    /// Adds an operation of the first two operands.
    pub fn binary(
        self,
        name: impl Into<String>,
        gpu: impl Fn(Val<A>, Val<B>) -> Val<R> + 'static,
        host: impl Fn(A, B) -> R + 'static,
    ) -> Self {
        self.ternary(name, move |a, b, _| gpu(a, b), move |a, b, _| host(a, b))
    }

    /// Adds an operation of the first operand.
    pub fn unary(
        self,
        name: impl Into<String>,
        gpu: impl Fn(Val<A>) -> Val<R> + 'static,
        host: impl Fn(A) -> R + 'static,
    ) -> Self {
        self.ternary(name, move |a, _, _| gpu(a), move |a, _, _| host(a))
    }

    /// Adds an operation whose results `judge` checks.
    pub fn judged(
        mut self,
        name: impl Into<String>,
        gpu: impl Fn(Val<A>, Val<B>, Val<C>) -> Val<R> + 'static,
        judge: impl Fn((A, B, C), R) -> Option<String> + 'static,
    ) -> Self {
        self.cases.push(Case { name: name.into(), gpu: Box::new(gpu), judge: Box::new(judge) });
        self
    }

    /// Runs all operations on all rows of operands and checks the results.
    pub fn check(self) {
        let rows = self.rows.len();
        let result = R::TYPE.bytes() as usize * self.cases.len();
        let columns = [
            Buffer::Holding(self.column(|row| row.0)),
            Buffer::Holding(self.column(|row| row.1)),
            Buffer::Holding(self.column(|row| row.2)),
            Buffer::Empty(result * rows),
        ];
        let config = LaunchConfig::linear(rows.div_ceil(32) as u32, 32);
        let launch = Launch { oldest: self.oldest, config, buffers: &columns, scalars: &[] };
        execute(apply(rows as u32, &self.cases), &launch, |after, _| self.judge(&self.rows, &after[3]));

        let some: Vec<_> = self.rows.iter().copied().step_by(rows.div_ceil(CONSTANT_ROWS) | 1).collect();
        for constant in [false, true] {
            let first: Vec<A> = some.iter().map(|row| row.0).collect();
            let buffers = [Buffer::Holding(bytes(&first)), Buffer::Empty(result * some.len())];
            let config = LaunchConfig::linear(1, 1);
            let launch = Launch { oldest: self.oldest, config, buffers: &buffers, scalars: &[] };
            let kernel = apply_to_constants(&some, constant, &self.cases);
            execute(kernel, &launch, |after, _| self.judge(&some, &after[1]));
        }
    }

    fn column<T: Scalar>(&self, of: impl Fn(&(A, B, C)) -> T) -> Vec<u8> {
        bytes(&self.rows.iter().map(of).collect::<Vec<T>>())
    }

    fn judge(&self, rows: &[(A, B, C)], found: &[u8]) {
        let found: Vec<R> = values(found);
        let mut wrong = Vec::new();
        for (&row, found) in rows.iter().zip(found.chunks_exact(self.cases.len())) {
            for (case, &found) in self.cases.iter().zip(found) {
                if let Some(expected) = (case.judge)(row, found) {
                    let name = &case.name;
                    wrong.push(format!("{name} of {row:?}: {found:?} ({:#x}), not {expected}", found.bits()));
                }
            }
        }
        assert!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong[..wrong.len().min(12)].join("\n"));
    }
}
