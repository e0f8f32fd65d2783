//! Boxes of tensors whose rows are shorter than the swizzle: each row begins at a multiple of the swizzle in shared memory.

use bespoke_emulator::{FindingKind, Swizzle, TensorMap, TensorType};
use expect_test::expect;

use crate::tensor::{Device, bytes, kernel, load_and_read};

/// Bytes of a row of the tensor.
const WIDTH: usize = 96;
/// Rows of the tensor.
const HEIGHT: usize = 12;
/// What shared memory has before a load.
const BEFORE: u8 = 0xdd;
/// Bytes of shared memory that are read after a load.
const READ: usize = 1024;

/// Tensor map of u8 elements with boxes of 8 rows of `columns` elements.
fn map(address: u64, columns: u32, swizzle: Swizzle) -> TensorMap {
    let sizes = [WIDTH as u64, HEIGHT as u64];
    TensorMap { swizzle, ..TensorMap::dense(TensorType::U8, address, &sizes, &[columns, 8]) }
}

/// Body that sets `bytes` bytes of `tile` before anything is copied.
fn filled(bytes: usize) -> String {
    format!(
        "    mov.u32 %r0, %tid.x;
    shl.b32 %r0, %r0, 2;
    mov.b32 %r2, 0x{0:02x}{0:02x}{0:02x}{0:02x};
FILL:
    add.u32 %r1, %r0, %tile;
    st.shared.b32 [%r1], %r2;
    add.u32 %r0, %r0, 128;
    setp.lt.u32 %q, %r0, {bytes};
    @%q bra FILL;
    fence.proxy.async.shared::cta;
    bar.sync 0;
",
        BEFORE
    )
}

/// Body that loads a box at `at`, waits for `expected` bytes, and copies the first [`READ`] bytes of shared memory to the output.
fn loaded((x, y): (i32, i32), expected: u64) -> String {
    load_and_read(2, &format!("{x}, {y}"), expected, READ as u64)
}

/// Place in shared memory of byte `column` of row `row` of a box.
fn place(row: usize, column: usize, span: usize) -> usize {
    let at = row * span + column;
    at ^ (at / 128 % (span / 16) * 16)
}

#[test]
fn rows_begin_at_multiples_of_the_swizzle() {
    let data = bytes(WIDTH * HEIGHT);
    for (swizzle, span) in [(Swizzle::Bytes32, 32), (Swizzle::Bytes64, 64), (Swizzle::Bytes128, 128)] {
        for columns in (16..span).step_by(16) {
            for (x, y) in [(0, 0), (32, 3), (-16, -2), (80, 7), (0, 20)] {
                let device = Device::new(&data, READ);
                let map = map(device.tensor, columns as u32, swizzle);
                assert_eq!(map.box_bytes(), 8 * columns as u64);
                assert_eq!(map.shared_bytes(), (7 * span + columns) as u64);
                let text = kernel("", &(filled(READ) + &loaded((x, y), 8 * columns as u64)));
                device
                    .run(&text, &map.encode().expect("valid"), 1)
                    .unwrap_or_else(|finding| panic!("{finding}\n{text}"));
                let mut expected = vec![BEFORE; READ];
                for (row, column) in (0..8).flat_map(|row| (0..columns).map(move |column| (row, column))) {
                    let (from_x, from_y) = (x + column as i32, y + row as i32);
                    let inside = (0..WIDTH as i32).contains(&from_x) && (0..HEIGHT as i32).contains(&from_y);
                    expected[place(row, column, span)] =
                        if inside { data[from_y as usize * WIDTH + from_x as usize] } else { 0 };
                }
                assert_eq!(device.read(device.out, READ), expected, "{swizzle:?} {columns} at {x}, {y}");
            }
        }
    }
}

/// The finding of a kernel with boxes of 16 × 8 bytes and a swizzle of 64.
fn found(body: &str) -> (FindingKind, String) {
    let device = Device::new(&bytes(WIDTH * HEIGHT), READ);
    let map = map(device.tensor, 16, Swizzle::Bytes64).encode().expect("valid");
    let finding = device.run(&kernel("", body), &map, 1).expect_err("a finding");
    (finding.kind, finding.detail)
}

#[test]
fn gaps_between_rows_are_no_part_of_the_box() {
    // Nothing has written the gaps.
    let (kind, _) = found(&loaded((0, 0), 128));
    assert_eq!(kind, FindingKind::Uninitialised);
    // The mbarrier counts the bytes of the rows alone.
    let (kind, _) = found(&loaded((0, 0), 512));
    assert_eq!(kind, FindingKind::Deadlock);
    // The box must be aligned like others, its rows need not.
    let (kind, detail) = found(&loaded((0, 0), 128).replace("[tile],", "[tile+16],"));
    assert_eq!(kind, FindingKind::Misaligned);
    expect!["464-byte store to shared memory at 0x10, which is not a multiple of 128"].assert_eq(&detail);
}

#[test]
fn a_gap_may_be_written_while_the_box_is_loaded() {
    let write = |at: usize| {
        let store = format!("    @%p st.shared.b32 [%tile+{at}], %r2;\nWAIT:");
        let load = loaded((0, 0), 128).replace("WAIT:", &store);
        // The other threads read what the first one stores.
        filled(READ) + &load.replace("COPY:", "    bar.sync 0;\nCOPY:")
    };
    let device = Device::new(&bytes(WIDTH * HEIGHT), READ);
    let map = map(device.tensor, 16, Swizzle::Bytes64).encode().expect("valid");
    device.run(&kernel("", &write(16)), &map, 1).unwrap_or_else(|finding| panic!("{finding}"));
    let (kind, _) = found(&write(0));
    assert_eq!(kind, FindingKind::AsyncCopy);
}

#[test]
fn stores_leave_out_the_gaps() {
    let data = bytes(WIDTH * HEIGHT);
    let device = Device::new(&data, READ);
    let map = map(device.tensor, 16, Swizzle::Bytes64);
    let store = "    @%p cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {48, 6}], [tile];
    @%p cp.async.bulk.commit_group;
    @%p cp.async.bulk.wait_group 0;";
    let text = kernel("", &(filled(READ) + store));
    device.run(&text, &map.encode().expect("valid"), 1).unwrap_or_else(|finding| panic!("{finding}\n{text}"));
    let mut expected = data;
    for row in 6..12 {
        expected[row * WIDTH + 48..][..16].fill(BEFORE);
    }
    assert_eq!(device.read(device.tensor, expected.len()), expected);
}
