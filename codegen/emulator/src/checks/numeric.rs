//! Looking at what instructions compute: values that are not finite, and 32-bit indices that have wrapped.
//!
//! A launch that looks at neither runs the kernel's instructions as they are. One that does runs copies of them that
//! go through [`watched`], so that nothing is paid for it elsewhere.

use crate::exec::lanes::LANES;
use crate::exec::resolve::{FLAGS, StateSpace};
use crate::exec::{A, B, C, D, Flow, Inst, Machine, lanes_of};
use crate::finding::FindingKind;
use crate::launch::Checks;
use crate::load::ast::Instruction;
use crate::module::Kernel;

/// What an instruction does to values that are watched.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Nothing of interest.
    Other,
    /// Computes a single or a double from so many operands.
    Single(usize),
    Double(usize),
    /// Computes a 32-bit integer that may wrap.
    Add,
    Subtract,
    Multiply,
    MultiplyAdd,
    ShiftLeft,
    /// Computes something that has wrapped if one of so many operands has.
    Carries(usize),
    /// Accesses memory at the address of slot A.
    Access,
}

/// An instruction as it is watched.
#[derive(Debug)]
pub(crate) struct Watch {
    kind: Kind,
    /// The slots that it writes.
    writes: Box<[u32]>,
}

impl Watch {
    pub(crate) fn new(instruction: &Instruction, writes: impl Iterator<Item = u32>) -> Watch {
        let has = |modifier: &str| instruction.modifiers.iter().any(|found| found == modifier);
        let ty = instruction.modifiers.last().map_or("", String::as_str);
        let operands = instruction.operands.len().saturating_sub(1).min(3);
        let kind = match (instruction.opcode.as_str(), ty) {
            (
                "add" | "sub" | "mul" | "fma" | "mad" | "div" | "rcp" | "sqrt" | "rsqrt" | "ex2" | "lg2"
                | "sin" | "cos" | "tanh",
                "f32",
            ) => Kind::Single(operands),
            ("add" | "sub" | "mul" | "fma" | "mad" | "div" | "rcp" | "sqrt" | "rsqrt", "f64") => {
                Kind::Double(operands)
            }
            _ if has("sat") || has("cc") => Kind::Other,
            ("add", "u32" | "s32") => Kind::Add,
            ("sub", "u32" | "s32") => Kind::Subtract,
            ("mul", "u32" | "s32") if has("lo") => Kind::Multiply,
            ("mad", "u32" | "s32") if has("lo") => Kind::MultiplyAdd,
            ("shl", "b32") => Kind::ShiftLeft,
            ("mul" | "mad", _) if has("wide") => Kind::Carries(operands),
            ("add" | "sub", "u64" | "s64") | ("mad", "u64" | "s64") => Kind::Carries(operands),
            ("mov" | "cvta", "b32" | "u32" | "s32" | "b64" | "u64" | "s64") => Kind::Carries(1),
            ("cvt", "u32" | "s32") => Kind::Carries(1),
            ("ld" | "st" | "atom" | "red", _) if !has("async") => Kind::Access,
            _ => Kind::Other,
        };
        Watch { kind, writes: writes.collect() }
    }
}

/// The instructions to run under these checks, if not the kernel's own.
pub(crate) fn instructions(kernel: &Kernel, checks: Checks) -> Vec<Inst> {
    let wanted = |watch: &Watch| match watch.kind {
        Kind::Single(_) | Kind::Double(_) => checks.values || checks.overflow,
        _ => checks.overflow,
    };
    if !checks.values && !checks.overflow {
        return Vec::new();
    }
    let one =
        |(inst, watch): (&Inst, &Watch)| if wanted(watch) { Inst { run: watched, ..*inst } } else { *inst };
    kernel.code.insts.iter().zip(&kernel.code.watches).map(one).collect()
}

/// Runs an instruction with an eye on its values.
fn watched(m: &mut Machine<'_>, i: &Inst) -> Flow {
    let (launch, pc) = (m.launch, m.warp.pc);
    let (Some(own), Some(watch)) = (launch.kernel.code.insts.get(pc), launch.kernel.code.watches.get(pc))
    else {
        return m.fault(FindingKind::Trap, 0, "no such instruction");
    };
    let lanes = m.active;
    let (values, overflow) = (launch.watches.values, launch.watches.overflow);
    let mut before = [[0u64; LANES]; 3];
    let count = match watch.kind {
        Kind::Single(count) | Kind::Double(count) if values => count,
        _ => 0,
    };
    for (operand, slot) in [A, B, C].into_iter().enumerate().take(count) {
        before[operand] = match watch.kind {
            Kind::Single(_) => m.warp.regs.lanes::<u32>(i.slots[slot]).map(u64::from),
            _ => *m.warp.regs.lanes::<u64>(i.slots[slot]),
        };
    }
    let mut wrapped = 0;
    if overflow {
        wrapped = wrapped_lanes(m, i, watch.kind);
        if watch.kind == Kind::Access && wrapped & lanes != 0 {
            return wrapped_address(m, wrapped & lanes);
        }
    }
    // SAFETY: the instruction is the kernel's own, and the launch was set up to run it in this warp.
    let flow = unsafe { (own.run)(m, own) };
    if flow == Flow::Fault {
        return flow;
    }
    if overflow {
        let kept = if watch.kind == Kind::Access { 0 } else { wrapped & lanes };
        for &slot in &watch.writes {
            let known = m.warp.wrapped_mut(slot);
            *known = *known & !lanes | kept;
        }
    }
    match count {
        0 => flow,
        _ => not_finite(m, i, (watch.kind, lanes), &before[..count]).unwrap_or(flow),
    }
}

/// The lanes whose result, or address, has wrapped: it is right neither as an unsigned number nor as a signed one.
fn wrapped_lanes(m: &mut Machine<'_>, i: &Inst, kind: Kind) -> u32 {
    let operands = match kind {
        Kind::Carries(count) => count,
        Kind::Access if i.slots[FLAGS] & 7 == StateSpace::ParamDirect as u32 => 0,
        Kind::Access => 1,
        Kind::Add | Kind::Subtract | Kind::Multiply | Kind::ShiftLeft => 2,
        Kind::MultiplyAdd => 3,
        _ => 0,
    };
    let mut lanes = 0;
    for slot in [A, B, C].into_iter().take(operands) {
        lanes |= *m.warp.wrapped_mut(i.slots[slot]);
    }
    if !matches!(kind, Kind::Add | Kind::Subtract | Kind::Multiply | Kind::MultiplyAdd | Kind::ShiftLeft) {
        return lanes;
    }
    let read = |slot: usize| *m.warp.regs.lanes::<u32>(i.slots[slot]);
    let (a, b) = (read(A), read(B));
    let c = if kind == Kind::MultiplyAdd { read(C) } else { [0; LANES] };
    for lane in lanes_of(m.active) {
        let exact = |widen: fn(u32) -> i128| match kind {
            Kind::Add => widen(a[lane]) + widen(b[lane]),
            Kind::Subtract => widen(a[lane]) - widen(b[lane]),
            Kind::ShiftLeft => widen(a[lane]) << b[lane].min(32),
            _ => widen(a[lane]) * widen(b[lane]) + widen(c[lane]),
        };
        let unsigned = u32::try_from(exact(|x| x as i128)).is_ok();
        let signed = i32::try_from(exact(|x| x as i32 as i128)).is_ok();
        lanes |= (!unsigned && !signed) as u32 * (1 << lane);
    }
    lanes
}

#[cold]
fn wrapped_address(m: &mut Machine<'_>, lanes: u32) -> Flow {
    let detail = "the address is made of a 32-bit number that has wrapped: it fits neither 32 bits unsigned nor signed";
    m.fault(FindingKind::WrappedAddress, lanes.trailing_zeros(), detail)
}

/// Looks for a result that is not finite though all operands are.
fn not_finite(
    m: &mut Machine<'_>,
    i: &Inst,
    (kind, lanes): (Kind, u32),
    before: &[[u64; LANES]],
) -> Option<Flow> {
    let single = matches!(kind, Kind::Single(_));
    let value = |bits: u64| if single { f32::from_bits(bits as u32) as f64 } else { f64::from_bits(bits) };
    let after = match single {
        true => m.warp.regs.lanes::<u32>(i.slots[D]).map(u64::from),
        false => *m.warp.regs.lanes::<u64>(i.slots[D]),
    };
    let made = |&lane: &usize| {
        !value(after[lane]).is_finite() && before.iter().all(|operand| value(operand[lane]).is_finite())
    };
    let lane = lanes_of(lanes).find(made)?;
    let text = |bits: u64| match single {
        true => format!("{:e}", f32::from_bits(bits as u32)),
        false => format!("{:e}", f64::from_bits(bits)),
    };
    let operands: Vec<String> = before.iter().map(|operand| text(operand[lane])).collect();
    let detail = format!("it makes {} of {}", value(after[lane]), operands.join(", "));
    Some(m.fault(FindingKind::NotFinite, lane as u32, detail))
}
