//! What Triton writes beside a kernel's PTX: how the kernel is launched.

use std::path::Path;

use bespoke_emulator::{Kernel, LaunchConfig, Memory};
use serde::Deserialize;

use super::CheckError;

/// The metadata of `triton.compile` as far as a launch needs them. Triton 3.2 and later write them.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Metadata {
    /// Name of the kernel.
    pub(super) name: String,
    num_warps: u32,
    #[serde(default = "one")]
    num_ctas: u32,
    /// Bytes of dynamic shared memory.
    shared: u32,
    /// Bytes per CTA of scratch memory, and of that of Triton's profiler. A release that writes a size appends a pointer to
    /// the kernel's parameters: older releases write one or none of them.
    #[serde(default)]
    global_scratch_size: Option<u64>,
    #[serde(default)]
    profile_scratch_size: Option<u64>,
    #[serde(default)]
    launch_cooperative_grid: bool,
    #[serde(default)]
    launch_pdl: bool,
    /// Tensor descriptors among the arguments, in their order.
    #[serde(default)]
    tensordesc_meta: Option<Vec<serde_json::Value>>,
}

/// What the metadata say of a tensor map. Triton passes the sizes and the strides of the tensor after it.
#[derive(Debug, Deserialize)]
pub(super) struct TensorDescriptor {
    /// Swizzle as a number of the driver (`CUtensorMapSwizzle`).
    swizzle: u32,
    /// Type of the elements as a number of the driver (`CUtensorMapDataType`).
    elem_type: u32,
    /// Elements of a box along each dimension; the last one is contiguous.
    block_size: Vec<u32>,
}

impl TensorDescriptor {
    /// Elements of a box along each dimension, the contiguous one first.
    pub(super) fn box_sizes(&self) -> Vec<u32> {
        self.block_size.iter().rev().copied().collect()
    }

    /// Bytes of the swizzle; 0 for none.
    pub(super) fn swizzle_bytes(&self) -> u32 {
        if (1..=3).contains(&self.swizzle) { 16 << self.swizzle } else { 0 }
    }

    /// Name of the elements' type in a launch file.
    pub(super) fn element(&self) -> &'static str {
        const TYPES: [&str; 10] = ["u8", "u16", "u32", "i32", "u64", "i64", "f16", "f32", "f64", "bf16"];
        TYPES.get(self.elem_type as usize).copied().unwrap_or("f32")
    }

    /// Arguments after the map: the sizes of a tensor of one box, then its strides in elements.
    pub(super) fn sizes_and_strides(&self) -> Vec<u64> {
        let sizes = self.block_size.iter().map(|&size| u64::from(size));
        let strides = (1..=self.block_size.len()).map(|inner| {
            self.block_size[inner..].iter().fold(1u64, |product, &size| product.saturating_mul(size.into()))
        });
        sizes.chain(strides).collect()
    }
}

fn one() -> u32 {
    1
}

impl Metadata {
    /// Reads the metadata of a kernel.
    ///
    /// # Errors
    /// If the file cannot be read, or has other contents.
    pub(super) fn read(path: &Path) -> Result<Metadata, CheckError> {
        let text = super::launches::read(path)?;
        serde_json::from_str(&text).map_err(|error| {
            CheckError::launches(path.display().to_string(), format!("not Triton's: {error}"))
        })
    }

    /// What the metadata say of the tensor maps among the arguments; none of those of older releases.
    pub(super) fn tensor_descriptors(&self) -> impl Iterator<Item = TensorDescriptor> {
        let all = self.tensordesc_meta.as_deref().unwrap_or_default().iter();
        all.filter_map(|descriptor| TensorDescriptor::deserialize(descriptor).ok())
    }

    /// The metadata beside a PTX file, `NAME.json` beside `NAME.ptx`, if they are those of a kernel of the file.
    pub(super) fn beside<'k>(ptx: &Path, mut kernels: impl Iterator<Item = &'k Kernel>) -> Option<Metadata> {
        let metadata = Metadata::read(&ptx.with_extension("json")).ok()?;
        kernels.any(|kernel| kernel.name() == metadata.name).then_some(metadata)
    }

    /// Launch of `grid` programs: each is a cluster if the kernel was compiled for several CTAs a program.
    pub(super) fn config(&self, [x, y, z]: [u32; 3]) -> LaunchConfig {
        const WARP: u32 = 32;
        LaunchConfig {
            grid: [x.saturating_mul(self.num_ctas), y, z],
            block: [self.num_warps.saturating_mul(WARP), 1, 1],
            dynamic_shared: self.shared,
            cluster: (self.num_ctas > 1).then_some([self.num_ctas, 1, 1]),
            cooperative: self.launch_cooperative_grid,
        }
    }

    /// Whether the launch may start before its predecessor ends.
    pub(super) fn is_programmatic(&self) -> bool {
        self.launch_pdl
    }

    /// Number of arguments that a launch gives for a kernel of `declared` parameters: all but the pointers to scratch
    /// memory.
    pub(super) fn arguments(&self, declared: usize) -> usize {
        declared.saturating_sub(self.scratch_sizes().count())
    }

    /// Name and bytes per CTA of each scratch memory, in the order of the pointers.
    fn scratch_sizes(&self) -> impl Iterator<Item = (&'static str, u64)> {
        let sizes = [("global", self.global_scratch_size), ("profile", self.profile_scratch_size)];
        sizes.into_iter().filter_map(|(name, size)| Some((name, size?)))
    }

    /// Allocates the scratch memory of a launch; returns the addresses, 0 for none.
    pub(super) fn scratch(&self, memory: &Memory, config: &LaunchConfig) -> Result<Vec<u64>, String> {
        let ctas = config.grid.iter().fold(1u64, |product, &n| product.saturating_mul(n.into()));
        let allocate = |what: &str, bytes: u64| match bytes.checked_mul(ctas) {
            Some(0) => Ok(0),
            Some(all) if all <= bespoke::device::emulator_memory() / 2 => {
                Ok(memory.alloc(&format!("{what} scratch memory of `{}`", self.name), all))
            }
            _ => Err(format!("{what} scratch memory of {bytes} bytes for each of {ctas} CTAs is too large")),
        };
        self.scratch_sizes().map(|(what, bytes)| allocate(what, bytes)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use bespoke_emulator::Checks;

    use crate::{Launches, Loaded, Options, template};

    const GLOBAL: &str = ",\n\t.param .u64 .ptr .global .align 1 softmax_param_3";
    const PROFILE: &str = ",\n\t.param .u64 .ptr .global .align 1 softmax_param_4";
    /// The sizes of scratch memory in the metadata of the release that compiled the kernel.
    const BOTH: &str = r#""global_scratch_size": 0, "profile_scratch_size": 0,"#;

    /// A folder with a kernel that Triton has compiled, and its metadata with these sizes of scratch memory. The kernel has
    /// a parameter for each.
    fn folder(scratch: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().expect("a folder");
        let mut ptx =
            include_str!("../../../codegen/emulator/tests/foreign/triton/softmax_sm90.ptx").to_string();
        for (size, parameter) in [("profile_scratch_size", PROFILE), ("global_scratch_size", GLOBAL)] {
            assert!(ptx.contains(parameter), "{ptx}");
            if !scratch.contains(size) {
                ptx = ptx.replace(parameter, "");
            }
        }
        let path = folder.path().join("softmax.ptx");
        std::fs::write(&path, ptx).expect("written");
        let json = format!(
            r#"{{"name": "softmax", "num_warps": 4, "num_ctas": 1, "shared": 16, {scratch}
                "tensordesc_meta": [], "launch_pdl": false, "hash": "of no interest"}}"#
        );
        std::fs::write(folder.path().join("softmax.json"), json).expect("written");
        (folder, path)
    }

    fn check(launch: &str, scratch: &str) -> Result<Vec<String>, String> {
        let (folder, path) = folder(scratch);
        let text = std::fs::read_to_string(&path).expect("it exists");
        let loaded = Loaded::parse(&path.display().to_string(), &text).map_err(|error| error.to_string())?;
        let buffers = "version = 1\n[buffers.x]\ntype = \"f32\"\ncount = 800\ninit = \"random\"\n\
                       [buffers.y]\ntype = \"f32\"\ncount = 800\n[[launch]]\n";
        let launches = Launches::parse(&format!("{buffers}{launch}")).map_err(|error| error.to_string())?;
        let launches = Launches { folder: folder.path().to_owned(), ..launches };
        let options = Options { checks: Checks::ALL, ..Options::default() };
        let report = loaded.check(&launches, &options).map_err(|error| error.to_string())?;
        Ok(report.findings.into_iter().map(|finding| finding.kind).collect())
    }

    #[test]
    fn metadata_replace_block_shared_memory_and_scratch_pointers() {
        let launch = "triton = \"softmax.json\"\ngrid = 4\nargs = [\"x\", \"y\", 200]\n";
        for scratch in [
            BOTH,
            r#""global_scratch_size": 64, "profile_scratch_size": 64,"#,
            r#""global_scratch_size": 0,"#,
            r#""global_scratch_size": 64,"#,
            "",
        ] {
            assert_eq!(check(launch, scratch), Ok(Vec::new()), "{scratch}");
        }
        // One row too many.
        assert_eq!(
            check(&launch.replace("grid = 4", "grid = 5"), BOTH),
            Ok(vec!["out-of-bounds".to_string()])
        );
    }

    #[test]
    fn descriptors_of_tensors_have_the_form_of_a_launch_file() {
        let json = r#"{"name": "k", "num_warps": 4, "shared": 0, "tensordesc_meta": [
            {"swizzle": 2, "elem_size": 2, "elem_type": 6, "block_size": [64, 32], "fp4_padded": false},
            {"swizzle": 0, "elem_size": 4, "elem_type": 7, "block_size": [2, 4, 8], "fp4_padded": false}]}"#;
        let metadata: super::Metadata = serde_json::from_str(json).expect("it parses");
        let found = metadata.tensor_descriptors().map(|descriptor| {
            let numbers = descriptor.sizes_and_strides();
            (descriptor.element(), descriptor.box_sizes(), descriptor.swizzle_bytes(), numbers)
        });
        let expected = [
            ("f16", vec![32, 64], 64, vec![64, 32, 32, 1]),
            ("f32", vec![8, 4, 2], 0, vec![2, 4, 8, 32, 8, 1]),
        ];
        assert_eq!(found.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn what_the_metadata_say_is_not_given_twice() {
        for (launch, message) in [
            ("triton = \"softmax.json\"\ngrid = 4\nblock = 128\nargs = []\n", "`block` is in the metadata"),
            ("triton = \"softmax.json\"\ngrid = 4\nshared = 16\nargs = []\n", "`shared` is in the metadata"),
            ("triton = \"softmax.json\"\ngrid = 4\nargs = [\"x\", \"y\"]\n", "2 args for 3 parameters"),
            (
                "triton = \"softmax.json\"\ngrid = 4\nargs = [\"x\", \"y\", 200, 0, 0]\n",
                "5 args for 3 parameters: leave out the last 2, the scratch memory",
            ),
            ("triton = \"other.json\"\ngrid = 4\nargs = []\n", "cannot read"),
            ("triton = \"softmax.ptx\"\ngrid = 4\nargs = []\n", "not Triton's"),
            ("kernel = \"softmax\"\ngrid = 4\nargs = []\n", "the launch has no block"),
            ("grid = 4\nblock = 128\nargs = []\n", "the launch has no kernel"),
        ] {
            let error = check(launch, BOTH).expect_err(launch);
            assert!(error.contains(message), "{launch}: {error}");
        }
    }

    #[test]
    fn the_template_names_the_metadata() {
        let (_folder, path) = folder(BOTH);
        let text = std::fs::read_to_string(&path).expect("it exists");
        let loaded = Loaded::parse(&path.display().to_string(), &text).expect("it loads");
        let template = template(&loaded);
        assert!(template.contains("\ntriton = \"softmax.json\"\ngrid = "), "{template}");
        assert!(!template.contains("block =") && !template.contains("shared ="), "{template}");
        assert!(template.contains("softmax.param_1\", 1024]"), "{template}");
    }
}
