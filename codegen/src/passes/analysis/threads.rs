//! Per-thread values: evaluates, for each thread of a CTA, the values that depend on the thread index alone.
//!
//! With a compile-time number of threads, a value that depends only on `tid.x`, `laneid` and constants is known for
//! each thread, so `tid.x / 32 == 0` is an exact set of threads.

use std::rc::Rc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use crate::ir::{Function, Op, Special, Type, Value};
use crate::passes::fold::eval::evaluate;

/// Number of threads per warp.
pub const WARP: usize = 32;

/// Maximum length of a chain of definitions to follow.
const MAX_DEPTH: u32 = 24;

/// Raw bits of a value in each thread of the CTA, by thread index.
pub type Bits = Rc<[u64]>;

/// Per-thread values of a function, computed on demand. Valid until the function changes.
pub struct ThreadValues<'a> {
    function: &'a Function,
    threads: u32,
    known: FxHashMap<Value, Option<Bits>>,
}

impl<'a> ThreadValues<'a> {
    /// Creates the analysis; none if the number of threads per CTA is not fixed.
    pub fn new(function: &'a Function) -> Option<ThreadValues<'a>> {
        let threads = function.threads.filter(|&threads| threads <= 1024)?;
        Some(ThreadValues { function, threads, known: FxHashMap::default() })
    }

    /// Raw bits of the value in each thread, if it depends on the thread index alone.
    pub fn of(&mut self, value: Value) -> Option<Bits> {
        self.follow(value, MAX_DEPTH)
    }

    fn follow(&mut self, value: Value, depth: u32) -> Option<Bits> {
        if let Some(known) = self.known.get(&value) {
            return known.clone();
        }
        let bits = self.compute(value, depth.checked_sub(1)?);
        self.known.insert(value, bits.clone());
        bits
    }

    fn compute(&mut self, value: Value, depth: u32) -> Option<Bits> {
        let function = self.function;
        let data = function.defining_inst(value)?;
        let each = |bits: &dyn Fn(u64) -> u64| Some((0..u64::from(self.threads)).map(bits).collect());
        let [x, y, z] = function.threads_by_axis()?.map(u64::from);
        match data.op {
            Op::Const(bits) => return each(&|_| bits),
            Op::Special(Special::TidX) => return each(&|thread| thread % x),
            Op::Special(Special::LaneId) => return each(&|thread| thread % WARP as u64),
            Op::Special(Special::TidY) => return each(&|thread| thread / x % y),
            Op::Special(Special::TidZ) => return each(&|thread| thread / x / y),
            Op::Special(Special::NtidX) => return each(&|_| x),
            Op::Special(Special::NtidY) => return each(&|_| y),
            Op::Special(Special::NtidZ) => return each(&|_| z),
            op if !op.is_movable() || data.args.is_empty() => return None,
            _ => {}
        }
        let index = data.results.iter().position(|&result| result == value)?;
        let args: SmallVec<[(Type, Bits); 4]> = data
            .args
            .iter()
            .map(|&arg| Some((function.value_type(arg), self.follow(arg, depth)?)))
            .collect::<Option<_>>()?;
        (0..self.threads as usize)
            .map(|thread| {
                let args: SmallVec<[(Type, u64); 4]> =
                    args.iter().map(|(ty, bits)| (*ty, bits[thread])).collect();
                evaluate_one(data.op, data.ty, &args)?.get(index).copied()
            })
            .collect()
    }
}

fn evaluate_one(op: Op, ty: Type, args: &[(Type, u64)]) -> Option<SmallVec<[u64; 2]>> {
    match op {
        Op::Select => {
            let chosen = if args[0].1 != 0 { args[1] } else { args[2] };
            Some(SmallVec::from_slice(&[chosen.1]))
        }
        _ => evaluate(op, ty, args),
    }
}
