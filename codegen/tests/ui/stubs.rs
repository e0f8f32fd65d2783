//! Calls of generated stubs with wrong arguments.

#[path = "../stubs/device.rs"]
mod device;

mod an_argument_missing {
    use super::device::{Device, bytes, floats, kernels};
    use bespoke_codegen::launch::{F16x2, f16};

    fn launch(pair: F16x2) {
        let Ok(()) = kernels::blend::launch(&mut Device, floats(), bytes(), true, f16::ONE, pair);
        //           ^^^^^^^^^^^^^^^^^^^^^^ E0061
    }
}

mod a_number_for_a_flag {
    use super::device::{Device, bytes, floats, kernels};
    use bespoke_codegen::launch::f16;

    fn launch() {
        let Ok(()) = kernels::blend::launch(&mut Device, floats(), bytes(), 1, f16::ONE, f16::ONE, 250);
        //           ^^^^^^^^^^^^^^^^^^^^^^ E0308
    }
}

mod a_grid_that_is_fixed_or_missing {
    use super::device::{Device, bytes, floats, kernels};
    use bespoke_codegen::launch::{F16x2, f16};

    fn launch(pair: F16x2) {
        let grid = [4, 1, 1];
        let Ok(()) = kernels::blend::launch(&mut Device, grid, floats(), bytes(), true, f16::ONE, pair, 250);
        //           ^^^^^^^^^^^^^^^^^^^^^^ E0061
        let Ok(()) = kernels::nothing::launch(&mut Device);
        //           ^^^^^^^^^^^^^^^^^^^^^^^^ E0061
    }
}

mod host_memory_for_a_pointer {
    use super::device::{Device, bytes, kernels};
    use bespoke_codegen::launch::{F16x2, f16};

    fn launch(pair: F16x2) {
        let x = [1.0f32; 64];
        let Ok(()) = kernels::blend::launch(&mut Device, &x, bytes(), true, f16::ONE, pair, 250);
        //                                               ^^ E0308
    }
}

mod two_pointers_in_the_wrong_order {
    use super::device::{Device, bytes, floats, kernels};
    use bespoke_codegen::launch::{F16x2, f16};

    fn launch(pair: F16x2) {
        let Ok(()) = kernels::blend::launch(&mut Device, bytes(), floats(), true, f16::ONE, pair, 250);
        //           ^^^^^^^^^^^^^^^^^^^^^^ E0308
    }
}

mod a_pointer_to_another_element {
    use super::device::{Device, floats, kernels};
    use bespoke_codegen::launch::{F16x2, f16};

    fn launch(pair: F16x2) {
        let Ok(()) = kernels::blend::launch(&mut Device, floats(), floats(), true, f16::ONE, pair, 250);
        //                                                         ^^^^^^^^ E0308
    }
}

mod as_the_kernel_has_its_parameters {
    use super::device::{Device, bytes, floats, kernels};
    use bespoke_codegen::launch::{F16x2, f16};

    fn launch(pair: F16x2) {
        let Ok(()) = kernels::blend::launch(&mut Device, floats(), bytes(), true, f16::ONE, pair, 250);
    }
}

fn main() {}
