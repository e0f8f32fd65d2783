//! Builds the function from the parsed kernel.

use std::collections::{HashMap, HashSet};

use super::{InstText, Kernel, Name, ParseError};
use crate::ir::{Block, BlockCall, Function, Inst, InstData, Loc, Op, SourceLoc, Type, Value};

/// Builds the function; values, blocks and shared variables keep the numbers of the text.
pub(super) fn function(kernel: Kernel) -> Result<Function, ParseError> {
    let mut function = Function::new(kernel.name.as_str());
    function.params = kernel.params.clone();
    function.results = kernel.results.clone();
    function.threads = kernel.threads;
    function.threads_yz = kernel.threads_yz;
    function.min_blocks = kernel.min_blocks;
    function.max_registers = kernel.max_registers;
    function.cluster = kernel.cluster;
    function.allow_spills = kernel.allow_spills;
    for shared in &kernel.shared {
        function.shared.push(shared.clone());
    }
    for local in &kernel.locals {
        function.locals.push(local.clone());
    }
    for table in &kernel.tables {
        function.tables.push(table.clone());
    }
    let mut builder =
        Builder { function, blocks: HashSet::new(), defined: HashMap::new(), locs: HashMap::new() };
    builder.blocks(&kernel)?;
    let insts = builder.definitions(&kernel)?;
    builder.uses(&kernel, &insts)?;
    let mut function = builder.function;
    for callee in kernel.functions {
        function.functions.push(self::function(callee)?);
    }
    Ok(function)
}

struct Builder {
    function: Function,
    blocks: HashSet<Block>,
    /// The value for each number in the text; values are created in the order of their numbers.
    defined: HashMap<u32, Value>,
    locs: HashMap<SourceLoc, Loc>,
}

/// One or more consecutive values to create: a block's parameter or an instruction with its results.
enum Definition<'a> {
    Param(Block, Type),
    Inst(usize, &'a InstText),
}

impl Builder {
    fn blocks(&mut self, kernel: &Kernel) -> Result<(), ParseError> {
        for block in &kernel.blocks {
            let id = Block::from_u32(block.name.number);
            if !self.blocks.insert(id) {
                return Err(block.name.error(format!("block{} is defined twice", block.name.number)));
            }
            while self.function.block_count() <= block.name.number as usize {
                self.function.create_block();
            }
            self.function.layout.push(id);
        }
        Ok(())
    }

    /// Creates all values in the order of their numbers; returns the instructions in the order of the text.
    fn definitions(&mut self, kernel: &Kernel) -> Result<Vec<Inst>, ParseError> {
        let mut definitions: Vec<(Name, Definition)> = Vec::new();
        let mut insts = Vec::new();
        for block in &kernel.blocks {
            let id = Block::from_u32(block.name.number);
            definitions.extend(block.params.iter().map(|&(name, ty)| (name, Definition::Param(id, ty))));
            for text in &block.insts {
                match text.results.first() {
                    Some(&name) => {
                        let consecutive =
                            text.results.iter().zip(name.number..).find(|(r, n)| r.number != *n);
                        if let Some((result, _)) = consecutive {
                            return Err(
                                result.error("the results of an instruction are numbered consecutively")
                            );
                        }
                        definitions.push((name, Definition::Inst(insts.len(), text)));
                        insts.push(None);
                    }
                    None => insts.push(Some(self.inst(text))),
                }
            }
        }
        // A stable sort: if a value is defined twice, the error is at the later definition of the text.
        definitions.sort_by_key(|(name, _)| name.number);
        for (name, definition) in definitions {
            if self.function.value_count() > name.number as usize {
                return Err(name.error(format!("v{} is defined twice", name.number)));
            }
            self.skip_to(name.number);
            match definition {
                Definition::Param(block, ty) => {
                    let value = self.function.append_block_param(block, ty);
                    self.defined.insert(name.number, value);
                }
                Definition::Inst(index, text) => {
                    let inst = self.inst(text);
                    for &value in &self.function.inst(inst).results {
                        self.defined.insert(value.as_u32(), value);
                    }
                    insts[index] = Some(inst);
                }
            }
        }
        self.order_params(kernel)?;
        Ok(insts.into_iter().flatten().collect())
    }

    /// Checks that the numbers of a block's parameters ascend in the text, since values are created in that order.
    fn order_params(&self, kernel: &Kernel) -> Result<(), ParseError> {
        for block in &kernel.blocks {
            let ascending = block.params.windows(2).find(|pair| pair[0].0.number > pair[1].0.number);
            if let Some(pair) = ascending {
                return Err(pair[1].0.error("the parameters of a block are numbered in ascending order"));
            }
        }
        Ok(())
    }

    /// Creates unused values for the skipped numbers below `number`, as results of an instruction in no block.
    fn skip_to(&mut self, number: u32) {
        let missing = number as usize - self.function.value_count();
        if missing > 0 {
            let hole = InstData {
                op: Op::Const(0),
                ty: Type::U32,
                args: Default::default(),
                dests: Vec::new(),
                results: Default::default(),
                loc: None,
            };
            self.function.create_inst(hole, &vec![Type::U32; missing]);
        }
    }

    /// Creates the instruction with its results but without operands.
    fn inst(&mut self, text: &InstText) -> Inst {
        let mut loc = None;
        for place in text.locs.iter().rev() {
            let place = SourceLoc { inlined_at: loc, ..place.clone() };
            loc = Some(match self.locs.get(&place) {
                Some(&loc) => loc,
                None => {
                    let new = self.function.locs.push(place.clone());
                    self.locs.insert(place, new);
                    new
                }
            });
        }
        let signature = text.op.signature(text.ty);
        let mut types = signature.map(|signature| signature.results).unwrap_or_default();
        types.resize(text.results.len(), text.ty);
        let data = InstData {
            op: text.op,
            ty: text.ty,
            args: Default::default(),
            dests: Vec::new(),
            results: Default::default(),
            loc,
        };
        self.function.create_inst(data, &types)
    }

    /// Places the instructions into their blocks and sets their operands; every value exists by now.
    fn uses(&mut self, kernel: &Kernel, insts: &[Inst]) -> Result<(), ParseError> {
        let mut insts = insts.iter();
        for block in &kernel.blocks {
            self.function.block_mut(Block::from_u32(block.name.number)).unroll = block.unroll;
            for (text, &inst) in block.insts.iter().zip(&mut insts) {
                let args = self.values(&text.args)?;
                let mut dests = Vec::new();
                for (target, args) in &text.dests {
                    let block = Block::from_u32(target.number);
                    if !self.blocks.contains(&block) {
                        return Err(target.error(format!("block{} is not defined", target.number)));
                    }
                    dests.push(BlockCall { block, args: self.values(args)? });
                }
                let data = self.function.inst_mut(inst);
                data.args = args.into();
                data.dests = dests;
                self.function.block_mut(Block::from_u32(block.name.number)).insts.push(inst);
            }
        }
        Ok(())
    }

    fn values(&self, names: &[Name]) -> Result<Vec<Value>, ParseError> {
        let value = |name: &Name| {
            let value = self.defined.get(&name.number).copied();
            value.ok_or_else(|| name.error(format!("v{} is not defined", name.number)))
        };
        names.iter().map(value).collect()
    }
}
