//! Histogram of the bytes of a text, as a tokenizer's first step counts them.

use super::*;

const THREADS: u32 = 256;

/// Adds the number of each byte value in `text` to `counts`. Each CTA counts in shared memory; a thread reads 16 bytes at a
/// time. `length` is a multiple of 16.
#[kernel(threads = THREADS)]
pub fn byte_histogram(#[aligned(16)] text: Ptr<Global, u8>, length: Val<u32>, counts: Ptr<Global, u32>) {
    let own = shared_array::<u32>(256);
    own.at(thread_index()).store(0);
    barrier();
    let first = (block_index() * THREADS + thread_index()) * 16;
    for at in range(first, length).step_by(grid_size() * (THREADS * 16)) {
        let bytes: [Val<u8>; 16] = text.at(at).load_vector();
        for byte in bytes {
            own.at(byte.cast::<u32>()).atomic_add(1, Scope::Cta);
        }
    }
    barrier();
    counts.at(thread_index()).atomic_add(own.at(thread_index()).load(), Scope::Gpu);
}

#[test]
fn counts_every_byte() {
    // Mostly letters, as in a text, so that many lanes meet at one counter.
    let text: Vec<u8> =
        numbers(40_000).map(|n| if n % 3 == 0 { n as u8 } else { b'a' + (n % 26) as u8 }).collect();
    let mut expected = vec![1u32; 256];
    text.iter().for_each(|&byte| expected[usize::from(byte)] += 1);
    let kernel = byte_histogram().unwrap();
    let launch = Launch::of(&kernel).grid(3).buffer(&text).value(text.len() as u32).buffer(&[1u32; 256]);
    let done = launch.run().unwrap();
    assert_eq!(done.buffer::<u32>(1), expected);
    assert!(done.has("ld.global.v4.u32") && done.has("red.relaxed.cta.shared.add.u32"), "{}", done.ptx());
}
