//! The ways in which a kernel becomes smaller.

use std::collections::HashMap;
use std::ops::Range;

use bespoke_codegen::ir::{Block, Function, Inst, InstData, Loc, Op, Type, Value};
use bespoke_codegen::passes::analysis::uses::use_counts;
use bespoke_codegen::passes::{Cleanup, DeadCode, Fold, Pass, ValueNumbering};
use smallvec::SmallVec;

/// A kind of change, and the places where it can be made.
pub(crate) enum Step {
    /// A change of the kernel as a whole.
    Kernel(Change),
    /// A change of the kernel or of one of the functions that it calls.
    Function(Change),
}

pub(crate) struct Change {
    /// Number of places.
    sites: fn(&Function) -> usize,
    /// Makes the change in a range of places.
    apply: fn(&mut Function, Range<usize>),
}

impl Step {
    /// Number of places in a kernel.
    pub(crate) fn sites(&self, kernel: &Function) -> usize {
        match self {
            Step::Kernel(change) => (change.sites)(kernel),
            Step::Function(change) => each(kernel).map(change.sites).sum(),
        }
    }

    /// Makes the change in a range of places.
    pub(crate) fn apply(&self, kernel: &mut Function, sites: Range<usize>) {
        match self {
            Step::Kernel(change) => (change.apply)(kernel, sites),
            Step::Function(change) => {
                let mut first = 0;
                let counts: Vec<usize> = each(kernel).map(change.sites).collect();
                let mut functions = std::mem::take(&mut kernel.functions);
                for (function, count) in [&mut *kernel].into_iter().chain(&mut functions).zip(counts) {
                    let of = |site: usize| site.clamp(first, first + count) - first;
                    let within = of(sites.start)..of(sites.end);
                    if !within.is_empty() {
                        (change.apply)(function, within);
                    }
                    first += count;
                }
                kernel.functions = functions;
            }
        }
    }
}

/// The kernel, and then its functions.
fn each(kernel: &Function) -> impl Iterator<Item = &Function> {
    [kernel].into_iter().chain(&kernel.functions)
}

const fn in_kernel(sites: fn(&Function) -> usize, apply: fn(&mut Function, Range<usize>)) -> Step {
    Step::Kernel(Change { sites, apply })
}

const fn in_each(sites: fn(&Function) -> usize, apply: fn(&mut Function, Range<usize>)) -> Step {
    Step::Function(Change { sites, apply })
}

/// All steps, those that remove most first.
pub(crate) const ALL: &[Step] = &[
    in_each(|_| 1, |function, _| clear_locations(function)),
    in_each(|function| terminators(function).len(), return_early),
    in_each(|function| 2 * branches(function).len(), decide),
    in_each(|_| 1, |function, _| run(&DeadCode, function)),
    in_each(|_| 1, |function, _| run(&Cleanup, function)),
    in_each(|function| insts(function).len(), |function, at| remove(function, at, By::Operand)),
    in_each(|function| insts(function).len(), |function, at| remove(function, at, By::Zero)),
    in_each(|function| insts(function).len(), |function, at| remove(function, at, By::One)),
    in_each(|function| insts(function).len(), |function, at| remove(function, at, By::Earlier)),
    in_each(|function| block_params(function).len(), |function, at| fix(function, at, By::Zero)),
    in_each(|function| block_params(function).len(), |function, at| fix(function, at, By::Operand)),
    in_kernel(|kernel| kernel.params.len(), remove_params),
    in_kernel(|kernel| kernel.functions.len(), remove_functions),
    in_kernel(
        |kernel| kernel.functions.iter().map(|function| function.params.len()).sum(),
        remove_function_params,
    ),
    in_kernel(|_| 7, clear_attributes),
    in_each(|_| 2, drop_last_arrays),
    in_each(|_| 1, |function, _| run(&Fold, function)),
    in_each(|_| 1, |function, _| run(&ValueNumbering, function)),
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

/// Removes parameters that are not used.
fn remove_params(function: &mut Function, sites: Range<usize>) {
    for site in sites.rev() {
        remove_param(function, site);
    }
}

/// Removes a parameter unless it is used; returns whether it was removed.
fn remove_param(function: &mut Function, site: usize) -> bool {
    let used = |&(_, inst): &(Block, Inst)| function.inst(inst).op == Op::Param(site as u32);
    if insts(function).iter().any(used) {
        return false;
    }
    function.params.remove(site);
    for (_, inst) in insts(function) {
        if let Op::Param(index) = &mut function.inst_mut(inst).op
            && *index > site as u32
        {
            *index -= 1;
        }
    }
    true
}

/// Removes parameters of functions that are not used, with what calls pass for them.
fn remove_function_params(kernel: &mut Function, sites: Range<usize>) {
    let of = |(at, function): (usize, &Function)| (0..function.params.len()).map(move |param| (at, param));
    let params: Vec<(usize, usize)> = kernel.functions.iter().enumerate().flat_map(of).collect();
    for &(at, param) in params[sites].iter().rev() {
        if !remove_param(&mut kernel.functions[at], param) {
            continue;
        }
        let function = &kernel.functions[at];
        let (name, callee) = (function.name.clone(), function.as_callee());
        let mut functions = std::mem::take(&mut kernel.functions);
        for caller in [&mut *kernel].into_iter().chain(&mut functions) {
            for (_, inst) in insts(caller) {
                let data = caller.inst_mut(inst);
                if matches!(data.op, Op::Call(called) if called.signature().name == name) {
                    data.op = Op::Call(callee);
                    data.args.remove(param);
                }
            }
        }
        kernel.functions = functions;
    }
}

/// Removes functions that nothing calls.
fn remove_functions(function: &mut Function, sites: Range<usize>) {
    for site in sites.rev() {
        let name = &function.functions[site].name;
        let calls = |caller: &Function| {
            let is_call = |op| matches!(op, Op::Call(callee) if callee.signature().name == *name);
            insts(caller).iter().any(|&(_, inst)| is_call(caller.inst(inst).op))
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
            1 => function.max_registers = None,
            2 => function.cluster = None,
            3 => function.allow_spills = 0,
            4 => function.params.iter_mut().for_each(|param| param.align = None),
            5 => {
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
