//! Size of a kernel.

use std::fmt::{self, Display, Formatter};

use bespoke_codegen::ir::{Function, Op};

/// Size of a kernel and of the functions that it calls. Sizes are ordered by the first count that differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Size {
    /// Number of instructions, without constants.
    pub instructions: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// Number of parameters of blocks, of the kernel and of its functions.
    pub parameters: usize,
    /// Number of operands.
    operands: usize,
    /// Number of constants other than zero.
    constants: usize,
    /// Length of the text form.
    length: usize,
}

impl Size {
    /// Size of a kernel with its functions.
    pub fn of(kernel: &Function) -> Size {
        let mut size = Size { length: kernel.to_string().len(), ..Size::default() };
        for function in kernel.functions.iter().chain([kernel]) {
            size.parameters += function.params.len();
            size.blocks += function.layout.len();
            for &block in &function.layout {
                size.parameters += function.block(block).params.len();
                for &inst in &function.block(block).insts {
                    let data = function.inst(inst);
                    size.operands += data.args.len();
                    match data.op {
                        Op::Const(bits) => size.constants += usize::from(bits > 0),
                        _ => size.instructions += 1,
                    }
                }
            }
        }
        size
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
