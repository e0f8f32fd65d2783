//! Sums of matrix products: the fragment of C and D, and the types of sums.

use crate::Carry;
use crate::dsl::scalar::{F16x2, Scalar};
use crate::dsl::threads::lane;
use crate::dsl::value::{Val, val};

/// A lane's fragment of C or D: 16 rows of 8 sums. See [the guide](crate#matrix-products).
#[derive(Clone, Copy, Debug, Carry)]
pub struct FragmentC<S: Scalar>(pub [Val<S>; 4]);

impl<S: Scalar + Default> FragmentC<S> {
    /// A fragment of zeros: the start of a sum.
    ///
    /// - PTX: none: constants
    #[track_caller]
    pub fn zero() -> FragmentC<S> {
        FragmentC([val(S::default()); 4])
    }

    /// The row of the sum in register `i` of the lane's fragment.
    ///
    /// - PTX: `shr.u32` of `%laneid`, and constants
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // A product of ones, stored row by row.
    /// #[kernel(threads = 32)]
    /// fn product(x: Ptr<Global, f32>) {
    ///     let a = FragmentA::<f16, 4>::from_registers([val(0x3c00_3c00); 4]);
    ///     let b = FragmentB::<f16, 2>::from_registers([val(0x3c00_3c00); 2]);
    ///     let c = mma(a, b, FragmentC::zero());
    ///     for i in 0..4u32 {
    ///         x.at(FragmentC::<f32>::row(i) * 8 + FragmentC::<f32>::column(i)).store(c.0[i as usize]);
    ///     }
    /// }
    /// assert_eq!(run(product(), "shr.u32", [0.0f32; 128]), [16.0; 128]);
    /// ```
    #[track_caller]
    pub fn row(i: u32) -> Val<u32> {
        (lane() >> 2) + (i / 2 * 8)
    }

    /// The column of the sum in register `i` of the lane's fragment.
    ///
    /// - PTX: `and.b32` of `%laneid`, and constants
    /// - Target: sm_80
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::*};
    /// // A product of ones, stored row by row.
    /// #[kernel(threads = 32)]
    /// fn product(x: Ptr<Global, f32>) {
    ///     let a = FragmentA::<f16, 4>::from_registers([val(0x3c00_3c00); 4]);
    ///     let b = FragmentB::<f16, 2>::from_registers([val(0x3c00_3c00); 2]);
    ///     let c = mma(a, b, FragmentC::zero());
    ///     for i in 0..4u32 {
    ///         x.at(FragmentC::<f32>::row(i) * 8 + FragmentC::<f32>::column(i)).store(c.0[i as usize]);
    ///     }
    /// }
    /// assert_eq!(run(product(), "and.b32", [0.0f32; 128]), [16.0; 128]);
    /// ```
    #[track_caller]
    pub fn column(i: u32) -> Val<u32> {
        (lane() & 3) * 2 + i % 2
    }
}

/// Type of the sums of products: i32, f32, or [`F16x2`] for pairs of f16.
pub trait MatrixSum: Scalar + Default {
    /// A lane's sums in 16 rows and 8 columns. Pairs of f16 have the order of [`mma_f16_sums`](super::mma_f16_sums).
    type Fragment: SumFragment<Sum = Self>;
    /// Registers of a fragment.
    const REGISTERS: usize;
    /// The fragment that consists of these values, [`MatrixSum::REGISTERS`] of them.
    fn fragment(values: &[Val<Self>]) -> Self::Fragment;
}

/// A lane's sums in 16 rows and 8 columns: [`FragmentC`], or two [`F16x2`].
pub trait SumFragment: Carry + Clone + std::fmt::Debug {
    /// Type of the sums.
    type Sum;
}

impl<S: Scalar + std::fmt::Debug> SumFragment for FragmentC<S> {
    type Sum = S;
}

impl SumFragment for [Val<F16x2>; 2] {
    type Sum = F16x2;
}

macro_rules! sums {
    ($($ty:ty)*) => {
        $(impl MatrixSum for $ty {
            type Fragment = FragmentC<$ty>;
            const REGISTERS: usize = 4;
            fn fragment(values: &[Val<$ty>]) -> FragmentC<$ty> {
                FragmentC(std::array::from_fn(|i| values[i]))
            }
        })*
    };
}
sums!(i32 f32);

impl MatrixSum for F16x2 {
    type Fragment = [Val<F16x2>; 2];
    const REGISTERS: usize = 2;
    fn fragment(values: &[Val<F16x2>]) -> [Val<F16x2>; 2] {
        [values[0], values[1]]
    }
}
