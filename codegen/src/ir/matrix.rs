//! Matrix products of a warp.

use super::effect::{BASELINE, Requirement, since};
use super::lex::ParseError;
use super::members::{Flag, Format, Variant};
use super::named::named_enum;
use super::reader::Reader;
use super::rule::{ANY, BITS_32, OperandType, Rule, T, U32, U64, exactly, typed};
use super::types::Type;
use crate::target::Target::{Sm89, Sm90};

named_enum! {
    /// Rows, columns and inner dimension of a product: A is m×k, B is k×n, C and D are m×n.
    pub enum MmaShape {
        /// 8 × 8 × 4.
        M8N8K4 = "m8n8k4",
        /// 16 × 8 × 4.
        M16N8K4 = "m16n8k4",
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
        /// binary32 of which the low 13 bits are ignored: sign, 8 bits of exponent, 10 bits of fraction.
        Tf32 = "tf32",
        /// Floats of 8 bits: sign, 4 bits of exponent, 3 bits of fraction.
        E4m3 = "e4m3",
        /// Floats of 8 bits: sign, 5 bits of exponent, 2 bits of fraction.
        E5m2 = "e5m2",
        /// IEEE binary64.
        F64 = "f64",
    }
}

/// D = A·B + C, each matrix distributed over the registers of the 32 lanes. Operands: registers of A, then of B (u32
/// each; of f64 one element each), then of C; results: registers of D. C and D have the instruction's type.
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
            MmaShape::M8N8K4 => [8, 8, 4],
            MmaShape::M16N8K4 => [16, 8, 4],
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
            MmaElement::U8 | MmaElement::I8 | MmaElement::E4m3 | MmaElement::E5m2 => 8,
            MmaElement::F16 | MmaElement::Bf16 => 16,
            MmaElement::Tf32 => 32,
            MmaElement::F64 => 64,
        }
    }

    /// Whether this is a float of 8 bits.
    pub fn is_float8(self) -> bool {
        matches!(self, MmaElement::E4m3 | MmaElement::E5m2)
    }

    /// Type of the accumulator: i32, f32 or f64. Products of f16 and of floats of 8 bits may have pairs of f16 sums instead.
    pub fn sum(self) -> Type {
        match self {
            MmaElement::U8 | MmaElement::I8 => Type::I32,
            MmaElement::F16 | MmaElement::Bf16 | MmaElement::Tf32 | MmaElement::E4m3 | MmaElement::E5m2 => {
                Type::F32
            }
            MmaElement::F64 => Type::F64,
        }
    }
}

impl Mma {
    /// Number of registers per lane for a fragment of A, of B, and of C or D with accumulators of type `ty`: of 64 bits for
    /// f64, of 32 bits for other elements.
    pub fn registers(self, ty: Type) -> [usize; 3] {
        let [m, n, k] = self.shape.dimensions();
        let wide = if self.a == MmaElement::F64 { 2 } else { 1 };
        let registers = |elements: u32, bits: u32| (elements * bits / (32 * 32 * wide)) as usize;
        [
            registers(m * k, self.a.bits()),
            registers(k * n, self.b.bits()),
            registers(m * n, if ty == Type::F16x2 { 16 } else { 32 * wide }),
        ]
    }

    /// Type rule of the product with accumulators of type `ty`.
    pub(super) fn rule(self, ty: Type) -> Rule {
        let [a, b, c] = self.registers(ty);
        let factor = if self.a == MmaElement::F64 { exactly(Type::F64) } else { U32 };
        let operands = [vec![factor; a + b], vec![T; c]].concat();
        typed(ANY, &operands, &vec![T; c]).check(self.check(ty))
    }

    fn check(self, ty: Type) -> Result<(), String> {
        let Mma { shape, a, b } = self;
        let bytes = a.sum() == Type::I32 && b.sum() == Type::I32;
        let floats8 = a.is_float8() && b.is_float8();
        if !bytes && !floats8 && a != b {
            return Err(format!("no product of {a} and {b}"));
        }
        let halves = ty == Type::F16x2 && (a == MmaElement::F16 || floats8);
        if ty != a.sum() && !halves {
            return Err(format!("the sums of a product of {a} and {b} are {}, not {ty}", a.sum()));
        }
        let [rows, _, depth] = shape.dimensions();
        let exists = match a {
            MmaElement::F64 => depth <= 16,
            // A row of A is 16 or 32 bytes.
            _ => rows == 16 && matches!(depth * a.bits(), 128 | 256),
        };
        if exists { Ok(()) } else { Err(format!("no {shape} product of {a}")) }
    }

    /// Lowest target and PTX version of the product with accumulators of type `ty`.
    pub(super) fn requirement(self, ty: Type) -> Option<Requirement> {
        let Mma { shape, a, b } = self;
        match a {
            MmaElement::F64 if shape != MmaShape::M8N8K4 => {
                since(format!("mma.{shape} of f64"), Sm90, (7, 8))
            }
            MmaElement::E4m3 | MmaElement::E5m2 => {
                let first = shape == MmaShape::M16N8K32 && ty == Type::F32;
                since(format!("mma of {a} and {b}"), Sm89, if first { (8, 4) } else { (8, 7) })
            }
            _ => BASELINE,
        }
    }
}

/// Where the operands of a warpgroup's product are, and their order in shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WgmmaOperands {
    /// Whether A is in shared memory; else in registers.
    pub a_shared: bool,
    /// Whether A in shared memory is contiguous along its rows' numbers (M); else along K.
    pub a_transposed: bool,
    /// Whether B is contiguous along its columns' numbers (N); else along K.
    pub b_transposed: bool,
}

/// Format of a matrix product: its shape, then the element types of A and of B.
pub(super) struct MmaFormat;

impl Format<Mma> for MmaFormat {
    fn print(&self, member: Mma, _: Type) -> String {
        format!("{} {} {}", member.shape, member.a, member.b)
    }

    fn read(&self, reader: &mut Reader, ty: Type) -> Result<Mma, ParseError> {
        let shape = Variant.read(reader, ty)?;
        Ok(Mma { shape, a: Variant.read(reader, ty)?, b: Variant.read(reader, ty)? })
    }

    fn examples(&self) -> Vec<Mma> {
        let mut all = Vec::new();
        for &shape in MmaShape::ALL {
            for &a in MmaElement::ALL {
                all.extend(MmaElement::ALL.iter().map(|&b| Mma { shape, a, b }));
            }
        }
        all
    }
}

/// Format of the operands of a warpgroup's product: a word for each property that is true.
pub(super) struct WgmmaOperandsFormat;

const A_SHARED: Flag = Flag("a_shared");
const A_TRANSPOSED: Flag = Flag("a_transposed");
const B_TRANSPOSED: Flag = Flag("b_transposed");

impl Format<WgmmaOperands> for WgmmaOperandsFormat {
    fn print(&self, member: WgmmaOperands, ty: Type) -> String {
        let words = [
            A_SHARED.print(member.a_shared, ty),
            A_TRANSPOSED.print(member.a_transposed, ty),
            B_TRANSPOSED.print(member.b_transposed, ty),
        ];
        words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
    }

    fn read(&self, reader: &mut Reader, ty: Type) -> Result<WgmmaOperands, ParseError> {
        Ok(WgmmaOperands {
            a_shared: A_SHARED.read(reader, ty)?,
            a_transposed: A_TRANSPOSED.read(reader, ty)?,
            b_transposed: B_TRANSPOSED.read(reader, ty)?,
        })
    }

    fn examples(&self) -> Vec<WgmmaOperands> {
        let plain = WgmmaOperands::default();
        vec![
            plain,
            WgmmaOperands { b_transposed: true, ..plain },
            WgmmaOperands { a_shared: true, a_transposed: true, ..plain },
        ]
    }
}

/// Rule of a product of a warpgroup with `columns` columns and sums of type `ty`: operands are the sums, unless the product
/// starts `from_zero`, four registers or the matrix descriptor of A, and the matrix descriptor of B; results are the sums.
pub(super) fn wgmma_rule(
    [a, b]: [MmaElement; 2],
    columns: u32,
    from_zero: bool,
    of: WgmmaOperands,
    ty: Type,
) -> Rule {
    let sums = wgmma_sums(columns, ty);
    let bytes = a.sum() == Type::I32 && b.sum() == Type::I32;
    let floats8 = a.is_float8() && b.is_float8();
    let half_sums = ty == Type::F16x2 && (a == MmaElement::F16 || floats8);
    // Products of bytes have fewer sizes: PTX ISA, "Asynchronous Warpgroup Level Matrix Instructions: wgmma.mma_async".
    let step = if bytes && columns > 32 { 16 } else { 8 };
    let check = if !bytes && !floats8 && a != b {
        Err(format!(
            "no product of a warpgroup with elements of {a} and {b}: bytes, and e4m3 and e5m2, can be mixed; others cannot"
        ))
    } else if ty != a.sum() && !half_sums {
        Err(format!("the sums of a product of {a} and {b} are {}, not {ty}", a.sum()))
    } else if columns == 0 || columns > 256 || !columns.is_multiple_of(step) {
        let sizes = if bytes { "8, 16, 24, 32, 48, 64, …" } else { "8, 16, …" };
        Err(format!("a product of a warpgroup has {sizes} or 256 columns, not {columns}"))
    } else if of.a_transposed && !of.a_shared {
        Err("operand A in registers cannot be transposed".to_owned())
    } else if (of.a_transposed || of.b_transposed) && a.bits() != 16 {
        Err(format!("operands of {a} and {b} cannot be transposed: only those of f16 and bf16"))
    } else {
        Ok(())
    };
    let left = if of.a_shared { vec![U64] } else { vec![U32; 4] };
    let read = if from_zero { 0 } else { sums };
    let operands = [vec![T; read], left, vec![U64]].concat();
    typed(BITS_32, &operands, &vec![T; sums]).check(check)
}

/// Registers per thread of the sums of type `ty` of a product of a warpgroup with `columns` columns.
pub(super) fn wgmma_sums(columns: u32, ty: Type) -> usize {
    columns as usize / if ty == Type::F16x2 { 4 } else { 2 }
}

/// Rule of an instruction that returns its operands: `sums` of the instruction's type and `words` u32.
pub(super) fn pass_through(sums: u32, words: u32) -> Rule {
    let slots: Vec<OperandType> = [vec![T; sums as usize], vec![U32; words as usize]].concat();
    typed(BITS_32, &slots, &slots)
}
