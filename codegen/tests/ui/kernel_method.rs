use bespoke_codegen::prelude::*;

struct Shape {
    rows: u32,
}

impl Shape {
    #[kernel]
    fn clear(&self, x: Ptr<Global, u32>) {
        x.at(self.rows).store(0);
    }
}

fn main() {}
