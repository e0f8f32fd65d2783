//! Kernels of `wgmma`: a CTA copies its operands to shared memory and registers, multiplies, and stores the sums.

use super::{ACCUMULATORS, FRAGMENT, Form, INPUT, THREADS, TILE};

/// PTX of a module with a kernel `form_N` for each form.
pub fn module(forms: &[Form]) -> String {
    let kernels = forms.iter().enumerate().map(|(at, form)| kernel(at, form));
    format!(".version 8.7\n.target sm_90a\n.address_size 64\n{}", kernels.collect::<String>())
}

fn kernel(at: usize, form: &Form) -> String {
    let count = form.accumulators();
    assert!(count <= ACCUMULATORS, "{}", form.name);
    // Offset of register 0 of the accumulators, of which each has a word for each thread.
    let first = TILE + 4 * THREADS * FRAGMENT;
    let each = |text: &dyn Fn(usize) -> String| (0..count).map(text).collect::<String>();
    format!(
        ".visible .entry form_{at}(.param .u64 in, .param .u64 out, .param .u64 a, .param .u64 b, .param .u32 scale)
{{
    .shared .align 1024 .b8 tile[{TILE}];
    .reg .pred %p, %scale;
    .reg .b32 %thread, %cta, %tile, %at, %n, %v<4>, %i<{FRAGMENT}>, %d<{count}>;
    .reg .b64 %in, %out, %x, %a, %b;
    mov.u32 %thread, %tid.x;
    mov.u32 %cta, %ctaid.x;
    ld.param.u64 %in, [in];
    mad.wide.u32 %in, %cta, {INPUT}, %in;
    ld.param.u64 %out, [out];
    mad.wide.u32 %out, %cta, {}, %out;
    mov.u32 %tile, tile;
    shl.b32 %at, %thread, 4;
COPY:
    cvt.u64.u32 %x, %at;
    add.u64 %x, %x, %in;
    ld.global.v4.b32 {{%v0, %v1, %v2, %v3}}, [%x];
    add.u32 %n, %at, %tile;
    st.shared.v4.b32 [%n], {{%v0, %v1, %v2, %v3}};
    add.u32 %at, %at, {};
    setp.lt.u32 %p, %at, {TILE};
    @%p bra COPY;
    fence.proxy.async;
    bar.sync 0;
    mad.wide.u32 %x, %thread, 16, %in;
    ld.global.v4.b32 {{%i0, %i1, %i2, %i3}}, [%x+{TILE}];
    mad.wide.u32 %in, %thread, 4, %in;
    mad.wide.u32 %out, %thread, 4, %out;
{}    shr.u32 %n, %tile, 4;
    cvt.u64.u32 %x, %n;
    ld.param.u64 %a, [a];
    add.u64 %a, %a, %x;
    ld.param.u64 %b, [b];
    add.u64 %b, %b, %x;
    ld.param.u32 %n, [scale];
    setp.ne.u32 %scale, %n, 0;
    wgmma.fence.sync.aligned;
    {};
    wgmma.commit_group.sync.aligned;
    wgmma.wait_group.sync.aligned 0;
{}    ret;
}}
",
        4 * THREADS * count,
        16 * THREADS,
        each(&|at| format!("    ld.global.b32 %d{at}, [%in+{}];\n", first + 4 * THREADS * at)),
        instruction(form),
        each(&|at| format!("    st.global.b32 [%out+{}], %d{at};\n", 4 * THREADS * at)),
    )
}

/// The product of a form, with its operands.
fn instruction(form: &Form) -> String {
    let accumulators: Vec<String> = (0..form.accumulators()).map(|at| format!("%d{at}")).collect();
    let a = if form.in_registers { "{%i0, %i1, %i2, %i3}" } else { "%a" };
    let mut immediates = String::new();
    if form.types[0] != "s32" {
        let [scale_a, scale_b] = form.scales;
        immediates += &format!(", {scale_a}, {scale_b}");
    }
    // Only 16-bit types have transposed operands; A in registers is not transposed.
    if matches!(form.types[1].as_str(), "f16" | "bf16") {
        let in_shared = if form.in_registers { &form.transposed[1..] } else { &form.transposed[..] };
        immediates += &in_shared.iter().map(|&along| format!(", {}", u32::from(along))).collect::<String>();
    }
    format!("{} {{{}}}, {a}, %b, %scale{immediates}", form.mnemonic, accumulators.join(", "))
}
