use super::*;

fn kernel(role: &str, name: &str, constants: &[(&str, &str)], ptx: &str) -> SideKernel {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    SideKernel {
        role: role.to_owned(),
        name: name.to_owned(),
        constants: constants.iter().map(owned).collect(),
        figures: Vec::new(),
        ir: None,
        ptx: ptx.to_owned(),
        sass: None,
    }
}

#[test]
fn register_numbers_are_ignored() {
    for (line, masked) in [
        ("\tmul.wide.u32 %rd14, %r2, 4;", "\tmul.wide.u32 %rd, %r, 4;"),
        ("\tld.global.f32 %f11, [%rd4+57344];", "\tld.global.f32 %f, [%rd+57344];"),
        ("  v12 = add.u32 v3, v4", "  v = add.u32 v, v"),
        ("block7(v3: u32):", "block(v: u32):"),
        ("\t@!%p1 bra $L_block3;", "\t@!%p bra $L_block;"),
        ("$L_block3_edge14:", "$L_block:"),
        ("00c0  SHFL.BFLY PT, R9, R4.reuse, 0x10, 0x1f ;", "SHFL.BFLY PT, R, R.reuse, 0x10, 0x1f ;"),
        ("0340  @P1 BRA `(.L_x_0) ;", "@P BRA `(.L_x_) ;"),
        ("\tld.param.u64 %rd1, [embed_q4k_v512_c256_t128_param_w];", "\tld.param.u64 %rd, [param_w];"),
        (
            "\tmma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 %r1;",
            "\tmma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 %r;",
        ),
        ("\tmov.u32 %r1, %tid.x;", "\tmov.u32 %r, %tid.x;"),
    ] {
        assert_eq!(mask(line), masked);
    }
}

#[test]
fn registers_are_ignored_and_constants_are_compared() {
    let a = "\t.loc 1 5 3\n\tmov.u32 %r1, %tid.x;\n\tmul.lo.u32 %r2, %r1, 7;\n\tret;";
    let b = "\t.loc 1 6 3\n\tmov.u32 %r4, %tid.x;\n\tmul.lo.u32 %r9, %r4, 8;\n\tret;";
    assert_eq!(CodeDiff::of(a, a), CodeDiff::default());
    let diff = CodeDiff::of(a, b);
    assert_eq!((diff.added, diff.removed), (1, 1));
    let expected =
        [" \tmov.u32 %r4, %tid.x;", "-\tmul.lo.u32 %r2, %r1, 7;", "+\tmul.lo.u32 %r9, %r4, 8;", " \tret;"];
    assert_eq!(diff.hunks, [Hunk { a: 1, b: 1, lines: expected.map(str::to_owned).to_vec() }]);
}

#[test]
fn kernels_are_paired_by_role_and_equal_parameters() {
    let side = |name: &str, kernels: Vec<SideKernel>| Side { name: name.to_owned(), context: 1, kernels };
    let a = side(
        "a",
        vec![
            kernel("ffn_down", "down_q4k", &[("ty", "Q4_K"), ("cols", "14336")], "\tret;"),
            kernel("ffn_down", "down_q6k", &[("ty", "Q6_K"), ("cols", "14336")], "\tret;"),
            kernel("choose", "choose", &[], "\tret;"),
        ],
    );
    let b = side(
        "b",
        vec![
            kernel(
                "ffn_down",
                "down_q6k_small",
                &[("ty", "Q6_K"), ("cols", "8192")],
                "\tbar.sync 0;\n\tret;",
            ),
            kernel("ffn_down", "down_q4k_small", &[("ty", "Q4_K"), ("cols", "8192")], "\tret;"),
            kernel("choose", "choose", &[], "\tret;"),
            kernel("sample", "sample", &[], "\tret;"),
        ],
    );
    let diff = Diff::of(&a, &b, None, Some(Code::Ptx));
    let pairs: Vec<_> =
        diff.kernels.iter().map(|it| (it.a.as_deref(), it.b.as_deref(), it.is_equal())).collect();
    let expected = [
        (Some("down_q4k"), Some("down_q4k_small"), false),
        (Some("down_q6k"), Some("down_q6k_small"), false),
        (Some("choose"), Some("choose"), true),
        (None, Some("sample"), false),
    ];
    assert_eq!(pairs, expected);
    let cols =
        Change { name: "cols".into(), constant: true, a: Some("14336".into()), b: Some("8192".into()) };
    assert_eq!(diff.kernels[1].changes, [cols]);
    assert_eq!(diff.kernels[1].code.as_ref().map(|code| (code.added, code.removed)), Some((1, 0)));
    assert_eq!(Diff::of(&a, &b, Some("choose"), None).kernels.len(), 1);
}
