/// The targets that kernels were emitted for, oldest first.
#[allow(dead_code)]
pub const TARGETS: &[::bespoke_codegen::ptx::Target] = &[
    ::bespoke_codegen::ptx::Target::Sm80,
    ::bespoke_codegen::ptx::Target::Sm90,
];
/// Every kernel for `target`, sorted by name.
#[allow(dead_code)]
pub fn kernels(
    target: ::bespoke_codegen::ptx::Target,
) -> &'static [&'static ::bespoke_codegen::launch::KernelSource] {
    match target {
        ::bespoke_codegen::ptx::Target::Sm80 => sm_80::KERNELS,
        ::bespoke_codegen::ptx::Target::Sm90 => sm_90::KERNELS,
        _ => &[],
    }
}
/// Kernels for sm_80.
#[allow(dead_code)]
pub mod sm_80 {
    /// Every kernel, sorted by name.
    pub static KERNELS: &[&::bespoke_codegen::launch::KernelSource] = &[
        &super::added::SM_80,
        &super::blend::SM_80,
        &super::names::SM_80,
        &super::picked::SM_80,
        &super::scaled::SM_80,
    ];
}
/// Kernels for sm_90.
#[allow(dead_code)]
pub mod sm_90 {
    /// Every kernel, sorted by name.
    pub static KERNELS: &[&::bespoke_codegen::launch::KernelSource] = &[
        &super::added::SM_90,
        &super::blend::SM_90,
        &super::doubled::SM_90,
        &super::names::SM_90,
        &super::nothing::SM_90,
        &super::picked::SM_90,
        &super::scaled::SM_90,
    ];
}
/// The kernel `added`.
#[allow(dead_code)]
pub mod added {
    use ::bespoke_codegen::launch::{DevicePointer, KernelSource, LaunchConfig, Launcher};
    use ::bespoke_codegen::ptx::Target;
    /// For sm_80 and later.
    pub static SM_80: KernelSource = KernelSource {
        name: "added",
        target: Target::Sm80,
        ptx: include_str!("sm_80/pair.ptx"),
        cubin: None,
    };
    /// For sm_90 and later.
    pub static SM_90: KernelSource = KernelSource {
        name: "added",
        target: Target::Sm90,
        ptx: include_str!("sm_90/pair.ptx"),
        cubin: None,
    };
    /// The kernel for each of its targets, oldest first.
    pub static SOURCES: &[&KernelSource] = &[&SM_80, &SM_90];
    /// The launch that the kernel was specialised for.
    pub const CONFIG: LaunchConfig = LaunchConfig {
        grid: [4, 1, 1],
        block: [1, 1, 1],
        dynamic_shared: 0,
    };
    /// Launches the kernel with [`CONFIG`].
    #[allow(clippy::too_many_arguments)]
    pub fn launch<L: Launcher>(
        launcher: &mut L,
        x: DevicePointer<f32>,
        y: DevicePointer<f32>,
    ) -> Result<(), L::Error> {
        launcher
            .launch(
                self::SOURCES,
                self::CONFIG,
                &::bespoke_codegen::launch::params(&[&x, &y]),
            )
    }
}
/// Blends, and rounds to bytes.
#[allow(dead_code)]
pub mod blend {
    use ::bespoke_codegen::launch::{DevicePointer, KernelSource, LaunchConfig, Launcher};
    use ::bespoke_codegen::ptx::Target;
    /// For sm_80 and later.
    pub static SM_80: KernelSource = KernelSource {
        name: "blend",
        target: Target::Sm80,
        ptx: include_str!("sm_80/blend.ptx"),
        cubin: None,
    };
    /// For sm_90 and later.
    pub static SM_90: KernelSource = KernelSource {
        name: "blend",
        target: Target::Sm90,
        ptx: include_str!("sm_90/blend.ptx"),
        cubin: None,
    };
    /// The kernel for each of its targets, oldest first.
    pub static SOURCES: &[&KernelSource] = &[&SM_80, &SM_90];
    /// The launch that the kernel was specialised for.
    pub const CONFIG: LaunchConfig = LaunchConfig {
        grid: [4, 1, 1],
        block: [64, 1, 1],
        dynamic_shared: 0,
    };
    /// Launches the kernel with [`CONFIG`].
    #[allow(clippy::too_many_arguments)]
    pub fn launch<L: Launcher>(
        launcher: &mut L,
        x: DevicePointer<f32>,
        y: DevicePointer<i8>,
        flip: bool,
        scale: ::bespoke_codegen::launch::f16,
        pair: ::bespoke_codegen::launch::F16x2,
        n: u32,
    ) -> Result<(), L::Error> {
        launcher
            .launch(
                self::SOURCES,
                self::CONFIG,
                &::bespoke_codegen::launch::params(&[&x, &y, &flip, &scale, &pair, &n]),
            )
    }
}
/// The kernel `doubled`.
#[allow(dead_code)]
pub mod doubled {
    use ::bespoke_codegen::launch::{
        KernelSource, LaunchConfig, Launcher, Swizzle, TensorMap,
    };
    use ::bespoke_codegen::ptx::Target;
    /// For sm_90 and later.
    pub static SM_90: KernelSource = KernelSource {
        name: "doubled",
        target: Target::Sm90,
        ptx: include_str!("sm_90/doubled.ptx"),
        cubin: None,
    };
    /// The kernel for each of its targets, oldest first.
    pub static SOURCES: &[&KernelSource] = &[&SM_90];
    /// The launch that the kernel was specialised for.
    pub const CONFIG: LaunchConfig = LaunchConfig {
        grid: [1, 1, 1],
        block: [64, 1, 1],
        dynamic_shared: 0,
    };
    /// Launches the kernel with [`CONFIG`].
    ///
    /// # Panics
    /// If `x` does not have tiles of 8 × 8 elements and a swizzle of 32 bytes.
    #[allow(clippy::too_many_arguments)]
    pub fn launch<L: Launcher>(
        launcher: &mut L,
        factor: f32,
        x: &TensorMap<f32, 2>,
    ) -> Result<(), L::Error> {
        assert!(
            x.has_layout([8, 8], Swizzle::Bytes32),
            "`x` must have tiles of 8 × 8 elements and a swizzle of 32 bytes"
        );
        launcher
            .launch(
                self::SOURCES,
                self::CONFIG,
                &::bespoke_codegen::launch::params(&[&factor, &x]),
            )
    }
}
/// The kernel `names`.
#[allow(dead_code)]
pub mod names {
    use ::bespoke_codegen::launch::{DevicePointer, KernelSource, LaunchConfig, Launcher};
    use ::bespoke_codegen::ptx::Target;
    /// For sm_80 and later.
    pub static SM_80: KernelSource = KernelSource {
        name: "names",
        target: Target::Sm80,
        ptx: include_str!("sm_80/names.ptx"),
        cubin: None,
    };
    /// For sm_90 and later.
    pub static SM_90: KernelSource = KernelSource {
        name: "names",
        target: Target::Sm90,
        ptx: include_str!("sm_90/names.ptx"),
        cubin: None,
    };
    /// The kernel for each of its targets, oldest first.
    pub static SOURCES: &[&KernelSource] = &[&SM_80, &SM_90];
    /// A launch with this grid: CTAs along x, y and z.
    pub const fn config(grid: [u32; 3]) -> LaunchConfig {
        LaunchConfig {
            grid,
            block: [1, 1, 1],
            dynamic_shared: 0,
        }
    }
    /// Launches the kernel with a grid of so many CTAs along x, y and z.
    ///
    /// # Panics
    /// If `params` is no multiple of 16 bytes.
    #[allow(clippy::too_many_arguments)]
    pub fn launch<L: Launcher>(
        launcher_: &mut L,
        grid__: [u32; 3],
        launcher: DevicePointer<u64>,
        params: DevicePointer<u64>,
        grid: u64,
        grid_: u64,
        config: u64,
    ) -> Result<(), L::Error> {
        assert!(
            params.address().is_multiple_of(16),
            "`params` must be a multiple of 16 bytes"
        );
        launcher_
            .launch(
                self::SOURCES,
                self::config(grid__),
                &::bespoke_codegen::launch::params(
                    &[&launcher, &params, &grid, &grid_, &config],
                ),
            )
    }
}
/// The kernel `nothing`.
#[allow(dead_code)]
pub mod nothing {
    use ::bespoke_codegen::launch::{KernelSource, LaunchConfig, Launcher};
    use ::bespoke_codegen::ptx::Target;
    /// For sm_90 and later.
    pub static SM_90: KernelSource = KernelSource {
        name: "nothing",
        target: Target::Sm90,
        ptx: include_str!("sm_90/nothing.ptx"),
        cubin: None,
    };
    /// The kernel for each of its targets, oldest first.
    pub static SOURCES: &[&KernelSource] = &[&SM_90];
    /// A launch with this grid: CTAs along x, y and z.
    pub const fn config(grid: [u32; 3]) -> LaunchConfig {
        LaunchConfig {
            grid,
            block: [32, 1, 1],
            dynamic_shared: 128,
        }
    }
    /// Launches the kernel with a grid of so many CTAs along x, y and z.
    #[allow(clippy::too_many_arguments)]
    pub fn launch<L: Launcher>(
        launcher: &mut L,
        grid: [u32; 3],
    ) -> Result<(), L::Error> {
        launcher
            .launch(
                self::SOURCES,
                self::config(grid),
                &::bespoke_codegen::launch::params(&[]),
            )
    }
}
/// The kernel `picked`.
#[allow(dead_code)]
pub mod picked {
    use ::bespoke_codegen::launch::{DevicePointer, KernelSource, LaunchConfig, Launcher};
    use ::bespoke_codegen::ptx::Target;
    /// For sm_80 and later.
    pub static SM_80: KernelSource = KernelSource {
        name: "picked",
        target: Target::Sm80,
        ptx: include_str!("sm_80/picked.ptx"),
        cubin: None,
    };
    /// For sm_90 and later.
    pub static SM_90: KernelSource = KernelSource {
        name: "picked",
        target: Target::Sm90,
        ptx: include_str!("sm_90/picked.ptx"),
        cubin: None,
    };
    /// The kernel for each of its targets, oldest first.
    pub static SOURCES: &[&KernelSource] = &[&SM_80, &SM_90];
    /// The launch that the kernel was specialised for.
    pub const CONFIG: LaunchConfig = LaunchConfig {
        grid: [1, 1, 1],
        block: [1, 1, 1],
        dynamic_shared: 0,
    };
    /// Launches the kernel with [`CONFIG`].
    ///
    /// # Panics
    /// If `x_data` is no multiple of 16 bytes.
    #[allow(clippy::too_many_arguments)]
    pub fn launch<L: Launcher>(
        launcher: &mut L,
        x_data: DevicePointer<f32>,
        x_size_0: u32,
        x_size_1: u32,
        x_transposed: bool,
        row: u32,
        column: u32,
        y: DevicePointer<f32>,
    ) -> Result<(), L::Error> {
        assert!(
            x_data.address().is_multiple_of(16),
            "`x_data` must be a multiple of 16 bytes"
        );
        launcher
            .launch(
                self::SOURCES,
                self::CONFIG,
                &::bespoke_codegen::launch::params(
                    &[&x_data, &x_size_0, &x_size_1, &x_transposed, &row, &column, &y],
                ),
            )
    }
}
/// The kernel `scaled`.
#[allow(dead_code)]
pub mod scaled {
    use ::bespoke_codegen::launch::{DevicePointer, KernelSource, LaunchConfig, Launcher};
    use ::bespoke_codegen::ptx::Target;
    /// For sm_80 and later.
    pub static SM_80: KernelSource = KernelSource {
        name: "scaled",
        target: Target::Sm80,
        ptx: include_str!("sm_80/pair.ptx"),
        cubin: None,
    };
    /// For sm_90 and later.
    pub static SM_90: KernelSource = KernelSource {
        name: "scaled",
        target: Target::Sm90,
        ptx: include_str!("sm_90/pair.ptx"),
        cubin: None,
    };
    /// The kernel for each of its targets, oldest first.
    pub static SOURCES: &[&KernelSource] = &[&SM_80, &SM_90];
    /// The launch that the kernel was specialised for.
    pub const CONFIG: LaunchConfig = LaunchConfig {
        grid: [2, 1, 1],
        block: [1, 1, 1],
        dynamic_shared: 0,
    };
    /// Launches the kernel with [`CONFIG`].
    #[allow(clippy::too_many_arguments)]
    pub fn launch<L: Launcher>(
        launcher: &mut L,
        x: DevicePointer<f32>,
        factor: f32,
    ) -> Result<(), L::Error> {
        launcher
            .launch(
                self::SOURCES,
                self::CONFIG,
                &::bespoke_codegen::launch::params(&[&x, &factor]),
            )
    }
}
