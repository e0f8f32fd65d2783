//! Words of PTX: instructions, types and special registers of PTX ISA 9.0.

use std::cmp::Reverse;

/// Opcodes.
const OPCODES: &str = "\
    abs activemask add addc alloca and applypriority atom bar barrier bfe bfi bfind bmsk bra brev brkpt brx call \
    clusterlaunchcontrol clz cnot copysign cos cp createpolicy cvt cvta discard div dp2a dp4a elect ex2 exit fence fma fns \
    getctarank griddepcontrol isspacep istypep ld ldmatrix ldu lg2 lop3 mad mad24 madc mapa match max mbarrier membar min \
    mma mov movmatrix mul mul24 multimem nanosleep neg not or pmevent popc prefetch prefetchu prmt rcp red redux rem ret \
    rsqrt sad selp set setmaxnreg setp shf shfl shl shr sin slct sqrt st stackrestore stacksave stmatrix sub subc suld suq \
    sured sust szext tanh tcgen05 tensormap testp tex tld4 trap txq vabsdiff vabsdiff2 vabsdiff4 vadd vadd2 vadd4 vavrg2 \
    vavrg4 vmad vmax vmax2 vmax4 vmin vmin2 vmin4 vote vset vset2 vset4 vshl vshr vsub vsub2 vsub4 wgmma wmma xor";

/// Modifiers that are types, as far as they look like `u32`.
const TYPES: &str = "\
    b1 b8 b16 b32 b64 b128 b1024 u2 u4 u8 u16 u32 u64 s2 s4 s8 s16 s32 s64 f16 f32 f64 bf16 tf32 u16x2 s16x2 f16x2 bf16x2 \
    f32x2 b8x16 b4x16 b6x16";

/// Special registers, without `.x` and the like, and without digits at the end.
const SPECIAL: &str = "\
    %tid %ntid %laneid %warpid %nwarpid %ctaid %nctaid %smid %nsmid %gridid %clusterid %nclusterid %cluster_ctaid \
    %cluster_nctaid %cluster_ctarank %cluster_nctarank %is_explicit_cluster %lanemask_eq %lanemask_le %lanemask_lt \
    %lanemask_ge %lanemask_gt %clock %clock_hi %clock64 %pm %pm0_64 %envreg %globaltimer %globaltimer_lo %globaltimer_hi \
    %reserved_smem_offset_begin %reserved_smem_offset_end %reserved_smem_offset_cap %reserved_smem_offset_ \
    %total_smem_size %aggr_smem_size %dynamic_smem_size %current_graph_exec";

fn contains(words: &str, word: &str) -> bool {
    words.split_whitespace().any(|known| known == word)
}

/// Whether PTX has an instruction of this name.
pub fn is_opcode(word: &str) -> bool {
    contains(OPCODES, word)
}

/// The opcode that differs from the word by one letter that is added, missing or another; of several, the shortest of those
/// with the longest common beginning.
pub fn similar_opcode(word: &str) -> Option<&'static str> {
    let common = |known: &str| known.bytes().zip(word.bytes()).take_while(|(a, b)| a == b).count();
    let is_similar = |known: &&str| {
        let common = common(known);
        let (a, b) = (&known[common..], word.get(common..).unwrap_or_default());
        let behind_first = |text: &str| text.get(1..).map(str::to_owned);
        behind_first(a).as_deref() == Some(b)
            || behind_first(b).as_deref() == Some(a)
            || !a.is_empty() && behind_first(a) == behind_first(b)
    };
    OPCODES.split_whitespace().filter(is_similar).max_by_key(|known| (common(known), Reverse(known.len())))
}

/// Whether the modifier looks like a type, such as `u31`.
pub fn looks_like_type(modifier: &str) -> bool {
    let rest = ["bf", "tf", "u", "s", "b", "f"].into_iter().find_map(|class| modifier.strip_prefix(class));
    let number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    rest.is_some_and(|rest| match rest.split_once('x') {
        Some((bits, count)) => number(bits) && number(count),
        None => number(rest),
    })
}

/// Whether PTX has this type.
pub fn is_type(modifier: &str) -> bool {
    contains(TYPES, modifier)
}

/// Whether PTX has this special register; `name` may have a component, as in `%tid.x`.
pub fn is_special_register(name: &str) -> bool {
    let name = name.split('.').next().unwrap_or_default();
    contains(SPECIAL, name) || contains(SPECIAL, name.trim_end_matches(|c: char| c.is_ascii_digit()))
}

/// Number of operands of an instruction whose operands all have the type of the instruction.
pub fn uniform_operands(opcode: &str) -> Option<usize> {
    Some(match opcode {
        "mov" | "not" | "neg" | "abs" | "rcp" | "sqrt" | "rsqrt" | "sin" | "cos" | "lg2" | "ex2" | "tanh"
        | "brev" => 2,
        "add" | "sub" | "mul" | "div" | "rem" | "and" | "or" | "xor" | "addc" | "subc" => 3,
        "fma" | "mad" | "madc" | "sad" => 4,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The forms of PTX that the emulator knows, or knows to be unsupported.
    const FORMS: &str = include_str!("../../../emulator/tests/isa/instructions.txt");

    #[test]
    fn every_instruction_is_known() {
        let forms = FORMS.lines().filter(|line| !line.starts_with(['#', '=']));
        let mut count = 0;
        for form in forms.filter_map(|line| line.split_once(' ')).map(|(_, text)| text.trim()) {
            let mnemonic = form.split(' ').next().unwrap_or_default();
            if mnemonic.starts_with('@') || mnemonic.is_empty() {
                continue;
            }
            let (opcodes, modifiers) = match mnemonic.strip_prefix('{').and_then(|rest| rest.split_once('}'))
            {
                Some((opcodes, modifiers)) => (opcodes, modifiers),
                None => mnemonic.split_once('.').unwrap_or((mnemonic, "")),
            };
            for opcode in opcodes.split(',') {
                let opcode = opcode.split('.').next().unwrap_or_default();
                assert!(is_opcode(opcode), "{opcode} in {form}");
            }
            for modifier in modifiers.split(['.', '{', '}', ',']).filter(|word| looks_like_type(word)) {
                let digits = modifier.trim_start_matches(|c: char| c.is_ascii_alphabetic());
                // `b{16,32}` is split in the middle.
                assert!(is_type(modifier) || digits == modifier, "{modifier} in {form}");
            }
            count += 1;
        }
        assert!(count > 300, "{count} forms");
    }

    #[test]
    fn similar_opcodes_differ_by_a_letter() {
        assert_eq!(similar_opcode("madd"), Some("mad"));
        assert_eq!(similar_opcode("bfin"), Some("bfind"));
        assert_eq!(similar_opcode("sod"), Some("sad"));
        assert_eq!(similar_opcode("frobnicate"), None);
    }
}
