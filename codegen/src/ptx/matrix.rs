//! Matrix products as PTX.

use super::printer::Printer;
use crate::ir::{InstData, Mma, MmaElement};

impl Printer<'_> {
    pub(super) fn mma(&mut self, mma: Mma, data: &InstData) {
        let [a, b, _] = mma.registers(data.ty);
        let name = |element: MmaElement| match element {
            MmaElement::U8 => "u8",
            MmaElement::I8 => "s8",
            MmaElement::F16 => "f16",
            MmaElement::Bf16 => "bf16",
            MmaElement::Tf32 => "tf32",
        };
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

    pub(super) fn wgmma(&mut self, element: MmaElement, columns: u32, data: &InstData) {
        self.update_in_place(data);
        let sums = self.tuple(&data.results);
        let [a @ .., b] = &data.args[data.results.len()..] else {
            unreachable!("the verifier counts operands")
        };
        let a = self.tuple(a);
        let b = self.register(*b);
        // Sums are added to, neither operand is negated, and B is stored along K.
        self.line(format_args!(
            "wgmma.mma_async.sync.aligned.m64n{columns}k16.f32.{element}.{element} {sums}, {a}, {b}, 1, 1, 1, 0;"
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
