//! The ways in which a kernel becomes smaller.

use std::collections::HashMap;
use std::ops::Range;

use bespoke_codegen::ir::{Block, Function, Inst, InstData, Loc, Op, Type, Value};
use bespoke_codegen::passes::analysis::uses::use_counts;
use bespoke_codegen::passes::{Cleanup, DeadCode, Fold, Pass, ValueNumbering};
use smallvec::SmallVec;

/// A kind of change, and the places where it can be made.
pub(crate) struct Step {
    /// Number of places in a function.
    pub sites: fn(&Function) -> usize,
    /// Makes the change in a range of places.
    pub apply: fn(&mut Function, Range<usize>),
}

/// All steps, those that remove most first.
pub(crate) const ALL: &[Step] = &[
    Step { sites: |_| 1, apply: |function, _| clear_locations(function) },
    Step { sites: |function| terminators(function).len(), apply: return_early },
    Step { sites: |function| 2 * branches(function).len(), apply: decide },
    Step { sites: |_| 1, apply: |function, _| run(&DeadCode, function) },
    Step { sites: |_| 1, apply: |function, _| run(&Cleanup, function) },
    Step { sites: |function| insts(function).len(), apply: |function, at| remove(function, at, By::Operand) },
    Step { sites: |function| insts(function).len(), apply: |function, at| remove(function, at, By::Zero) },
    Step { sites: |function| insts(function).len(), apply: |function, at| remove(function, at, By::One) },
    Step { sites: |function| insts(function).len(), apply: |function, at| remove(function, at, By::Earlier) },
    Step {
        sites: |function| block_params(function).len(),
        apply: |function, at| fix(function, at, By::Zero),
    },
    Step {
        sites: |function| block_params(function).len(),
        apply: |function, at| fix(function, at, By::Operand),
    },
    Step { sites: |function| function.params.len(), apply: remove_params },
    Step { sites: |function| function.functions.len(), apply: remove_functions },
    Step { sites: |_| 6, apply: clear_attributes },
    Step { sites: |_| 2, apply: drop_last_arrays },
    Step { sites: |_| 1, apply: |function, _| run(&Fold, function) },
    Step { sites: |_| 1, apply: |function, _| run(&ValueNumbering, function) },
];

/// What replaces a value.
#[derive(Clone, Copy)]
enum By {
    /// An operand of its instruction, or the argument of the first jump.
    Operand,
    /// The constant 0.
    Zero,
    /// The constant 1.
    One,
    /// A value that is defined earlier in the block, or in the entry block.
    Earlier,
}

fn insts(function: &Function) -> Vec<(Block, Inst)> {
    let of = |&block: &Block| function.block(block).insts.iter().map(move |&inst| (block, inst));
    let all = function.layout.iter().flat_map(of);
    all.filter(|&(_, inst)| !function.inst(inst).op.is_terminator()).collect()
}

fn terminators(function: &Function) -> Vec<Inst> {
    let last = function.layout.iter().filter_map(|&block| function.block(block).insts.last().copied());
    last.filter(|&inst| function.inst(inst).op != Op::Return).collect()
}

fn branches(function: &Function) -> Vec<Inst> {
    terminators(function).into_iter().filter(|&inst| function.inst(inst).op == Op::Branch).collect()
}

fn block_params(function: &Function) -> Vec<(Block, Value)> {
    let of = |&block: &Block| function.block(block).params.iter().map(move |&param| (block, param));
    function.layout.iter().flat_map(of).collect()
}

fn clear_locations(function: &mut Function) {
    for block in function.layout.clone() {
        for inst in function.block(block).insts.clone() {
            function.inst_mut(inst).loc = None;
        }
    }
}

fn return_early(function: &mut Function, sites: Range<usize>) {
    for &inst in &terminators(function)[sites] {
        let data = function.inst_mut(inst);
        (data.op, data.ty) = (Op::Return, Type::U32);
        data.args.clear();
        data.dests.clear();
    }
}

/// Makes branches jumps: to the second target at even places, to the first at odd ones.
fn decide(function: &mut Function, sites: Range<usize>) {
    let branches = branches(function);
    for site in sites {
        let data = function.inst_mut(branches[site / 2]);
        if data.op == Op::Branch {
            data.op = Op::Jump;
            data.dests.swap_remove(site % 2);
            data.args.clear();
        }
    }
}

/// Removes instructions; other values replace the results that are used.
fn remove(function: &mut Function, sites: Range<usize>, by: By) {
    let uses = use_counts(function);
    let mut aliases: HashMap<Value, Value> = HashMap::new();
    for &(block, inst) in &insts(function)[sites] {
        let data = function.inst(inst).clone();
        // A constant that is used would be replaced by itself.
        let is_used = data.results.iter().any(|&result| uses[result] > 0);
        if is_used && matches!((data.op, by), (Op::Const(0), By::Zero) | (Op::Const(1), By::Zero | By::One)) {
            continue;
        }
        let used: Vec<Value> = data.results.iter().copied().filter(|&result| uses[result] > 0).collect();
        let results = used.iter().map(|&result| {
            let ty = function.value_type(result);
            match by {
                By::Operand => data.args.iter().copied().find(|&arg| function.value_type(arg) == ty),
                By::Earlier => earlier(function, block, inst, ty),
                By::Zero | By::One => None,
            }
        });
        let mut found: Vec<Option<Value>> = results.collect();
        let mut constants = Vec::new();
        for (&result, found) in used.iter().zip(&mut found) {
            let ty = function.value_type(result);
            if let (By::Zero | By::One, true) = (by, has_constants(ty)) {
                let (inst, value) = constant(function, ty, one_or_zero(by, ty), data.loc);
                constants.push(inst);
                *found = Some(value);
            }
        }
        let Some(replacements) = found.into_iter().collect::<Option<Vec<Value>>>() else { continue };
        let insts = &mut function.block_mut(block).insts;
        let Some(at) = insts.iter().position(|&other| other == inst) else { continue };
        insts.splice(at..=at, constants);
        aliases.extend(used.into_iter().zip(replacements));
    }
    resolve(function, &aliases);
}

/// Removes parameters of blocks; other values replace them.
fn fix(function: &mut Function, sites: Range<usize>, by: By) {
    let mut aliases: HashMap<Value, Value> = HashMap::new();
    for &(block, param) in &block_params(function)[sites] {
        let Some(index) = function.block(block).params.iter().position(|&other| other == param) else {
            continue;
        };
        let ty = function.value_type(param);
        let value = match by {
            By::Zero if has_constants(ty) => {
                let loc = function.block(block).insts.first().and_then(|&inst| function.inst(inst).loc);
                let (inst, value) = constant(function, ty, 0, loc);
                function.block_mut(block).insts.insert(0, inst);
                value
            }
            By::Operand => {
                let terminators = terminators(function);
                let dests = terminators.iter().flat_map(|&inst| &function.inst(inst).dests);
                let Some(value) = dests
                    .filter(|dest| dest.block == block)
                    .map(|dest| dest.args[index])
                    .find(|&value| value != param)
                else {
                    continue;
                };
                value
            }
            _ => continue,
        };
        let keep: Vec<bool> = function.block(block).params.iter().map(|&other| other != param).collect();
        function.retain_block_params(block, &keep);
        aliases.insert(param, value);
    }
    resolve(function, &aliases);
}

/// Rewrites uses; a replacement that was itself replaced is followed, up to a bound in case of a cycle.
fn resolve(function: &mut Function, aliases: &HashMap<Value, Value>) {
    let last = |mut value: Value| {
        for _ in 0..=aliases.len() {
            match aliases.get(&value) {
                Some(&next) => value = next,
                None => break,
            }
        }
        value
    };
    if !aliases.is_empty() {
        function.rewrite_uses(last);
    }
}

/// Whether the type has constants.
fn has_constants(ty: Type) -> bool {
    !ty.is_pointer()
}

fn one_or_zero(by: By, ty: Type) -> u64 {
    match (by, ty) {
        (By::One, Type::F16) => 0x3c00,
        (By::One, Type::Bf16) => 0x3f80,
        (By::One, Type::F32) => 1.0f32.to_bits().into(),
        (By::One, Type::F64) => 1.0f64.to_bits(),
        (By::One, _) => 1,
        _ => 0,
    }
}

fn constant(function: &mut Function, ty: Type, bits: u64, loc: Option<Loc>) -> (Inst, Value) {
    let data = InstData {
        op: Op::Const(bits),
        ty,
        args: SmallVec::new(),
        dests: Vec::new(),
        results: SmallVec::new(),
        loc,
    };
    let inst = function.create_inst(data, &[ty]);
    (inst, function.inst(inst).results[0])
}

/// The first value of the type that is defined in the entry block, or before the instruction in its block.
fn earlier(function: &Function, block: Block, before: Inst, ty: Type) -> Option<Value> {
    let of = |block: Block| {
        let insts = function.block(block).insts.iter().take_while(|&&inst| inst != before);
        insts.flat_map(|&inst| function.inst(inst).results.iter().copied())
    };
    let entry = function.layout[0];
    let params = function.block(block).params.iter().copied();
    of(entry).chain(params).chain(of(block)).find(|&value| function.value_type(value) == ty)
}

/// Removes kernel parameters that are not used.
fn remove_params(function: &mut Function, sites: Range<usize>) {
    let used = |function: &Function, index: u32| {
        insts(function).iter().any(|&(_, inst)| function.inst(inst).op == Op::Param(index))
    };
    for site in sites.rev() {
        if used(function, site as u32) {
            continue;
        }
        function.params.remove(site);
        for (_, inst) in insts(function) {
            if let Op::Param(index) = &mut function.inst_mut(inst).op
                && *index > site as u32
            {
                *index -= 1;
            }
        }
    }
}

/// Removes functions that nothing calls. The functions that stay are not changed.
fn remove_functions(function: &mut Function, sites: Range<usize>) {
    for site in sites.rev() {
        let callee = function.functions[site].as_callee();
        let calls = |caller: &Function| {
            insts(caller).iter().any(|&(_, inst)| caller.inst(inst).op == Op::Call(callee))
        };
        if !calls(function) && !function.functions.iter().any(calls) {
            function.functions.remove(site);
        }
    }
}

/// Clears attributes of the kernel and of loops.
fn clear_attributes(function: &mut Function, sites: Range<usize>) {
    for site in sites {
        match site {
            0 => function.min_blocks = None,
            1 => function.cluster = None,
            2 => function.allow_spills = 0,
            3 => function.params.iter_mut().for_each(|param| param.align = None),
            4 => {
                for block in function.layout.clone() {
                    function.block_mut(block).unroll = None;
                }
            }
            _ if function.min_blocks.is_none() => {
                (function.threads, function.threads_yz) = (None, [1, 1]);
            }
            _ => {}
        }
    }
}

/// Removes arrays and tables behind the last one that is used.
fn drop_last_arrays(function: &mut Function, _: Range<usize>) {
    let (mut shared, mut locals, mut tables) = (0, 0, 0);
    for (_, inst) in insts(function) {
        match function.inst(inst).op {
            Op::SharedAddress(var) => shared = shared.max(var.as_u32() as usize + 1),
            Op::LocalAddress(var) => locals = locals.max(var.as_u32() as usize + 1),
            Op::TableAddress(var) => tables = tables.max(var.as_u32() as usize + 1),
            _ => {}
        }
    }
    function.shared = function.shared.values().take(shared).cloned().collect();
    function.locals = function.locals.values().take(locals).cloned().collect();
    function.tables = function.tables.values().take(tables).cloned().collect();
}

/// Runs a pass over the whole function.
fn run(pass: &dyn Pass, function: &mut Function) {
    pass.run(function);
}
