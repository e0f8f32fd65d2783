//! Rewriting of instructions in one walk over a function.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::analysis::Dominators;
use crate::ir::{Block, Function, Inst, InstData, Loc, Op, Type, Value};

/// Map from replaced values to their replacements.
#[derive(Default)]
pub(super) struct Aliases(FxHashMap<Value, Value>);

impl Aliases {
    /// The final replacement of a value; the value itself if it is not replaced.
    pub fn resolve(&self, mut value: Value) -> Value {
        while let Some(&next) = self.0.get(&value) {
            value = next;
        }
        value
    }

    /// Records that `to` replaces `from`; [`Aliases::apply`] rewrites the uses. `to` must not already be replaced by
    /// `from`, directly or through other values.
    pub fn replace(&mut self, from: Value, to: Value) {
        let to = self.resolve(to);
        debug_assert_ne!(from, to, "a value cannot replace itself");
        self.0.insert(from, to);
    }

    /// Rewrites all uses of replaced values in the function.
    pub fn apply(&self, function: &mut Function) {
        if !self.0.is_empty() {
            function.rewrite_uses(|value| self.resolve(value));
        }
    }
}

/// What to do with an instruction: the result of the visitor of [`rewrite`].
pub(super) enum Rewrite {
    /// Keep the instruction.
    Keep,
    /// Replace the results of the instruction by these values, and remove the instruction.
    Values(SmallVec<[Value; 2]>),
    /// Turn the instruction into another one: opcode, type, operands. The results keep their types.
    Into(Op, Type, SmallVec<[Value; 4]>),
}

impl Rewrite {
    /// Replaces the only result by a value.
    pub fn value(value: Value) -> Rewrite {
        Rewrite::Values(SmallVec::from_slice(&[value]))
    }

    /// Turns the instruction into another one with these operands.
    pub fn into(op: Op, ty: Type, args: &[Value]) -> Rewrite {
        Rewrite::Into(op, ty, SmallVec::from_slice(args))
    }

    /// Turns the instruction into the constant with the raw bits `bits`.
    pub fn constant(ty: Type, bits: u64) -> Rewrite {
        Rewrite::into(Op::Const(bits), ty, &[])
    }
}

/// The function during a walk, with the current instruction.
pub(super) struct Editor<'a> {
    pub function: &'a mut Function,
    /// The block of the current instruction.
    pub block: Block,
    loc: Option<Loc>,
    before: Vec<Inst>,
}

impl Editor<'_> {
    /// Inserts an instruction with one result before the current instruction, at the same source location; returns the
    /// result.
    pub fn insert(&mut self, op: Op, ty: Type, args: &[Value]) -> Value {
        self.insert_all(op, ty, args)[0]
    }

    /// Inserts an `unpack` of a u64 before the current instruction; returns the lower and the upper half.
    pub fn halves(&mut self, whole: Value) -> [Value; 2] {
        let results = self.insert_all(Op::Unpack, Type::U32, &[whole]);
        [results[0], results[1]]
    }

    fn insert_all(&mut self, op: Op, ty: Type, args: &[Value]) -> SmallVec<[Value; 2]> {
        let data = InstData {
            op,
            ty,
            args: SmallVec::from_slice(args),
            dests: Vec::new(),
            results: SmallVec::new(),
            loc: self.loc,
        };
        let results = match op.signature(ty) {
            Ok(signature) => signature.results,
            Err(error) => unreachable!("a pass inserts an instruction that does not exist: {error}"),
        };
        let inst = self.function.create_inst(data, &results);
        self.before.push(inst);
        self.function.inst(inst).results.clone()
    }

    /// Inserts a constant, given as raw bits, before the current instruction.
    pub fn constant(&mut self, ty: Type, bits: u64) -> Value {
        self.insert(Op::Const(bits & ty.mask()), ty, &[])
    }
}

/// Calls `visit` for every instruction and applies the returned [`Rewrite`]; an instruction that was turned into
/// another is visited again. Definitions are visited before their uses, except around loops. Returns whether anything
/// changed.
pub(super) fn rewrite(
    function: &mut Function,
    mut visit: impl FnMut(&mut Editor<'_>, &InstData) -> Rewrite,
) -> bool {
    /// Maximum number of visits of one instruction, in case rewrites never stop.
    const MAX_STEPS: usize = 16;
    let order = Dominators::new(function).reverse_postorder().to_vec();
    let mut aliases = Aliases::default();
    let mut changed = false;
    for block in order {
        // The block keeps its instructions until the end, because analyses read its terminator meanwhile.
        let insts = function.block(block).insts.clone();
        let mut editor = Editor { function, block, loc: None, before: Vec::with_capacity(insts.len()) };
        for inst in insts {
            let data = editor.function.inst_mut(inst);
            data.args.iter_mut().for_each(|value| *value = aliases.resolve(*value));
            editor.loc = data.loc;
            let mut gone = false;
            for _ in 0..MAX_STEPS {
                let data = editor.function.inst(inst).clone();
                match visit(&mut editor, &data) {
                    Rewrite::Keep => break,
                    Rewrite::Values(values) => {
                        for (&from, &to) in data.results.iter().zip(&values) {
                            aliases.replace(from, to);
                        }
                        gone = true;
                    }
                    Rewrite::Into(op, ty, args) => {
                        let data = editor.function.inst_mut(inst);
                        (data.op, data.ty, data.args) = (op, ty, args);
                    }
                }
                changed = true;
                if gone {
                    break;
                }
            }
            if !gone {
                editor.before.push(inst);
            }
        }
        let insts = editor.before;
        function.block_mut(block).insts = insts;
    }
    aliases.apply(function);
    changed
}
