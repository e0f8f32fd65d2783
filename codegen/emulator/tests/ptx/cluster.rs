//! Thread block clusters: special registers, the cluster barrier, and distributed shared memory.

use bespoke_emulator::{Finding, FindingKind, LaunchConfig, Module};

use crate::harness::{kernel, launch, words};

/// A single cluster of two CTAs of one warp each.
const PAIR: LaunchConfig = LaunchConfig {
    grid: [2, 1, 1],
    block: [32, 1, 1],
    dynamic_shared: 0,
    cluster: Some([2, 1, 1]),
    cooperative: false,
};

/// Start of every body: rank of the CTA in `%r0`, rank of the peer in `%r1`, `%tid.x` in `%r2`. `%r3` is the address of
/// the thread's word of the shared `tile`, `%r4` of the same word in the peer's tile, and `%x1` of the thread's word of
/// global memory. `%r5` is 100 plus the thread's number in the cluster.
const PLACES: &str = "
    .shared .align 16 .b32 tile[64];
    .shared .align 8 .b64 gate[2];
    mov.u32 %r0, %cluster_ctarank; xor.b32 %r1, %r0, 1; mov.u32 %r2, %tid.x;
    mov.u32 %r3, tile; mad.lo.u32 %r3, %r2, 4, %r3; mapa.shared::cluster.u32 %r4, %r3, %r1;
    mad.lo.u32 %r5, %r0, 32, %r2; mad.wide.u32 %x1, %r5, 4, %data; add.u32 %r5, %r5, 100;";

const SYNC: &str = "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;";
const RELAXED: &str = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;";

fn pair(body: &str) -> Result<Vec<u32>, Box<Finding>> {
    let mut data = words(64, 7);
    let text = kernel("", &format!("{PLACES}\n{}", body.replace("SYNC;", SYNC).replace("RELAXED;", RELAXED)));
    launch(&text, PAIR, &mut data).map(|_| data)
}

#[track_caller]
fn clean(body: &str) -> Vec<u32> {
    pair(body).unwrap_or_else(|finding| panic!("{finding}"))
}

/// Checks the kind of the finding and that its detail contains `part`.
#[track_caller]
fn finds(kind: FindingKind, part: &str, body: &str) {
    let found = pair(body).expect_err("the kernel has a fault");
    assert_eq!(found.kind, kind, "{found}");
    assert!(found.detail.contains(part), "{found}");
}

/// Words of global memory after each CTA has stored the words of its peer.
fn exchanged() -> Vec<u32> {
    (132..164).chain(100..132).collect()
}

#[test]
fn special_registers_of_clusters() {
    // A grid of 4 × 4 × 2 CTAs in clusters of 2 × 1 × 2; CTA (3, 2, 1) writes.
    let body = "
        mov.u32 %r0, %ctaid.x; mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ctaid.z;
        mad.lo.u32 %r3, %r1, 4, %r0; mad.lo.u32 %r3, %r2, 16, %r3; setp.ne.u32 %p, %r3, 27; @%p ret;
        mov.u32 %r4, %clusterid.x; mov.u32 %r5, %clusterid.y; mov.u32 %r6, %clusterid.z;
        st.global.u32 [%data], %r4; st.global.u32 [%data+4], %r5; st.global.u32 [%data+8], %r6;
        mov.u32 %r4, %nclusterid.x; mov.u32 %r5, %nclusterid.y; mov.u32 %r6, %nclusterid.z;
        st.global.u32 [%data+12], %r4; st.global.u32 [%data+16], %r5; st.global.u32 [%data+20], %r6;
        mov.u32 %r4, %cluster_ctaid.x; mov.u32 %r5, %cluster_ctaid.y; mov.u32 %r6, %cluster_ctaid.z;
        st.global.u32 [%data+24], %r4; st.global.u32 [%data+28], %r5; st.global.u32 [%data+32], %r6;
        mov.u32 %r4, %cluster_nctaid.x; mov.u32 %r5, %cluster_nctaid.y; mov.u32 %r6, %cluster_nctaid.z;
        st.global.u32 [%data+36], %r4; st.global.u32 [%data+40], %r5; st.global.u32 [%data+44], %r6;
        mov.u32 %r4, %cluster_ctarank; mov.u32 %r5, %cluster_nctarank; mov.pred %q, %is_explicit_cluster;
        selp.u32 %r6, 1, 0, %q;
        st.global.u32 [%data+48], %r4; st.global.u32 [%data+52], %r5; st.global.u32 [%data+56], %r6;";
    let run = |directives: &str, cluster| {
        let mut data = words(15, 7);
        let config =
            LaunchConfig { grid: [4, 4, 2], block: [1; 3], dynamic_shared: 0, cluster, cooperative: false };
        launch(&kernel(directives, body), config, &mut data).unwrap_or_else(|finding| panic!("{finding}"));
        data
    };
    let expected = [1, 2, 0, 2, 4, 1, 1, 0, 1, 2, 1, 2, 3, 4, 1];
    assert_eq!(run("", Some([2, 1, 2])), expected);
    assert_eq!(run("\n.explicitcluster\n.reqnctapercluster 2, 1, 2", None), expected);
    assert_eq!(run("", None), [3, 2, 1, 4, 4, 2, 0, 0, 0, 1, 1, 1, 0, 1, 0]);
}

#[test]
fn invalid_cluster_sizes_are_refused() {
    let refused = |directives: &str, grid: u32, cluster: Option<u32>| {
        let config = LaunchConfig { cluster: cluster.map(|n| [n, 1, 1]), ..LaunchConfig::linear(grid, 32) };
        let outcome = launch(&kernel(directives, "ret;"), config, &mut words(1, 0));
        outcome.err().map(|finding| {
            assert_eq!(finding.kind, FindingKind::InvalidLaunch, "{finding}");
            finding.detail.clone()
        })
    };
    let says = |refusal: Option<String>, part: &str| {
        assert!(refusal.as_ref().is_some_and(|detail| detail.contains(part)), "{refusal:?}");
    };
    assert_eq!(refused(" .reqnctapercluster 4", 8, None), None);
    assert_eq!(refused(" .reqnctapercluster 4", 8, Some(4)), None);
    assert_eq!(refused(" .maxclusterrank 8", 8, Some(8)), None);
    assert_eq!(refused("", 16, Some(16)), None);
    says(refused(" .reqnctapercluster 4", 6, None), "not a multiple of clusters");
    says(refused(" .reqnctapercluster 4", 8, Some(2)), "not the [4, 1, 1] that the kernel requires");
    says(refused(" .maxclusterrank 8", 16, Some(16)), "larger than the 8");
    says(refused(" .explicitcluster", 8, None), "requires clusters");
    says(refused("", 32, Some(32)), "not between 1 and 16");
    says(refused("", 8, Some(0)), "not between 1 and 16");
}

#[test]
fn ctas_exchange_words() {
    assert_eq!(
        clean(
            "st.shared.u32 [%r3], %r5; SYNC; ld.shared::cluster.u32 %r6, [%r4]; SYNC; st.global.u32 [%x1], %r6;"
        ),
        exchanged()
    );
    // Remote stores instead of remote loads.
    assert_eq!(
        clean(
            "SYNC; st.shared::cluster.u32 [%r4], %r5; SYNC; ld.shared.u32 %r6, [%r3]; st.global.u32 [%x1], %r6;"
        ),
        exchanged()
    );
    // Generic addresses.
    assert_eq!(
        clean(
            "cvt.u64.u32 %x2, %r3; cvta.shared.u64 %x2, %x2; mapa.u64 %x3, %x2, %r1;
             st.u32 [%x2], %r5; SYNC; ld.u32 %r6, [%x3]; SYNC; st.global.u32 [%x1], %r6;"
        ),
        exchanged()
    );
}

#[test]
fn the_rank_of_an_address() {
    let data = clean(
        "cvt.u64.u32 %x2, %r4; cvta.shared::cluster.u64 %x2, %x2; cvt.u64.u32 %x3, %r3; cvta.shared.u64 %x3, %x3;
         getctarank.shared::cluster.u32 %r6, %r4; getctarank.u64 %r7, %x3;
         isspacep.shared::cluster %p, %x2; isspacep.shared::cta %q, %x2; selp.u32 %r8, 1, 0, %p; selp.u32 %r9, 1, 0, %q;
         isspacep.shared::cta %q, %x3; selp.u32 %r10, 1, 0, %q; isspacep.shared::cluster %q, %data; selp.u32 %r11, 1, 0, %q;
         mapa.shared::cluster.u32 %r12, %r4, %r0; sub.u32 %r12, %r12, %r3;
         mad.lo.u32 %r6, %r6, 10, %r7; mad.lo.u32 %r6, %r6, 10, %r8; mad.lo.u32 %r6, %r6, 10, %r9;
         mad.lo.u32 %r6, %r6, 10, %r10; mad.lo.u32 %r6, %r6, 10, %r11; add.u32 %r6, %r6, %r12;
         st.global.u32 [%x1], %r6;",
    );
    assert_eq!((data[0], data[32]), (101010, 11010));
}

#[test]
fn atomics_on_the_memory_of_one_cta() {
    // All 64 threads add to word 0 of the tile in the CTA of rank 0.
    let add = |operation: &str| {
        format!(
            "mov.u32 %r6, 0; mov.u32 %r7, tile; mapa.shared::cluster.u32 %r8, %r7, 0;
             setp.eq.u32 %p, %r5, 100; @%p st.shared.u32 [%r7], %r6; SYNC;
             {operation}
             SYNC; ld.shared::cluster.u32 %r9, [%r8]; SYNC; st.global.u32 [%x1], %r9;"
        )
    };
    let sum = (100..164).sum::<u32>();
    for operation in [
        "atom.shared::cluster.add.u32 %r9, [%r8], %r5;",
        "red.relaxed.cluster.shared::cluster.add.u32 [%r8], %r5;",
        "cvt.u64.u32 %x2, %r8; cvta.shared::cluster.u64 %x2, %x2; atom.relaxed.cluster.add.u32 %r9, [%x2], %r5;",
    ] {
        assert_eq!(clean(&add(operation)), words(64, sum), "{operation}");
    }
    // An atomic operation of CTA scope is not atomic with respect to other CTAs.
    finds(
        FindingKind::Race,
        "no happens-before relation to the earlier access",
        &add("red.relaxed.cta.shared::cluster.add.u32 [%r8], %r5;"),
    );
}

#[test]
fn unordered_accesses_of_two_ctas_race() {
    let exchange = |sync: &str| {
        format!(
            "SYNC; st.shared.u32 [%r3], %r5; {sync} ld.shared::cluster.u32 %r6, [%r4]; SYNC; st.global.u32 [%x1], %r6;"
        )
    };
    assert_eq!(clean(&exchange("SYNC;")), exchanged());
    assert_eq!(clean(&exchange("fence.acq_rel.cluster; RELAXED;")), exchanged());
    finds(FindingKind::Race, "by a thread of another CTA of the cluster", &exchange("RELAXED;"));
    finds(
        FindingKind::Race,
        "no happens-before relation to the earlier access",
        &exchange("fence.acq_rel.cta; RELAXED;"),
    );
    let race = pair(&exchange("bar.sync 0;")).expect_err("only the CTA has met");
    // The first CTA may instead read a word before the peer has written it.
    assert!(matches!(race.kind, FindingKind::Race | FindingKind::Uninitialised), "{race}");
    let race = pair(&exchange("RELAXED;")).expect_err("a race");
    let other = race.other.as_ref().expect("two accesses");
    assert_ne!(other.cta, race.cta, "{race}");
}

#[test]
fn release_and_acquire_must_have_cluster_scope() {
    // The CTA of rank 0 writes a word and a flag to the shared memory of rank 1, which polls the flag.
    let flag = |release: &str, acquire: &str| {
        format!(
            "mov.u32 %r6, tile; mapa.shared::cluster.u32 %r7, %r6, 1; mov.u32 %r10, 0;
             setp.eq.u32 %p, %r2, 0; @%p st.shared.u32 [%r6+128], %r10; SYNC;
             setp.ne.u32 %p, %r2, 0; @%p bra END;
             setp.eq.u32 %p, %r0, 1; @%p bra READ;
             st.shared::cluster.u32 [%r7], %r5; st.{release}.shared::cluster.u32 [%r7+128], %r5; bra.uni END;
             READ: ld.{acquire}.shared.u32 %r8, [%r6+128]; setp.eq.u32 %p, %r8, 0; nanosleep.u32 20; @%p bra READ;
             ld.shared.u32 %r9, [%r6]; st.global.u32 [%data], %r9;
             END: SYNC;"
        )
    };
    assert_eq!(clean(&flag("release.cluster", "acquire.cluster"))[0], 100);
    assert_eq!(clean(&flag("release.gpu", "acquire.cluster"))[0], 100);
    finds(FindingKind::Race, "", &flag("release.cluster", "acquire.cta"));
    finds(FindingKind::Race, "", &flag("release.cta", "acquire.cluster"));
    finds(FindingKind::Race, "", &flag("relaxed.cluster", "acquire.cluster"));
}

#[test]
fn the_peer_must_be_running() {
    let read = "ld.shared::cluster.u32 %r6, [%r4]; st.global.u32 [%x1], %r6;";
    finds(
        FindingKind::PeerNotRunning,
        "nothing guarantees that this CTA has started",
        &format!("st.shared.u32 [%r3], %r5; {read} SYNC;"),
    );
    // Without a last barrier, the peer may already have exited.
    let found = pair(&format!("st.shared.u32 [%r3], %r5; SYNC; {read}")).expect_err("no last barrier");
    assert_eq!(found.kind, FindingKind::PeerNotRunning, "{found}");
    finds(
        FindingKind::PeerNotRunning,
        "whose threads have all exited",
        &format!("st.shared.u32 [%r3], %r5; SYNC; setp.eq.u32 %p, %r0, 0; @%p ret; nanosleep.u32 9; {read}"),
    );
    // The CTA of rank 0 reads before rank 1 exits, but no barrier guarantees this order.
    finds(
        FindingKind::PeerNotRunning,
        "the CTA of rank 1 may already have exited",
        &format!("st.shared.u32 [%r3], %r5; SYNC; setp.eq.u32 %p, %r0, 1; @%p ret; {read}"),
    );
    // A relaxed arrival does not order the read before the exit of the peer; an arrival with release semantics does.
    finds(
        FindingKind::PeerNotRunning,
        "",
        &format!(
            "st.shared.u32 [%r3], %r5; SYNC; {read} barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.aligned;"
        ),
    );
    clean(&format!("st.shared.u32 [%r3], %r5; SYNC; {read} SYNC;"));
}

#[test]
fn remote_accesses_are_checked() {
    finds(
        FindingKind::OutOfBounds,
        "reaches only the thread's own",
        "st.shared.u32 [%r3], %r5; SYNC; ld.shared::cta.u32 %r6, [%r4]; SYNC;",
    );
    finds(
        FindingKind::OutOfBounds,
        "4-byte load from shared memory",
        "st.shared.u32 [%r3], %r5; SYNC; ld.shared::cluster.u32 %r6, [%r4+272]; SYNC;",
    );
    finds(
        FindingKind::OutOfBounds,
        "rank 2 is outside a cluster of 2 CTAs",
        "mapa.shared::cluster.u32 %r6, %r3, 2;",
    );
    finds(
        FindingKind::Uninitialised,
        "some bytes of which are uninitialised",
        "SYNC; ld.shared::cluster.u32 %r6, [%r4]; st.global.u32 [%x1], %r6; SYNC;",
    );
    finds(FindingKind::Misaligned, "", "SYNC; st.shared::cluster.u32 [%r4+2], %r5; SYNC;");
    let found = pair("SYNC; st.shared::cluster.u32 [%r4+1400], %r5; SYNC;").expect_err("out of bounds");
    assert!(found.nearest.as_ref().is_some_and(|near| near.name == "gate"), "{found}");
}

#[test]
fn cluster_barriers() {
    // The cluster barrier does not wait for exited threads.
    let half = "setp.ge.u32 %p, %r2, 16; @%p ret; SYNC; st.global.u32 [%x1], %r5; SYNC;";
    assert_eq!(clean(half)[..16], (100..116).collect::<Vec<u32>>()[..]);
    // Half of the warps wait at a CTA barrier instead of the cluster barrier.
    let body = format!(
        "mov.u32 %r0, %tid.x; setp.ge.u32 %p, %r0, 32; @%p bra OTHER; {SYNC} ret; OTHER: bar.sync 1; ret;"
    );
    let config = LaunchConfig { block: [64, 1, 1], ..PAIR };
    let found =
        launch(&kernel("", &body), config, &mut words(1, 0)).expect_err("a barrier that cannot complete");
    assert_eq!(found.kind, FindingKind::BarrierDivergence, "{found}");
    assert_eq!(
        found.detail,
        "warp 0 of the CTA of rank 0 waits at the cluster's barrier for 128 threads, of which 64 have arrived; warp 1 of \
         the CTA of rank 0 waits at barrier 1 instead"
    );
    finds(
        FindingKind::BarrierDivergence,
        "again without having waited",
        "barrier.cluster.arrive; barrier.cluster.arrive; barrier.cluster.wait;",
    );
    finds(FindingKind::BarrierDivergence, "without having arrived", "barrier.cluster.wait;");
    finds(
        FindingKind::BarrierDivergence,
        "the warp has diverged",
        "setp.lt.u32 %p, %r2, 16; @%p barrier.cluster.arrive.aligned; barrier.cluster.wait;",
    );
    // The lanes of a warp may arrive in separate instructions.
    clean(
        "setp.lt.u32 %p, %r2, 16; @%p barrier.cluster.arrive; @!%p barrier.cluster.arrive; barrier.cluster.wait;",
    );
}

/// Body in which thread 0 of rank 1 initialises an mbarrier for `arrivals` arrivals, with its address in `%r7`, before
/// `body`.
fn gated(arrivals: u32, body: &str) -> String {
    format!(
        "mov.u32 %r6, gate; mapa.shared::cluster.u32 %r7, %r6, 1; setp.eq.u32 %p, %r5, 132;
         @%p mbarrier.init.shared::cta.b64 [gate], {arrivals}; fence.mbarrier_init.release.cluster; {body}"
    )
}

#[test]
fn remote_arrivals_at_mbarriers() {
    // Rank 0 writes to the tile of rank 1 and arrives at the mbarrier of rank 1, which waits and reads its tile.
    let exchange = |sync: &str, arrive: &str, wait: &str| {
        gated(
            32,
            &format!(
                "{sync} setp.eq.u32 %p, %r0, 1; @%p bra TAKE;
                 st.shared::cluster.u32 [%r4], %r5; {arrive} bra.uni END;
                 TAKE: WAIT: {wait} @!%p bra WAIT; ld.shared.u32 %r9, [%r3]; st.global.u32 [%x1], %r9;
                 END:"
            ),
        )
    };
    let arrive = "mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];";
    let wait = "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p, [gate], 0;";
    let data = clean(&exchange("SYNC;", arrive, wait));
    assert_eq!(data[32..], (100..132).collect::<Vec<u32>>()[..]);
    // `fence.mbarrier_init` releases the initialisation of the mbarrier.
    clean(&exchange("RELAXED;", arrive, wait));
    // CTA scope, which is the default, orders nothing between CTAs.
    let near = "mbarrier.arrive.shared::cluster.b64 _, [%r7];";
    finds(
        FindingKind::Race,
        "no happens-before relation to the earlier access",
        &exchange("SYNC;", near, wait),
    );
    let here = "mbarrier.try_wait.parity.shared::cta.b64 %p, [gate], 0;";
    finds(
        FindingKind::Race,
        "no happens-before relation to the earlier access",
        &exchange("SYNC;", arrive, here),
    );
    // A remote mbarrier allows only arrivals, which return no state.
    finds(
        FindingKind::OutOfBounds,
        "",
        &gated(32, "SYNC; mbarrier.test_wait.parity.shared.b64 %p, [%r7], 0; SYNC;"),
    );
    finds(FindingKind::OutOfBounds, "", &gated(32, "SYNC; mbarrier.inval.shared.b64 [%r7]; SYNC;"));
    finds(FindingKind::OutOfBounds, "", &gated(32, "SYNC; cp.async.mbarrier.arrive.shared.b64 [%r7]; SYNC;"));
    let text = kernel("", "mbarrier.arrive.shared::cluster.b64 %x0, [%r0];");
    assert!(Module::parse(&text).is_err_and(|error| error.message.contains("returns no state")));
}

#[test]
fn remote_arrivals_need_an_initialised_mbarrier() {
    let arrive = "setp.eq.u32 %p, %r0, 0; @%p mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7];
        setp.eq.u32 %p, %r0, 0; @%p bra END; WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p, [gate], 0;
        @!%p bra WAIT; END:";
    clean(&gated(32, &format!("SYNC; {arrive}")));
    finds(FindingKind::PeerNotRunning, "has started", &gated(32, arrive));
    let unfenced =
        gated(32, &format!("RELAXED; {arrive}")).replace("fence.mbarrier_init.release.cluster;", "");
    finds(FindingKind::Race, "not ordered after its initialisation by another thread", &unfenced);
    let late = format!(
        "mov.u32 %r6, gate; mapa.shared::cluster.u32 %r7, %r6, 1; SYNC; setp.eq.u32 %p, %r5, 132; @%p nanosleep.u32 9;
         @%p mbarrier.init.shared::cta.b64 [gate], 32; {arrive}"
    );
    let found = pair(&late).expect_err("initialised after the barrier");
    assert!(matches!(found.kind, FindingKind::Mbarrier | FindingKind::Race), "{found}");
}

#[test]
fn a_deadlock_of_two_ctas_is_found() {
    // Each CTA waits for the arrival of its peer before it arrives at the peer's mbarrier.
    let found = pair(
        "setp.eq.u32 %p, %r2, 0; @%p mbarrier.init.shared::cta.b64 [gate], 32; SYNC;
         mov.u32 %r6, gate; mapa.shared::cluster.u32 %r7, %r6, %r1;
         WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p, [gate], 0; @!%p bra WAIT;
         mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r7]; SYNC;",
    );
    let found = found.expect_err("a deadlock");
    assert_eq!(found.kind, FindingKind::Deadlock, "{found}");
    for rank in 0..2 {
        assert!(
            found
                .detail
                .contains(&format!("warp 0 of the CTA of rank {rank} waits for the phase of parity 0"))
        );
    }
}

#[test]
fn asynchronous_stores_signal_an_mbarrier() {
    let send = |store: &str, bytes: u32, after: &str| {
        gated(
            1,
            &format!(
                "SYNC; setp.eq.u32 %p, %r0, 1; @%p bra TAKE; {store} bra.uni END;
                 TAKE: setp.eq.u32 %p, %r2, 0; @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], {bytes};
                 {after} END:"
            ),
        )
    };
    let take = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [gate], 0; @!%p bra WAIT;
        ld.shared.u32 %r9, [%r3]; st.global.u32 [%x1], %r9;";
    let store = "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.u32 [%r4], %r5, [%r7];";
    assert_eq!(clean(&send(store, 128, take))[32..], (100..132).collect::<Vec<u32>>()[..]);
    // Each of the first eight lanes stores 16 bytes.
    let wide = "mad.lo.u32 %r4, %r2, 12, %r4; setp.ge.u32 %p, %r2, 8; @%p bra END; st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%r4], {%r5, %r0, %r1, %r2}, [%r7];";
    let data = clean(&send(wide, 128, take));
    assert_eq!(data[32..40], [100, 0, 1, 0, 101, 0, 1, 1]);
    // The reader does not wait for the mbarrier.
    finds(
        FindingKind::AsyncCopy,
        "that copy has not been waited for",
        &send(store, 128, "nanosleep.u32 9; ld.shared.u32 %r9, [%r3];"),
    );
    finds(
        FindingKind::AsyncCopy,
        "ends while this operation is in flight",
        &send(store, 128, "nanosleep.u32 9;"),
    );
    // The mbarrier expects four bytes too many.
    finds(FindingKind::Deadlock, "4 bytes pending", &send(store, 132, take));
    // The mbarrier must be in the shared memory of the same CTA as the data.
    finds(
        FindingKind::Mbarrier,
        "must signal an mbarrier there",
        &send(&store.replace("[%r7]", "[%r6]"), 128, take),
    );

    let add = "mapa.shared::cluster.u32 %r8, %r6, 1; sub.u32 %r8, %r8, 1280;
        red.async.relaxed.cluster.shared::cluster.mbarrier::complete_tx::bytes.add.u32 [%r8], %r5, [%r7];";
    let sums =
        send(add, 128, take).replace("SYNC;", "setp.eq.u32 %p, %r2, 0; @%p st.shared.u32 [tile], %r1; SYNC;");
    let sums = sums.replace("ld.shared.u32 %r9, [%r3]", "ld.shared.u32 %r9, [tile]");
    assert_eq!(clean(&sums)[32], (100..132).sum::<u32>());
    let (wait, _) = take.split_once(" @!%p bra WAIT;").expect("a loop");
    let early = sums.replace(wait, "WAIT: nanosleep.u32 9; setp.eq.u32 %p, %r0, %r0;");
    finds(FindingKind::AsyncCopy, "ends while this operation is in flight", &early);
}

#[test]
fn bulk_copies_between_ctas() {
    // The CTA of rank 0 copies its tile to the tile of rank 1.
    let send = |fence: &str, copy: &str, after: &str| {
        gated(
            1,
            &format!(
                "setp.eq.u32 %q, %r0, 0; @%q st.shared.u32 [%r3], %r5; {fence} SYNC;
                 setp.eq.u32 %p, %r0, 1; @%p bra TAKE;
                 setp.ne.u32 %p, %r2, 0; @%p bra END; mapa.shared::cluster.u32 %r8, %r3, 1; {copy} bra.uni END;
                 TAKE: setp.eq.u32 %p, %r2, 0; @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], 128;
                 WAIT: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 %p, [gate], 0; @!%p bra WAIT;
                 ld.shared.u32 %r9, [%r3]; st.global.u32 [%x1], %r9;
                 END: {after} SYNC;"
            ),
        )
    };
    let fence = "fence.proxy.async.shared::cta;";
    let copy =
        "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%r8], [%r3], 128, [%r7];";
    assert_eq!(clean(&send(fence, copy, ""))[32..], (100..132).collect::<Vec<u32>>()[..]);
    finds(FindingKind::ProxyFence, "execute `fence.proxy.async`", &send("", copy, ""));
    finds(
        FindingKind::OutOfBounds,
        "128-byte store to shared memory",
        &send(fence, &copy.replace("[%r8]", "[%r8+256]"), ""),
    );
    // The copy may still be reading its source when the source is overwritten.
    finds(
        FindingKind::AsyncCopy,
        "reads; that copy has not been waited for",
        &send(fence, copy, "st.shared.u32 [%r3], %r5;"),
    );
    // The copy is complete after the barrier, which follows the wait of rank 1.
    clean(&send(fence, copy, "SYNC; st.shared.u32 [%r3], %r5;"));
    // Copies from global memory to the shared memory of the peer.
    let global =
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%r8], [%data], 128, [%r7];";
    assert_eq!(clean(&send(fence, global, ""))[32..], words(32, 7)[..]);
}

#[test]
fn multicast_copies() {
    // The CTA of rank 0 copies a tile to both CTAs; each CTA waits at its own mbarrier.
    let multicast = |mask: u32, sync: &str, wait: &str| {
        format!(
            "setp.eq.u32 %p, %r2, 0; @%p mbarrier.init.shared::cta.b64 [gate], 1; fence.mbarrier_init.release.cluster;
             @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], 128; {sync}
             setp.ne.u32 %p, %r5, 100; @%p bra TAKE; mov.u16 %h0, {mask};
             cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [tile], [%data], 128, [gate], %h0;
             TAKE: {wait} ld.shared.u32 %r9, [%r3]; add.u32 %r9, %r9, %r5; st.global.u32 [%x1+256], %r9; SYNC;"
        )
    };
    let wait = "WAIT: mbarrier.try_wait.parity.shared::cta.b64 %p, [gate], 0; @!%p bra WAIT;";
    let run = |body: &str| {
        let mut data: Vec<u32> = (0..128).collect();
        let text =
            kernel("", &format!("{PLACES}\n{}", body.replace("SYNC;", SYNC).replace("RELAXED;", RELAXED)));
        launch(&text, PAIR, &mut data).map(|_| data)
    };
    let data = run(&multicast(3, "SYNC;", wait)).unwrap_or_else(|finding| panic!("{finding}"));
    assert_eq!(data[64..96], (0..32).map(|i| 100 + 2 * i).collect::<Vec<u32>>()[..]);
    assert_eq!(data[96..], (0..32).map(|i| 132 + 2 * i).collect::<Vec<u32>>()[..]);
    let fails = |body: &str| run(body).expect_err("the kernel has a fault");
    let missed = fails(&multicast(1, "SYNC;", wait));
    assert_eq!(missed.kind, FindingKind::Deadlock, "{missed}");
    assert!(missed.detail.contains("(`gate` of the CTA of rank 1)"), "{missed}");
    let beyond = fails(&multicast(7, "SYNC;", wait));
    assert!(beyond.detail.contains("multicast mask 0x7 names ranks outside a cluster of 2 CTAs"), "{beyond}");
    let early = fails(&multicast(3, "SYNC;", ""));
    assert!(matches!(early.kind, FindingKind::AsyncCopy | FindingKind::Uninitialised), "{early}");
    assert_eq!(fails(&multicast(3, "bar.sync 0;", wait)).kind, FindingKind::PeerNotRunning);
}

#[test]
fn without_a_cluster_launch_each_cta_is_a_cluster() {
    let body = "
        .shared .b32 word; mov.u32 %r0, %tid.x; setp.eq.u32 %p, %r0, 0; mov.u32 %r1, 5; @%p st.shared.u32 [word], %r1;
        barrier.cluster.arrive; barrier.cluster.wait;
        mov.u32 %r2, word; mapa.shared::cluster.u32 %r3, %r2, 0; ld.shared::cluster.u32 %r4, [%r3];
        mad.wide.u32 %x0, %r0, 4, %data; st.global.u32 [%x0], %r4;";
    let mut data = words(64, 0);
    launch(&kernel("", body), LaunchConfig::linear(1, 64), &mut data)
        .unwrap_or_else(|finding| panic!("{finding}"));
    assert_eq!(data, words(64, 5));
}

/// A histogram kernel compiled by nvcc: each CTA of a cluster holds a part of the bins.
const HISTOGRAM: &str = include_str!("cluster_histogram.ptx");

#[test]
fn a_cluster_kernel_of_nvcc() {
    use bespoke_emulator::{Memory, Options, run};
    let module = Module::parse(HISTOGRAM).unwrap_or_else(|error| panic!("{error}"));
    let kernel = module.kernel("_Z9histogramPKiPji").expect("the kernel");
    assert_eq!(kernel.required_cluster(), Some([4, 1, 1]));
    let memory = Memory::new();
    let (count, bins) = (1000u32, 64usize);
    let values: Vec<u32> = (0..count).map(|i| i * i % 61).collect();
    let (input, output) = (memory.alloc("input", 4 * count as u64), memory.alloc("bins", 4 * bins as u64));
    let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    memory.write(input, &bytes(&values)).expect("inside");
    memory.write(output, &vec![0; 4 * bins]).expect("inside");
    let params = [&input.to_le_bytes()[..], &output.to_le_bytes(), &count.to_le_bytes()].concat();
    let config = LaunchConfig::linear(8, 64);
    run(kernel, &memory, &config, &params, &Options::default()).unwrap_or_else(|finding| panic!("{finding}"));
    let mut got = vec![0; 4 * bins];
    memory.read(output, &mut got).expect("inside");
    let mut expected = vec![0u32; bins];
    values.iter().for_each(|&value| expected[value as usize] += 1);
    assert_eq!(got, bytes(&expected));
    // Without the last barrier, a CTA may exit while other CTAs still count in its shared memory.
    let start = HISTOGRAM.rfind("barrier.cluster.arrive.aligned").expect("the last barrier");
    let cut = HISTOGRAM[start..].replacen("barrier.cluster.arrive.aligned;", "", 1);
    let cut =
        format!("{}{}", &HISTOGRAM[..start], cut.replacen("barrier.cluster.wait.aligned;", "bar.sync 0;", 1));
    let module = Module::parse(&cut).unwrap_or_else(|error| panic!("{error}"));
    let kernel = module.kernel("_Z9histogramPKiPji").expect("the kernel");
    let found = run(kernel, &memory, &config, &params, &Options::default()).expect_err("no last barrier");
    assert!(matches!(found.kind, FindingKind::PeerNotRunning | FindingKind::Race), "{found}");
}
