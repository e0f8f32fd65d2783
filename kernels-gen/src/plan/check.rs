//! Check of a plan: its edges order all reads and writes of its launches, no argument that a launch writes overlaps another one
//! of the launch, and inputs that a product writes for the next one are in the order in which that one reads them.

use std::collections::HashMap;

use super::{Argument, ArgumentAccess, Plan};
use crate::kernels::gemv::tokens::InputLayout;
use crate::spec::KernelSpec;

impl Plan {
    /// Checks that the plan is consistent: indices and views are in range, launches have their kernel's geometry, and
    /// edges order every two launches that access the same memory, unless both only read it. No argument that a
    /// launch writes overlaps another one of the launch. A product that reads what the product before wrote for it expects that, in
    /// its layout. The error names the launch.
    pub fn check(&self) -> Result<(), String> {
        // For each launch, whether each earlier launch completes before it.
        let mut ordered_before: Vec<Vec<bool>> = Vec::new();
        for (index, launch) in self.launches.iter().enumerate() {
            let fail = |what: String| Err(format!("launch {index} ({}): {what}", launch.label));
            let Some(kernel) = self.kernels.get(launch.kernel) else {
                return fail(format!("kernel {} does not exist", launch.kernel));
            };
            if let Err(what) = kernel.spec.check() {
                return fail(format!("{}: {what}", kernel.name));
            }
            let geometry = kernel.spec.geometry();
            if (geometry.grid, geometry.threads, geometry.dynamic_shared)
                != (launch.grid, launch.threads, launch.dynamic_shared)
            {
                return fail(format!("its geometry differs from that of {}", kernel.name));
            }
            let mut completed = vec![false; index];
            for &dependency in &launch.after {
                if dependency >= index {
                    return fail(format!("it waits for launch {dependency}, which is not an earlier one"));
                }
                completed[dependency] = true;
                for (mark, &earlier) in completed.iter_mut().zip(&ordered_before[dependency]) {
                    *mark |= earlier;
                }
            }
            for (place, arg) in launch.args.iter().enumerate() {
                let Some(buffer) = self.buffers.get(arg.buffer) else {
                    return fail(format!("{}: buffer {} does not exist", arg.param, arg.buffer));
                };
                if arg.offset.checked_add(arg.bytes).is_none_or(|end| end > buffer.bytes) {
                    return fail(format!("{}: the view ends past the end of {}", arg.param, buffer.name));
                }
                if let Some(other) = launch.args[..place].iter().find(|other| conflict(arg, other)) {
                    return fail(format!("{} overlaps {} in {}", arg.param, other.param, buffer.name));
                }
                for (earlier, other) in self.launches[..index].iter().enumerate() {
                    if !completed[earlier] && other.args.iter().any(|other| conflict(arg, other)) {
                        return fail(format!(
                            "{} conflicts with launch {earlier} ({}), and no edge orders them",
                            arg.param, other.label
                        ));
                    }
                }
            }
            ordered_before.push(completed);
        }
        self.check_next_inputs()
    }

    /// Checks that products read the inputs that other products wrote ([`GemvShape::next`](crate::kernels::gemv::GemvShape::next)),
    /// and only these, where they expect them.
    fn check_next_inputs(&self) -> Result<(), String> {
        // Layouts of inputs that a product wrote, by their buffer.
        let mut written: HashMap<usize, InputLayout> = HashMap::new();
        for (index, launch) in self.launches.iter().enumerate() {
            let KernelSpec::Gemv(shape) = &self.kernels[launch.kernel].spec else {
                for arg in launch.args.iter().filter(|arg| arg.access != ArgumentAccess::Read) {
                    written.remove(&arg.buffer);
                }
                continue;
            };
            for arg in &launch.args {
                match (arg.param.as_str(), shape.next) {
                    ("x", _) => {
                        let expected = shape.received.then(|| shape.input_layout());
                        if written.get(&arg.buffer) != expected.as_ref() {
                            let what = "x is not in the form that the product reads";
                            return Err(format!("launch {index} ({}): {what}", launch.label));
                        }
                    }
                    ("next_inputs", Some(next)) => {
                        written.insert(arg.buffer, next.layout);
                    }
                    _ if arg.access != ArgumentAccess::Read => {
                        written.remove(&arg.buffer);
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }
}

/// Whether two arguments overlap, and one of them is written.
fn conflict(a: &Argument, b: &Argument) -> bool {
    a.buffer == b.buffer
        && (a.access != ArgumentAccess::Read || b.access != ArgumentAccess::Read)
        && a.offset < b.offset + b.bytes
        && b.offset < a.offset + a.bytes
}
