//! The lanes of a warp: masks, register files, and the choice between baseline and wide vector code.

/// Lanes per warp.
pub(crate) const LANES: usize = 32;

/// The set bits of a lane mask, lowest first.
#[inline(always)]
pub(crate) fn lanes_of(mut mask: u32) -> impl Iterator<Item = usize> {
    std::iter::from_fn(move || {
        let lane = mask.trailing_zeros();
        mask &= mask.wrapping_sub(1);
        (lane < 32).then_some(lane as usize)
    })
}

/// Plain-old-data type: every bit pattern is a valid value.
///
/// # Safety
/// Every bit pattern of the type's size must be a valid value, and the type must have no padding.
pub(crate) unsafe trait Pod: Copy + Default + Send + 'static {
    /// Selects `a` if `take`, else `b`. Numbers are selected by bit masks: a choice between two values in memory would
    /// compile to a branch per lane.
    #[inline(always)]
    fn choose(take: bool, a: Self, b: Self) -> Self {
        if take { a } else { b }
    }
}

macro_rules! pods {
    ($($ty:ty: $a:ident => $bits:expr, $from:path;)*) => { $(
        // SAFETY: a primitive number.
        unsafe impl Pod for $ty {
            #[inline(always)]
            fn choose(take: bool, a: $ty, b: $ty) -> $ty {
                let bits = |$a: $ty| $bits;
                let mask = if take { !bits(Default::default()) } else { bits(Default::default()) };
                $from(bits(a) & mask | bits(b) & !mask)
            }
        }
    )* };
}
pods! {
    u8: a => a, u8::from;
    i8: a => a, i8::from;
    u16: a => a, u16::from;
    i16: a => a, i16::from;
    u32: a => a, u32::from;
    i32: a => a, i32::from;
    u64: a => a, u64::from;
    i64: a => a, i64::from;
    f32: a => a.to_bits(), f32::from_bits;
    f64: a => a.to_bits(), f64::from_bits;
}

#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Registers of one warp, addressed by byte offset ("slot"): a predicate is a 32-bit lane mask, any other register an
/// array of 32 lane values.
pub(crate) struct RegisterFile {
    lines: Box<[Line]>,
}

impl RegisterFile {
    pub(crate) fn new(bytes: u32) -> RegisterFile {
        let lines = vec![Line([0; 64]); (bytes as usize).div_ceil(64)];
        RegisterFile { lines: lines.into_boxed_slice() }
    }

    #[inline(always)]
    fn at<T>(&self, slot: u32, count: usize) -> *const T {
        debug_assert!(slot as usize + count * size_of::<T>() <= self.lines.len() * 64);
        debug_assert_eq!(slot as usize % align_of::<T>(), 0);
        self.lines.as_ptr().cast::<u8>().wrapping_add(slot as usize).cast()
    }

    /// Values of the 32 lanes of the register at a slot.
    #[inline(always)]
    pub(crate) fn lanes<T: Pod>(&self, slot: u32) -> &[T; LANES] {
        // SAFETY: the decoder lays slots out inside the file and aligned to their size (asserted in
        // debug builds), and any bits are a `T`.
        unsafe { &*self.at::<[T; LANES]>(slot, 1) }
    }

    #[inline(always)]
    pub(crate) fn lanes_mut<T: Pod>(&mut self, slot: u32) -> &mut [T; LANES] {
        // SAFETY: as for `lanes`; `&mut self` makes the reference unique.
        unsafe { &mut *self.at::<[T; LANES]>(slot, 1).cast_mut() }
    }

    #[inline(always)]
    pub(crate) fn mask(&self, slot: u32) -> u32 {
        // SAFETY: as for `lanes`.
        unsafe { *self.at::<u32>(slot, 1) }
    }

    #[inline(always)]
    pub(crate) fn set_mask(&mut self, slot: u32, mask: u32) {
        // SAFETY: as for `lanes_mut`.
        unsafe { *self.at::<u32>(slot, 1).cast_mut() = mask }
    }

    /// Writes the values of the lanes of `active` to the register at a slot.
    #[inline(always)]
    pub(crate) fn write<T: Pod>(&mut self, slot: u32, values: &[T; LANES], active: u32) {
        let target = self.lanes_mut::<T>(slot);
        if active == u32::MAX {
            *target = *values;
        } else {
            for lane in 0..LANES {
                target[lane] = T::choose(active >> lane & 1 != 0, values[lane], target[lane]);
            }
        }
    }

    /// Copies the register image (constants and fixed special registers) to byte offset `start`.
    pub(crate) fn load_image(&mut self, start: u32, image: &[u8]) {
        let bytes = self.lines.as_mut_ptr().cast::<u8>();
        assert!(start as usize + image.len() <= self.lines.len() * 64);
        // SAFETY: in bounds by the line above.
        unsafe { bytes.add(start as usize).copy_from_nonoverlapping(image.as_ptr(), image.len()) };
    }
}

/// Whether the CPU can run the AVX2 versions of the lane loops.
#[cfg(target_arch = "x86_64")]
pub(crate) fn wide() -> bool {
    macro_rules! all {
        ($($feature:tt)*) => { $(std::arch::is_x86_feature_detected!($feature))&&* };
    }
    all!("avx2" "fma" "f16c" "bmi1" "bmi2" "lzcnt" "popcnt")
}
