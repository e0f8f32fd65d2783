//! A PTX emulator that checks every access.
//!
//! [`Module::parse`] reads PTX text, the same text that a driver loads, and decodes every instruction. [`run`] executes
//! a kernel on the CPU over a [`Memory`]. A launch that accesses memory out of bounds, misaligned or uninitialised,
//! that races, or whose threads do not all reach their barriers stops with a [`Finding`]: it names the kernel, the line
//! of the kernel's source and of the PTX, the thread and the address.
//!
//! ```
//! use bespoke_emulator::{LaunchConfig, Memory, Module, Options, run};
//!
//! let module = Module::parse(r#"
//!     .version 7.0
//!     .target sm_80
//!     .address_size 64
//!     .visible .entry double(.param .u64 data)
//!     {
//!         .reg .b32 %r<3>;
//!         .reg .b64 %rd<3>;
//!         ld.param.u64 %rd0, [data];
//!         mov.u32 %r0, %tid.x;
//!         mul.wide.u32 %rd1, %r0, 4;
//!         add.s64 %rd2, %rd0, %rd1;
//!         ld.global.u32 %r1, [%rd2];
//!         add.u32 %r2, %r1, %r1;
//!         st.global.u32 [%rd2], %r2;
//!         ret;
//!     }
//! "#)?;
//! let kernel = module.kernel("double").ok_or("no such kernel")?;
//!
//! let memory = Memory::new();
//! let data = memory.alloc("data", 4 * 32);
//! memory.write(data, &[3, 0, 0, 0].repeat(32))?;
//! run(kernel, &memory, &LaunchConfig::linear(1, 32), &data.to_le_bytes(), &Options::default())?;
//!
//! let mut first = [0; 4];
//! memory.read(data, &mut first)?;
//! assert_eq!(u32::from_le_bytes(first), 6);
//!
//! // One thread too many reads past the end of the allocation.
//! let finding = run(kernel, &memory, &LaunchConfig::linear(1, 33), &data.to_le_bytes(), &Options::default());
//! assert!(finding.is_err_and(|finding| finding.thread == [32, 0, 0] && finding.address == Some(data + 128)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Execution
//!
//! Warps have 32 lanes, diverge at branches, and reconverge at the branch's immediate post-dominator. Lanes of several
//! sides that reach the same instruction for the whole warp (a barrier, a shuffle, `mma`) before that point execute it
//! together. The members of a `bar.warp.sync`, `shfl`, `vote`, `match`, `redux` or `elect` may execute different
//! instructions of the text, with the same opcode, qualifiers and member mask, from sm_70 on. The warps of a cluster
//! (of a CTA, without clusters) take turns on one worker thread. Clusters run in parallel; a cluster that waits for
//! another yields its worker thread. As on a device, only [`Options::resident_ctas`] CTAs run at once, and others start
//! when these end: CTAs that all wait for one that cannot start are [`FindingKind::Residency`]. A launch whose CTAs run
//! forever is [`FindingKind::Deadlock`] after [`Options::instruction_limit`] instructions.
//!
//! Integer and IEEE arithmetic is exact to the bit, in all rounding modes, with `.ftz`, `.sat` and the NaNs that
//! devices return. Approximate instructions (`ex2`, `lg2`, `sin`, `cos`, `tanh`, `rsqrt`, and the `.approx` and `.full`
//! forms of others) return the single-precision number nearest to the double-precision result. They are at least as
//! accurate as on a device, but their bits may differ.
//!
//! `mma` uses the ISA's fragment layouts. Integer sums are exact. Floating-point sums have the bits of an H200, whose
//! tensor cores cut the terms of a sum before they add them (`ISA.md`); other devices may add in another way.
//!
//! `ISA.md` beside this crate's sources lists the supported instructions and how they agree with an H200, form by form.
//!
//! # Asynchronous copies
//!
//! `cp.async` and `cp.async.bulk` complete as late as the ISA allows, so a missing wait is found however fast a device
//! is. Copies of a group complete when the issuing thread executes a `wait_group` that covers them; after
//! `cp.async.bulk.wait_group.read` only the source may be used again, and other accesses of the target are races until
//! a wait without `.read` or the end of the kernel. Copies that signal an mbarrier complete at the second wait for it:
//! the first `test_wait` or `try_wait` fails, as it may on a device, which finds kernels that do not retry.
//!
//! While a copy is in flight its target is uninitialised, and its target and its source in shared memory must not be
//! written ([`FindingKind::AsyncCopy`]). A CTA must not end with copies in flight. A completed copy is visible to the
//! threads that have observed its phase complete and to those that have synchronised with such a thread; an access by
//! any other thread is a race.
//!
//! `cp.async.bulk.tensor` copies boxes of a tensor, in tile mode. A [`TensorMap`] encodes what `cuTensorMapEncodeTiled`
//! encodes on a device, in a format of the emulator; a kernel takes it as a parameter of 128 bytes, or finds it in
//! global or constant memory. Bytes that are not an encoded map, and a map whose rank differs from the instruction's,
//! are [`FindingKind::TensorMap`]. A copy signals the bytes of the whole box; a load fills elements outside the tensor,
//! a store leaves them out. Interleaved tensors are supported ([`Interleave`]), and rows of a box that are shorter than
//! the swizzle ([`TensorMap::shared_bytes`]). Not supported: `im2col`. The NaN that fills a box has the bits 0x7ff7 in
//! every 16 bits, as on an H100; the ISA does not specify them.
//!
//! `tensormap.replace` changes a map, or turns 128 zero bytes into one. A map is used through the tensormap proxy. So
//! the use of a map in global memory that the launch has changed needs a release fence of that proxy after the change,
//! or `tensormap.cp_fenceproxy`, and an acquire fence by the CTA that uses the map ([`FindingKind::ProxyFence`]).
//!
//! Misuse of an mbarrier (phases, pending arrivals, transaction bytes) is [`FindingKind::Mbarrier`]. When all warps
//! wait and nothing in flight can release one, the run stops at once with [`FindingKind::Deadlock`], which lists what
//! each warp waits for.
//!
//! # Exited threads
//!
//! A `bar` without a number of threads, and instructions with a member mask, do not wait for threads that have exited
//! or that have branched to a `ret` or `exit`. Threads that first execute other instructions count as members.
//!
//! # Uninitialised values
//!
//! A read of uninitialised memory, or of a register that no instruction has written, is not a finding by itself:
//! compilers copy the padding of structures, and shuffle registers of lanes whose results are unused. The uninitialised
//! bits are tracked through registers, shared and local memory. The finding, [`FindingKind::Uninitialised`] at the
//! read, is reported when these bits decide a branch or whether an instruction executes, are part of an address, are
//! operands of an atomic, asynchronous or other instruction with an effect, or are stored to global memory. A store to
//! global memory may copy uninitialised bytes beside initialised ones, unless they come from shared memory; the copied
//! bytes stay uninitialised. Arithmetic makes its whole result uninitialised. Moves, shuffles and bitwise operations
//! make only the dependent result bits uninitialised, products of matrices only the dependent result elements.
//! Instructions of 256 bits, `wmma.load`, `vprintf` and `wgmma` report uninitialised operands even if nothing depends
//! on them.
//!
//! # Products of warpgroups
//!
//! The results of a `wgmma.mma_async` appear in its registers when the warp executes a `wgmma.wait_group` that covers
//! it. Until then a use of its registers by another instruction, and a write of its operands in shared memory, are
//! [`FindingKind::Wgmma`]; so is a register that was used after the last `wgmma.fence`, unless only operations of the
//! same shape accumulated in it. An operation completes as a whole: a warp that waits for it also waits until the other
//! warps of its warpgroup have issued it. Operands that ordinary stores wrote need `fence.proxy.async`
//! ([`FindingKind::ProxyFence`]). Not supported: `.sp` and `.b1`.
//!
//! # Registers of warpgroups
//!
//! `setmaxnreg.dec` gives registers of a warp to its CTA, and `setmaxnreg.inc` waits until the CTA has enough. A CTA
//! starts with what the directives `.maxnreg`, or `.minnctapersm` with the number of threads, allow each thread, or
//! with the largest number of a `setmaxnreg.inc` if that is less, as ptxas chooses; without them ptxas ignores
//! `setmaxnreg`, and so does the emulator. An increase to fewer registers, and warps of a warpgroup that execute
//! different instructions, are [`FindingKind::Registers`]; registers that no warp can give are
//! [`FindingKind::Deadlock`].
//!
//! # Races
//!
//! Two accesses to a byte, of which one writes, must be ordered by happens-before, or both be strong (`.relaxed`,
//! `.volatile` or stronger, atomics) at a scope that includes both threads. Otherwise they are [`FindingKind::Race`],
//! which names both accesses. Happens-before is the ISA's:
//!
//! - program order of one thread; lanes of a warp are unordered, like any two threads;
//! - `bar` and `barrier` among the participating threads (a thread that only arrives acquires nothing), and
//!   `bar.warp.sync` among the lanes of its mask. Shuffles and votes order no memory;
//! - an mbarrier, from arrivals and completed copies to the threads that observe the phase complete (`.relaxed` forms
//!   order nothing), and `cp.async.wait_group` for the thread that executes it;
//! - a release and the acquire that reads from it: as modifiers, or as a fence before a strong write and a fence after
//!   the strong read. Two fences with `.sc` (or `membar`) of `.gpu` or `.sys` may be those of other threads than the
//!   write and the read, if barriers order them. Scope `.cta` orders nothing between CTAs. A fence releases what
//!   happened before it; what the thread acquires after the fence, at a barrier for example, needs another fence;
//! - the start and the end of the kernel.
//!
//! Lanes of one instruction, and threads of a cluster, may store the same value to one address: a store that leaves
//! memory as it is does not race with earlier weak stores. Whether a store is redundant may depend on the order of
//! turns; apart from that races are found by happens-before and not by timing, and a run has the same findings in
//! whatever order its warps took turns, unless that order changes what the kernel does. Bulk copies need a proxy fence
//! after writes by instructions, and a fence after the initialisation of their mbarrier ([`FindingKind::ProxyFence`]).
//!
//! Bytes that `ld.global.nc` reads must not be written by the same launch, before or after, since the load may return
//! old data: otherwise they are [`FindingKind::Race`], too.
//!
//! Missed races: only the last strong write to an address is remembered; the source of an asynchronous copy is compared
//! with writes of its own CTA only. Accesses that a lock should order are ordered, in the schedule that runs, by its
//! atomic operations alone, even if these never take the lock.
//!
//! # Clusters
//!
//! A launch in clusters ([`LaunchConfig::cluster`], or the kernel's `.reqnctapercluster`) runs the CTAs of a cluster
//! together. Their shared memory is one range of addresses, as on devices: the address of a CTA's variable means the
//! same in all CTAs, but only `.shared::cluster` and generic accesses reach another CTA's shared memory.
//!
//! - `barrier.cluster` waits for all threads of the cluster that have not exited. A thread that arrives twice, waits
//!   without having arrived, or never arrives is [`FindingKind::BarrierDivergence`]. Arrivals release memory unless
//!   they are `.relaxed`; a relaxed arrival releases what a fence before it released, and initialised mbarriers after
//!   `fence.mbarrier_init`.
//! - An access to a CTA's shared memory before the CTA is known to have started, after it has exited, or where nothing
//!   keeps it from exiting first is [`FindingKind::PeerNotRunning`], whatever the timing: some thread of that CTA must
//!   know of the access before it exits.
//! - Races are found across the cluster. Release and acquire at `.cta` scope, the default of `mbarrier` operations,
//!   order nothing between two CTAs.
//! - All CTAs can arrive at an mbarrier; only its own CTA can wait for it. `cp.async.bulk` (also with
//!   `.multicast::cluster`), `st.async` and `red.async` into a CTA's shared memory signal an mbarrier there.
//!
//! # Programmatic dependent launch
//!
//! Each [`run`] is complete when it returns, so `griddepcontrol` does nothing in it. [`ProgrammaticOrder`] runs a
//! sequence of launches and finds those that access what an earlier launch may still be using, or that never wait
//! ([`FindingKind::ProgrammaticDependency`]).
//!
//! # Profiles
//!
//! [`Options::profile`] counts, for each instruction, warps and lanes, sectors of global memory per request, and bank
//! conflicts in shared memory. A [`Profile`] sums the counts by source line and instruction class; [`Profile::lints`]
//! names places that probably lose time. The counts are of the program's accesses, not of a device's caches.
//!
//! # Errors
//!
//! Text that is not PTX, and instructions, modifiers and directives that are not implemented, are errors when the
//! module is loaded, never while it runs. [`Module::load`] returns all errors up to the point where parsing cannot
//! continue, each with a [`ParseErrorKind`]. An assembler refuses more: modifiers without effect, such as a rounding
//! mode of `neg`, may be accepted here.
//!
//! A text begins with `.version` and `.target`, and an instruction must be in both. Requirements are known from sm_75
//! and PTX 6.3 on; a later minor version than all known ones is assumed to have everything.
//!
//! Calls are inlined up to a limit, which is checked on the call graph before anything is expanded.
//!
//! # Assumptions
//!
//! A comment `//@ assume.RELATION.TYPE a, b;` in a kernel is an assumption of the compiler that wrote it. A thread for
//! which it is false is a [`FindingKind::Assumption`]. Relations are `eq`, `ne`, `lt`, `le` and `multiple_of`, types
//! `u32`, `s32`, `u64` and `s64`, and operands registers or constants. The test counts as two or three instructions.
//!
//! # Code of other compilers
//!
//! Ordinary kernels from nvcc and Triton load and run: functions and calls, also through pointers (inlined at load, so
//! not recursive), local and constant memory, `alloca`, generic addresses, branch tables, `wmma`. A failed device
//! assertion is [`FindingKind::Trap`]. What threads print with `printf` is [`Stats::printed`] and [`Finding::printed`].
//! The CTAs of a cooperative launch ([`LaunchConfig::cooperative`]) may synchronise as a grid, as CUDA's
//! `grid_group::sync` does through `%envreg1` and `%envreg2`; other `%envreg` are zero. Textures and surfaces are
//! refused.

mod asynchronous;
mod checks;
mod code;
mod context;
mod decode;
mod exec;
mod finding;
mod geometry;
mod lanes;
mod launch;
mod load;
mod memory;
mod module;
mod options;
mod outcome;
mod profile;
mod programmatic;
mod schedule;
mod tensor_map;

pub use finding::{FindingKind, Neighbour, OtherAccess, SourceLine, Space};
pub use launch::run;
pub use load::error::{ParseError, ParseErrorKind};
pub use memory::{Memory, MemoryError};
pub use module::{Kernel, Module, Param, RefusedKernel};
pub use options::{Checks, LaunchConfig, Options};
pub use outcome::{Finding, Stats};
pub use profile::{
    Class, Counts, GlobalCounts, InstructionProfile, LineProfile, Lint, LintKind, Profile, SharedCounts,
    Thresholds,
};
pub use programmatic::ProgrammaticOrder;
pub use tensor_map::{
    DriverTensorMap, Interleave, Swizzle, TENSOR_MAP_BYTES, TensorMap, TensorMapError, TensorType,
};
