//! Tests that compare the race detector with a model that records every access of every thread to every byte.

use proptest::prelude::*;

use crate::checks::races::{Accessor, GridDetector, LaneAddresses, MemoryAccess, RaceDetector};
use crate::code::access::Access;
use crate::finding::Space;
use crate::lanes::{LANES, lanes_of};

const WARPS: usize = 2;
const THREADS: usize = WARPS * LANES;
/// Bytes of tested memory: few, so that accesses overlap.
const BYTES: u64 = 512;

#[derive(Clone, Debug)]
enum Step {
    Access {
        warp: usize,
        lanes: u32,
        writes: bool,
        bytes: u64,
        addresses: Vec<u64>,
    },
    /// `bar.warp.sync`.
    SyncLanes {
        warp: usize,
        lanes: u32,
    },
    /// `bar.sync`.
    Barrier,
}

/// Lane addresses that are typical of kernels (consecutive, strided, shared by several lanes), or arbitrary.
fn addresses(bytes: u64) -> impl Strategy<Value = Vec<u64>> {
    let units = BYTES / bytes;
    let pattern = |units: u64, f: fn(u64, u64, u64) -> u64| {
        (0..units, 0..6u64).prop_map(move |(start, k)| {
            (0..LANES as u64).map(|lane| (start + f(lane, k, units)) % units * bytes).collect::<Vec<_>>()
        })
    };
    prop_oneof![
        4 => pattern(units, |lane, _, _| lane),
        2 => pattern(units, |lane, k, _| lane << k),
        2 => pattern(units, |lane, k, _| lane >> k),
        1 => pattern(units, |lane, k, _| lane & ((1 << k) - 1)),
        1 => pattern(units, |lane, k, _| lane ^ k),
        1 => pattern(units, |lane, _, units| units - 1 - lane % units),
        1 => proptest::collection::vec(0..units, LANES)
            .prop_map(move |all| all.into_iter().map(|unit| unit * bytes).collect::<Vec<_>>()),
    ]
}

fn lanes() -> impl Strategy<Value = u32> {
    prop_oneof![6 => Just(u32::MAX), 1 => Just(0xffff), 1 => (0..32u32).prop_map(|lane| 1 << lane), 2 => 1..=u32::MAX]
}

fn access() -> impl Strategy<Value = Step> {
    // Instructions access up to 32 bytes a lane, copies more.
    let log = prop_oneof![8 => 0..5u32, 1 => 5..9u32];
    (0..WARPS, lanes(), prop::bool::weighted(0.3), log).prop_flat_map(|(warp, lanes, writes, log)| {
        let bytes = 1 << log;
        addresses(bytes).prop_map(move |addresses| Step::Access { warp, lanes, writes, bytes, addresses })
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => access(),
        2 => (0..WARPS, lanes()).prop_map(|(warp, lanes)| Step::SyncLanes { warp, lanes }),
        3 => Just(Step::Barrier),
    ]
}

/// Reference detector.
struct Model {
    /// Vector clock of each thread.
    clocks: Vec<[u32; THREADS]>,
    /// All accesses of each byte: thread, time, whether it writes.
    accesses: Vec<Vec<(usize, u32, bool)>>,
}

impl Model {
    fn new() -> Model {
        let own = |thread| std::array::from_fn(|other| (other == thread) as u32);
        Model { clocks: (0..THREADS).map(own).collect(), accesses: vec![Vec::new(); BYTES as usize] }
    }

    /// Synchronises `threads`: each acquires the clocks of all.
    fn synchronise(&mut self, threads: &[usize]) {
        let all: [u32; THREADS] =
            std::array::from_fn(|other| threads.iter().map(|&t| self.clocks[t][other]).max().unwrap_or(0));
        for &thread in threads {
            self.clocks[thread] = all;
            self.clocks[thread][thread] += 1;
        }
    }

    /// Records an access; returns whether it races with an earlier access.
    fn access(&mut self, warp: usize, lanes: u32, writes: bool, bytes: u64, addresses: &[u64]) -> bool {
        let mut races = false;
        let mut new = Vec::new();
        for lane in lanes_of(lanes) {
            let thread = warp * LANES + lane;
            let clock = &self.clocks[thread];
            for byte in addresses[lane]..addresses[lane] + bytes {
                races |= self.accesses[byte as usize]
                    .iter()
                    .any(|&(other, time, wrote)| (writes || wrote) && other != thread && clock[other] < time);
                // If several lanes write a byte, only the last is recorded.
                let hides = |other: usize| (addresses[other]..addresses[other] + bytes).contains(&byte);
                if !writes || !lanes_of(lanes).any(|other| other > lane && hides(other)) {
                    new.push((byte as usize, (thread, clock[thread], writes)));
                }
            }
        }
        new.into_iter().for_each(|(byte, access)| self.accesses[byte].push(access));
        races
    }
}

fn accesses() -> impl Strategy<Value = Vec<Step>> {
    proptest::collection::vec(access(), 1..4)
}

/// Runs and ends a cluster in which thread 0 stores a word at each of `addresses`; returns whether the stores race with
/// other clusters.
fn end_of_cluster_that_stores(grid: &GridDetector, cluster: u64, addresses: &[u64]) -> bool {
    let mut detector = RaceDetector::new(0, true);
    detector.start(cluster, [1, 1], 0);
    for &address in addresses {
        let addresses = LaneAddresses::Same(address);
        let what = MemoryAccess { space: Space::Global, access: Access::Store, addresses, bytes: 4 };
        assert!(detector.access_memory(Accessor::new(0, 1, 0), &what).is_none());
    }
    grid.finish(&mut detector).is_some()
}

#[test]
fn lines_before_a_race_are_compared_with_later_clusters() {
    let grid = GridDetector::default();
    assert!(!end_of_cluster_that_stores(&grid, 0, &[64]));
    // The race is on the second line; only this cluster has accessed the first line.
    assert!(end_of_cluster_that_stores(&grid, 1, &[0, 64]));
    assert!(end_of_cluster_that_stores(&grid, 2, &[0]));
}

#[test]
fn races_with_given_and_copied_records_are_found() {
    const PAGE: u64 = 4096;
    let grid = GridDetector::default();
    // All pages of the first cluster are new, and its shadow memory is given to the grid; half of the second's pages are, and
    // records are copied.
    assert!(!end_of_cluster_that_stores(&grid, 0, &[0, PAGE, 2 * PAGE + 256]));
    assert!(!end_of_cluster_that_stores(&grid, 1, &[128, 5 * PAGE + 384, 5 * PAGE + 640]));
    assert!(!end_of_cluster_that_stores(&grid, 2, &[5 * PAGE + 512]));
    for (cluster, address) in
        (3..).zip([0, PAGE, 2 * PAGE + 256, 128, 5 * PAGE + 384, 5 * PAGE + 640, 5 * PAGE + 512])
    {
        assert!(!end_of_cluster_that_stores(&grid, cluster, &[address + 4]), "after {address}");
        assert!(end_of_cluster_that_stores(&grid, cluster + 100, &[address]), "at {address}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn finds_exactly_the_first_race(steps in proptest::collection::vec(step(), 1..30)) {
        for space in [Space::Shared, Space::Global] {
            let mut detector = RaceDetector::new(BYTES, true);
            detector.start(0, [1, WARPS], BYTES);
            let mut model = Model::new();
            for (index, step) in steps.iter().enumerate() {
                match step {
                    Step::SyncLanes { warp, lanes } => {
                        detector.sync.sync_lanes(*warp, *lanes);
                        model.synchronise(&lanes_of(*lanes).map(|lane| warp * LANES + lane).collect::<Vec<_>>());
                    }
                    Step::Barrier => {
                        (0..WARPS).for_each(|warp| detector.sync.arrive_at_barrier(warp, 0));
                        detector.sync.complete_barrier(0, 0..WARPS);
                        model.synchronise(&(0..THREADS).collect::<Vec<_>>());
                    }
                    Step::Access { warp, lanes, writes, bytes, addresses } => {
                        let accessor = Accessor::new(*warp, *lanes, index);
                        let access = if *writes { Access::Store } else { Access::Load };
                        let lane_addresses = std::array::from_fn(|lane| addresses[lane]);
                        let what = MemoryAccess { space, access, addresses: LaneAddresses::Each(&lane_addresses), bytes: *bytes };
                        let found = detector.access_memory(accessor, &what);
                        let expected = model.access(*warp, *lanes, *writes, *bytes, addresses);
                        prop_assert_eq!(found.is_some(), expected, "step {}: {:?}", index, found);
                        if expected {
                            break;
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn clusters_race_if_one_writes_what_another_accesses(clusters in proptest::collection::vec(accesses(), 2..5)) {
        let grid = GridDetector::default();
        let mut detector = RaceDetector::new(0, true);
        // For each byte: whether the clusters so far have read it, and written it.
        let mut before = [(false, false); BYTES as usize];
        for (cluster, steps) in clusters.iter().enumerate() {
            detector.start(cluster as u64, [1, WARPS], 0);
            let mut own = [(false, false); BYTES as usize];
            for step in steps {
                let Step::Access { warp, lanes, writes, bytes, addresses } = step else { continue };
                let accessor = Accessor::new(*warp, *lanes, 0);
                let access = if *writes { Access::Store } else { Access::Load };
                let lane_addresses = std::array::from_fn(|lane| addresses[lane]);
                let addresses_of = LaneAddresses::Each(&lane_addresses);
                let what =
                    MemoryAccess { space: Space::Global, access, addresses: addresses_of, bytes: *bytes };
                prop_assert!(detector.access_memory(accessor, &what).is_none());
                (0..WARPS).for_each(|warp| detector.sync.arrive_at_barrier(warp, 0));
                detector.sync.complete_barrier(0, 0..WARPS);
                for byte in lanes_of(*lanes).flat_map(|lane| addresses[lane]..addresses[lane] + bytes) {
                    let (read, written) = &mut own[byte as usize];
                    *(if *writes { written } else { read }) = true;
                }
            }
            let is_race = |(own, before): (&(bool, bool), &(bool, bool))| own.1 && (before.0 || before.1) || own.0 && before.1;
            let expected = own.iter().zip(&before).any(is_race);
            prop_assert_eq!(grid.finish(&mut detector).is_some(), expected, "cluster {}", cluster);
            if expected {
                break;
            }
            before.iter_mut().zip(own).for_each(|(all, own)| *all = (all.0 || own.0, all.1 || own.1));
        }
    }
}
