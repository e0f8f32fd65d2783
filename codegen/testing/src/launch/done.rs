//! A completed launch.

use bespoke_codegen::Compiled;
use bespoke_codegen::ptx::Target;
use bespoke_emulator::{Memory, Profile, Stats};

use crate::element::{Element, from_bytes};

/// Address and size of a buffer in the emulator's memory.
#[derive(Clone, Copy)]
pub(super) struct Buffer {
    pub(super) address: u64,
    pub(super) bytes: usize,
}

/// Completed launch with its memory.
pub struct Done {
    pub(super) compiled: Compiled,
    pub(super) buffers: Vec<Buffer>,
    pub(super) memory: Memory,
    pub(super) stats: Stats,
}

impl Done {
    /// Contents of buffer number `index` after the launch; scalar arguments are not counted. Uninitialised elements are
    /// zero.
    ///
    /// # Panics
    /// If the launch has no such buffer.
    #[track_caller]
    pub fn buffer<T: Element>(&self, index: usize) -> Vec<T> {
        let Some(&Buffer { address, bytes }) = self.buffers.get(index) else {
            panic!("no buffer {index}: the launch has {} buffers", self.buffers.len());
        };
        let mut content = vec![0; bytes];
        self.memory.read(address, &mut content).expect("a buffer is one allocation");
        from_bytes(&content)
    }

    /// Checks that every element of buffer number `index` differs from the expected one by at most `tolerance`, relative
    /// to the expected one if that is greater than 1. A NaN is close to a NaN only.
    ///
    /// ```
    /// # use {bespoke_codegen::prelude::*, bespoke_testing::Launch};
    /// #[kernel(threads = 32)]
    /// fn roots(x: Ptr<Global, f32>) {
    ///     x.at(lane()).store(x.at(lane()).load().sqrt());
    /// }
    /// let done = Launch::of(&roots()?).buffer(&[2.0f32; 32]).run()?;
    /// done.assert_close(0, &[1.41421f32; 32], 1e-5);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If an element is too far away, or the buffer has another number of elements; the message has the first such
    /// element, its distance, and how many there are. Also if the launch has no such buffer.
    #[track_caller]
    pub fn assert_close<T: Element + Copy + Into<f64>>(&self, index: usize, expected: &[T], tolerance: f64) {
        let found = self.buffer::<T>(index);
        assert!(
            found.len() == expected.len(),
            "buffer {index} has {} elements, and {} are expected",
            found.len(),
            expected.len()
        );
        let far = found.iter().zip(expected).enumerate().filter_map(|(at, (&found, &expected))| {
            let (found, expected): (f64, f64) = (found.into(), expected.into());
            let distance = (found - expected).abs() / expected.abs().max(1.0);
            let same = found == expected || found.is_nan() && expected.is_nan();
            // A distance that is not a number is not close either.
            let close = same || distance <= tolerance;
            (!close).then_some((at, found, expected, distance))
        });
        let far: Vec<(usize, f64, f64, f64)> = far.collect();
        if let Some((at, value, wanted, distance)) = far.first() {
            panic!(
                "element {at} of buffer {index} is {value}, not {wanted}: the difference {distance:e} exceeds \
                 {tolerance:e}; so do {} of {} elements",
                far.len(),
                found.len()
            );
        }
    }

    /// Text that the kernel printed.
    pub fn printed(&self) -> &str {
        &self.stats.printed
    }

    /// Number of instructions, bytes and conflicts of the launch, by line; none without
    /// [`Launch::profile`](super::Launch::profile).
    pub fn profile(&self) -> Option<&Profile> {
        self.stats.profile.as_deref()
    }

    /// Accesses of shared memory with bank conflicts: for each instruction the maximum number of words of one bank, the Rust
    /// line and the PTX. Copies by `cp.async` are accesses, too.
    ///
    /// # Panics
    /// If the launch was not measured: see [`Launch::profile`](super::Launch::profile).
    #[track_caller]
    pub fn bank_conflicts(&self) -> Vec<String> {
        let profile = self.profile().expect("bank conflicts are counted by a launch with `.profile()`");
        let conflicts = profile.instructions.iter().filter(|instruction| {
            let shared = &instruction.counts.shared;
            shared.wavefronts > shared.ideal_wavefronts
        });
        let text = |instruction: &bespoke_emulator::InstructionProfile| {
            let line = instruction.source.as_ref().map_or_else(String::new, |source| format!("{source}: "));
            format!("{line}{}-way: {}", instruction.counts.shared.worst_ways, instruction.ptx_text.trim())
        };
        conflicts.map(text).collect()
    }

    /// PTX that the emulator ran.
    pub fn ptx(&self) -> &str {
        &self.compiled.ptx
    }

    /// Whether some instruction of the PTX, without its guard, starts with `text`, in which `…` matches any characters.
    pub fn has(&self, text: &str) -> bool {
        self.ptx().lines().any(|line| {
            let line = line.trim_start();
            let unguarded = match line.strip_prefix('@') {
                Some(guarded) => guarded.split_once(' ').map_or("", |(_, rest)| rest),
                None => line,
            };
            let mut parts = text.split('…');
            let rest = parts.next().and_then(|first| unguarded.strip_prefix(first));
            rest.is_some_and(|rest| {
                parts.try_fold(rest, |rest, part| rest.split_once(part).map(|(_, after)| after)).is_some()
            })
        })
    }

    /// The target for which the kernel was compiled.
    pub fn target(&self) -> Target {
        self.compiled.target
    }
}
