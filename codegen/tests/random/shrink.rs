//! Reduces a failing kernel while it still fails.
//!
//! The reductions apply to the tree of statements, not to the random choices: they delete a branch's arm, replace a
//! loop by its body, or replace a value by one of its operands; lowering accepts every result. (proptest shrinks the
//! output of its strategies value by value; no strategy generates statements that use each other's results.)

use bespoke_codegen::ir::Access;

use crate::program::{Id, Operand, Program, Source, Stmt, Trips, lists, operands, place, stmts};

/// The smallest kernel found for which `fails` returns true.
pub fn shrink(program: &Program, fails: impl Fn(&Program) -> bool) -> Program {
    let mut search = Search { best: program.clone(), fails: &fails };
    loop {
        let before = weight(&search.best);
        search.launch();
        search.delete();
        search.flatten();
        search.bypass();
        search.simplify();
        search.forget();
        if weight(&search.best) == before {
            return search.best;
        }
    }
}

/// Weight of a kernel: the number of statements and operands, where values weigh more than constants and large
/// constants more than small ones. Every reduction decreases the weight.
fn weight(program: &Program) -> usize {
    let mut program = program.clone();
    let mut weight = program.stored.len() + (program.ctas * program.threads) as usize;
    weight += usize::from(program.unreachable) + usize::from(program.fixed_threads);
    stmts(&mut program, &mut |stmt| {
        weight += 10;
        if let Some(place) = place(stmt) {
            weight += place.index.map_or(0, |index| {
                2 + usize::from(index.wraps) + usize::from(index.add != 0) + usize::from(index.mask.is_some())
            });
            weight += usize::from(place.step != 0) + usize::from(place.offset != 0);
        }
        match stmt {
            Stmt::Load { access, .. } | Stmt::Store { access, .. } => {
                weight += usize::from(*access != Access { vector: access.vector, ..Access::SCALAR });
                weight += usize::from(access.vector);
            }
            Stmt::If(inner) => weight += inner.merges.len(),
            Stmt::Loop(inner) => {
                weight +=
                    2 * inner.carried.len() + usize::from(inner.start != 0) + usize::from(inner.test_at_end);
                weight += if let Trips::Constant(trips) = inner.trips { trips.min(8) as usize } else { 9 };
            }
            _ => {}
        }
    });
    operands(&mut program, &mut |operand| {
        weight += match operand.source {
            Source::Value(_) => 4,
            Source::Bits(0) => 0,
            Source::Bits(1) => 1,
            Source::Bits(_) => 2,
        };
    });
    weight
}

struct Search<'a, F> {
    best: Program,
    fails: &'a F,
}

impl<F: Fn(&Program) -> bool> Search<'_, F> {
    /// Applies `edit` to a copy and keeps the copy if its weight is less and it still fails.
    fn attempt(&mut self, edit: impl FnOnce(&mut Program)) -> bool {
        let mut candidate = self.best.clone();
        edit(&mut candidate);
        let better = weight(&candidate) < weight(&self.best) && (self.fails)(&candidate);
        if better {
            self.best = candidate;
        }
        better
    }

    /// Reduces the number of threads.
    fn launch(&mut self) {
        self.attempt(|program| program.ctas = 1);
        self.attempt(|program| program.threads = 32);
        self.attempt(|program| program.unreachable = false);
        self.attempt(|program| program.fixed_threads = false);
    }

    /// Deletes consecutive statements of a list, long sequences first, starting at the end.
    fn delete(&mut self) {
        for length in [64, 16, 8, 4, 2, 1] {
            let mut list = 0;
            while let Some(mut end) = nth_list(&mut self.best, list, |stmts| stmts.len()) {
                while end > 0 {
                    let begin = end.saturating_sub(length);
                    self.attempt(|program| {
                        nth_list(program, list, |stmts| drop(stmts.drain(begin..end)));
                    });
                    end = begin;
                }
                list += 1;
            }
        }
        for length in [64, 8, 1] {
            let mut end = self.best.stored.len();
            while end > 0 {
                let begin = end.saturating_sub(length);
                self.attempt(|program| drop(program.stored.drain(begin..end)));
                end = begin;
            }
        }
    }

    /// Replaces a branch by one of its arms, and a loop by its body.
    fn flatten(&mut self) {
        for arm in 0..2 {
            let mut list = 0;
            while let Some(mut index) = nth_list(&mut self.best, list, |stmts| stmts.len()) {
                while index > 0 {
                    index -= 1;
                    self.attempt(|program| {
                        let mut names = Vec::new();
                        nth_list(program, list, |stmts| {
                            let inner = match (&stmts[index], arm) {
                                (Stmt::If(inner), 0) => {
                                    names.extend(inner.merges.iter().map(|merge| (merge.id, merge.then)));
                                    inner.then.clone()
                                }
                                (Stmt::If(inner), _) => {
                                    names
                                        .extend(inner.merges.iter().map(|merge| (merge.id, merge.otherwise)));
                                    inner.otherwise.clone()
                                }
                                (Stmt::Loop(inner), 0) => {
                                    names.extend(inner.carried.iter().map(|c| (c.after, c.next)));
                                    names.extend(inner.carried.iter().map(|c| (c.inside, c.init)));
                                    inner.body.clone()
                                }
                                _ => return,
                            };
                            stmts.splice(index..=index, inner);
                        });
                        for (name, operand) in names {
                            rename(program, name, operand);
                        }
                    });
                }
                list += 1;
            }
        }
    }

    /// Replaces a value by one of the operands of its definition, and several results by the first result.
    fn bypass(&mut self) {
        let mut pairs: Vec<(Id, Operand)> = Vec::new();
        stmts(&mut self.best, &mut |stmt| match stmt {
            Stmt::Compute { args, results, .. } => {
                pairs.extend(results.iter().flat_map(|&id| args.iter().map(move |&arg| (id, arg))));
            }
            Stmt::Exchange { value, result, .. } => pairs.push((*result, *value)),
            Stmt::Guarded { otherwise, result, .. } => pairs.push((*result, *otherwise)),
            Stmt::If(inner) => pairs.extend(
                inner.merges.iter().flat_map(|merge| [(merge.id, merge.then), (merge.id, merge.otherwise)]),
            ),
            Stmt::Loop(inner) => {
                pairs.extend(inner.carried.iter().flat_map(|c| [(c.after, c.init), (c.inside, c.init)]));
            }
            _ => {}
        });
        for (id, by) in pairs {
            self.attempt(|program| {
                rename(program, id, by);
                lists(program, &mut |list| {
                    list.retain(|stmt| !matches!(stmt, Stmt::Compute { results, .. } if results[..] == [id]));
                });
            });
        }
    }

    /// Replaces operands by constants, accesses by simpler ones, and trip counts by smaller ones.
    fn simplify(&mut self) {
        let mut count = 0;
        operands(&mut self.best, &mut |_| count += 1);
        for index in 0..count {
            for bits in [0, 1] {
                self.attempt(|program| {
                    let mut next = 0;
                    operands(program, &mut |operand| {
                        if next == index {
                            operand.source = Source::Bits(bits & operand.ty.mask());
                        }
                        next += 1;
                    });
                });
            }
        }
        let mut count = 0;
        stmts(&mut self.best, &mut |_| count += 1);
        for index in 0..count {
            for step in STEPS {
                self.attempt(|program| {
                    let mut next = 0;
                    stmts(program, &mut |stmt| {
                        if next == index {
                            step(stmt);
                        }
                        next += 1;
                    });
                });
            }
        }
    }

    /// Removes merges and carried values that are unused.
    fn forget(&mut self) {
        let mut used = Vec::new();
        operands(&mut self.best, &mut |operand| {
            if let Source::Value(id) = operand.source {
                used.push(id);
            }
        });
        self.attempt(|program| {
            stmts(program, &mut |stmt| match stmt {
                Stmt::If(inner) => inner.merges.retain(|merge| used.contains(&merge.id)),
                Stmt::Loop(inner) => {
                    inner.carried.retain(|c| used.contains(&c.inside) || used.contains(&c.after));
                }
                _ => {}
            });
        });
    }
}

/// Replaces every use of the value `id` by the operand `by`.
fn rename(program: &mut Program, id: Id, by: Operand) {
    operands(program, &mut |operand| {
        if operand.source == Source::Value(id) && operand.ty == by.ty {
            *operand = by;
        }
    });
}

/// Simplifications of a single statement.
const STEPS: &[fn(&mut Stmt)] = &[
    |stmt| {
        let _ = place(stmt).map(|place| (place.index, place.step, place.offset) = (None, 0, 0));
    },
    |stmt| {
        let _ = place(stmt).map(|place| place.index = None);
    },
    |stmt| {
        let _ = place(stmt).map(|place| (place.step, place.offset) = (0, place.step + place.offset));
    },
    |stmt| {
        let _ = place(stmt).map(|place| (place.step, place.offset) = (0, 0));
    },
    |stmt| {
        let _ = place(stmt).and_then(|place| place.index.as_mut()).map(|index| index.wraps = false);
    },
    |stmt| {
        if let Stmt::Load { access, .. } | Stmt::Store { access, .. } = stmt {
            *access = Access { vector: access.vector, ..Access::SCALAR };
        }
    },
    |stmt| match stmt {
        Stmt::Load { access, results, .. } => {
            access.vector = 1;
            results.truncate(1);
        }
        Stmt::Store { access, values, .. } => {
            access.vector = 1;
            values.truncate(1);
        }
        _ => {}
    },
    |stmt| set_trips(stmt, Trips::Constant(0)),
    |stmt| set_trips(stmt, Trips::Constant(1)),
    |stmt| set_trips(stmt, Trips::Constant(2)),
    |stmt| {
        if let Stmt::Loop(inner) = stmt {
            inner.leave = None;
        }
    },
    |stmt| {
        if let Stmt::Loop(inner) = stmt {
            inner.test_at_end = false;
        }
    },
    |stmt| {
        if let Stmt::Loop(inner) = stmt {
            inner.start = 0;
        }
    },
];

fn set_trips(stmt: &mut Stmt, trips: Trips) {
    if let Stmt::Loop(inner) = stmt {
        inner.trips = trips;
    }
}

/// Applies `edit` to the n-th statement list, if it exists.
fn nth_list<T>(program: &mut Program, n: usize, edit: impl FnOnce(&mut Vec<Stmt>) -> T) -> Option<T> {
    let (mut next, mut edit, mut result) = (0, Some(edit), None);
    lists(program, &mut |list| {
        if next == n
            && let Some(edit) = edit.take()
        {
            result = Some(edit(list));
        }
        next += 1;
    });
    result
}
