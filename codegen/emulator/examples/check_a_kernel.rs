//! Tests of a PTX kernel, as a project would write them: its results, no findings, and coalesced memory accesses.
//!
//! `cargo run -p bespoke-emulator --example check_a_kernel`, or `cargo test -p bespoke-emulator --example check_a_kernel`.

use bespoke_emulator::{Finding, LaunchConfig, Memory, Module, Options, Profile, run};

/// `out[i] = x[i] + y[i]`, one thread per element. A project would use `include_str!("vector_add.ptx")` or the output of
/// its compiler.
const PTX: &str = r#"
.version 7.0
.target sm_80
.address_size 64
.visible .entry vector_add(.param .u64 x, .param .u64 y, .param .u64 out, .param .u32 n)
{
    .reg .pred %p;
    .reg .f32 %f<4>;
    .reg .b32 %r<5>;
    .reg .b64 %rd<8>;
    ld.param.u64 %rd1, [x];
    ld.param.u64 %rd2, [y];
    ld.param.u64 %rd3, [out];
    ld.param.u32 %r1, [n];
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mov.u32 %r4, %tid.x;
    mad.lo.u32 %r4, %r2, %r3, %r4;
    setp.ge.u32 %p, %r4, %r1;
    @%p bra DONE;
    mul.wide.u32 %rd4, %r4, 4;
    add.s64 %rd5, %rd1, %rd4;
    ld.global.f32 %f1, [%rd5];
    add.s64 %rd6, %rd2, %rd4;
    ld.global.f32 %f2, [%rd6];
    add.rn.f32 %f3, %f1, %f2;
    add.s64 %rd7, %rd3, %rd4;
    st.global.f32 [%rd7], %f3;
DONE:
    ret;
}
"#;

/// Runs the kernel on `n` elements of two inputs of 1000 elements; returns its output and its profile.
fn vector_add(n: u32) -> Result<(Vec<f32>, Profile), Box<Finding>> {
    const COUNT: u32 = 1000;
    let module = Module::parse(PTX).expect("the PTX is valid");
    let kernel = module.kernel("vector_add").expect("the module has the kernel");

    let memory = Memory::new();
    let bytes: Vec<u8> = (0..COUNT).flat_map(|i| (i as f32).to_le_bytes()).collect();
    let [x, y, out] = ["x", "y", "out"].map(|name| memory.alloc(name, 4 * u64::from(COUNT)));
    for address in [x, y] {
        memory.write(address, &bytes).expect("inside the allocation");
    }
    // The layout is that of `kernel.params()`: each parameter at a multiple of its size.
    let params = [&x.to_le_bytes()[..], &y.to_le_bytes(), &out.to_le_bytes(), &n.to_le_bytes()].concat();
    let options = Options { profile: true, ..Options::default() };
    let stats = run(kernel, &memory, &LaunchConfig::linear(n.div_ceil(128), 128), &params, &options)?;

    let mut bytes = vec![0; 4 * COUNT as usize];
    memory.read(out, &mut bytes).expect("inside the allocation");
    let floats = bytes.chunks_exact(4).map(|four| f32::from_le_bytes([four[0], four[1], four[2], four[3]]));
    Ok((floats.collect(), *stats.profile.expect("profiling is on")))
}

fn main() {
    let (sums, profile) = vector_add(1000).expect("no finding");
    let total = profile.total();
    println!(
        "vector_add: the last sum is {}, {} bytes moved in {} sectors, {:.1} instructions a thread",
        sums[999],
        total.global.bytes(),
        total.global.sectors,
        profile.instructions_per_thread()
    );
    // One element too many: the finding gives thread, address and distance.
    if let Err(finding) = vector_add(1001) {
        println!("{finding}");
    }
}

#[cfg(test)]
mod tests {
    use bespoke_emulator::{FindingKind, LintKind, Thresholds};

    use super::*;

    #[test]
    fn sums_are_correct() {
        let (sums, _) = vector_add(1000).expect("no finding");
        assert!(sums.iter().enumerate().all(|(i, &sum)| sum == 2.0 * i as f32));
    }

    #[test]
    fn reading_past_the_end_is_a_finding() {
        let finding = vector_add(1001).expect_err("one element too many");
        assert_eq!(finding.kind, FindingKind::OutOfBounds);
        assert_eq!((finding.cta, finding.thread), ([7, 0, 0], [104, 0, 0]));
        assert_eq!(finding.nearest.as_ref().map(|nearest| nearest.name.as_str()), Some("x"));
    }

    #[test]
    fn accesses_are_coalesced() {
        let (_, profile) = vector_add(1000).expect("no finding");
        let lints = profile.lints(&Thresholds::default());
        assert!(lints.iter().all(|lint| lint.kind != LintKind::Uncoalesced), "{lints:#?}");
        assert_eq!(profile.total().global.excess(), 1.0);
    }
}
