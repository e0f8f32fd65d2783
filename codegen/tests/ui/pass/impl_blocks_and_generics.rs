//! Kernels in `impl` blocks, generic ones, and both.
#![deny(warnings)]

use bespoke_codegen::prelude::*;

struct Rows<const THREADS: u32> {
    length: u32,
}

impl<const THREADS: u32> Rows<THREADS> {
    const BIAS: u32 = 3;

    /// By reference: `self` is known while recording.
    #[kernel(threads = THREADS)]
    fn filled<T: Number>(&self, x: Ptr<Global, T>, value: Val<T>) {
        for i in range(thread_index(), self.length).step_by(THREADS) {
            if i > Self::BIAS {
                x.at(i).store(value);
            } else {
                self.kept(x.at(i));
            }
        }
    }

    #[device]
    fn kept<T: Number>(&self, x: Ptr<Global, T>) {
        if self.length > 7 {
            x.store(x.load() + x.load());
        }
    }

    /// Without `self`.
    #[kernel]
    fn cleared(x: Ptr<Global, u32>) {
        x.at(Self::BIAS).store(0);
    }

    /// By value.
    #[kernel(threads = self.length)]
    fn consumed(self, x: Ptr<Global, u32>) {
        x.at(thread_index()).store(self.length);
    }
}

/// A kernel with a lifetime, an `impl Trait` and a `where`.
#[kernel(threads = 32)]
fn mapped<'a, T>(x: Ptr<Global, T>, weights: &'a [f32], function: impl Fn(Val<T>) -> Val<T> + 'a)
where
    T: Scalar,
{
    for _ in weights {
        x.at(lane()).store(function(x.at(lane()).load()));
    }
}

fn main() {
    let rows = Rows::<64> { length: 100 };
    let kernel = rows.filled::<f32>().unwrap();
    assert_eq!((kernel.name(), kernel.threads()), ("filled", Some(64)));
    // Each instruction has its own line.
    let text = kernel.function().to_string();
    assert!(text.contains("impl_blocks_and_generics.rs\":18:"), "{text}");
    assert!(text.contains("impl_blocks_and_generics.rs\":28:"), "{text}");
    assert!(Rows::<1>::cleared().is_ok());
    assert_eq!(rows.consumed().unwrap().threads(), Some(100));
    assert!(mapped(&[0.5], |x: Val<u32>| x + 1).is_ok());
}
