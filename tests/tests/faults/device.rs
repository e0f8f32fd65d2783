//! Hooks that fail one call of a device in one manner.

use std::collections::BTreeMap;
use std::sync::Mutex;

use bespoke::device::{DriverFailure, Error};

use crate::hooked::{Call, Hooks, Operation, Verdict};

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Manner {
    /// It does nothing and returns an error.
    Refused,
    /// It does half of its work and returns an error.
    Half,
    /// It does all of its work and returns an error.
    Done,
    /// It succeeds and does nothing; every later call returns the error, as after a fault of a GPU.
    Later,
    /// It succeeds and does nothing, and the device stays busy.
    Hangs,
}

/// A call that fails: the `number`-th of its kind, from 0.
#[derive(Clone, Copy, Debug)]
pub struct Fault {
    pub operation: Operation,
    pub number: u64,
    pub manner: Manner,
}

impl Fault {
    /// Faults of calls with these counts: the first, the middle and the last call of each kind are refused, and the middle one
    /// fails in every other manner. With `BESPOKE_FAULTS=all` in the environment, the three fail in every manner, each other call is
    /// refused, and each other replay stops halfway too.
    pub fn chosen(counts: &BTreeMap<Operation, u64>) -> Vec<Fault> {
        let all = std::env::var("BESPOKE_FAULTS").is_ok_and(|which| which == "all");
        let mut faults = Vec::new();
        for (&operation, &count) in counts {
            for number in 0..count {
                let is_chosen = |manner: Manner| {
                    let (middle, of_three) =
                        (number == count / 2, [0, count / 2, count - 1].contains(&number));
                    let is_refused = manner == Manner::Refused;
                    if all {
                        of_three || is_refused || (operation, manner) == (Operation::Replay, Manner::Half)
                    } else {
                        middle || of_three && is_refused
                    }
                };
                let manners = manners(operation).iter().filter(|&&manner| is_chosen(manner));
                faults.extend(manners.map(|&manner| Fault { operation, number, manner }));
            }
        }
        faults
    }

    fn error(self) -> Error {
        Error::Driver(Box::new(DriverFailure {
            call: "injected",
            doing: format!("{:?} {}", self.operation, self.number),
            code: 999,
            name: "CUDA_ERROR_UNKNOWN".to_owned(),
            description: "a fault on purpose".to_owned(),
            help: None,
        }))
    }
}

fn manners(operation: Operation) -> &'static [Manner] {
    use Manner::{Done, Half, Hangs, Later, Refused};
    match operation {
        Operation::Replay | Operation::RunEager => &[Refused, Half, Done, Later, Hangs],
        Operation::Upload | Operation::Fill | Operation::TimeReplays | Operation::Profile => {
            &[Refused, Half, Done]
        }
        Operation::Alloc | Operation::Load | Operation::Bind | Operation::Capture => &[Refused, Done],
        Operation::Memory | Operation::Download | Operation::Wait | Operation::Busy | Operation::Read => {
            &[Refused]
        }
    }
}

/// Counts calls, and fails one of them.
#[derive(Default)]
pub struct Faults(Mutex<State>);

#[derive(Default)]
struct State {
    counts: BTreeMap<Operation, u64>,
    armed: Option<Fault>,
    /// Whether every call fails from now on, and with which fault.
    broken: Option<Fault>,
    hangs: bool,
    abandoned: bool,
}

impl Faults {
    /// Counts from 0 and fails `fault`; with `None`, the device works again.
    pub fn arm(&self, fault: Option<Fault>) {
        *self.0.lock().unwrap() = State { armed: fault, ..State::default() };
    }

    /// Number of calls of each kind.
    pub fn counts(&self) -> BTreeMap<Operation, u64> {
        self.0.lock().unwrap().counts.clone()
    }

    /// Whether the device was given up.
    pub fn abandoned(&self) -> bool {
        self.0.lock().unwrap().abandoned
    }
}

/// Whether a call waits for enqueued work.
fn blocks(operation: Operation) -> bool {
    use Operation::{Alloc, Capture, Download, Profile, TimeReplays, Upload, Wait};
    [Alloc, Capture, Download, Profile, TimeReplays, Upload, Wait].contains(&operation)
}

impl Hooks for Faults {
    fn before(&self, Call { operation, name, bytes }: Call<'_>) -> Verdict {
        let mut state = self.0.lock().unwrap();
        if state.abandoned {
            return Verdict::Fail(Error::Abandoned);
        }
        if let Some(fault) = state.broken {
            return Verdict::Fail(fault.error());
        }
        assert!(!state.hangs || !blocks(operation), "{operation:?} would wait for ever");
        let count = state.counts.entry(operation).or_default();
        let number = *count;
        *count += 1;
        let Some(fault) = state.armed.filter(|fault| (fault.operation, fault.number) == (operation, number))
        else {
            return Verdict::Run;
        };
        match fault.manner {
            Manner::Refused if operation == Operation::Alloc => Verdict::Fail(Error::OutOfMemory {
                device: "a full device".to_owned(),
                name: name.to_owned(),
                needed: bytes,
                free: 0,
                total: 0,
            }),
            Manner::Refused => Verdict::Fail(fault.error()),
            Manner::Half => Verdict::HalfThenFail(fault.error()),
            Manner::Done => Verdict::RunThenFail(fault.error()),
            Manner::Later => {
                state.broken = Some(fault);
                Verdict::Skip
            }
            Manner::Hangs => {
                state.hangs = true;
                Verdict::Skip
            }
        }
    }

    fn busy(&self, real: bool) -> bool {
        real || self.0.lock().unwrap().hangs
    }

    fn abandoned(&self) {
        self.0.lock().unwrap().abandoned = true;
    }
}
