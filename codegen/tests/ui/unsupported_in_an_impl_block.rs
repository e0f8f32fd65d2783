use bespoke_codegen::prelude::*;

struct Rows(u32);

impl Rows {
    #[kernel]
    fn clear(&self, x: Ptr<Global, u32>) {
        let Some(length) = Some(self.0) else { return };
        x.store(length);
    }
}

fn main() {}
