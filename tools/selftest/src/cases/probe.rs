//! Cases of the probes, compared exactly.

use bespoke_kernels::kernels::probe::{MmaProbeShape, ProbeShape};
use bespoke_kernels::spec::KernelSpec;
use half::f16;

use crate::case::{Arg, Case, Coordinates, Element, POISON, Want};
use crate::inputs::{Noise, f32s, u32s};

/// Number for which [`read_probe`](bespoke_kernels::kernels::probe::read_probe) searches the memory.
const MAGIC: u32 = 0x5EED_1E55;

/// Cases of memory without the magic number, and with the number in the last 16 bytes, which the probe finds only if it
/// reads all memory.
pub(crate) fn read_probe(s: &ProbeShape) -> Vec<Case> {
    // Units of 16 bytes: not a whole number of rounds; the last unit is the second of its thread's four.
    let units = 6 * s.grid * s.threads - 5;
    [false, true]
        .map(|hidden| {
            let mut words = vec![0; units as usize * 4];
            let mut found = u32::from_le_bytes([POISON; 4]);
            if hidden {
                words[units as usize * 4 - 1] = MAGIC;
                found = MAGIC;
            }
            let mut case = Case::new(if hidden { "the number at the end" } else { "no such number" });
            let data = case.input("data", u32s(&words));
            let out = case.output("out", Element::U32, 1);
            let args = vec![Arg::Buffer(data), Arg::Word(units), Arg::Buffer(out)];
            case.launches.push((KernelSpec::ReadProbe(s.clone()), args));
            case.expect(out, Coordinates::line("word"), Want::Exactly(Element::U32, u32s(&[found])));
            case
        })
        .into()
}

/// Rounds of products in the case of [`mma_probe`].
const ROUNDS: u32 = 3;

/// Case of random operands. Elements are multiples of 1/8 below 1, so that all sums are exact in f32 in any order.
pub(crate) fn mma_probe(s: &MmaProbeShape) -> Vec<Case> {
    let spec = KernelSpec::MmaProbe(s.clone());
    let mut noise = Noise::new(&spec.name());
    let count = 2 * 32 * MmaProbeShape::LANE_WORDS as usize;
    let elements: Vec<f32> =
        noise.words(count, 15).into_iter().map(|word| (word as f32 - 7.0) / 8.0).collect();
    let halves: Vec<u8> = elements.iter().flat_map(|&value| f16::from_f32(value).to_le_bytes()).collect();
    let [count_a, count_b] = MmaProbeShape::OPERANDS;
    let element = |lane: u32, word: u32, half: u32| {
        f64::from(elements[(2 * (lane * MmaProbeShape::LANE_WORDS + word) + half) as usize])
    };
    // Element k of a row of A and of a column of B, by the layouts of `bespoke_codegen::dsl::mma`.
    let row =
        |a: u32, row: u32, k: u32| element(4 * (row % 8) + k % 8 / 2, 4 * a + row / 8 + 2 * (k / 8), k % 2);
    let column =
        |b: u32, column: u32, k: u32| element(4 * column + k % 8 / 2, 4 * count_a + 2 * b + k / 8, k % 2);
    let total = |thread: u32| {
        let (group, quarter) = (thread % 32 / 4, thread % 4);
        let mut total = 0.0;
        for (a, b) in (0..count_a).flat_map(|a| (0..count_b).map(move |b| (a, b))) {
            for part in 0..4 {
                let place = (group + 8 * (part / 2), 2 * quarter + part % 2);
                total += (0..16).map(|k| row(a, place.0, k) * column(b, place.1, k)).sum::<f64>();
            }
        }
        (total * f64::from(ROUNDS * MmaProbeShape::REPEATS)) as f32
    };
    let threads = s.grid * s.threads;
    let mut case = Case::new("random operands");
    let operands = case.input("operands", halves);
    let out = case.output("out", Element::F32, threads as usize);
    case.launches.push((spec, vec![Arg::Buffer(operands), Arg::Word(ROUNDS), Arg::Buffer(out)]));
    let want = Want::Exactly(Element::F32, f32s(&(0..threads).map(total).collect::<Vec<_>>()));
    case.expect(out, Coordinates::line("thread"), want);
    vec![case]
}
