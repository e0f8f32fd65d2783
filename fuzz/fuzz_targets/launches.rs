#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| bespoke_fuzz::run("launches", data));
