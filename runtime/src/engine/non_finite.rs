//! Logits that are not finite: the error, and the search for the launch that overflowed.

use std::fmt;

use bespoke_kernels::kernels::state::Row;
use bespoke_kernels::plan::{Argument, ArgumentAccess, BufferKind, BufferName, LaunchLabel};

use super::{Cursor, Engine, EngineError, bind};
use crate::device;

/// A step whose logits are not finite.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub struct NonFiniteLogits {
    /// Position of the token that the step processed.
    pub position: u32,
    /// First output of a launch that is not finite; `None` before the search for it, and if no launch of a second run
    /// of the step has one.
    pub first: Option<NonFiniteOutput>,
}

/// A NaN or infinity that a launch wrote.
#[derive(Clone, Debug, PartialEq)]
pub struct NonFiniteOutput {
    /// The launch.
    pub launch: LaunchLabel,
    /// Name of the buffer in the plan.
    pub buffer: String,
    /// Index of the element in the buffer.
    pub element: usize,
    /// The value: NaN or an infinity.
    pub value: f32,
}

impl fmt::Display for NonFiniteLogits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the logits after position {} are not finite", self.position)?;
        match &self.first {
            Some(NonFiniteOutput { launch, buffer, element, value }) => {
                write!(
                    f,
                    ": the first launch with such an output is {launch} ({buffer}[{element}] is {value})"
                )
            }
            None => Ok(()),
        }
    }
}

impl Engine {
    /// Runs the step at `position` again, launch by launch, and returns the error that names the first launch whose
    /// output is not finite. Afterwards the engine must be started again.
    pub(super) fn non_finite(&mut self, position: u32) -> EngineError {
        let row = self.row(0, position, self.cursor.prompt, true);
        let first = self.first_non_finite(row);
        self.cursor = Cursor::default();
        self.started.set(false);
        match first {
            Ok(first) => NonFiniteLogits { position, first }.into(),
            Err(error) => error.into(),
        }
    }

    /// Runs a row's step again, launch by launch, and returns the first output that is not finite.
    pub(super) fn first_non_finite(&self, row: Row) -> device::Result<Option<NonFiniteOutput>> {
        self.device.wait()?;
        let bytes: Vec<u8> = row.words().iter().flat_map(|word| word.to_le_bytes()).collect();
        self.device.upload(self.buffers.state(), &bytes)?;
        let launches = bind::launches(&self.plan, &self.buffers, &self.one_row().kernels);
        for (planned, mut launch) in self.plan.launches.iter().zip(launches) {
            launch.programmatic = false;
            self.device.sequence(vec![launch])?.run_eager()?;
            self.device.wait()?;
            for output in planned.args.iter().filter(|argument| self.is_activation(argument)) {
                let address = self.buffers.addresses()[output.buffer].offset(output.offset);
                let values = self.read_f32s(address, output.bytes)?;
                if let Some(element) = values.iter().position(|value| !value.is_finite()) {
                    return Ok(Some(NonFiniteOutput {
                        launch: planned.label,
                        buffer: self.plan.buffers[output.buffer].name.clone(),
                        element: element + (output.offset / 4) as usize,
                        value: values[element],
                    }));
                }
            }
        }
        Ok(None)
    }

    /// Whether a launch writes all of an argument, f32 values of the model.
    fn is_activation(&self, argument: &Argument) -> bool {
        const VALUES: [BufferName; 6] = [
            BufferName::Residual,
            BufferName::Qkv,
            BufferName::Attended,
            BufferName::Activated,
            BufferName::BlockOutput,
            BufferName::Logits,
        ];
        let buffer = &self.plan.buffers[argument.buffer];
        argument.access != ArgumentAccess::Read
            && buffer.kind == BufferKind::Activation
            && VALUES.iter().any(|name| name.as_str() == buffer.name)
    }
}
