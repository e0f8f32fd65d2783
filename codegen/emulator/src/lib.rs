//! A PTX emulator that checks what it runs.
//!
//! [`Module::parse`] reads PTX *text*, the very text that a driver would load, and decodes every
//! instruction; [`run`] executes a kernel of it on the CPU over a [`Memory`]. A run that reads or
//! writes outside an allocation, at a misaligned address, or before anything was written there, or
//! whose threads do not meet at their barriers, stops with a [`Finding`] that names the kernel, the
//! line of its source and of the PTX, the thread and the address.
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
//! // One thread more than there are elements:
//! let finding = run(kernel, &memory, &LaunchConfig::linear(1, 33), &data.to_le_bytes(), &Options::default());
//! assert!(finding.is_err_and(|finding| finding.thread == [32, 0, 0] && finding.address == Some(data + 128)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What it models
//!
//! Warps have 32 lanes, diverge at branches and reconverge where the branch's sides meet; a CTA's
//! warps take turns, and so do the CTAs of a cluster; others run in parallel, and one that waits for another makes room
//! for it. Integer
//! and IEEE arithmetic is exact to the bit, in all rounding modes, with `.ftz`, `.sat` and the NaNs that
//! devices return. The approximate instructions (`ex2`, `lg2`, `sin`, `cos`, `tanh`, `rsqrt`, and `.approx` and
//! `.full` forms of others) return the single nearest to the double-precision result, so they are at
//! least as accurate as on a device but do not have its bits.
//!
//! `mma` multiplies fragments laid out as the ISA says. Integer sums are exact; a floating-point sum is
//! that of the exact products and the accumulator, rounded once, where a device adds in an order and
//! with a precision of its own.
//!
//! `ISA.md` beside this crate's sources says which instructions of the PTX ISA run, and how they agree with
//! an H200's, form by form.
//!
//! # Asynchronous copies
//!
//! `cp.async` and `cp.async.bulk` complete as late as the ISA allows, so that a missing wait shows
//! however fast a device would have been. Grouped copies complete when the issuing thread executes a
//! `wait_group` that covers them. Copies that signal an mbarrier complete when something waits for it a
//! second time: the first `test_wait` or `try_wait` fails, as it may on a device, which finds the kernel
//! that does not try again. Until then the bytes that a copy writes count as not written, nobody may
//! write them, and nobody may write the bytes of shared memory that a copy reads: either is a finding
//! ([`FindingKind::AsyncCopy`]), as is a CTA that ends with copies in flight. A copy that is complete is
//! so for the threads that have found its phase complete, or have synchronised with one that has: any other's
//! access is a race.
//!
//! mbarriers have phases, pending arrivals and transaction bytes; their misuse is a finding
//! ([`FindingKind::Mbarrier`]). A warp whose wait fails lets the others run. When all warps of a CTA wait
//! and nothing in flight can release one, the run stops at once with a [`FindingKind::Deadlock`] that
//! tells who waits for what.
//!
//! # Races
//!
//! Two accesses that touch a byte, one of which writes, must be ordered, or both be strong (`.relaxed`,
//! `.volatile` or more, atomics) at a scope that has both threads; else they are a finding
//! ([`FindingKind::Race`]) that names both, with their threads and lines. What orders them is what the ISA says:
//!
//! - program order, of one thread: lanes of a warp are as far apart as any two threads, lockstep or not;
//! - `bar` and `barrier`, by the threads that take part (who arrives only is not told anything), and
//!   `bar.warp.sync` by the lanes of its mask. Shuffles, votes and the like order no memory;
//! - an mbarrier: from arrivals to those who find the phase complete (`.relaxed` forms order nothing), and from
//!   the copies that the phase waited for. `cp.async.wait_group` tells the thread that executes it;
//! - a release and the acquire that reads from it: as modifiers, or as a fence before a strong write and one
//!   after the strong read. Fences and accesses of the CTA's scope tell no other CTA. What a thread's fence
//!   releases is what it knew then: what others tell it later, at a barrier, needs a fence after that;
//! - the kernel's start and end.
//!
//! Lanes that store one value to one place in one instruction do no harm. Races are found by what could have
//! come in either order, not by what did: a run has the same findings however its threads took turns, so far as
//! they then do the same. Bulk copies need a proxy fence between them and what instructions wrote, and after the
//! initialisation of their mbarrier ([`FindingKind::ProxyFence`]).
//!
//! Two things it does not see: of strong writes to one place only the last is remembered, and what an asynchronous
//! copy reads is compared with what its own CTA writes, not with what others do.
//!
//! # Clusters
//!
//! A launch in clusters ([`LaunchConfig::cluster`], or the kernel's `.reqnctapercluster`) runs the CTAs of each together.
//! Their shared memory is one range of addresses, as on devices: an address that a CTA takes of a variable of its own
//! means the same in all of them, though only `.shared::cluster` and generic accesses reach another's. What a CTA may do
//! there, and what is a finding:
//!
//! - `barrier.cluster` waits for all threads of the cluster that have not exited. Who arrives twice, waits without having
//!   arrived, or keeps others waiting for good is a [`FindingKind::BarrierDivergence`]. It orders memory, but for
//!   arrivals that are `.relaxed`; those make known what a fence before them did, and initialised mbarriers after
//!   `fence.mbarrier_init`.
//! - Shared memory is there while its CTA runs. An access before anything tells that the CTA has started, after it has
//!   exited, or where nothing keeps it from exiting before, is a [`FindingKind::PeerNotRunning`], whoever happened to be
//!   faster: some thread of that CTA must know of the access before it exits.
//! - Races are found across the cluster. A release or acquire of the CTA's scope, which is that of `mbarrier`
//!   operations that name none, orders nothing between two CTAs.
//! - An mbarrier can be arrived at from all CTAs, and waited for in its own. What goes into a CTA's shared memory,
//!   by `cp.async.bulk` (with `.multicast::cluster` into several), `st.async` or `red.async`, signals an mbarrier there;
//!   it arrives when that is waited for, as other copies do.
//!
//! # Programmatic dependent launch
//!
//! Each [`run`] is complete when it returns, so `griddepcontrol` does nothing in it. [`ProgrammaticOrder`]
//! runs launches of a sequence and finds those that touch what a launch before may still be using, or do
//! not wait at all ([`FindingKind::ProgrammaticDependency`]).
//!
//! # Profiles
//!
//! [`Options::profile`] counts, instruction by instruction, how often warps issued it, for how many lanes,
//! and what it cost the memory: sectors of global memory a request, bank conflicts in shared memory. A
//! [`Profile`] sums that by source line and by class of instruction, and [`Profile::lints`] names the places
//! where time is probably lost. These are counts of the program's own accesses, not of a device's caches.
//!
//! # What is refused
//!
//! What is not PTX, and an instruction, modifier or directive that is not implemented, is an error when the module is
//! loaded, never a surprise while it runs. [`Module::load`] tells all of them at once, up to where the text cannot be read
//! on, each by its [`ParseErrorKind`]: what is not PTX, what nothing declares or something declares twice, operands that
//! do not fit, what the text's own `.target` or `.version` does not have, and what is valid and not implemented. An
//! assembler refuses more: a modifier that has no effect, such as a rounding mode of `neg`, may be taken here, for one.
//!
//! A text begins with `.version` and `.target`, as drivers want it. Which of them an instruction needs is known of what
//! runs here, from sm_75 and PTX 6.3 on; a version later than all that are known is taken to have everything.
//!
//! # What other compilers write
//!
//! What nvcc and Triton make of ordinary kernels loads and runs: functions and their calls (expanded
//! where they stand, so neither recursive nor through pointers), local and constant memory, generic
//! addresses, lists of branch targets, `wmma`. An assertion of device code that fails is a finding of
//! kind [`FindingKind::Trap`]. Textures, surfaces and `printf` are refused.

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

pub use finding::{FindingKind, Neighbour, OtherAccess, SourceLine, Space};
pub use launch::run;
pub use load::error::{ParseError, ParseErrorKind};
pub use memory::{Memory, MemoryError};
pub use module::{Kernel, Module, Param};
pub use options::{Checks, LaunchConfig, Options};
pub use outcome::{Finding, Stats};
pub use profile::{
    Class, Counts, GlobalCounts, InstructionProfile, LineProfile, Lint, LintKind, Profile, SharedCounts,
    Thresholds,
};
pub use programmatic::ProgrammaticOrder;
