//! Counts in a listing of machine code.

use std::collections::HashMap;

/// Numbers of instructions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// All instructions without NOP.
    pub all: usize,
    /// Instructions of the longest loop without a loop inside; 0 without loops.
    pub main_loop: usize,
}

/// Counts the instructions in the output of `nvdisasm -c`.
pub fn count(listing: &str) -> Counts {
    let mut labels = HashMap::new();
    let mut instructions = Vec::new();
    for line in listing.lines() {
        let line = line.trim();
        if let Some(label) = line.strip_suffix(':').filter(|_| line.starts_with('.')) {
            labels.insert(label, instructions.len());
        } else if let Some((_, instruction)) = line.strip_prefix("/*").and_then(|rest| rest.split_once("*/"))
        {
            let instruction = instruction.trim();
            if instruction.ends_with(';') && !instruction.starts_with("NOP") {
                instructions.push(instruction);
            }
        }
    }
    // A backward branch over EXIT leads back from code that the assembler put behind the kernel's end.
    let branches = instructions.iter().enumerate().filter_map(|(at, instruction)| {
        let (_, target) = instruction.split_once("BRA")?;
        let (_, target) = target.split_once("`(")?;
        let start = *labels.get(target.split_once(')')?.0)?;
        let is_loop = start < at && !instructions[start..at].iter().any(|inside| inside.starts_with("EXIT"));
        is_loop.then_some((start, at))
    });
    let loops: Vec<(usize, usize)> = branches.collect();
    let is_innermost = |&&(start, end): &&(usize, usize)| {
        !loops.iter().any(|&inside| inside != (start, end) && start <= inside.0 && inside.1 <= end)
    };
    let lengths = loops.iter().filter(is_innermost).map(|(start, end)| end - start + 1);
    Counts { all: instructions.len(), main_loop: lengths.max().unwrap_or(0) }
}

/// Lines of a Rust or CUDA source without blank ones and comments.
pub fn source_lines(source: &str) -> usize {
    source.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//")).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn innermost_loops_are_counted() {
        let listing = "
        .global k
.text.k:
        /*0000*/                   S2R R0, SR_TID.X ;
.L_x_0:
        /*0010*/                   MOV R1, RZ ;
.L_x_1:
        /*0020*/                   FADD R1, R1, R2 ;
        /*0030*/               @P0 BRA `(.L_x_1) ;
        /*0040*/               @P1 BRA `(.L_x_0) ;
.L_x_3:
        /*0050*/                   STG.E [R2], R1 ;
        /*0060*/                   EXIT ;
.L_x_2:
        /*0070*/                   SHFL.BFLY R1, R1 ;
        /*0080*/                   BRA `(.L_x_3) ;
.L_x_4:
        /*0090*/                   BRA `(.L_x_4);
        /*00a0*/                   NOP;
";
        assert_eq!(count(listing), Counts { all: 10, main_loop: 2 });
    }

    #[test]
    fn comments_and_blank_lines_are_not_counted() {
        assert_eq!(source_lines("//! A kernel.\n\nuse a;\n\n/// Adds.\nfn f() {\n    // One.\n}\n"), 3);
    }
}
