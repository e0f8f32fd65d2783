//! Kernels of `cuda/tiles.cu`, compiled by nvcc: parts of a warp that execute `.sync` instructions with member masks of their own.

use bespoke_emulator::{FindingKind, LaunchConfig};

use crate::device::{Device, words};

const PTX: &str = include_str!("cuda/tiles.ptx");

#[test]
fn lanes_with_equal_keys_share_an_atomic() {
    let (device, n, kinds) = (Device::load(PTX), 150, 5);
    let keys: Vec<u32> = words(n, 9).into_iter().map(|word| word % kinds).collect();
    let counts = device.buffer(&vec![0u32; kinds as usize]);
    let (places, sums) = (device.output::<u32>(n), device.output::<u32>(n));
    let arguments = [counts, places, sums, device.buffer(&keys), n as u64];
    device.run("aggregate", LaunchConfig::linear(3, 64), &arguments);

    let places = device.read::<u32>(places, n);
    for key in 0..kinds {
        let mut of_key: Vec<u32> = (0..n).filter(|&i| keys[i] == key).map(|i| places[i]).collect();
        of_key.sort_unstable();
        assert_eq!(of_key, (0..of_key.len() as u32).collect::<Vec<_>>(), "key {key}");
        assert_eq!(device.read::<u32>(counts, kinds as usize)[key as usize], of_key.len() as u32);
    }
    let sum = |i: usize| {
        let warp = i / 32 * 32..(i / 32 * 32 + 32).min(n);
        warp.filter(|&other| keys[other] == keys[i]).map(|other| other as u32 % 64).sum::<u32>()
    };
    assert_eq!(device.read::<u32>(sums, n), (0..n).map(sum).collect::<Vec<_>>());
}

#[test]
fn tiles_of_a_warp_have_sums_of_their_own() {
    let device = Device::load(PTX);
    let x: Vec<f32> = (0..128).map(|i| i as f32).collect();
    let out = device.output::<f32>(16);
    device.run("tile_sums", LaunchConfig::linear(2, 64), &[out, device.buffer(&x)]);
    let expected = |tile: usize| match tile % 4 {
        3 => (8 * tile + 7 > 40) as u32 as f32,
        _ => x[8 * tile..8 * tile + 8].iter().sum(),
    };
    assert_eq!(device.read::<f32>(out, 16), (0..16).map(expected).collect::<Vec<_>>());
}

#[test]
fn a_mask_with_lanes_of_another_tile_is_reported() {
    let x = vec![0f32; 64];
    // Masks of nine lanes: the first lane of the next tile has a mask of its own.
    for (from, to) in [("255", "511"), ("255", "127")] {
        let text = PTX.replace(&format!(", {from}"), &format!(", {to}"));
        assert_ne!(text, PTX);
        let device = Device::load(&text);
        let finding = device.finding(
            "tile_sums",
            LaunchConfig::linear(1, 32),
            &[device.output::<f32>(8), device.buffer(&x)],
        );
        assert_eq!(finding.kind, FindingKind::MemberMask, "{finding}");
    }
}
