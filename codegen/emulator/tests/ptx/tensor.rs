//! Tensor maps and copies of boxes of tensors.

use bespoke_emulator::{
    Finding, FindingKind, Interleave, LaunchConfig, Memory, Module, Options, Swizzle, TensorMap, TensorType,
    run,
};
use expect_test::{Expect, expect};

use crate::harness::HEADER;

/// Kernel of one warp, whose first lane loads a box at `at` to `tile`, which `bytes` bytes of `out` then get.
fn load(rank: usize, at: &str, bytes: u64) -> String {
    kernel("", &load_and_read(rank, at, bytes, bytes))
}

/// Body that loads a box at `at` to `tile`, waits for `expected` bytes, and copies the first `read` bytes of `tile` to `out`.
pub(crate) fn load_and_read(rank: usize, at: &str, expected: u64, read: u64) -> String {
    format!(
        "    @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [gate], {expected};
    @%p cp.async.bulk.tensor.{rank}d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile], [%map, {{{at}}}], [gate];
WAIT: mbarrier.try_wait.parity.shared::cta.b64 %q, [gate], 0;
    @!%q bra WAIT;
    mov.u32 %r0, %tid.x;
    shl.b32 %r0, %r0, 2;
COPY:
    add.u32 %r1, %r0, %tile;
    ld.shared.b32 %r2, [%r1];
    cvt.u64.u32 %x0, %r0;
    add.u64 %x0, %x0, %out;
    st.global.b32 [%x0], %r2;
    add.u32 %r0, %r0, 128;
    setp.lt.u32 %q, %r0, {read};
    @%q bra COPY;"
    )
}

/// Kernel of one warp with a tensor map and a pointer as parameters, and an initialised mbarrier.
pub(crate) fn kernel(directives: &str, body: &str) -> String {
    format!(
        "{HEADER}.visible .entry kernel(.param .align 64 .b8 map[128], .param .u64 out){directives}
{{
    .reg .pred %p, %q;
    .reg .b16 %h<4>;
    .reg .b32 %r<8>, %tile;
    .reg .b64 %x<4>, %map, %out;
    .shared .align 1024 .b8 tile[8192];
    .shared .align 8 .b64 gate;
    mov.b64 %x1, map;
    cvta.param.u64 %map, %x1;
    ld.param.u64 %out, [out];
    mov.u32 %tile, tile;
    mov.u32 %r0, %tid.x;
    setp.eq.u32 %p, %r0, 0;
    @%p mbarrier.init.shared.b64 [gate], 1;
    @%p fence.mbarrier_init.release.cluster;
    bar.sync 0;
{body}
    ret;
}}
"
    )
}

/// Tensor in global memory whose bytes are `data`, an output of `out` bytes of 0xee, and their memory.
pub(crate) struct Device {
    memory: Memory,
    pub(crate) tensor: u64,
    pub(crate) out: u64,
}

impl Device {
    pub(crate) fn new(data: &[u8], out: usize) -> Device {
        let memory = Memory::new();
        let tensor = memory.alloc("tensor", data.len() as u64);
        memory.write(tensor, data).expect("inside");
        let bytes = memory.alloc("out", out as u64);
        memory.fill(bytes, out as u64, 0xee).expect("inside");
        Device { memory, tensor, out: bytes }
    }

    pub(crate) fn run(&self, text: &str, map: &[u8; 128], ctas: u32) -> Result<(), Box<Finding>> {
        let module = Module::parse(text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let kernel = module.kernel("kernel").expect("its name");
        let params = [&map[..], &self.out.to_le_bytes()].concat();
        let config = LaunchConfig { cluster: Some([ctas, 1, 1]), ..LaunchConfig::linear(ctas, 32) };
        run(kernel, &self.memory, &config, &params, &Options::default()).map(drop)
    }

    pub(crate) fn read(&self, address: u64, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        self.memory.read(address, &mut data).expect("inside");
        data
    }
}

/// Bytes 1, 2, … of which none is 0.
pub(crate) fn bytes(count: usize) -> Vec<u8> {
    (0..count).map(|i| (i % 251) as u8 + 1).collect()
}

/// Loads a box of a tensor with elements of `data` and compares the bytes in shared memory.
#[track_caller]
fn loads(data: &[u8], map: impl FnOnce(u64) -> TensorMap, at: &str, expected: &[u8]) {
    let device = Device::new(data, expected.len());
    let map = map(device.tensor);
    assert_eq!(map.box_bytes(), expected.len() as u64);
    let text = load(map.sizes.len(), at, expected.len() as u64);
    let encoded = map.encode().expect("a valid map");
    device.run(&text, &encoded, 1).unwrap_or_else(|finding| panic!("{finding}\n{text}"));
    assert_eq!(device.read(device.out, expected.len()), expected);
}

/// The box of `rows` × `columns` bytes at (`x`, `y`) of a matrix of bytes; `outside` stands for bytes outside.
fn window(
    data: &[u8],
    width: usize,
    (x, y): (i64, i64),
    (columns, rows): (i64, i64),
    outside: u8,
) -> Vec<u8> {
    let height = data.len() / width;
    let at = |x: i64, y: i64| match (0..width as i64).contains(&x) && (0..height as i64).contains(&y) {
        true => data[y as usize * width + x as usize],
        false => outside,
    };
    (y..y + rows).flat_map(|y| (x..x + columns).map(move |x| at(x, y))).collect()
}

#[test]
fn boxes_are_loaded_with_zeros_outside_the_tensor() {
    let data = bytes(64 * 6);
    for (x, y) in [(0, 0), (16, 2), (48, 4), (-16, -3), (64, 0), (0, -4), (-32, 0), (48, 5)] {
        let map = |address| TensorMap::dense(TensorType::U8, address, &[64, 6], &[32, 4]);
        loads(&data, map, &format!("{x}, {y}"), &window(&data, 64, (x, y), (32, 4), 0));
    }
}

#[test]
fn floats_outside_the_tensor_may_be_nan() {
    let data = bytes(64);
    let map =
        |address| TensorMap { fills_nan: true, ..TensorMap::dense(TensorType::Bf16, address, &[32], &[64]) };
    let nan = [0xf7, 0x7f];
    let expected = [&nan.repeat(8)[..], &data, &nan.repeat(24)].concat();
    loads(&data, map, "-8", &expected);
}

/// Map of an interleaved tensor of f16 [2][3 slices of a pixel][2][4 slices], without gaps, and of boxes of 2 × 2 slices of both images.
fn interleaved(address: u64, interleave: Interleave) -> TensorMap {
    let slice = if interleave == Interleave::Bytes16 { 16 } else { 32 };
    TensorMap {
        strides: vec![4 * slice, 8 * slice, 24 * slice],
        // The driver requires rows of 16 bytes, as if they had elements. A box has one slice of a pixel, not 64.
        box_sizes: vec![8, 2, 64, 2],
        steps: vec![4, 1, 1, 1],
        interleave,
        ..TensorMap::dense(TensorType::F16, address, &[4, 2, 3, 2], &[8; 4])
    }
}

#[test]
fn dimension_0_of_an_interleaved_tensor_has_slices() {
    for (interleave, slice) in [(Interleave::Bytes16, 16), (Interleave::Bytes32, 32)] {
        let data = bytes(48 * slice);
        let at = |index: usize| &data[index * slice..][..slice];
        let outside = vec![0; slice];
        // The second slice of the pixels, from column −2 on: columns −2 and 2 of both rows of both images.
        let columns = [10, 14, 34, 38].map(|index| [&outside, at(index)].concat());
        loads(&data, |address| interleaved(address, interleave), "-2, 0, 1, 0", &columns.concat());
        // There is no fourth slice of a pixel.
        loads(&data, |address| interleaved(address, interleave), "0, 0, 3, 0", &vec![0; 8 * slice]);
    }
}

#[test]
fn a_row_of_slices_may_be_longer_than_the_swizzle() {
    let data = bytes(16 * 24);
    let map = |address| TensorMap {
        interleave: Interleave::Bytes16,
        swizzle: Swizzle::Bytes32,
        strides: vec![24 * 16; 2],
        ..TensorMap::dense(TensorType::F16, address, &[24, 1, 1], &[24, 1, 1])
    };
    // The second line of 128 bytes has its neighbours exchanged.
    let place = |index: usize| if index / 8 % 2 == 1 { index ^ 1 } else { index };
    let expected: Vec<u8> = (0..24).flat_map(|index| data[16 * place(index)..][..16].to_vec()).collect();
    loads(&data, map, "0, 0, 0", &expected);
}

#[test]
fn boxes_of_up_to_five_dimensions_follow_strides_and_steps() {
    // Elements of 4 bytes: their index in the tensor's memory.
    let data: Vec<u8> = (0u32..16 * 4 * 3 * 4 * 2).flat_map(u32::to_le_bytes).collect();
    let map = |address| TensorMap {
        // The rows have gaps of 4 elements; every second element along dimension 1 and every third along 3.
        strides: vec![64, 256, 768, 3072],
        steps: vec![1, 2, 1, 3, 1],
        ..TensorMap::dense(TensorType::U32, address, &[12, 4, 3, 4, 2], &[4, 4, 2, 4, 1])
    };
    let mut expected = Vec::new();
    for (l, k, j) in
        [0, 3].into_iter().flat_map(|l| [1, 2].into_iter().flat_map(move |k| [0, 2].map(|j| (l, k, j))))
    {
        for i in 8..12u32 {
            expected.extend((i + 16 * j + 64 * k + 192 * l + 768).to_le_bytes());
        }
    }
    loads(&data, map, "8, 0, 1, 0, 1", &expected);
}

#[test]
fn swizzles_exchange_chunks_of_16_bytes() {
    let data = bytes(2048);
    // (swizzle, bytes of a row, chunk of a row's chunk 0), as CUTLASS' Swizzle<1,4,3>, <2,4,3> and <3,4,3> have it.
    type Exchange = fn(usize) -> usize;
    let cases: [(Swizzle, usize, Exchange); 3] = [
        (Swizzle::Bytes32, 32, |row| (row / 4) & 1),
        (Swizzle::Bytes64, 64, |row| (row / 2) & 3),
        (Swizzle::Bytes128, 128, |row| row & 7),
    ];
    for (swizzle, row_bytes, exchanged_with) in cases {
        let rows = 2048 / row_bytes;
        let map = |address| TensorMap {
            swizzle,
            ..TensorMap::dense(
                TensorType::U8,
                address,
                &[row_bytes as u64, rows as u64],
                &[row_bytes as u32, rows as u32],
            )
        };
        let mut expected = vec![0; 2048];
        for (at, chunk) in data.chunks(16).enumerate() {
            let (row, column) = (at * 16 / row_bytes, at * 16 % row_bytes / 16);
            let to = row * row_bytes + (column ^ exchanged_with(row)) * 16;
            expected[to..to + 16].copy_from_slice(chunk);
        }
        loads(&data, map, "0, 0", &expected);
    }
}

/// Body that fills 512 bytes of `tile` with 0, 1, 2 … by words of equal bytes, and stores them as a box at `at`.
fn store(at: &str, fence: &str, wait: &str) -> String {
    format!(
        "    mov.u32 %r0, %tid.x;
    mul.lo.u32 %r1, %r0, 0x01010101;
    mad.lo.u32 %r2, %r0, 16, %tile;
    st.shared.v4.b32 [%r2], {{%r1, %r1, %r1, %r1}};
    {fence}
    bar.sync 0;
    @%p cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%map, {{{at}}}], [tile];
    @%p cp.async.bulk.commit_group;
    {wait}"
    )
}

const PROXY_FENCE: &str = "fence.proxy.async.shared::cta;";
const STORED: &str = "@%p cp.async.bulk.wait_group 0;";

#[test]
fn stores_write_only_the_tensor_and_undo_the_swizzle() {
    let map = |device: &Device| TensorMap {
        swizzle: Swizzle::Bytes128,
        ..TensorMap::dense(TensorType::U8, device.tensor, &[144, 3], &[128, 4])
    };
    let device = Device::new(&[0xee; 144 * 3], 0);
    let text = kernel("", &store("32, 1", PROXY_FENCE, STORED));
    device
        .run(&text, &map(&device).encode().expect("valid"), 1)
        .unwrap_or_else(|finding| panic!("{finding}"));
    let mut expected = vec![0xee; 144 * 3];
    for (row, column) in [0, 1].into_iter().flat_map(|row| (0..112).map(move |column| (row, column))) {
        expected[(row + 1) * 144 + 32 + column] = (row * 8 + ((column / 16) ^ row)) as u8;
    }
    assert_eq!(device.read(device.tensor, expected.len()), expected);
}

/// A row of 40 bytes ends in the middle of a unit of 16 bytes, which an H100 writes whole.
#[test]
fn stores_write_whole_units_of_16_bytes() {
    let device = Device::new(&[0xee; 64 * 2], 0);
    let map = TensorMap {
        strides: vec![64],
        ..TensorMap::dense(TensorType::U8, device.tensor, &[40, 2], &[32, 4])
    };
    let text = kernel("", &store("16, 0", PROXY_FENCE, STORED));
    device.run(&text, &map.encode().expect("valid"), 1).unwrap_or_else(|finding| panic!("{finding}"));
    let mut expected = vec![0xee; 64 * 2];
    for (row, at) in [0, 1].into_iter().flat_map(|row| (0..32).map(move |at| (row, at))) {
        expected[row * 64 + 16 + at] = (row * 2 + at / 16) as u8;
    }
    assert_eq!(device.read(device.tensor, expected.len()), expected);
}

#[test]
fn reductions_combine_the_elements_of_the_tensor() {
    let text = kernel("", &store("8, 1", PROXY_FENCE, STORED)).replace(
        "cp.async.bulk.tensor.2d.global.shared::cta",
        "cp.reduce.async.bulk.tensor.2d.global.shared::cta.add.tile",
    );
    let device = Device::new(&[2; 64 * 3], 0);
    let map = TensorMap::dense(TensorType::U32, device.tensor, &[16, 3], &[8, 4]);
    device.run(&text, &map.encode().expect("valid"), 2).unwrap_or_else(|finding| panic!("{finding}"));
    let mut expected = vec![2u8; 64 * 3];
    // Both CTAs add the number of 16 bytes of the box to each byte of rows 1 and 2.
    for (row, at) in [0, 1].into_iter().flat_map(|row| (0..32).map(move |at| (row, at))) {
        expected[(row + 1) * 64 + 32 + at] += 2 * (row * 2 + at / 16) as u8;
    }
    assert_eq!(device.read(device.tensor, expected.len()), expected);
    let bytes = TensorMap::dense(TensorType::U8, device.tensor, &[64, 3], &[32, 4]);
    let text = text.replace("{8, 1}", "{16, 1}");
    let found = device.run(&text, &bytes.encode().expect("valid"), 1).expect_err("bytes are not added");
    expect!["the emulator has no reduction `add` of U8 elements"].assert_eq(&found.detail);
}

/// Finding of a kernel that uses a map of 64 × 6 bytes with boxes of 32 × 16 bytes.
#[track_caller]
fn finds(text: &str, kind: FindingKind, expected: Expect) {
    let device = Device::new(&bytes(64 * 6), 512);
    let map = TensorMap::dense(TensorType::U8, device.tensor, &[64, 6], &[32, 16]);
    let found = device.run(text, &map.encode().expect("valid"), 1).expect_err("a finding");
    assert_eq!(found.kind, kind, "{found}");
    // Addresses depend on nothing but the order of allocations.
    expected.assert_eq(&found.detail);
}

#[test]
fn misuse_of_loads_is_found() {
    let right = load(2, "0, 0", 512);
    let wrong = |from: &str, to: &str| {
        assert!(right.contains(from), "{from}");
        right.replace(from, to)
    };
    finds(
        &load(1, "0", 512),
        FindingKind::TensorMap,
        expect!["the tensor map at 0x40000000 has 2 dimensions, and the instruction 1"],
    );
    finds(
        &wrong("[%map,", "[%out,"),
        FindingKind::TensorMap,
        expect![
            "no tensor map is at 0x7f0000100200: the address must be that of a parameter, constant or global variable that holds a tensor map"
        ],
    );
    finds(
        &wrong("[%map,", "[%map+8,"),
        FindingKind::Misaligned,
        expect!["128-byte load from parameter memory at 0x40000008, which is not a multiple of 64"],
    );
    finds(
        &wrong("[tile], [%map", "[tile+64], [%map"),
        FindingKind::Misaligned,
        expect!["512-byte store to shared memory at 0x40, which is not a multiple of 128"],
    );
    finds(
        &wrong("[gate], 512", "[gate], 496"),
        FindingKind::Deadlock,
        expect![
            "warp 0 waits for the phase of parity 0 of the mbarrier at shared 0x2400 (`gate`), which is in phase 0 with 0 arrivals and -16 bytes pending"
        ],
    );
    finds(
        &wrong("[gate], 512", "[gate], 528"),
        FindingKind::Deadlock,
        expect![
            "warp 0 waits for the phase of parity 0 of the mbarrier at shared 0x2400 (`gate`), which is in phase 0 with 0 arrivals and 16 bytes pending"
        ],
    );
    finds(
        &wrong("[gate], 0;\n", "[gate], 1;\n"),
        FindingKind::AsyncCopy,
        expect![
            "4-byte load from shared memory at 0x0, which the asynchronous copy at PTX line 22 writes; that copy has not been waited for"
        ],
    );
    finds(
        &wrong("@!%q bra WAIT;", ""),
        FindingKind::AsyncCopy,
        expect![
            "4-byte load from shared memory at 0x0, which the asynchronous copy at PTX line 22 writes; that copy has not been waited for"
        ],
    );
    finds(
        &wrong("@%p fence.mbarrier_init.release.cluster;", ""),
        FindingKind::ProxyFence,
        expect![
            "bulk copy that signals the mbarrier at shared 0x2400 (`gate`): execute `fence.mbarrier_init` or `fence.proxy.async` after the mbarrier's initialisation"
        ],
    );
}

#[test]
fn boxes_that_devices_refuse_are_found() {
    // As an H100 does; loads may begin at negative multiples of 16 bytes.
    for (text, expected) in [
        (
            load(2, "8, 0", 512),
            expect![
                "the box begins at byte 8 of dimension 0 (element 8 of 1 byte): devices refuse boxes that do not begin at a multiple of 16 bytes, here 16 elements"
            ],
        ),
        (
            load(2, "-1, 0", 512),
            expect![
                "the box begins at byte -1 of dimension 0 (element -1 of 1 byte): devices refuse boxes that do not begin at a multiple of 16 bytes, here 16 elements"
            ],
        ),
        (
            kernel("", &store("33, 1", PROXY_FENCE, STORED)),
            expect![
                "the box begins at byte 33 of dimension 0 (element 33 of 1 byte): devices refuse boxes that do not begin at a multiple of 16 bytes, here 16 elements"
            ],
        ),
        (
            kernel("", &store("-16, 0", PROXY_FENCE, STORED)),
            expect![
                "the box begins at element -16 of dimension 0: devices refuse stores and reductions with a negative coordinate, while loads fill what is outside the tensor"
            ],
        ),
        (
            kernel("", &store("0, -1", PROXY_FENCE, STORED)),
            expect![
                "the box begins at element -1 of dimension 1: devices refuse stores and reductions with a negative coordinate, while loads fill what is outside the tensor"
            ],
        ),
    ] {
        finds(&text, FindingKind::TensorMap, expected);
    }
}

#[test]
fn stores_read_only_the_part_of_the_box_that_is_in_the_tensor() {
    // Threads from `first` to `last` fill 16 bytes of the box each.
    let outcome = |map: TensorMap, (first, last): (u32, u32), at: &str| {
        let device = Device::new(&bytes(64 * 6), 0);
        let map = TensorMap { address: device.tensor, ..map };
        let limits = format!(
            "setp.ge.u32 %q, %r0, {first}; setp.le.and.u32 %q, %r0, {last}, %q;\n    @%q st.shared.v4"
        );
        let text = kernel("", &store(at, PROXY_FENCE, STORED).replace("st.shared.v4", &limits));
        device.run(&text, &map.encode().expect("valid"), 1).map_err(|found| found.kind)
    };
    let plain = TensorMap::dense(TensorType::U8, 0, &[64, 6], &[32, 16]);
    let swizzled = TensorMap { swizzle: Swizzle::Bytes32, ..plain.clone() };
    let uninitialised = Err(FindingKind::Uninitialised);
    for (map, threads, at, expected) in [
        // Six rows of 32 bytes are in the tensor.
        (&plain, (0, 11), "0, 0", Ok(())),
        (&plain, (1, 11), "0, 0", uninitialised),
        (&plain, (0, 10), "0, 0", uninitialised),
        // The first four rows.
        (&plain, (0, 7), "0, 2", Ok(())),
        (&plain, (0, 6), "0, 2", uninitialised),
        // Nothing is in the tensor.
        (&plain, (1, 0), "64, 0", Ok(())),
        (&swizzled, (0, 11), "0, 0", Ok(())),
        (&swizzled, (0, 10), "0, 0", uninitialised),
        // Of the first row, which the swizzle leaves in place, the first half.
        (&swizzled, (0, 0), "48, 5", Ok(())),
        (&swizzled, (1, 1), "48, 5", uninitialised),
    ] {
        assert_eq!(
            outcome(map.clone(), threads, at),
            expected,
            "{:?}, threads {threads:?} at {at}",
            map.swizzle
        );
    }
    let outside = store("0, 6", PROXY_FENCE, STORED).replace("}], [tile];", "}], [tile+16384];");
    finds(
        &kernel("", &outside),
        FindingKind::OutOfBounds,
        expect!["512-byte load from shared memory at 0x4000"],
    );
}

#[test]
fn misuse_of_stores_is_found() {
    let text = |fence: &str, wait: &str| kernel("", &store("0, 0", fence, wait));
    finds(
        &text("", STORED),
        FindingKind::ProxyFence,
        expect![
            "bulk copy of shared memory at 0x0, which an ordinary store wrote: execute `fence.proxy.async` after the store and before the copy"
        ],
    );
    finds(
        &text(PROXY_FENCE, ""),
        FindingKind::AsyncCopy,
        expect!["the CTA ends while this operation is in flight: nothing has waited for it"],
    );
    let overwritten = format!("@%p st.shared.b32 [tile], 0; {STORED}");
    finds(
        &text(PROXY_FENCE, &overwritten),
        FindingKind::AsyncCopy,
        expect![
            "4-byte store to shared memory at 0x0, which the asynchronous copy at PTX line 27 reads; that copy has not been waited for"
        ],
    );
}

#[test]
fn accesses_of_the_tensor_race_with_copies_of_its_boxes() {
    // Byte (40, 0) is between the rows of a box of 32 columns at (0, 0): only an access of (31, 5) meets the box.
    let after = |offset: u64| {
        let body = store("0, 0", PROXY_FENCE, "")
            .replace("[tile];", &format!("[tile];\n    @%p ld.global.b8 %r3, [%x2+{offset}];"));
        kernel("", &format!("    mov.b64 %x2, TENSOR;\n{body}\n    {STORED}"))
    };
    let outcome = |offset: u64| {
        let device = Device::new(&bytes(64 * 6), 0);
        let map =
            TensorMap::dense(TensorType::U8, device.tensor, &[64, 6], &[32, 16]).encode().expect("valid");
        let text = after(offset).replace("TENSOR", &device.tensor.to_string());
        device.run(&text, &map, 1).map_err(|found| found.kind)
    };
    assert_eq!([outcome(40), outcome(31 + 5 * 64)], [Ok(()), Err(FindingKind::Race)]);
}

#[test]
fn the_completion_of_a_box_ends_the_reading_of_its_own_source() {
    // Boxes of 32 columns: `second` is loaded first and waited for first. The rows of `first` are further apart than
    // the boxes in shared memory.
    let outcome = |column: u64| {
        let load = |to: u32, x: u32, gate: &str| {
            format!(
                "    @%p mbarrier.arrive.expect_tx.shared::cta.b64 _, [{gate}], 512;
    @%p cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile+{to}], [%map, {{{x}, 0}}], [{gate}];\n"
            )
        };
        let wait = |gate: &str| {
            format!(
                "W_{gate}: mbarrier.try_wait.parity.shared::cta.b64 %q, [{gate}], 0;\n    @!%q bra W_{gate};\n"
            )
        };
        let device = Device::new(&bytes(256 * 6), 0);
        let body = [
            "    .shared .align 8 .b64 gate2;\n    @%p mbarrier.init.shared.b64 [gate2], 1;\n",
            "    @%p fence.mbarrier_init.release.cluster;\n    bar.sync 0;\n",
            &load(512, 64, "gate2"),
            &load(0, 0, "gate"),
            &wait("gate2"),
            &format!("    mov.b64 %x2, {};\n    @%p st.global.b8 [%x2+{column}], %r0;\n", device.tensor),
            &wait("gate"),
        ];
        let map = TensorMap::dense(TensorType::U8, device.tensor, &[256, 6], &[32, 16]);
        device.run(&kernel("", &body.concat()), &map.encode().expect("valid"), 1).map_err(|found| found.kind)
    };
    assert_eq!([outcome(64), outcome(32), outcome(0)], [Ok(()), Ok(()), Err(FindingKind::Race)]);
}

#[test]
fn boxes_outside_the_allocation_are_found() {
    let device = Device::new(&bytes(64 * 6), 512);
    let map = TensorMap::dense(TensorType::U8, device.tensor, &[64, 7], &[32, 16]);
    let found = device.run(&load(2, "0, 0", 512), &map.encode().expect("valid"), 1).expect_err("a finding");
    expect!["out of bounds in kernel `kernel` (PTX line 22: `@%p cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [tile], [%map, {0, 0}], [gate];`) by thread (0, 0, 0) of CTA (0, 0, 0): 32-byte load from global memory at 0x7f0000000180; the access is just past the end of `tensor` (0x7f0000000000, 384 bytes)"].assert_eq(&found.to_string());
}

#[test]
fn a_multicast_loads_a_box_to_each_cta_of_its_mask() {
    let text = load(2, "0, 0", 512)
        .replace("bytes [tile]", "bytes.multicast::cluster [tile]")
        .replace("{0, 0}], [gate]", "{0, 0}], [gate], %h0")
        .replace("    @%p mbarrier.arrive", "    mov.b16 %h0, 3;\n    mov.u32 %r3, %ctaid.x;\n    mad.wide.u32 %out, %r3, 512, %out;\n    barrier.cluster.arrive;\n    barrier.cluster.wait;\n    @%p mbarrier.arrive")
        .replace("    @%p cp.async", "    setp.eq.and.u32 %q, %r3, 1, %p;\n    @%q cp.async")
        .replace("    ret;", "    barrier.cluster.arrive;\n    barrier.cluster.wait;\n    ret;");
    let data = bytes(64 * 6);
    let device = Device::new(&data, 1024);
    let map = TensorMap::dense(TensorType::U8, device.tensor, &[64, 6], &[32, 16]);
    device.run(&text, &map.encode().expect("valid"), 2).unwrap_or_else(|finding| panic!("{finding}\n{text}"));
    assert_eq!(device.read(device.out, 1024), window(&data, 64, (0, 0), (32, 16), 0).repeat(2));
}

#[test]
fn maps_in_memory_are_read_and_prefetched() {
    let data = bytes(64 * 6);
    let device = Device::new(&data, 512);
    let map = TensorMap::dense(TensorType::U8, device.tensor, &[64, 6], &[32, 16]).encode().expect("valid");
    let text = load(2, "0, 0", 512).replace(
        "    bar.sync 0;\n",
        "    bar.sync 0;\n    mov.b64 %map, MAP;\n    prefetch.tensormap [%map];\n    \
         fence.proxy.tensormap::generic.acquire.gpu [%map], 128;\n    \
         cp.async.bulk.prefetch.tensor.2d.L2.global [%map, {0, 0}];\n",
    );
    let text = text.replace(".version 8.1", ".version 8.3");
    for declared in [false, true] {
        let initial: Vec<String> = map.iter().map(u8::to_string).collect();
        let constant =
            format!(".const .align 64 .b8 MAP[128] = {{{}}};\n.visible .entry", initial.join(", "));
        let text = match declared {
            true => text.replace(".visible .entry", &constant),
            false => {
                let address = device.memory.alloc("map", 128);
                device.memory.write(address, &map).expect("inside");
                text.replace("MAP", &address.to_string())
            }
        };
        device.run(&text, &[0; 128], 1).unwrap_or_else(|finding| panic!("{finding}\n{text}"));
        assert_eq!(device.read(device.out, 512), window(&data, 64, (0, 0), (32, 16), 0));
    }
}

/// A kernel that moves the map in global memory to another row, then loads a box with it.
#[test]
fn maps_in_global_memory_are_changed() {
    let data = bytes(64 * 6);
    let outcome = |fences: &str, value: &str| {
        let device = Device::new(&data, 512);
        let map =
            TensorMap::dense(TensorType::U8, device.tensor, &[64, 5], &[32, 16]).encode().expect("valid");
        let address = device.memory.alloc("map", 128);
        device.memory.write(address, &map).expect("inside");
        let change = format!(
            "    bar.sync 0;\n    mov.b64 %map, {address};\n    mov.b64 %x2, {};\n    @%p {value};\n    {fences}\n",
            device.tensor + 64
        );
        let text = load(2, "0, 0", 512).replace("    bar.sync 0;\n", &change);
        let text = text.replace(".version 8.1\n.target sm_90", ".version 8.3\n.target sm_90a");
        device
            .run(&text, &[0; 128], 1)
            .map(|()| device.read(device.out, 512))
            .map_err(|found| (found.kind, found.detail))
    };
    let change = "tensormap.replace.tile.global_address.global.b1024.b64 [%map], %x2";
    let (release, acquire) = (
        "fence.proxy.tensormap::generic.release.gpu;",
        "fence.proxy.tensormap::generic.acquire.gpu [%map], 128;",
    );
    let moved = window(&data[64..], 64, (0, 0), (32, 16), 0);
    assert_eq!(outcome(&[release, acquire].concat(), change), Ok(moved));
    for (fences, missing) in [(release, "acquire"), (acquire, "release"), ("", "release")] {
        let (kind, detail) = outcome(fences, change).expect_err("a fence is missing");
        assert_eq!(kind, FindingKind::ProxyFence);
        assert!(
            detail.contains(&format!("has executed no `fence.proxy.tensormap::generic.{missing}`")),
            "{detail}"
        );
    }
    let fences = [release, acquire].concat();
    let invalid = change.replace("%x2", "8");
    let (kind, detail) = outcome(&fences, &invalid).expect_err("an odd address");
    assert_eq!(kind, FindingKind::TensorMap);
    assert!(detail.contains("a tensor at 0x8: the address must be a multiple of 16"), "{detail}");
    let (kind, detail) = outcome(&fences, &change.replace("[%map]", "[%out]")).expect_err("no map");
    assert_eq!(kind, FindingKind::TensorMap);
    assert!(detail.contains("are neither a tensor map nor zeros"), "{detail}");
}

#[test]
fn maps_that_the_driver_refuses_are_refused() {
    let valid = TensorMap::dense(TensorType::F16, 0x1000, &[64, 8], &[64, 8]);
    assert!(valid.encode().is_ok());
    let mut errors = String::new();
    for map in [
        TensorMap { sizes: vec![], ..valid.clone() },
        TensorMap { strides: vec![], ..valid.clone() },
        TensorMap { address: 8, ..valid.clone() },
        TensorMap { sizes: vec![64, 0], ..valid.clone() },
        TensorMap { strides: vec![136], ..valid.clone() },
        TensorMap { box_sizes: vec![64, 257], ..valid.clone() },
        TensorMap { steps: vec![1, 9], ..valid.clone() },
        TensorMap { element: TensorType::F32, box_sizes: vec![256, 228], ..valid.clone() },
        TensorMap { box_sizes: vec![12, 8], ..valid.clone() },
        TensorMap { swizzle: Swizzle::Bytes64, ..valid.clone() },
        TensorMap { element: TensorType::U16, fills_nan: true, ..valid.clone() },
        TensorMap { interleave: Interleave::Bytes16, ..valid },
        TensorMap { strides: vec![80, 320, 960], ..interleaved(0x1000, Interleave::Bytes32) },
        interleaved(0x1010, Interleave::Bytes32),
    ] {
        errors += &format!("{}\n", map.encode().expect_err("not valid"));
    }
    expect![[r#"
        a tensor of 0 dimensions: there must be 1 to 5
        0 strides of a tensor of 2 dimensions, which needs 1
        a tensor at 0x8: the address must be a multiple of 16
        a tensor of 0 elements along a dimension: there must be 1 to 2^32
        a stride of 136 bytes: it must be a multiple of 16 below 2^40
        a box of 257 elements along a dimension: there must be 1 to 256
        a step of 9 elements: it must be 1 to 8
        a box of 233472 bytes, which is more than the 232448 bytes of shared memory of a CTA
        rows of a box of 24 bytes: they must be multiples of 16 bytes
        rows of a box of 128 bytes, which is more than the 64 bytes of the swizzle
        a tensor of integers cannot be filled with NaN
        an interleaved tensor of 2 dimensions: it must have at least 3
        a stride of 80 bytes: it must be a multiple of 32 below 2^40
        a tensor at 0x1010: the address must be a multiple of 32
    "#]]
    .assert_eq(&errors);
}
