//! Matrix products as PTX.

use super::printer::Printer;
use crate::ir::{InstData, Mma, MmaElement};

impl Printer<'_> {
    pub(super) fn mma(&mut self, mma: Mma, data: &InstData) {
        let [a, b, _] = mma.registers();
        let name = |element: MmaElement| match element {
            MmaElement::U8 => "u8",
            MmaElement::I8 => "s8",
        };
        let sum = super::operand::arithmetic(data.ty);
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
}
