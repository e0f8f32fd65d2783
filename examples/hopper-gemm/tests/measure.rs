//! The program that measures the steps, on the emulator: it checks the result of each.

use std::process::Command;

#[test]
fn every_step_has_the_right_result() {
    let program = env!("CARGO_BIN_EXE_measure");
    let done = Command::new(program).args(["256", "--device", "emulator"]).output().unwrap();
    let text = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success(), "{text}{}", String::from_utf8_lossy(&done.stderr));
    let steps = ["naive", "tiled", "specialised", "scheduled"].map(|step| text.matches(step).count());
    assert_eq!(steps, [1, 1, 4, 3], "{text}");
}

#[test]
fn a_size_that_is_no_multiple_of_the_tiles_is_an_error() {
    let done = Command::new(env!("CARGO_BIN_EXE_measure")).arg("100").output().unwrap();
    assert!(!done.status.success());
    assert_eq!(String::from_utf8_lossy(&done.stderr), "error: 100 is not a multiple of 128\n");
}
