//! Matrix products of a warp.

use super::rule::{ANY, Rule, T, U32, typed};
use super::table::named_enum;
use super::types::Type;

named_enum! {
    /// Rows, columns and inner dimension of a product: A is m×k, B is k×n, C and D are m×n.
    pub enum MmaShape {
        /// 16 × 8 × 8.
        M16N8K8 = "m16n8k8",
        /// 16 × 8 × 16.
        M16N8K16 = "m16n8k16",
        /// 16 × 8 × 32.
        M16N8K32 = "m16n8k32",
    }
}

named_enum! {
    /// Element type of A or B.
    pub enum MmaElement {
        /// Unsigned bytes.
        U8 = "u8",
        /// Signed bytes.
        I8 = "i8",
        /// IEEE binary16.
        F16 = "f16",
        /// bfloat16.
        Bf16 = "bf16",
    }
}

/// D = A·B + C, each matrix distributed over the registers of the 32 lanes. Operands: registers of A, then of B (u32
/// each), then of C; results: registers of D. C and D have the instruction's type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mma {
    /// Matrix dimensions.
    pub shape: MmaShape,
    /// Element type of A.
    pub a: MmaElement,
    /// Element type of B.
    pub b: MmaElement,
}

impl MmaShape {
    /// The dimensions m, n and k.
    pub fn dimensions(self) -> [u32; 3] {
        match self {
            MmaShape::M16N8K8 => [16, 8, 8],
            MmaShape::M16N8K16 => [16, 8, 16],
            MmaShape::M16N8K32 => [16, 8, 32],
        }
    }
}

impl MmaElement {
    /// Width of an element in bits.
    pub fn bits(self) -> u32 {
        match self {
            MmaElement::U8 | MmaElement::I8 => 8,
            MmaElement::F16 | MmaElement::Bf16 => 16,
        }
    }

    /// Type of the accumulator: i32 or f32.
    pub fn sum(self) -> Type {
        match self {
            MmaElement::U8 | MmaElement::I8 => Type::I32,
            MmaElement::F16 | MmaElement::Bf16 => Type::F32,
        }
    }
}

impl Mma {
    /// Number of 32-bit registers per lane for a fragment of A, of B, and of C or D.
    pub fn registers(self) -> [usize; 3] {
        let [m, n, k] = self.shape.dimensions();
        let registers = |elements: u32, bits: u32| (elements * bits / (32 * 32)) as usize;
        [registers(m * k, self.a.bits()), registers(k * n, self.b.bits()), registers(m * n, 32)]
    }

    /// Type rule of the product with accumulators of type `ty`.
    pub(super) fn rule(self, ty: Type) -> Rule {
        let [a, b, c] = self.registers();
        let operands = [vec![U32; a + b], vec![T; c]].concat();
        typed(ANY, &operands, &vec![T; c]).check(self.check(ty))
    }

    fn check(self, ty: Type) -> Result<(), String> {
        let Mma { shape, a, b } = self;
        let bytes = a.sum() == Type::I32 && b.sum() == Type::I32;
        if !bytes && a != b {
            return Err(format!("no product of {a} and {b}"));
        }
        if ty != a.sum() {
            return Err(format!("the sums of a product of {a} and {b} are {}, not {ty}", a.sum()));
        }
        // A row of A is 16 or 32 bytes.
        if !matches!(shape.dimensions()[2] * a.bits(), 128 | 256) {
            return Err(format!("no {shape} product of {a}"));
        }
        Ok(())
    }
}
