//! Layout of a warp's register file: registers, constants and special registers.

use std::collections::HashMap;

use super::ast::{RegId, Special};
use super::types::Width;
use crate::lanes::LANES;

/// Value that is constant while a warp runs, but not known before the launch.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Uniform {
    Special(Special),
    /// Address of an offset in the CTA's shared memory. The CTA's shared memory starts at 0 if the cluster has one CTA.
    SharedAddress(u64),
    /// Address of an offset in the memory of the module's variables.
    ModuleAddress(i64),
}

/// Layout of a kernel's register file: registers first, then constants and uniform values. A slot is the byte offset of
/// a value.
#[derive(Debug)]
pub(crate) struct Layout {
    registers: Vec<u32>,
    image_start: u32,
    image: Vec<u8>,
    constants: HashMap<(Width, u64), u32>,
    uniforms: HashMap<(Uniform, Width), u32>,
    /// Slots of results that nothing reads.
    discarded: HashMap<Width, u32>,
}

impl Layout {
    /// Creates a layout from the slot of each register; all registers together take `bytes` bytes.
    pub(crate) fn new(registers: Vec<u32>, bytes: u32) -> Layout {
        Layout {
            registers,
            image_start: bytes.next_multiple_of(64),
            image: Vec::new(),
            constants: HashMap::new(),
            uniforms: HashMap::new(),
            discarded: HashMap::new(),
        }
    }

    /// Creates a layout in which no two registers share a slot.
    pub(crate) fn unshared(widths: &[Width]) -> Layout {
        let mut next = 0u32;
        let slots = widths.iter().map(|width| {
            let slot = next;
            next += width.slot_bytes().next_multiple_of(64);
            slot
        });
        let slots = slots.collect();
        Layout::new(slots, next)
    }

    pub(crate) fn bytes(&self) -> u32 {
        self.image_start + self.image.len() as u32
    }

    /// Slot at which the constants and uniform values start, and their initial bytes.
    pub(crate) fn image(&self) -> (u32, &[u8]) {
        (self.image_start, &self.image)
    }

    pub(crate) fn register(&self, register: RegId) -> u32 {
        self.registers[register as usize]
    }

    /// Uniform values with their slots.
    pub(crate) fn uniforms(&self) -> impl Iterator<Item = (Uniform, Width, u32)> {
        self.uniforms.iter().map(|(&(uniform, width), &slot)| (uniform, width, slot))
    }

    /// Slot of the constant with the value `bits` in all lanes; added if it is new.
    pub(crate) fn constant(&mut self, width: Width, bits: u64) -> u32 {
        if let Some(&slot) = self.constants.get(&(width, bits)) {
            return slot;
        }
        let slot = self.append(width, |_| bits);
        self.constants.insert((width, bits), slot);
        slot
    }

    /// Slot of a special register; added if it is new. If the register's values depend only on
    /// the lane, the initial bytes already contain them.
    pub(crate) fn special(&mut self, special: Special, width: Width) -> u32 {
        self.uniform_with(Uniform::Special(special), width, |lane| match special {
            Special::Laneid => lane,
            Special::LanemaskEq => 1 << lane,
            Special::LanemaskLe => (2 << lane) - 1,
            Special::LanemaskLt => (1 << lane) - 1,
            Special::LanemaskGe => u32::MAX as u64 & !((1 << lane) - 1),
            Special::LanemaskGt => u32::MAX as u64 & !((2 << lane) - 1),
            _ => 0,
        })
    }

    pub(crate) fn uniform(&mut self, uniform: Uniform, width: Width) -> u32 {
        let initial = if let Uniform::SharedAddress(offset) = uniform { offset } else { 0 };
        self.uniform_with(uniform, width, |_| initial)
    }

    fn uniform_with(&mut self, uniform: Uniform, width: Width, value: impl Fn(u64) -> u64) -> u32 {
        if let Some(&slot) = self.uniforms.get(&(uniform, width)) {
            return slot;
        }
        let slot = self.append(width, value);
        self.uniforms.insert((uniform, width), slot);
        slot
    }

    /// Slot for results that nothing reads.
    pub(crate) fn discarded(&mut self, width: Width) -> u32 {
        if let Some(&slot) = self.discarded.get(&width) {
            return slot;
        }
        let slot = self.append(width, |_| 0);
        self.discarded.insert(width, slot);
        slot
    }

    fn append(&mut self, width: Width, value: impl Fn(u64) -> u64) -> u32 {
        let slot = self.bytes();
        match width {
            Width::Predicate => {
                let mask = if value(0) & 1 != 0 { u32::MAX } else { 0 };
                self.image.extend_from_slice(&mask.to_le_bytes());
                self.image.resize(self.image.len().next_multiple_of(64), 0);
            }
            _ => {
                let bytes = width.bits() as usize / 8;
                for lane in 0..LANES {
                    self.image.extend_from_slice(&value(lane as u64).to_le_bytes()[..bytes]);
                }
            }
        }
        slot
    }
}
