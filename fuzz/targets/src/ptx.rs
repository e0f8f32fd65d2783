//! PTX: from the text to the first launch of each kernel, on the emulator.
//!
//! A text without `.version` is the body of a kernel: [`BEFORE`] declares and initialises its registers and variables.
//!
//! Properties: the runtime's parser of signatures and the emulator agree on the layout of parameters; a launch gives
//! the same statistics or the same finding when it is repeated, and ends after a bounded number of instructions.

use bespoke::device::{Selector, open};
use bespoke_emulator::{Checks, Kernel, LaunchConfig, Memory, Module, Options};

/// Warp instructions after which a launch is a finding.
const INSTRUCTIONS: u64 = 8_000;
/// Kernels of a text that are launched.
const KERNELS: usize = 4;
/// Bytes of the buffer to which 64-bit parameters point.
const BUFFER: u64 = 4096;

/// Text before the body of a kernel.
const BEFORE: &str = "
.version 8.8
.target sm_100a
.address_size 64
.func (.param .b32 r) f(.param .b32 a)
{
.reg .b32 t;
ld.param.b32 t, [a];
st.param.b32 [r], t;
ret;
}
.const .align 8 .b8 table[16] = {1, 2, 3, 4};
.visible .entry k(.param .u64 data)
{
.reg .pred %p, %q;
.reg .b16 %h<8>;
.reg .b32 %r<16>, %s;
.reg .b64 %x<8>;
.shared .align 16 .b8 tile[4096];
.shared .align 8 .b64 bar;
.local .align 8 .b8 own[16];
.param .b32 arg;
mov.u32 %r0, %tid.x;
mov.u32 %r1, %laneid;
mad.lo.u32 %r2, %r0, 2654435761, 12345;
mov.b32 %r3, 0f3FC00000;
mov.b32 %r4, 0x3C004000;
mov.u32 %r5, tile;
mov.u32 %r6, bar;
shl.b32 %r7, %r0, 2;
add.u32 %r8, %r5, %r7;
mov.u32 %r9, -1;
mov.u32 %r10, 0;
setp.ne.u32 %p, %r0, 0;
setp.eq.u32 %q, %r0, %r0;
ld.param.u64 %x0, [data];
mul.wide.u32 %x1, %r0, 4;
add.u64 %x2, %x0, %x1;
cvta.shared.u64 %x3, %x1;
mov.b64 %x4, 0d3FF8000000000000;
mov.b64 %x5, {%r2, %r1};
mov.b32 {%h0, %h1}, %r4;
mov.b32 {%h2, %h3}, %r2;
@!%p mbarrier.init.shared.b64 [%r6], 40;
bar.sync 0;
";
/// Text behind the body.
const AFTER: &str = "\nL:\nM:\nret;\n}\n";

pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let body = !text.contains(".version");
    let text = &if body { [BEFORE, text, AFTER].concat() } else { text.to_owned() };
    let module = match Module::load(text) {
        Ok(module) => module,
        Err(errors) => {
            assert!(!errors.is_empty());
            return errors.iter().for_each(|error| drop(error.to_string()));
        }
    };
    let device = open(Selector::Emulator).expect("the emulator").device;
    if let Ok(loaded) = device.load("fuzzed", text) {
        for kernel in module.kernels() {
            let found = loaded.kernel(kernel.name()).expect("a kernel of the module");
            let found = found.signature().parameters.iter().map(|one| (one.offset, one.bytes));
            let params = kernel.params().iter().map(|one| (one.offset as usize, one.size as usize));
            assert!(found.eq(params), "the layout of `{}` differs", kernel.name());
        }
    }
    for kernel in module.kernels().take(KERNELS) {
        assert_eq!(launched(kernel), launched(kernel));
    }
}

/// Launches a kernel on new memory; returns statistics or finding, and the memory.
fn launched(kernel: &Kernel) -> (String, Vec<u8>) {
    let memory = Memory::new();
    let buffer = memory.alloc("buffer", BUFFER);
    memory.write(buffer, &(0..BUFFER).map(|byte| byte as u8).collect::<Vec<_>>()).expect("the whole buffer");
    let mut params = vec![0; kernel.param_bytes() as usize];
    for param in kernel.params() {
        let value = if param.size == 8 { buffer } else { 7 };
        let bytes = value.to_le_bytes();
        let bytes = &bytes[..bytes.len().min(param.size as usize)];
        params[param.offset as usize..][..bytes.len()].copy_from_slice(bytes);
    }
    let cluster = kernel.required_cluster().unwrap_or([1; 3]);
    let dynamic_shared = if kernel.takes_dynamic_shared() { 1024 } else { 0 };
    let config = LaunchConfig {
        grid: [cluster[0].saturating_mul(2), cluster[1], cluster[2]],
        block: kernel.reqntid().unwrap_or([40, 1, 1]),
        dynamic_shared,
        cluster: None,
        cooperative: false,
    };
    let checks = Checks { values: true, overflow: true, ..Checks::ALL };
    let options =
        Options { threads: 1, checks, profile: true, instruction_limit: INSTRUCTIONS, ..Options::default() };
    let outcome = match bespoke_emulator::run(kernel, &memory, &config, &params, &options) {
        Ok(stats) => format!("{stats:?}"),
        Err(finding) => format!("{finding} {finding:?}"),
    };
    let mut bytes = vec![0; BUFFER as usize];
    memory.read(buffer, &mut bytes).expect("the whole buffer");
    (outcome, bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_body_is_a_kernel_without_findings() {
        let module = Module::load(&[BEFORE, AFTER].concat()).unwrap_or_else(|errors| panic!("{errors:?}"));
        let (outcome, _) = launched(module.kernel("k").expect("the kernel"));
        assert!(outcome.starts_with("Stats"), "{outcome}");
    }
}
