//! A loaded kernel without the functions that execute it: source lines, register checks, and the memory that it
//! declares.

use std::collections::HashMap;
use std::sync::Arc;

use super::collective::Collective;
use super::operands::{NEGATED, NONE};
use super::value_flow::ValueFlow;
use crate::finding::SourceLine;
use crate::load::ast::{Location, RegId, Special};
use crate::load::layout::{Layout, Uniform};
use crate::memory::PlacedVariable;

/// Bytes of a CTA's shared memory that are reserved for the system, as on devices since sm_80. A device places them before
/// the variables, the emulator after them.
pub(crate) const RESERVED_SHARED: u64 = 1024;

/// Position of an instruction in the PTX text and in the kernel's own source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) line: u32,
    /// Index into [`Program::locations`], if the position in the kernel's own source is known.
    pub(crate) source: Option<u32>,
}

/// Registers of one instruction whose initialisation is tracked at run time. Numbers of type `usize` index the warp's
/// masks of initialised lanes.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegisterCheck {
    pub(crate) reads: Vec<(usize, RegId)>,
    /// Registers that are read in the lanes in which the predicate at the slot `condition` holds.
    pub(crate) conditional_reads: Vec<(usize, RegId)>,
    pub(crate) condition: u32,
    pub(crate) writes: Vec<usize>,
}

/// The text and the variables of a module, which its kernels share.
#[derive(Debug)]
pub(crate) struct Source {
    /// Identifies the module in [`Memory`](crate::Memory).
    pub(crate) id: u64,
    pub(crate) lines: Vec<String>,
    /// Paths of the `.file` directives.
    pub(crate) files: HashMap<u32, String>,
    /// The `.global` and `.const` variables, in ascending order of offset, with guard zones between them.
    pub(crate) variables: Vec<PlacedVariable>,
    /// The initial bytes of each variable; the others are zeros.
    pub(crate) initial: Vec<Vec<u8>>,
    /// Addresses of variables among the initial bytes.
    pub(crate) addresses: Vec<AddressOfVariable>,
}

/// An initial address of a module's variable.
#[derive(Debug)]
pub(crate) struct AddressOfVariable {
    /// Index of the variable whose initial value contains the address.
    pub(crate) holder: usize,
    /// Offset in that variable.
    pub(crate) at: usize,
    /// The address, relative to the first variable.
    pub(crate) offset: i64,
}

/// Registers that are operands of some `wgmma`: accumulators, and operand `A`. The loader numbers them.
#[derive(Debug, Default)]
pub(crate) struct WgmmaRegisters {
    /// The register with each number.
    pub(crate) registers: Vec<RegId>,
    /// For each instruction but `wgmma`, the numbers of the registers that it uses, and whether it writes them; empty
    /// if the kernel has no `wgmma`.
    pub(crate) uses: Vec<Box<[(u32, bool)]>>,
}

impl WgmmaRegisters {
    /// Name of the register with a number.
    pub(crate) fn name<'p>(&self, program: &'p Program, number: u32) -> &'p str {
        &program.register_names[self.registers[number as usize] as usize]
    }
}

/// A kernel's code and declarations, without the functions that execute its instructions.
#[derive(Debug)]
pub(crate) struct Program {
    pub(crate) name: String,
    pub(crate) source: Arc<Source>,
    pub(crate) places: Vec<Place>,
    /// Whether each instruction ends the thread, without a condition.
    pub(crate) exits: Vec<bool>,
    pub(crate) locations: Vec<Location>,
    /// Bytes of shared memory that the kernel declares.
    pub(crate) static_shared: u64,
    /// As `static_shared`, with the guard zones that the emulator puts between variables.
    pub(crate) guarded_shared: u64,
    /// Shared variables of a declared size.
    pub(crate) shared: Vec<PlacedVariable>,
    /// Name and offset of the shared array whose size the launch chooses.
    pub(crate) dynamic_shared: Option<(String, u64)>,
    /// Bytes of local memory per thread, with guard zones between its variables.
    pub(crate) local: u64,
    /// Variables in a thread's local memory, in ascending order of offset.
    pub(crate) local_variables: Vec<PlacedVariable>,
    /// Offset in a thread's local memory of the stack of `alloca`.
    pub(crate) stack: u64,
    pub(crate) layout: Layout,
    pub(crate) register_names: Vec<String>,
    pub(crate) register_checks: Vec<RegisterCheck>,
    /// Flow of values through each instruction.
    pub(crate) value_flow: Vec<ValueFlow>,
    /// The instructions with a member mask whose members may be at different instructions.
    pub(crate) collectives: HashMap<usize, Collective>,
    /// Whether an instruction loads with `.nc`.
    pub(crate) loads_non_coherent: bool,
    /// Number of registers whose initialisation is tracked at run time.
    pub(crate) tracked: usize,
    /// Operand lists of instructions that have more operands than slots.
    pub(crate) lists: Vec<Box<[u32]>>,
    pub(crate) wgmma: WgmmaRegisters,
    /// Registers per thread at the start of the kernel, if a directive limits them.
    pub(crate) entry_registers: Option<u32>,
}

impl Program {
    /// Operand list number `index`.
    #[inline(always)]
    pub(crate) fn list(&self, index: u64) -> &[u32] {
        &self.lists[index as usize]
    }

    /// Whether an instruction's guard is `register`.
    pub(crate) fn is_guard(&self, guard: u32, register: RegId) -> bool {
        guard != NONE && guard & !NEGATED == self.layout.register(register)
    }

    /// Whether an access of local memory is inside one variable, or in the stack of `alloca`.
    pub(crate) fn is_in_local_variable(&self, address: u64, bytes: u64) -> bool {
        let after = self.local_variables.partition_point(|variable| variable.offset <= address);
        let variable = after.checked_sub(1).map(|index| &self.local_variables[index]);
        address >= self.stack || variable.is_some_and(|v| address + bytes <= v.offset + v.bytes)
    }

    /// Offset of the memory reserved for the system in a CTA's shared memory; `None` if the kernel does not use it.
    /// `dynamic_bytes` is the size of the launch's dynamic shared memory.
    pub(crate) fn reserved_shared(&self, dynamic_bytes: u32) -> Option<u64> {
        let is_reserved = |uniform: Uniform| matches!(uniform, Uniform::Special(Special::ReservedShared(_)));
        let is_used = self.layout.uniforms().any(|(uniform, ..)| is_reserved(uniform));
        let end = self.guarded_shared + u64::from(dynamic_bytes);
        is_used.then(|| (end + RESERVED_SHARED).next_multiple_of(RESERVED_SHARED))
    }

    /// Bytes of a CTA's shared memory, with guard zones and `dynamic_bytes` of dynamic shared memory.
    pub(crate) fn shared_bytes(&self, dynamic_bytes: u32) -> u64 {
        let reserved = self.reserved_shared(dynamic_bytes).map(|offset| offset + RESERVED_SHARED);
        reserved.unwrap_or(self.guarded_shared + u64::from(dynamic_bytes))
    }

    /// Every shared variable, for a launch with `dynamic_bytes` of dynamic shared memory.
    pub(crate) fn shared_variables(&self, dynamic_bytes: u32) -> Vec<PlacedVariable> {
        let dynamic = self.dynamic_shared.clone().map(|(name, offset)| PlacedVariable {
            name,
            offset,
            bytes: dynamic_bytes as u64,
        });
        let reserved = self.reserved_shared(dynamic_bytes).map(|offset| PlacedVariable {
            name: "shared memory reserved for the system".to_string(),
            offset,
            bytes: RESERVED_SHARED,
        });
        self.shared.iter().cloned().chain(dynamic).chain(reserved).collect()
    }

    /// Position of instruction `pc`, or of the last instruction if `pc` is past the end.
    pub(crate) fn place(&self, pc: usize) -> Place {
        self.places[pc.min(self.places.len() - 1)]
    }

    /// The text of a PTX line, trimmed.
    pub(crate) fn line_text(&self, line: u32) -> String {
        let index = (line as usize).saturating_sub(1);
        self.source.lines.get(index).map_or(String::new(), |text| text.trim().to_string())
    }

    /// Line in the kernel's own source, if known.
    pub(crate) fn source_line(&self, place: Place) -> Option<SourceLine> {
        place.source.map(|at| self.line_at(self.locations[at as usize]))
    }

    /// The call sites through which a place was inlined, innermost first.
    pub(crate) fn inlined_at(&self, place: Place) -> Vec<SourceLine> {
        let outer = |at: u32| self.locations[at as usize].inlined_at;
        let callers = std::iter::successors(place.source.and_then(outer), |&at| outer(at));
        callers.map(|at| self.line_at(self.locations[at as usize])).collect()
    }

    fn line_at(&self, Location { at: (file, line, column), .. }: Location) -> SourceLine {
        let file = self.source.files.get(&file).cloned().unwrap_or_else(|| format!("file {file}"));
        SourceLine { file, line, column }
    }
}
