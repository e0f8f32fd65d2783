//! Runs the numeric checks: each checked instruction is wrapped in a function that looks at its operands and results.
//!
//! A launch without numeric checks runs the kernel's own instructions, so they cost nothing there.

use crate::checks::numeric::{Kind, NumericChecks, NumericRole};
use crate::code::access::{FLAGS, SPACE_BITS, StateSpace};
use crate::code::operands::{A, B, C, D};
use crate::context::{ExecutionContext, Flow, Inst};
use crate::finding::FindingKind;
use crate::lanes::{LANES, lanes_of};

/// Copies of a kernel's instructions in which [`checked`] runs those that the checks concern; none if there are no
/// checks.
pub(crate) fn instrument(insts: &[Inst], checks: NumericChecks<'_>) -> Vec<Inst> {
    let wanted = |role: &NumericRole| match role.kind {
        Kind::Single(_) | Kind::Double(_) => checks.values || checks.overflow,
        _ => checks.overflow,
    };
    if !checks.values && !checks.overflow {
        return Vec::new();
    }
    let one = |(inst, role): (&Inst, &NumericRole)| {
        if wanted(role) { Inst { run: checked, ..*inst } } else { *inst }
    };
    insts.iter().zip(checks.roles).map(one).collect()
}

/// Runs an instruction and checks its values.
fn checked(m: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let (launch, pc) = (m.launch, m.warp.pc);
    let (Some(own), Some(role)) = (launch.insts.get(pc), launch.numeric.roles.get(pc)) else {
        return m.fault(FindingKind::Trap, 0, "no such instruction");
    };
    let lanes = m.active;
    let (values, overflow) = (launch.numeric.values, launch.numeric.overflow);
    let mut before = [[0u64; LANES]; 3];
    let count = match role.kind {
        Kind::Single(count) | Kind::Double(count) if values => count,
        _ => 0,
    };
    for (operand, slot) in [A, B, C].into_iter().enumerate().take(count) {
        before[operand] = match role.kind {
            Kind::Single(_) => m.warp.regs.lanes::<u32>(i.slots[slot]).map(u64::from),
            _ => *m.warp.regs.lanes::<u64>(i.slots[slot]),
        };
    }
    let mut wrapped = 0;
    if overflow {
        wrapped = wrapped_lanes(m, i, role.kind);
        if role.kind == Kind::Access && wrapped & lanes != 0 {
            return wrapped_address(m, wrapped & lanes);
        }
    }
    // SAFETY: the instruction is the kernel's own, and the launch was set up to run it in this warp.
    let flow = unsafe { (own.run)(m, own) };
    if flow == Flow::Fault {
        return flow;
    }
    if overflow {
        let kept = if role.kind == Kind::Access { 0 } else { wrapped & lanes };
        for &slot in &role.writes {
            let known = m.warp.wrapped_mut(slot);
            *known = *known & !lanes | kept;
        }
    }
    match count {
        0 => flow,
        _ => not_finite(m, i, (role.kind, lanes), &before[..count]).unwrap_or(flow),
    }
}

/// The lanes whose result, or address, has wrapped: it is right neither as an unsigned number nor as a signed one.
fn wrapped_lanes(m: &mut ExecutionContext<'_>, i: &Inst, kind: Kind) -> u32 {
    let operands = match kind {
        Kind::Carries(count) => count,
        Kind::Access if i.slots[FLAGS] & SPACE_BITS == StateSpace::ParamDirect as u32 => 0,
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
fn wrapped_address(m: &mut ExecutionContext<'_>, lanes: u32) -> Flow {
    let detail = "the address is made of a 32-bit number that has wrapped: it fits neither 32 bits unsigned nor signed";
    m.fault(FindingKind::WrappedAddress, lanes.trailing_zeros(), detail)
}

/// Looks for a result that is not finite though all operands are.
fn not_finite(
    m: &mut ExecutionContext<'_>,
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
