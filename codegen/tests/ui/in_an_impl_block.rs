use bespoke_codegen::prelude::*;

struct Rows {
    length: u32,
}

impl Rows {
    #[kernel(threads = self.length)]
    fn clear(&self, x: Ptr<Global, u32>) {
        if thread_index() < self.length {
            x.store(1.5);
        }
    }
}

fn main() {}
