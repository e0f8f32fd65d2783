//! Numeric checks at run time: [`checked`] executes an instruction and inspects its operands and results.
//!
//! A launch without numeric checks runs the kernel's own instructions, so the checks cost it nothing.

use crate::checks::numeric::{NumericChecks, NumericKind};
use crate::code::access::{FLAGS, StateSpace};
use crate::code::operands::{A, B, C, D};
use crate::context::{ExecutionContext, Flow, Inst};
use crate::finding::FindingKind;
use crate::lanes::{LANES, lanes_of};

/// Copies of a kernel's instructions that run [`checked`] where a numeric check applies; empty if no numeric check is
/// on.
pub(crate) fn instrument(insts: &[Inst], checks: NumericChecks<'_>) -> Vec<Inst> {
    let is_checked = |kind: &NumericKind| match kind {
        NumericKind::Single(_) | NumericKind::Double(_) => checks.values || checks.overflow,
        _ => checks.overflow,
    };
    if !checks.values && !checks.overflow {
        return Vec::new();
    }
    let instrumented = |(inst, kind): (&Inst, &NumericKind)| {
        if is_checked(kind) { Inst { run: checked, ..*inst } } else { *inst }
    };
    insts.iter().zip(checks.effects).map(instrumented).collect()
}

/// Runs an instruction and applies the numeric checks to its operands and results.
fn checked(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let (launch, pc) = (cx.launch, cx.warp.pc);
    let (Some(own), Some(&kind)) = (launch.insts.get(pc), launch.numeric.effects.get(pc)) else {
        return cx.fault(FindingKind::Trap, 0, "no such instruction");
    };
    let lanes = cx.active;
    let (values, overflow) = (launch.numeric.values, launch.numeric.overflow);
    let mut before = [[0u64; LANES]; 3];
    let count = match kind {
        NumericKind::Single(count) | NumericKind::Double(count) if values => count,
        _ => 0,
    };
    for (operand, slot) in [A, B, C].into_iter().enumerate().take(count) {
        before[operand] = match kind {
            NumericKind::Single(_) => cx.warp.regs.lanes::<u32>(i.slots[slot]).map(u64::from),
            _ => *cx.warp.regs.lanes::<u64>(i.slots[slot]),
        };
    }
    let mut overflowed = 0;
    if overflow {
        overflowed = overflowed_lanes(cx, i, kind);
        if kind == NumericKind::Access && overflowed & lanes != 0 {
            return overflowed_address(cx, overflowed & lanes);
        }
    }
    // SAFETY: the instruction is the kernel's own, and the launch was set up to run it in this warp.
    let flow = unsafe { (own.run)(cx, own) };
    if flow == Flow::Fault {
        return flow;
    }
    if overflow {
        let set = if kind == NumericKind::Access { 0 } else { overflowed & lanes };
        for write in &launch.program.value_flow[pc].writes {
            let tracked = cx.warp.overflowed_mut(write.slot);
            *tracked = *tracked & !lanes | set;
        }
    }
    match count {
        0 => flow,
        _ => not_finite(cx, i, (kind, lanes), &before[..count]).unwrap_or(flow),
    }
}

/// Mask of lanes whose result or address is, or is computed from, a 32-bit integer that overflowed both as unsigned and
/// as signed.
fn overflowed_lanes(cx: &mut ExecutionContext<'_>, i: &Inst, kind: NumericKind) -> u32 {
    let operands = match kind {
        NumericKind::Propagates(count) => count,
        NumericKind::Access if StateSpace::of(i.slots[FLAGS]) == StateSpace::ParamDirect => 0,
        NumericKind::Access => 1,
        NumericKind::Add | NumericKind::Subtract | NumericKind::Multiply | NumericKind::ShiftLeft => 2,
        NumericKind::MultiplyAdd => 3,
        _ => 0,
    };
    let mut lanes = 0;
    for slot in [A, B, C].into_iter().take(operands) {
        lanes |= *cx.warp.overflowed_mut(i.slots[slot]);
    }
    if !matches!(
        kind,
        NumericKind::Add
            | NumericKind::Subtract
            | NumericKind::Multiply
            | NumericKind::MultiplyAdd
            | NumericKind::ShiftLeft
    ) {
        return lanes;
    }
    let read = |slot: usize| *cx.warp.regs.lanes::<u32>(i.slots[slot]);
    let (a, b) = (read(A), read(B));
    let c = if kind == NumericKind::MultiplyAdd { read(C) } else { [0; LANES] };
    for lane in lanes_of(cx.active) {
        let exact = |widen: fn(u32) -> i128| match kind {
            NumericKind::Add => widen(a[lane]) + widen(b[lane]),
            NumericKind::Subtract => widen(a[lane]) - widen(b[lane]),
            NumericKind::ShiftLeft => widen(a[lane]) << b[lane].min(32),
            _ => widen(a[lane]) * widen(b[lane]) + widen(c[lane]),
        };
        let unsigned = u32::try_from(exact(|x| x as i128)).is_ok();
        let signed = i32::try_from(exact(|x| x as i32 as i128)).is_ok();
        lanes |= (!unsigned && !signed) as u32 * (1 << lane);
    }
    lanes
}

#[cold]
fn overflowed_address(cx: &mut ExecutionContext<'_>, lanes: u32) -> Flow {
    let detail = "the address is computed from a 32-bit result that overflowed, both as an unsigned and as a signed integer";
    cx.fault(FindingKind::WrappedAddress, lanes.trailing_zeros(), detail)
}

/// Reports the first lane with a non-finite result of finite operands.
fn not_finite(
    cx: &mut ExecutionContext<'_>,
    i: &Inst,
    (kind, lanes): (NumericKind, u32),
    before: &[[u64; LANES]],
) -> Option<Flow> {
    let single = matches!(kind, NumericKind::Single(_));
    let value = |bits: u64| if single { f32::from_bits(bits as u32) as f64 } else { f64::from_bits(bits) };
    let after = match single {
        true => cx.warp.regs.lanes::<u32>(i.slots[D]).map(u64::from),
        false => *cx.warp.regs.lanes::<u64>(i.slots[D]),
    };
    let is_new = |&lane: &usize| {
        !value(after[lane]).is_finite() && before.iter().all(|operand| value(operand[lane]).is_finite())
    };
    let lane = lanes_of(lanes).find(is_new)?;
    let text = |bits: u64| match single {
        true => format!("{:e}", f32::from_bits(bits as u32)),
        false => format!("{:e}", f64::from_bits(bits)),
    };
    let operands: Vec<String> = before.iter().map(|operand| text(operand[lane])).collect();
    let detail = format!("the result is {}, of finite operands {}", value(after[lane]), operands.join(", "));
    Some(cx.fault(FindingKind::NotFinite, lane as u32, detail))
}
