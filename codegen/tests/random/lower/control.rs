//! Lowering of branches and loops.

use bespoke_codegen::ir::{Block, BlockCall, Op, Type, Value};

use super::{ADD, AND, Lower, MUL, PLAIN};
use crate::program::{Carried, Id, If, Loop, Operand, Trips};

impl Lower<'_> {
    pub(super) fn conditional(&mut self, inner: &If) {
        let condition = self.operand(inner.condition);
        let before = self.scope.len();
        let (then, join) = (self.new_block(), self.new_block());
        let direct = inner.direct && inner.otherwise.is_empty();
        let no: Vec<Operand> = inner.merges.iter().map(|merge| merge.otherwise).collect();
        let yes: Vec<Operand> = inner.merges.iter().map(|merge| merge.then).collect();
        let other = if direct {
            BlockCall { block: join, args: self.operands(&no) }
        } else {
            BlockCall { block: self.new_block(), args: Vec::new() }
        };
        let otherwise = other.block;
        self.end(Op::Branch, &[condition], vec![BlockCall { block: then, args: Vec::new() }, other]);
        let mut reached = direct;
        for (block, list, merged) in [(then, &inner.then, &yes), (otherwise, &inner.otherwise, &no)] {
            if block == join {
                continue;
            }
            self.open(block);
            self.list(list);
            if self.block.is_some() {
                let args = self.operands(merged);
                self.jump(join, args);
                reached = true;
            }
            self.scope.truncate(before);
        }
        for merge in &inner.merges {
            let value = self.function.append_block_param(join, merge.then.ty);
            self.name(&[merge.id], &[value]);
        }
        if reached {
            self.open(join);
        }
    }

    pub(super) fn repetition(&mut self, inner: &Loop) {
        let start = self.constant(inner.ty, inner.start);
        let limit = self.limit(inner);
        let inits: Vec<Operand> = inner.carried.iter().map(|c| c.init).collect();
        let mut first = vec![start];
        first.extend(self.operands(&inits));
        let before = self.scope.len();
        let (header, exit) = (self.new_block(), self.new_block());
        self.jump(header, first);
        let params: Vec<Value> = std::iter::once(inner.ty)
            .chain(inner.carried.iter().map(|c| c.init.ty))
            .map(|ty| self.function.append_block_param(header, ty))
            .collect();
        self.open(header);
        self.name(&[inner.counter], &params[..1]);
        let inside: Vec<Id> = inner.carried.iter().map(|c| c.inside).collect();
        self.name(&inside, &params[1..]);
        // A loop with several exits passes its values as parameters of the block where the exits join.
        let meet = inner.leave.is_some() || inner.test_at_end;
        if !inner.test_at_end {
            let more = self.emit(Op::Compare(inner.compare), inner.ty, &[params[0], limit]);
            let body = self.new_block();
            let args = if meet { params[1..].to_vec() } else { Vec::new() };
            let dests = vec![BlockCall { block: body, args: Vec::new() }, BlockCall { block: exit, args }];
            self.end(Op::Branch, &[more], dests);
            self.open(body);
        }
        self.list(&inner.body);
        if self.block.is_some() {
            self.latch(inner, (header, exit), params[0], limit);
        }
        self.scope.truncate(before);
        let after: Vec<Id> = inner.carried.iter().map(|c| c.after).collect();
        let values: Vec<Value> = if meet {
            inner.carried.iter().map(|c| self.function.append_block_param(exit, c.init.ty)).collect()
        } else {
            params[1..].to_vec()
        };
        self.name(&after, &values);
        // If the body always returns, only a test before the body can leave the loop.
        if !inner.test_at_end || !self.function.predecessors()[exit].is_empty() {
            self.open(exit);
        }
    }

    /// Ends the body with a jump to the exit or back to the header.
    pub(super) fn latch(
        &mut self,
        inner: &Loop,
        (header, exit): (Block, Block),
        counter: Value,
        limit: Value,
    ) {
        let nexts: Vec<Operand> = inner.carried.iter().map(|c: &Carried| c.next).collect();
        let nexts = self.operands(&nexts);
        let step = self.constant(inner.ty, inner.step as u64);
        let counter = self.emit(ADD, inner.ty, &[counter, step]);
        let mut again = vec![counter];
        again.extend(&nexts);
        let again = BlockCall { block: header, args: again };
        let out = BlockCall { block: exit, args: nexts };
        if let Some(leave) = inner.leave {
            let (leave, stay) = (self.operand(leave), self.new_block());
            let dests = vec![out.clone(), BlockCall { block: stay, args: Vec::new() }];
            self.end(Op::Branch, &[leave], dests);
            self.open(stay);
        }
        if inner.test_at_end {
            let more = self.emit(Op::Compare(inner.compare), inner.ty, &[counter, limit]);
            self.end(Op::Branch, &[more], vec![again, out]);
        } else {
            self.end(Op::Jump, &[], vec![again]);
        }
    }

    /// Emits the counter's limit: `start + trips · step`.
    pub(super) fn limit(&mut self, inner: &Loop) -> Value {
        match inner.trips {
            Trips::Constant(trips) => {
                let limit = inner.start.wrapping_add(u64::from(trips).wrapping_mul(inner.step as u64));
                self.constant(inner.ty, limit)
            }
            Trips::Modulo4(operand) => {
                let (value, mask) = (self.operand(operand), self.constant(Type::U32, 3));
                let mut trips = self.emit(AND, Type::U32, &[value, mask]);
                if inner.ty != Type::U32 {
                    trips = self.emit(PLAIN, inner.ty, &[trips]);
                }
                let (step, start) =
                    (self.constant(inner.ty, inner.step as u64), self.constant(inner.ty, inner.start));
                let bytes = self.emit(MUL, inner.ty, &[trips, step]);
                self.emit(ADD, inner.ty, &[bytes, start])
            }
        }
    }
}
