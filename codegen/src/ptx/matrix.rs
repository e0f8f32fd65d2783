//! Matrix products as PTX.

use super::printer::Printer;
use crate::ir::{InstData, Mma, MmaElement, Type, WgmmaOperands};

impl Printer<'_> {
    pub(super) fn mma(&mut self, mma: Mma, data: &InstData) {
        let [a, b, _] = mma.registers(data.ty);
        let sum = super::operand::arithmetic(data.ty.half().unwrap_or(data.ty));
        let (left, rest) = data.args.split_at(a);
        let (right, sums) = rest.split_at(b);
        let [to, left, right, sums] = [&data.results[..], left, right, sums].map(|values| self.tuple(values));
        self.line(format_args!(
            "mma.sync.aligned.{}.row.col.{sum}.{}.{}.{sum} {to}, {left}, {right}, {sums};",
            mma.shape,
            name(mma.a),
            name(mma.b)
        ));
    }

    pub(super) fn wgmma(
        &mut self,
        elements: [MmaElement; 2],
        columns: u32,
        operands: WgmmaOperands,
        data: &InstData,
    ) {
        let in_place = data.in_place();
        self.update_in_place(data);
        let sums = self.tuple(&data.results);
        let [left @ .., descriptor] = &data.args[in_place..] else {
            unreachable!("the verifier counts operands")
        };
        let left = match left {
            &[left] if operands.a_shared => self.register(left).to_string(),
            fragment => self.tuple(fragment),
        };
        let descriptor = self.register(*descriptor);
        let [a, b] = elements.map(name);
        let depth = 256 / elements[0].bits();
        let sum = super::operand::arithmetic(data.ty.half().unwrap_or(data.ty));
        let adds = u32::from(in_place > 0);
        // Products of floats: neither operand is negated. Only elements of 16 bits can be transposed.
        let mut flags = String::new();
        if data.ty != Type::I32 {
            flags += ", 1, 1";
        }
        if elements[0].bits() == 16 {
            let transposed =
                [operands.a_shared.then_some(operands.a_transposed), Some(operands.b_transposed)];
            flags.extend(transposed.into_iter().flatten().map(|flag| if flag { ", 1" } else { ", 0" }));
        }
        self.line(format_args!(
            "wgmma.mma_async.sync.aligned.m64n{columns}k{depth}.{sum}.{a}.{b} {sums}, {left}, {descriptor}, \
             {adds}{flags};"
        ));
    }

    pub(super) fn load_matrix(&mut self, matrices: u8, transposed: bool, data: &InstData) {
        let from = self.register(data.args[0]);
        let to = self.tuple(&data.results);
        let transposed = if transposed { ".trans" } else { "" };
        self.line(format_args!(
            "ldmatrix.sync.aligned.m8n8.x{matrices}{transposed}.shared.b16 {to}, [{from}];"
        ));
    }
}

/// Name of an element's type in PTX.
fn name(element: MmaElement) -> &'static str {
    match element {
        MmaElement::U8 => "u8",
        MmaElement::I8 => "s8",
        MmaElement::F16 => "f16",
        MmaElement::Bf16 => "bf16",
        MmaElement::Tf32 => "tf32",
        MmaElement::E4m3 => "e4m3",
        MmaElement::E5m2 => "e5m2",
        MmaElement::F64 => "f64",
    }
}
