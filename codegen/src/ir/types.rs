//! The types of IR values.

use super::named::named_enum;

named_enum! {
    /// The type of an SSA value.
    ///
    /// Integers carry their signedness, so that an instruction's meaning follows from its type alone. Pointers
    /// carry their address space; what they point at is a property of each access.
    pub enum Type {
        /// A predicate (one bit, a PTX `.pred` register).
        Pred = "pred",
        /// Unsigned 8-bit integer.
        U8 = "u8",
        /// Unsigned 16-bit integer.
        U16 = "u16",
        /// Unsigned 32-bit integer.
        U32 = "u32",
        /// Unsigned 64-bit integer.
        U64 = "u64",
        /// Signed 8-bit integer.
        I8 = "i8",
        /// Signed 16-bit integer.
        I16 = "i16",
        /// Signed 32-bit integer.
        I32 = "i32",
        /// Signed 64-bit integer.
        I64 = "i64",
        /// IEEE binary16.
        F16 = "f16",
        /// bfloat16.
        Bf16 = "bf16",
        /// Two binary16 in 32 bits, the first in the low half.
        F16x2 = "f16x2",
        /// Two bfloat16 in 32 bits, the first in the low half.
        Bf16x2 = "bf16x2",
        /// IEEE binary32.
        F32 = "f32",
        /// IEEE binary64.
        F64 = "f64",
        /// A 64-bit address in the global window.
        Global = "global",
        /// A 32-bit address in the CTA's shared window.
        Shared = "shared",
        /// A 32-bit address in the shared windows of the CTA's cluster.
        Cluster = "cluster",
        /// A 32-bit address in the thread's local memory.
        Local = "local",
        /// A 64-bit address in constant memory.
        Constant = "constant",
        /// The 64-bit address of a tensor map, a kernel parameter.
        TensorMap = "tensor_map",
    }
}

impl Type {
    /// Size in memory, in bytes; 1 for a predicate, which is never in memory.
    pub const fn bytes(self) -> u32 {
        match self {
            Type::Pred | Type::U8 | Type::I8 => 1,
            Type::U16 | Type::I16 | Type::F16 | Type::Bf16 => 2,
            Type::U32 | Type::I32 | Type::F16x2 | Type::Bf16x2 | Type::F32 => 4,
            Type::Shared | Type::Cluster | Type::Local => 4,
            Type::U64 | Type::I64 | Type::F64 => 8,
            Type::Global | Type::Constant | Type::TensorMap => 8,
        }
    }

    /// Width of the value in bits (1 for a predicate).
    pub fn bits(self) -> u32 {
        if self == Type::Pred { 1 } else { self.bytes() * 8 }
    }

    /// Mask of the bits that a value of this type occupies in its raw bits.
    pub fn mask(self) -> u64 {
        u64::MAX >> (64 - self.bits())
    }

    /// The raw bits of a value of this type, sign-extended to 64 bits.
    pub fn sign_extend(self, bits: u64) -> i64 {
        let unused = 64 - self.bits();
        ((bits << unused) as i64) >> unused
    }

    /// Whether this is an integer type of any width.
    pub fn is_int(self) -> bool {
        self.is_signed() || self.is_unsigned()
    }

    /// Whether this is a signed integer type.
    pub fn is_signed(self) -> bool {
        matches!(self, Type::I8 | Type::I16 | Type::I32 | Type::I64)
    }

    /// Whether this is an unsigned integer type.
    pub fn is_unsigned(self) -> bool {
        matches!(self, Type::U8 | Type::U16 | Type::U32 | Type::U64)
    }

    /// Whether this is a scalar or packed floating-point type.
    pub fn is_float(self) -> bool {
        matches!(self, Type::F16 | Type::Bf16 | Type::F32 | Type::F64) || self.half().is_some()
    }

    /// The type of each half of a packed type.
    pub fn half(self) -> Option<Type> {
        match self {
            Type::F16x2 => Some(Type::F16),
            Type::Bf16x2 => Some(Type::Bf16),
            _ => None,
        }
    }

    /// The type half as wide, if a value of this type consists of two values of that type.
    pub fn halved(self) -> Option<Type> {
        match self {
            Type::U32 => Some(Type::U16),
            Type::U64 => Some(Type::U32),
            ty => ty.half(),
        }
    }

    /// The type twice as wide, for two packed values of this type or the full product of two.
    pub fn doubled(self) -> Option<Type> {
        match self {
            Type::F16 => Some(Type::F16x2),
            Type::Bf16 => Some(Type::Bf16x2),
            Type::U16 => Some(Type::U32),
            Type::U32 => Some(Type::U64),
            Type::I32 => Some(Type::I64),
            _ => None,
        }
    }

    /// Whether this is an address: a pointer to memory, or the address of a tensor map.
    pub fn is_pointer(self) -> bool {
        self.is_memory_pointer() || self == Type::TensorMap
    }

    /// Whether this is a pointer to memory that loads can read.
    pub fn is_memory_pointer(self) -> bool {
        matches!(self, Type::Global | Type::Shared | Type::Cluster | Type::Local | Type::Constant)
    }
}

named_enum! {
    /// A special register of PTX.
    pub enum Special {
        /// Thread index in the CTA, x.
        TidX = "tid.x",
        /// Thread index in the CTA, y.
        TidY = "tid.y",
        /// Thread index in the CTA, z.
        TidZ = "tid.z",
        /// Threads per CTA, x.
        NtidX = "ntid.x",
        /// Threads per CTA, y.
        NtidY = "ntid.y",
        /// Threads per CTA, z.
        NtidZ = "ntid.z",
        /// CTA index in the grid, x.
        CtaidX = "ctaid.x",
        /// CTA index in the grid, y.
        CtaidY = "ctaid.y",
        /// CTA index in the grid, z.
        CtaidZ = "ctaid.z",
        /// CTAs in the grid, x.
        NctaidX = "nctaid.x",
        /// CTAs in the grid, y.
        NctaidY = "nctaid.y",
        /// CTAs in the grid, z.
        NctaidZ = "nctaid.z",
        /// Lane in the warp, 0 to 31.
        LaneId = "laneid",
        /// Mask of the lanes that execute the read together.
        ActiveMask = "activemask",
        /// Number of the multiprocessor that runs this CTA.
        SmId = "smid",
        /// The CTA's rank in its cluster.
        ClusterRank = "cluster_ctarank",
        /// CTAs in the cluster.
        ClusterSize = "cluster_nctarank",
        /// The low 32 bits of the multiprocessor's cycle counter.
        Clock = "clock",
        /// The multiprocessor's cycle counter (u64).
        Clock64 = "clock64",
        /// Nanoseconds of a clock that all multiprocessors share, updated about every microsecond (u64).
        GlobalTimer = "globaltimer",
    }
}

impl Special {
    /// Whether two reads may differ, so that reads must not be merged or moved.
    pub fn is_volatile(self) -> bool {
        matches!(
            self,
            Special::ActiveMask | Special::Clock | Special::Clock64 | Special::GlobalTimer | Special::SmId
        )
    }

    /// The register's type.
    pub fn ty(self) -> Type {
        if matches!(self, Special::Clock64 | Special::GlobalTimer) { Type::U64 } else { Type::U32 }
    }
}
