// The source that scale.ptx names in its `.loc` directives; nothing compiles it.

#[kernel(threads = 128)]
fn scale(x: Ptr<Global, f32>, y: Ptr<Global, f32>, n: u32) {
    let i = block_index() * 128 + thread_index();
    if i <= n {
        let value = x.at(i).load();
        y.at(i).store(value * 3.0);
    }
}
