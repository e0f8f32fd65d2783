//! Registers of warps that `setmaxnreg` redistributes within a CTA.
//!
//! A CTA starts with the registers that the kernel's directives allow each thread. `setmaxnreg.dec` gives registers of a warp
//! to the CTA's pool, and `setmaxnreg.inc` takes registers from the pool; it waits until there are enough (PTX ISA,
//! "setmaxnreg"). All warps of a warpgroup must execute the same instruction.

/// Warps of a warpgroup.
const WARPGROUP: usize = 4;

/// A `setmaxnreg`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RegisterRequest {
    /// Whether it is `.inc`; else `.dec`.
    pub(crate) increases: bool,
    /// Registers per thread afterwards.
    pub(crate) count: u32,
}

impl std::fmt::Display for RegisterRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "`setmaxnreg.{} {}`", if self.increases { "inc" } else { "dec" }, self.count)
    }
}

/// Outcome of a `setmaxnreg` request.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Granted {
    Done,
    /// The pool has too few registers: the warp waits.
    Waits,
    /// The ISA does not define what happens.
    Misused(RegisterMisuse),
}

/// A `setmaxnreg` whose effect the ISA does not define.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RegisterMisuse {
    /// An `.inc` to fewer, or a `.dec` to more, registers per thread than the warp has.
    Has(u32),
    /// The warp `other` of the warpgroup executes another instruction in its place.
    Differs { other: usize, request: RegisterRequest },
    /// The warp `other` of the warpgroup has not executed the previous `setmaxnreg`.
    Behind { other: usize },
}

#[derive(Clone, Debug)]
struct WarpRegisters {
    /// Registers per thread.
    count: u32,
    executed: Vec<RegisterRequest>,
    waits_for: Option<RegisterRequest>,
}

/// Free registers of each CTA of a cluster, and the registers per thread of each warp.
#[derive(Debug, Default)]
pub(crate) struct RegisterPools {
    warps_per_cta: usize,
    /// Free registers of each CTA.
    free: Vec<u32>,
    warps: Vec<WarpRegisters>,
}

impl RegisterPools {
    /// Resets `ctas` CTAs of `warps` warps, which have `count` registers per thread.
    pub(crate) fn reset(&mut self, ctas: usize, warps: usize, count: u32) {
        self.warps_per_cta = warps;
        self.free.clear();
        self.free.resize(ctas, 0);
        self.warps.clear();
        let warp = WarpRegisters { count, executed: Vec::new(), waits_for: None };
        self.warps.resize(ctas * warps, warp);
    }

    /// The warps of a warp's warpgroup.
    fn warpgroup(&self, warp: usize) -> std::ops::Range<usize> {
        let cta = warp / self.warps_per_cta * self.warps_per_cta;
        let first = warp - (warp - cta) % WARPGROUP;
        first..(first + WARPGROUP).min(cta + self.warps_per_cta)
    }

    /// Executes a request of a warp.
    pub(crate) fn request(&mut self, warp: usize, request: RegisterRequest) -> Granted {
        let number = self.warps[warp].executed.len();
        for other in self.warpgroup(warp) {
            let executed = &self.warps[other].executed;
            match executed.get(number) {
                Some(&differs) if differs != request => {
                    return Granted::Misused(RegisterMisuse::Differs { other, request: differs });
                }
                None if executed.len() < number => return Granted::Misused(RegisterMisuse::Behind { other }),
                _ => {}
            }
        }
        let own = &mut self.warps[warp];
        let free = &mut self.free[warp / self.warps_per_cta];
        let (has, count) = (own.count, request.count);
        if request.increases && count < has || !request.increases && count > has {
            return Granted::Misused(RegisterMisuse::Has(has));
        }
        if request.increases && count - has > *free {
            own.waits_for = Some(request);
            return Granted::Waits;
        }
        *free = *free + has - count;
        (own.count, own.waits_for) = (count, None);
        own.executed.push(request);
        Granted::Done
    }

    /// The request that a warp waits for, with its registers and the free registers of its CTA, all per thread of a warp.
    pub(crate) fn waits_for(&self, warp: usize) -> Option<(RegisterRequest, u32, u32)> {
        let own = self.warps.get(warp)?;
        Some((own.waits_for?, own.count, self.free[warp / self.warps_per_cta]))
    }

    /// A warp that has executed a request which another warp of its warpgroup has not: the two warps and the request.
    pub(crate) fn incomplete(&self) -> Option<(usize, usize, RegisterRequest)> {
        (0..self.warps.len()).find_map(|warp| {
            let executed = &self.warps[warp].executed;
            let behind = |&other: &usize| self.warps[other].executed.len() < executed.len();
            let other = self.warpgroup(warp).find(behind)?;
            Some((warp, other, executed[self.warps[other].executed.len()]))
        })
    }
}

#[cfg(test)]
mod tests {
    use crate::context::registers::{Granted, RegisterMisuse, RegisterPools, RegisterRequest};

    #[test]
    fn the_pool_is_what_decreases_have_left() {
        let mut pools = RegisterPools::default();
        pools.reset(1, 12, 168);
        let request = |increases, count| RegisterRequest { increases, count };
        let mut all = |warps: std::ops::Range<usize>, asked| {
            warps.map(|warp| pools.request(warp, asked)).collect::<Vec<_>>()
        };
        assert_eq!(all(4..5, request(true, 232)), [Granted::Waits]);
        assert!(all(0..4, request(false, 40)).iter().all(|granted| *granted == Granted::Done));
        assert!(all(4..12, request(true, 232)).iter().all(|granted| *granted == Granted::Done));
        assert_eq!(pools.waits_for(4), None);
        assert_eq!(pools.incomplete(), None);
        assert_eq!(pools.request(0, request(true, 48)), Granted::Waits);
        assert_eq!(pools.waits_for(0), Some((request(true, 48), 40, 0)));
        assert_eq!(pools.request(0, request(true, 32)), Granted::Misused(RegisterMisuse::Has(40)));
    }
}
