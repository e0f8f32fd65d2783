//! Counts of instructions.

/// Class of an instruction, by the kind of its work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// Arithmetic, comparison and logic on integers and bits.
    Integer,
    /// Arithmetic and comparison of floating-point numbers.
    Float,
    /// Matrix products: `mma`.
    Matrix,
    /// Loads, stores, atomics, `ldmatrix` and asynchronous copies.
    Memory,
    /// Branches, exits, barriers, fences and waits for copies.
    Control,
    /// Warp-wide operations: shuffles, votes, reductions.
    Warp,
    /// Moves, conversions, selections and byte permutations.
    Move,
}

impl Class {
    /// All classes, in the order of [`Profile::mix`](crate::Profile::mix).
    pub const ALL: [Class; 7] = [
        Class::Integer,
        Class::Float,
        Class::Matrix,
        Class::Memory,
        Class::Control,
        Class::Warp,
        Class::Move,
    ];

    /// Name of the class, one word.
    pub fn name(self) -> &'static str {
        match self {
            Class::Integer => "integer",
            Class::Float => "float",
            Class::Matrix => "matrix",
            Class::Memory => "memory",
            Class::Control => "control",
            Class::Warp => "warp",
            Class::Move => "move",
        }
    }
}

/// Traffic with global memory: requests of warps, and the sectors of 32 bytes that serve them. Each request is counted
/// alone, as if no sector were cached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GlobalCounts {
    /// Warp instructions that accessed global memory; a bulk copy instruction counts once per lane, and
    /// a copy of a box of a tensor once per row.
    pub requests: u64,
    /// Sectors accessed, each counted once per request.
    pub sectors: u64,
    /// The fewest sectors that could hold the distinct bytes of each request.
    pub ideal_sectors: u64,
    /// Bytes that lanes loaded and copies read.
    pub bytes_loaded: u64,
    /// Bytes that lanes stored (atomics included) and copies wrote.
    pub bytes_stored: u64,
}

impl GlobalCounts {
    /// Counts a request of so many sectors, and the fewest possible.
    pub(crate) fn add_request(&mut self, (sectors, ideal): (u64, u64)) {
        self.requests += 1;
        self.sectors += sectors;
        self.ideal_sectors += ideal;
    }

    /// Bytes loaded and stored.
    pub fn bytes(&self) -> u64 {
        self.bytes_loaded + self.bytes_stored
    }

    /// Ratio of sectors to ideal sectors: 1 if every byte of every sector is used, or without any request.
    pub fn excess(&self) -> f64 {
        ratio(self.sectors, self.ideal_sectors).unwrap_or(1.0)
    }
}

/// Traffic with shared memory: 32 banks of 4-byte words, each of which delivers one word per wavefront. A request of up
/// to 4 bytes per lane is served as a whole, one of 8 bytes in half-warps, one of 16 bytes in quarter-warps. The parts
/// are twice as large if each lane accesses the same address as its neighbour, or as the lane two further. A part takes
/// as many wavefronts as its busiest bank has distinct words to deliver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedCounts {
    /// Warp instructions that accessed shared memory.
    pub requests: u64,
    /// Wavefronts that served the requests.
    pub wavefronts: u64,
    /// Wavefronts that the requests would take without bank conflicts: one for each part of a request with an active
    /// lane.
    pub ideal_wavefronts: u64,
    /// Maximum number of words that a part of a request accessed in one bank: n for an n-way conflict, 1 without
    /// conflicts.
    pub worst_ways: u64,
    /// Bytes that lanes, `ldmatrix` and `stmatrix` rows, and `cp.async` copies loaded or stored.
    pub bytes: u64,
}

impl SharedCounts {
    /// Ratio of wavefronts to ideal wavefronts: n for n-way conflicts on average, 1 without conflicts or requests.
    pub fn ways(&self) -> f64 {
        ratio(self.wavefronts, self.ideal_wavefronts).unwrap_or(1.0)
    }
}

/// Counts of one or several instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Warp instructions issued, including those whose guard held in no lane.
    pub warp_instructions: u64,
    /// Sum of the active lanes of all warp instructions, whether or not the guard held: 32 per instruction, unless the
    /// warp had diverged or is not full.
    pub active_lanes: u64,
    /// Lane instructions: active lanes whose guard held.
    pub lane_instructions: u64,
    /// Branches among the warp instructions.
    pub branches: u64,
    /// Branches that some active lanes took and others did not.
    pub divergent_branches: u64,
    /// Traffic with global memory.
    pub global: GlobalCounts,
    /// Traffic with shared memory.
    pub shared: SharedCounts,
}

impl Counts {
    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Counts) {
        self.warp_instructions += other.warp_instructions;
        self.active_lanes += other.active_lanes;
        self.lane_instructions += other.lane_instructions;
        self.branches += other.branches;
        self.divergent_branches += other.divergent_branches;
        let (global, more) = (&mut self.global, &other.global);
        global.requests += more.requests;
        global.sectors += more.sectors;
        global.ideal_sectors += more.ideal_sectors;
        global.bytes_loaded += more.bytes_loaded;
        global.bytes_stored += more.bytes_stored;
        let (shared, more) = (&mut self.shared, &other.shared);
        shared.requests += more.requests;
        shared.wavefronts += more.wavefronts;
        shared.ideal_wavefronts += more.ideal_wavefronts;
        shared.worst_ways = shared.worst_ways.max(more.worst_ways);
        shared.bytes += more.bytes;
    }

    /// Average number of active lanes per warp instruction; 0 if nothing ran.
    pub fn average_lanes(&self) -> f64 {
        ratio(self.active_lanes, self.warp_instructions).unwrap_or(0.0)
    }
}

pub(super) fn ratio(over: u64, under: u64) -> Option<f64> {
    (under > 0).then(|| over as f64 / under as f64)
}

/// Counts of each instruction, made by one worker.
pub(crate) type Tally = Box<[Counts]>;
