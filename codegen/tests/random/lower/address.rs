//! Lowering of addresses, in the forms that kernels use.

use bespoke_codegen::ir::{Op, Type, Value};

use super::{ADD, AND, Lower, MUL, PLAIN, SHL};
use crate::lower::POINTERS;
use crate::program::{Form, Index, Place};

impl Lower<'_> {
    /// The pointer operand of an access, without the access's constant offset.
    pub(super) fn place(&mut self, place: &Place) -> Value {
        let mut pointer = self.base(place.region);
        let ty = self.function.value_type(pointer);
        if let Some(index) = &place.index {
            let offset = self.index(index);
            pointer = self.emit(Op::PtrAdd, ty, &[pointer, offset]);
        }
        if place.step != 0 {
            let step = self.constant(Type::I64, i64::from(place.step) as u64);
            pointer = self.emit(Op::PtrAdd, ty, &[pointer, step]);
        }
        pointer
    }

    pub(super) fn index(&mut self, index: &Index) -> Value {
        let mut value = self.operand(index.value);
        if let Some(mask) = index.mask {
            let mask = self.constant(Type::U32, mask.into());
            value = self.emit(AND, Type::U32, &[value, mask]);
        }
        let mut add = index.add;
        if index.wraps {
            let minus = self.emit(Op::Param(POINTERS.len() as u32), Type::U32, &[]);
            value = self.emit(ADD, Type::U32, &[value, minus]);
            add += 16;
        }
        let signed = matches!(index.form, Form::WideSigned | Form::NarrowSigned);
        let ty = if signed { Type::I32 } else { Type::U32 };
        if signed {
            value = self.emit(Op::Bitcast, ty, &[value]);
        }
        if add != 0 {
            let add = self.constant(ty, i64::from(add) as u64);
            value = self.emit(ADD, ty, &[value, add]);
        }
        let scale = u64::from(index.scale);
        let log2 = scale.is_power_of_two().then_some(u64::from(scale.trailing_zeros()));
        match (index.form, log2) {
            (Form::Wide | Form::WideSigned, _) => {
                let scale = self.constant(ty, scale);
                self.emit(Op::MulWide, ty, &[value, scale])
            }
            (Form::Shifted, Some(log2)) => {
                let (wide, amount) = (self.emit(PLAIN, Type::U64, &[value]), self.constant(Type::U32, log2));
                self.emit(SHL, Type::U64, &[wide, amount])
            }
            (Form::Shifted | Form::Converted, _) => {
                let (wide, scale) = (self.emit(PLAIN, Type::U64, &[value]), self.constant(Type::U64, scale));
                self.emit(MUL, Type::U64, &[wide, scale])
            }
            (Form::NarrowSigned, Some(log2)) => {
                let amount = self.constant(Type::U32, log2);
                self.emit(SHL, ty, &[value, amount])
            }
            (Form::Narrow | Form::NarrowSigned, _) => {
                let scale = self.constant(ty, scale);
                self.emit(MUL, ty, &[value, scale])
            }
        }
    }
}
