//! Words of valid PTX that the emulator does not support. An error about such a word has the category `unsupported`,
//! not `syntax`.
//!
//! From PTX ISA 9.0. Opcodes and forms are in the opcode table (`decode::opcodes`); here are the types, modifiers,
//! directives and special registers. `tests/isa/instructions.txt` has an example of each unsupported instruction.

use crate::load::ast::Instruction;
use crate::load::error::ParseErrorKind;

/// Types that the emulator supports in no instruction.
const TYPES: &str = "f32x2 e2m1x2 e2m3x2 e3m2x2 e2m1x4 e2m3x4 e3m2x4 e4m3x4 e5m2x4 ue8m0x2";

/// Opcodes of which the emulator supports only some forms.
const PARTIALLY_SUPPORTED: &str = "\
    atom cp createpolicy cvt cvta fence ld ldmatrix ldu mma prefetch prefetchu red st stmatrix tensormap wmma";

/// Modifiers of the partially supported opcodes.
const MODIFIERS: &str = "\
    1d 2d 3d 4d 5d L1 L1::evict_first L1::evict_last L1::evict_normal L1::evict_unchanged L1::no_allocate L2 \
    L2::128B L2::256B L2::64B L2::cache_hint L2::evict_first L2::evict_last L2::evict_normal \
    L2::evict_unchanged a acq_rel acquire add address alias aligned all and any arrive arrive_drop async \
    async::generic b b1 b1024 b16 b32 b4x16_p64 b64 b6x16_p32 b8 b8x16 bf16 bf16x2 block_scale bulk \
    bulk_group c ca cas cg cluster col commit_group complete_tx const cp_mask cs cta cta_group::1 \
    cta_group::2 cv cvt d dec e2m1 e2m3 e3m2 e4m3 e4m3x2 e5m2 e5m2x2 elemtype exch expect_tx f16 f16x2 f32 \
    f64 fill_mode fractional ftz generic gl global gpu ignore_oob im2col inc init interleave_layout inval \
    kind::f8f6f4 kind::mxf4 kind::mxf4nvf4 kind::mxf8f6f4 level::eviction_priority load local lu m16n16 \
    m16n16k16 m16n16k8 m16n8k128 m16n8k16 m16n8k256 m16n8k32 m16n8k4 m16n8k64 m16n8k8 m32n8k16 m8n16 \
    m8n32k16 m8n8 m8n8k128 m8n8k16 m8n8k32 m8n8k4 max mbarrier mbarrier::arrive::one \
    mbarrier::complete_tx::bytes mbarrier_init min mma mmio multicast::cluster nc noComplete noftz noinc num \
    op_restrict or pack param param::entry param::func parity pending_count phase popc prefetch proxy range \
    read red reduce relaxed release relu replace rm rmi rn rna rni row rp rpi rs rz rzi s16 s2 s32 s4 s64 s8 \
    sat satfinite sc scale_vec::1X scale_vec::2X scale_vec::4X scaled shared shared::cluster shared::cta sp \
    store swizzle_mode sync sync_restrict sys tensor tensormap tensormap::generic test_wait tex tf32 tile to \
    trans trap try_wait u16 u2 u32 u4 u64 u8 ue4m3 ue8m0 unified v2 v4 v8 volatile wait wait_all wait_group \
    warp wb weak wt x1 x2 x4 xor";

/// Unsupported directives, and unsupported attributes of declarations.
const DIRECTIVES: &str = "\
    abi_preserve abi_preserve_control alias attribute blocksareclusters branchtargets callprototype \
    calltargets const global managed sampler samplerref surf surfref tex texref unified";

/// Unsupported special registers, without the digits at the end of some names.
const SPECIAL_REGISTERS: &str = "\
    %aggr_smem_size %current_graph_exec %globaltimer_hi %pm \
    %reserved_smem_offset_";

fn contains(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|known| known == word)
}

/// Whether the modifier is a type that the emulator supports in no instruction.
pub(crate) fn is_type(modifier: &str) -> bool {
    contains(TYPES, modifier)
}

/// Category of the error for a combination of modifiers that no decoder accepts.
pub(crate) fn form_error<'m>(opcode: &str, mut modifiers: impl Iterator<Item = &'m str>) -> ParseErrorKind {
    match contains(PARTIALLY_SUPPORTED, opcode) && modifiers.all(|modifier| contains(MODIFIERS, modifier)) {
        true => ParseErrorKind::Unsupported,
        false => ParseErrorKind::Syntax,
    }
}

/// Category of the error for an instruction with too many operands. `min` and `max` of three sources are valid PTX.
pub(crate) fn operand_count_error(instruction: &Instruction) -> ParseErrorKind {
    let Instruction { opcode, operands, .. } = instruction;
    let three_sources = matches!(opcode.as_str(), "min" | "max") && operands.len() == 4;
    match three_sources && instruction.has("f32") {
        true => ParseErrorKind::Unsupported,
        false => ParseErrorKind::Operand,
    }
}

/// Category of the error for an unknown word after a dot, in a directive or declaration.
pub(crate) fn directive_error(word: &str) -> ParseErrorKind {
    match [DIRECTIVES, TYPES, MODIFIERS].iter().any(|list| contains(list, word)) {
        true => ParseErrorKind::Unsupported,
        false => ParseErrorKind::Syntax,
    }
}

/// Category of the error for an unknown register name.
pub(crate) fn register_error(name: &str) -> ParseErrorKind {
    let stem =
        name.split_once("_64").map_or(name, |(stem, _)| stem).trim_end_matches(|c: char| c.is_ascii_digit());
    match contains(SPECIAL_REGISTERS, stem) {
        true => ParseErrorKind::Unsupported,
        false => ParseErrorKind::Undefined,
    }
}
