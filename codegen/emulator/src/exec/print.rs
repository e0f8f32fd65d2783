//! `vprintf`, the call that compilers emit for `printf`, and the texts of failed assertions.
//!
//! The arguments are in memory, each aligned to its size. The text is that of the cluster, in the order in which its
//! threads print; a launch returns the texts of all clusters in the order of the grid.

use super::print_format::{Arguments, format};
use super::resolve::resolve_range;
use crate::code::access::{Access, classify};
use crate::code::cursor::InstructionCursor;
use crate::code::operands::{A, B, D};
use crate::context::{Exec, ExecutionContext, Flow, Inst};
use crate::finding::{FindingKind, Space};
use crate::lanes::LANES;
use crate::load::error::ParseError;
use crate::load::types::{Ty, Width};

/// Maximum number of bytes of a format or a string.
const MAX_STRING: u64 = 1 << 16;

/// Arguments in the memory of one lane. An error has set the worker's fault.
struct LaneArguments<'c, 'a> {
    cx: &'c mut ExecutionContext<'a>,
    lane: usize,
    next: u64,
}

impl LaneArguments<'_, '_> {
    /// Host address of bytes at a generic address.
    fn pointer(&mut self, address: u64, bytes: u64) -> Result<*const u8, ()> {
        let (space, mut at) = classify(address);
        if space == Space::Local {
            let local = self.cx.warp.local.bytes;
            let launch = self.cx.launch;
            let between = launch.checks.memory && !launch.program.is_in_local_variable(at, bytes);
            if at > local || bytes > local - at || between {
                let detail = "`vprintf` reads past the end of a local variable";
                self.cx.fault(FindingKind::OutOfBounds, self.lane as u32, detail);
                return Err(());
            }
            at += self.lane as u64 * local;
        }
        let found = resolve_range(self.cx, self.lane, (space, Access::Load), (at, bytes), bytes);
        found.map(<*mut u8>::cast_const).ok_or(())
    }
}

impl Arguments for LaneArguments<'_, '_> {
    type Error = ();

    fn next(&mut self, bytes: u64) -> Result<u64, ()> {
        let at = self.next.next_multiple_of(bytes);
        self.next = at + bytes;
        let pointer = self.pointer(at, bytes)?;
        // SAFETY: `pointer` checked 4 or 8 bytes.
        Ok(unsafe {
            match bytes {
                4 => pointer.cast::<u32>().read_unaligned() as u64,
                _ => pointer.cast::<u64>().read_unaligned(),
            }
        })
    }

    fn string(&mut self, address: u64) -> Result<String, ()> {
        let mut bytes = Vec::new();
        for at in 0..MAX_STRING {
            let pointer = self.pointer(address.wrapping_add(at), 1)?;
            // SAFETY: `pointer` checked the byte.
            match unsafe { pointer.read() } {
                0 => break,
                byte => bytes.push(byte),
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

fn print(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let formats = *cx.warp.regs.lanes::<u64>(i.slots[A]);
    let values = *cx.warp.regs.lanes::<u64>(i.slots[B]);
    let mut counts = *cx.warp.regs.lanes::<u32>(i.slots[D]);
    for lane in cx.active_lanes() {
        let mut arguments = LaneArguments { cx, lane, next: values[lane] };
        let printed = arguments.string(formats[lane]).and_then(|text| format(&text, &mut arguments));
        let Ok((text, count)) = printed else { return Flow::Fault };
        counts[lane] = count;
        cx.launch.printed.add(cx.cluster.index, &text);
    }
    cx.warp.regs.write(i.slots[D], &counts, cx.active);
    Flow::Next
}

/// A failed assertion; the register at slot A has the address of its text.
pub(super) fn failed_assertion(cx: &mut ExecutionContext<'_>, i: &Inst) -> Flow {
    let lane = cx.active.trailing_zeros() as usize % LANES;
    let address = cx.warp.regs.lanes::<u64>(i.slots[A])[lane];
    let text = LaneArguments { cx, lane, next: 0 }.string(address);
    // The fault of an unreadable text would say less than the failed assertion.
    let detail = match text {
        Ok(text) if !text.is_empty() => format!("an assertion of the kernel failed: {text}"),
        _ => "an assertion of the kernel failed".to_string(),
    };
    cx.fault(FindingKind::Trap, lane as u32, detail)
}

/// Decodes `call.vprintf count, format, values`, to which the loader expands a call of `vprintf`.
pub(crate) fn decode(op: &mut InstructionCursor<'_, '_>) -> Result<Exec, ParseError> {
    if !op.take("vprintf") {
        return Err(op.unsupported());
    }
    op.slots[D] = op.dst(0, Width::W32)?;
    op.slots[A] = op.src(1, Ty::B64)?;
    op.slots[B] = op.src(2, Ty::B64)?;
    Ok(print)
}
