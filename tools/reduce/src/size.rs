//! Size of a kernel.

use std::fmt::{self, Display, Formatter};

use bespoke_codegen::ir::{Function, Op};

/// Size of a kernel. Sizes are ordered by the first count that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    /// Number of instructions, without constants.
    pub instructions: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// Number of parameters of blocks and of the kernel.
    pub parameters: usize,
    /// Number of operands.
    operands: usize,
    /// Number of constants other than zero.
    constants: usize,
    /// Length of the text form.
    length: usize,
}

impl Size {
    /// Size of a function.
    pub fn of(function: &Function) -> Size {
        let insts = function.layout.iter().flat_map(|&block| &function.block(block).insts);
        let data: Vec<_> = insts.map(|&inst| function.inst(inst)).collect();
        let params = function.layout.iter().map(|&block| function.block(block).params.len()).sum::<usize>();
        Size {
            instructions: data.iter().filter(|data| !matches!(data.op, Op::Const(_))).count(),
            blocks: function.layout.len(),
            parameters: params + function.params.len(),
            operands: data.iter().map(|data| data.args.len()).sum(),
            constants: data.iter().filter(|data| matches!(data.op, Op::Const(1..))).count(),
            length: function.to_string().len(),
        }
    }
}

impl Display for Size {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let Size { instructions, blocks, parameters, .. } = *self;
        write!(
            f,
            "{instructions} instruction{}, {blocks} block{}, {parameters} parameter{}",
            plural(instructions),
            plural(blocks),
            plural(parameters)
        )
    }
}
