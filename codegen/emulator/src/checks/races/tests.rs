//! The detector against one that remembers every access of every thread to every byte.

use proptest::prelude::*;

use crate::checks::races::{Grid, Places, Races, Touch, Who};
use crate::code::access::Access;
use crate::finding::Space;
use crate::lanes::{LANES, lanes_of};

const WARPS: usize = 2;
const THREADS: usize = WARPS * LANES;
/// Few bytes, so that accesses meet.
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
    Meet {
        warp: usize,
        lanes: u32,
    },
    /// `bar.sync`.
    Barrier,
}

/// Addresses of the kinds that kernels have: runs, strides, places shared by several lanes, and any.
fn addresses(bytes: u64) -> impl Strategy<Value = Vec<u64>> {
    let units = BYTES / bytes;
    let place = |units: u64, f: fn(u64, u64, u64) -> u64| {
        (0..units, 0..6u64).prop_map(move |(start, k)| {
            (0..LANES as u64).map(|lane| (start + f(lane, k, units)) % units * bytes).collect::<Vec<_>>()
        })
    };
    prop_oneof![
        4 => place(units, |lane, _, _| lane),
        2 => place(units, |lane, k, _| lane << k),
        2 => place(units, |lane, k, _| lane >> k),
        1 => place(units, |lane, k, _| lane & ((1 << k) - 1)),
        1 => place(units, |lane, k, _| lane ^ k),
        1 => place(units, |lane, _, units| units - 1 - lane % units),
        1 => proptest::collection::vec(0..units, LANES)
            .prop_map(move |all| all.into_iter().map(|unit| unit * bytes).collect::<Vec<_>>()),
    ]
}

fn lanes() -> impl Strategy<Value = u32> {
    prop_oneof![6 => Just(u32::MAX), 1 => Just(0xffff), 1 => (0..32u32).prop_map(|lane| 1 << lane), 2 => 1..=u32::MAX]
}

fn step() -> impl Strategy<Value = Step> {
    let access = (0..WARPS, lanes(), prop::bool::weighted(0.3), 0..5u32).prop_flat_map(
        |(warp, lanes, writes, log)| {
            let bytes = 1 << log;
            addresses(bytes).prop_map(move |addresses| Step::Access { warp, lanes, writes, bytes, addresses })
        },
    );
    prop_oneof![
        4 => access,
        2 => (0..WARPS, lanes()).prop_map(|(warp, lanes)| Step::Meet { warp, lanes }),
        3 => Just(Step::Barrier),
    ]
}

/// By thread, how far it knows each thread to have got; by byte, every access so far: by whom, when, whether it writes.
struct Model {
    clocks: Vec<[u32; THREADS]>,
    accesses: Vec<Vec<(usize, u32, bool)>>,
}

impl Model {
    fn new() -> Model {
        let own = |thread| std::array::from_fn(|other| (other == thread) as u32);
        Model { clocks: (0..THREADS).map(own).collect(), accesses: vec![Vec::new(); BYTES as usize] }
    }

    fn meet(&mut self, threads: &[usize]) {
        let all: [u32; THREADS] =
            std::array::from_fn(|other| threads.iter().map(|&t| self.clocks[t][other]).max().unwrap_or(0));
        for &thread in threads {
            self.clocks[thread] = all;
            self.clocks[thread][thread] += 1;
        }
    }

    /// Whether an access races with an earlier one.
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
                // Of lanes that write one byte, the last is the one that counts.
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
    proptest::collection::vec(
        step().prop_filter("an access", |step| matches!(step, Step::Access { .. })),
        1..4,
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_first_race_is_found_and_nothing_before_it(steps in proptest::collection::vec(step(), 1..30)) {
        for space in [Space::Shared, Space::Global] {
            let mut races = Races::new(BYTES);
            races.start(0, [1, WARPS], BYTES);
            let mut model = Model::new();
            for (index, step) in steps.iter().enumerate() {
                match step {
                    Step::Meet { warp, lanes } => {
                        races.sync.meet(*warp, *lanes);
                        model.meet(&lanes_of(*lanes).map(|lane| warp * LANES + lane).collect::<Vec<_>>());
                    }
                    Step::Barrier => {
                        (0..WARPS).for_each(|warp| races.sync.arrive(warp, 0));
                        races.sync.leave(0, 0..WARPS);
                        model.meet(&(0..THREADS).collect::<Vec<_>>());
                    }
                    Step::Access { warp, lanes, writes, bytes, addresses } => {
                        let who = Who::new(*warp, *lanes, index);
                        let access = if *writes { Access::Store } else { Access::Load };
                        let at = std::array::from_fn(|lane| addresses[lane]);
                        let found = races.touch(who, &Touch { space, access, places: Places::Each(&at), bytes: *bytes });
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
    fn ctas_race_where_one_writes_what_another_touches(ctas in proptest::collection::vec(accesses(), 2..5)) {
        let grid = Grid::default();
        let mut races = Races::new(0);
        // By byte: whether the CTAs so far have read it and written it.
        let mut before = [(false, false); BYTES as usize];
        for (cta, steps) in ctas.iter().enumerate() {
            races.start(cta as u64, [1, WARPS], 0);
            let mut own = [(false, false); BYTES as usize];
            for step in steps {
                let Step::Access { warp, lanes, writes, bytes, addresses } = step else { continue };
                let who = Who::new(*warp, *lanes, 0);
                let access = if *writes { Access::Store } else { Access::Load };
                let at = std::array::from_fn(|lane| addresses[lane]);
                let what = Touch { space: Space::Global, access, places: Places::Each(&at), bytes: *bytes };
                prop_assert!(races.touch(who, &what).is_none());
                (0..WARPS).for_each(|warp| races.sync.arrive(warp, 0));
                races.sync.leave(0, 0..WARPS);
                for byte in lanes_of(*lanes).flat_map(|lane| addresses[lane]..addresses[lane] + bytes) {
                    let (read, written) = &mut own[byte as usize];
                    *(if *writes { written } else { read }) = true;
                }
            }
            let clash = |(own, before): (&(bool, bool), &(bool, bool))| own.1 && (before.0 || before.1) || own.0 && before.1;
            let expected = own.iter().zip(&before).any(clash);
            prop_assert_eq!(grid.finish(&mut races).is_some(), expected, "CTA {}", cta);
            if expected {
                break;
            }
            before.iter_mut().zip(own).for_each(|(all, own)| *all = (all.0 || own.0, all.1 || own.1));
        }
    }
}
