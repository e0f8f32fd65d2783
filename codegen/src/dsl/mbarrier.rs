//! Barriers in shared memory, which count arrivals and the bytes of asynchronous copies.
//!
//! An mbarrier goes through phases. A phase ends when as many threads have arrived as [`Mbarrier::init`] said and, from
//! sm_90 on, as many bytes have been copied as were announced; the next one begins at once. Phases have alternate
//! parities, the first one 0. A thread waits for the phase of a parity to end: for parity 1 it does not wait at all
//! while the first phase goes on, as if a phase before had ended.

use std::panic::Location;

use super::pointer::{Index, Ptr, Shared, shared_array};
use super::record::{Site, emit, emit1, with};
use super::value::{IntoVal, Val};
use crate::Carry;
use crate::ir::{self, BlockCall, FenceFor, Op, Type};

/// An mbarrier: 8 bytes of shared memory, aligned to 8.
#[derive(Clone, Copy, Debug, Carry)]
pub struct Mbarrier(Ptr<Shared, u64>);

/// Consecutive mbarriers.
#[derive(Clone, Copy, Debug, Carry)]
pub struct MbarrierArray(Ptr<Shared, u64>);

/// How a thread waits at an mbarrier.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// Asks again and again (`mbarrier.test_wait`, sm_80).
    Test,
    /// Lets the hardware suspend the thread for a while each time (`mbarrier.try_wait`, sm_90).
    Try,
}

/// `count` mbarriers in static shared memory, to be initialised by one thread before any other uses them.
#[track_caller]
pub fn mbarrier_array(count: u32) -> MbarrierArray {
    MbarrierArray(shared_array(count))
}

impl MbarrierArray {
    /// The mbarriers at an address in shared memory.
    pub fn from_pointer(first: Ptr<Shared, u64>) -> MbarrierArray {
        MbarrierArray(first)
    }

    /// The mbarrier number `index`.
    #[track_caller]
    pub fn at(self, index: impl Index) -> Mbarrier {
        Mbarrier(self.0.at(index))
    }
}

impl Mbarrier {
    #[track_caller]
    fn emit(self, operation: ir::Mbarrier, operands: &[ir::Value]) {
        let args = [&[self.0.id], operands].concat();
        emit(Op::Mbarrier(operation), Type::U32, &args, Location::caller());
    }

    /// Makes it wait for `arrivals` threads in each phase (`mbarrier.init.shared.b64`). To be done by one thread, and
    /// made visible to the CTA's others by a barrier and to bulk copies by [`fence_mbarrier_init`].
    #[track_caller]
    pub fn init(self, arrivals: u32) {
        self.emit(ir::Mbarrier::Init, &[super::val(arrivals).id]);
    }

    /// Ends its life, so that the memory may hold something else (`mbarrier.inval.shared.b64`).
    #[track_caller]
    pub fn invalidate(self) {
        self.emit(ir::Mbarrier::Invalidate, &[]);
    }

    /// Arrives; what the thread wrote before is visible to who waits for the phase (`mbarrier.arrive.shared.b64`).
    #[track_caller]
    pub fn arrive(self) {
        self.emit(ir::Mbarrier::Arrive, &[]);
    }

    /// Arrives, after announcing `bytes` bytes that the phase waits for besides
    /// (`mbarrier.arrive.expect_tx.shared::cta.b64`, sm_90).
    #[track_caller]
    pub fn arrive_expect(self, bytes: impl IntoVal<u32>) {
        self.emit(ir::Mbarrier::ArriveExpect, &[bytes.into_val().id]);
    }

    /// Announces `bytes` bytes that the phase waits for, without arriving
    /// (`mbarrier.expect_tx.relaxed.cta.shared::cta.b64`, sm_90).
    #[track_caller]
    pub fn expect(self, bytes: impl IntoVal<u32>) {
        self.emit(ir::Mbarrier::Expect, &[bytes.into_val().id]);
    }

    /// Whether the phase of the parity has ended; if so, what was written before the arrivals is visible
    /// (`mbarrier.test_wait.parity.shared.b64`).
    #[track_caller]
    pub fn test_wait(self, parity: impl IntoVal<u32>) -> Val<bool> {
        self.ended(Wait::Test, parity.into_val(), Location::caller())
    }

    /// As [`Mbarrier::test_wait`], but the thread may sleep for a while before it is told no
    /// (`mbarrier.try_wait.parity.shared::cta.b64`, sm_90).
    #[track_caller]
    pub fn try_wait(self, parity: impl IntoVal<u32>) -> Val<bool> {
        self.ended(Wait::Try, parity.into_val(), Location::caller())
    }

    fn ended(self, how: Wait, parity: Val<u32>, site: Site) -> Val<bool> {
        let operation = match how {
            Wait::Test => ir::Mbarrier::TestWait,
            Wait::Try => ir::Mbarrier::TryWait,
        };
        Val::from_id(emit1(Op::Mbarrier(operation), Type::U32, &[self.0.id, parity.id], site))
    }

    /// Waits until the phase of the parity has ended: a loop of [`Mbarrier::test_wait`] or [`Mbarrier::try_wait`].
    #[track_caller]
    pub fn wait(self, parity: impl IntoVal<u32>, how: Wait) {
        let (parity, site) = (parity.into_val(), Location::caller());
        repeat_until(|| self.ended(how, parity, site), site);
    }

    /// Arrives when all copies that this thread started by [`super::copy_async`] are done, without making the thread
    /// wait (`cp.async.mbarrier.arrive.noinc.shared.b64`). The arrival is one of those that the phase waits for.
    #[track_caller]
    pub fn arrive_after_copies(self) {
        self.emit(ir::Mbarrier::ArriveAfterCopies, &[]);
    }

    /// Its address.
    pub(super) fn address(self) -> ir::Value {
        self.0.id
    }
}

/// Makes the mbarriers that this thread has initialised visible to bulk copies and to the CTAs of the cluster
/// (`fence.mbarrier_init.release.cluster`, sm_90).
#[track_caller]
pub fn fence_mbarrier_init() {
    emit(Op::FenceFor(FenceFor::MbarrierInit), Type::U32, &[], Location::caller());
}

/// Orders this thread's accesses of the CTA's shared memory with bulk copies from and to it, which do not go the way
/// that instructions go (`fence.proxy.async.shared::cta`, sm_90). Before a bulk copy overwrites what instructions wrote.
#[track_caller]
pub fn fence_async_shared() {
    emit(Op::FenceFor(FenceFor::AsyncShared), Type::U32, &[], Location::caller());
}

/// As [`fence_async_shared`], of all memory (`fence.proxy.async`, sm_90).
#[track_caller]
pub fn fence_async() {
    emit(Op::FenceFor(FenceFor::Async), Type::U32, &[], Location::caller());
}

/// Records a loop of nothing but its condition.
fn repeat_until(condition: impl FnOnce() -> Val<bool>, site: Site) {
    let header = with(|r| {
        let header = r.func.create_block();
        r.jump(header, Vec::new(), site);
        r.switch_to(header);
        header
    });
    let condition = condition();
    with(|r| {
        let after = r.func.create_block();
        let to = |block| BlockCall { block, args: Vec::new() };
        r.branch(condition.id, to(after), to(header), site);
        r.switch_to(after);
    });
}
