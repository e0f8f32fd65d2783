//! Parser of `forms.txt`, the list of instruction forms.

/// Text of the list of instruction forms.
const FORMS: &str = include_str!("forms.txt");

/// Instructions that differ only in types or modifiers: one line of the list.
pub struct Family {
    /// Heading of the section.
    pub group: &'static str,
    /// Mnemonic with alternatives in braces.
    pub name: &'static str,
    /// Forms with all combinations of alternatives.
    pub forms: Vec<Form>,
}

/// An instruction with given types.
pub struct Form {
    /// Mnemonic with its types.
    pub mnemonic: String,
    /// Types of the results.
    pub results: Vec<String>,
    /// Types, or kinds of values, of the operands.
    pub operands: Vec<String>,
    /// PTX that computes `%oN` from `%iN`.
    pub body: String,
}

/// All families, in the order of the list.
pub fn families() -> Vec<Family> {
    let family = |(group, line): (&'static str, &'static str)| {
        let name = line.split(';').next().unwrap_or_default().trim();
        // Only braces of the mnemonic mark alternatives; a body keeps its braces.
        let rest = &line[name.len()..];
        let forms = expand(name).into_iter().map(|mnemonic| form(mnemonic, rest)).collect();
        Family { group, name, forms }
    };
    lines(FORMS).map(family).collect()
}

/// Lines of a list of forms, each with the heading of its section.
pub fn lines(list: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    let mut group = "";
    list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).filter_map(
        move |line| {
            let heading = line.strip_prefix("== ");
            group = heading.unwrap_or(group);
            heading.is_none().then_some((group, line))
        },
    )
}

/// All combinations of the alternatives in braces.
pub fn expand(text: &str) -> Vec<String> {
    let Some((before, rest)) = text.split_once('{') else { return vec![text.to_string()] };
    let Some((choices, after)) = rest.split_once('}') else { return vec![text.to_string()] };
    let afters = expand(after);
    let with = |choice: &str| -> Vec<String> {
        afters.iter().map(|after| format!("{before}{choice}{after}")).collect()
    };
    choices.split(',').flat_map(with).collect()
}

/// Width of a type's register in bits.
pub fn bits(ty: &str) -> u32 {
    match ty {
        "f16" | "bf16" => 16,
        "n" | "n32" | "so" | "f16x2" | "bf16x2" | "u16x2" | "s16x2" | "fp" | "fq" | "uf" | "uh" | "ub"
        | "ue" => 32,
        "ud" => 64,
        // 8-bit values are held in 16-bit registers.
        "u8" | "s8" => 16,
        _ => ty[1..].parse().unwrap_or(32),
    }
}

fn is_type(word: &str) -> bool {
    const OTHERS: [&str; 6] = ["bf16", "f16x2", "bf16x2", "e4m3x2", "e5m2x2", "tf32"];
    let numbered =
        word.starts_with(['u', 's', 'b', 'f']) && word[1..].bytes().all(|byte| byte.is_ascii_digit());
    numbered || OTHERS.contains(&word)
}

fn form(mnemonic: String, rest: &str) -> Form {
    let types: Vec<&str> = mnemonic.split('.').skip(1).filter(|word| is_type(word)).collect();
    let (first, last) = (types.first().copied().unwrap_or("b32"), types.last().copied().unwrap_or("b32"));
    let resolve = |token: &str| match token {
        "T" => last.to_string(),
        "D" => first.to_string(),
        "W" => format!("{}{}", &last[..1], 2 * bits(last)),
        other => other.to_string(),
    };
    let mut parts = rest.splitn(4, ';').skip(1).map(str::trim);
    let mut list =
        || -> Vec<String> { parts.next().unwrap_or_default().split_whitespace().map(resolve).collect() };
    let (results, operands) = (list(), list());
    let body = match parts.next() {
        Some(body) => {
            let untyped = format!(".b{} ", bits(last));
            body.replace('$', &mnemonic).replace(".T ", &format!(".{last} ")).replace(".B ", &untyped)
        }
        None => {
            let names = (0..operands.len()).map(|at| format!(", %i{at}"));
            format!("{mnemonic} %o0{};", names.collect::<String>())
        }
    };
    Form { mnemonic, results, operands, body }
}
