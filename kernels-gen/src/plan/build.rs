//! From a shape to buffers and launches.

use bespoke_codegen::ptx::Target;

use super::weights::stack;
use super::{
    Access, Argument, Buffer, BufferKind, Launch, Part, PartKind, Plan, PlanKernel, PlanParams, cost,
};
use crate::kernels::embed::EmbedShape;
use crate::kernels::gemv::{GemvShape, Segment};
use crate::kernels::kv_append::KvAppendShape;
use crate::kernels::residual_add::ResidualAddShape;
use crate::kernels::rms_norm::RmsNormShape;
use crate::kernels::rope::RopeShape;
use crate::kernels::state;
use crate::kernels::swiglu::SwigluShape;
use crate::shape::{LayerTypes, ModelShape};
use crate::spec::KernelSpec;
use crate::weights::WeightType;

/// A view into a buffer of the plan being built.
#[derive(Clone, Copy)]
struct View {
    buffer: usize,
    offset: u64,
    bytes: u64,
}

impl View {
    fn part(self, offset: u64, bytes: u64) -> View {
        View { buffer: self.buffer, offset: self.offset + offset, bytes }
    }

    fn read(self, param: &str) -> Argument {
        self.argument(param, Access::Read)
    }

    fn write(self, param: &str) -> Argument {
        self.argument(param, Access::Write)
    }

    fn read_write(self, param: &str) -> Argument {
        self.argument(param, Access::ReadWrite)
    }

    fn argument(self, param: &str, access: Access) -> Argument {
        Argument {
            param: param.to_owned(),
            buffer: self.buffer,
            offset: self.offset,
            bytes: self.bytes,
            access,
        }
    }
}

/// Activations that live within a step, and what lives longer.
struct Memory {
    residual: View,
    normed: View,
    qkv: View,
    partial: View,
    attended: View,
    projected: View,
    gate_up: View,
    activated: View,
    logits: View,
    best_values: View,
    best_tokens: View,
    rope_table: View,
    state: View,
    tokens: View,
    finished: View,
}

struct Builder {
    plan: Plan,
}

pub(super) fn build(shape: &ModelShape, target: Target, params: PlanParams) -> Plan {
    let plan = Plan {
        shape: shape.clone(),
        target,
        params,
        buffers: Vec::new(),
        kernels: Vec::new(),
        launches: Vec::new(),
    };
    let mut builder = Builder { plan };
    let memory = builder.memory();
    let embedding = builder.embed(&memory);
    for (layer, types) in shape.layers.iter().enumerate() {
        builder.attention_block(layer, types, &memory);
        builder.feed_forward_block(layer, types, &memory);
    }
    builder.head(embedding, &memory);
    builder.plan
}

fn f32s(n: u32) -> u64 {
    u64::from(n) * 4
}

impl Builder {
    fn buffer(&mut self, name: impl Into<String>, bytes: u64, kind: BufferKind) -> View {
        self.plan.buffers.push(Buffer { name: name.into(), bytes, kind });
        View { buffer: self.plan.buffers.len() - 1, offset: 0, bytes }
    }

    /// Adds a launch that waits for the one before.
    fn launch(&mut self, label: impl Into<String>, spec: KernelSpec, args: Vec<Argument>) {
        let name = spec.name();
        let kernel = match self.plan.kernels.iter().position(|kernel| kernel.name == name) {
            Some(index) => index,
            None => {
                self.plan.kernels.push(PlanKernel { name, spec: spec.clone() });
                self.plan.kernels.len() - 1
            }
        };
        let geometry = spec.geometry();
        let after = self.plan.launches.len().checked_sub(1).into_iter().collect();
        self.plan.launches.push(Launch {
            label: label.into(),
            kernel,
            grid: geometry.grid,
            threads: geometry.threads,
            dynamic_shared: geometry.dynamic_shared,
            args,
            after,
            programmatic: self.plan.target.has_programmatic_launch() && !self.plan.launches.is_empty(),
        });
    }

    fn memory(&mut self) -> Memory {
        let shape = self.plan.shape.clone();
        let (target, batch) = (self.plan.target, u64::from(self.plan.params.batch));
        let d = &shape.dimensions;
        let attention = cost::attention(target, d);
        let argmax = cost::argmax(target, d.vocab);
        let mut activation =
            |name: &str, elements: u32| self.buffer(name, batch * f32s(elements), BufferKind::Activation);
        let qkv_width = shape.q_width() + 2 * shape.kv_width();
        let residual = activation("residual", d.hidden);
        let normed = activation("normed", d.hidden);
        let qkv = activation("qkv", qkv_width);
        let partial = activation("attention_partial", attention.workspace());
        let attended = activation("attended", shape.q_width());
        let projected = activation("projected", d.hidden);
        let gate_up = activation("gate_up", 2 * d.ffn);
        let activated = activation("activated", d.ffn);
        let logits = activation("logits", d.vocab);
        let best_values = activation("best_values", argmax.blocks);
        let best_tokens = activation("best_tokens", argmax.blocks);
        let positions = self.plan.params.context;
        Memory {
            residual,
            normed,
            qkv,
            partial,
            attended,
            projected,
            gate_up,
            activated,
            logits,
            best_values,
            best_tokens,
            rope_table: self.buffer("rope_table", f32s(d.rotated), BufferKind::RopeTable),
            state: self.buffer("state", batch * f32s(state::WORDS), BufferKind::State),
            // One more than the context: the token after the last position.
            tokens: self.buffer("tokens", batch * f32s(positions + 1), BufferKind::Tokens),
            finished: self.buffer("finished", batch * f32s(positions + 1), BufferKind::Finished),
        }
    }

    fn vector(&mut self, tensor: String, elements: u32) -> View {
        let parts = vec![Part { tensor: tensor.clone(), offset: 0, kind: PartKind::Vector { elements } }];
        self.buffer(tensor, f32s(elements), BufferKind::Weights { parts })
    }

    /// The weights of a stack of matrices, and the stack.
    fn matrices(
        &mut self,
        name: String,
        cols: u32,
        members: &[(String, WeightType, u32, bool)],
    ) -> (View, GemvShape) {
        let segments =
            members.iter().map(|(_, ty, rows, bias)| Segment { ty: *ty, rows: *rows, bias: *bias }).collect();
        let shape = cost::gemv(self.plan.target, cols, segments);
        let tensors: Vec<String> = members.iter().map(|(tensor, ..)| tensor.clone()).collect();
        let (parts, bytes) = stack(&shape, &tensors);
        (self.buffer(name, bytes, BufferKind::Weights { parts }), shape)
    }

    fn norm(&mut self, label: &str, rows: u32, cols: u32, [x, w, y]: [View; 3]) {
        let eps = self.plan.shape.dimensions.eps;
        let spec = RmsNormShape { rows, cols, eps, threads: cost::norm_threads(cols) };
        let arguments = if (x.buffer, x.offset) == (y.buffer, y.offset) {
            vec![x.read_write("x"), w.read("w"), y.read_write("y")]
        } else {
            vec![x.read("x"), w.read("w"), y.write("y")]
        };
        self.launch(label, KernelSpec::RmsNorm(spec), arguments);
    }

    fn gemv(&mut self, label: &str, shape: GemvShape, [w, x, y]: [View; 3]) {
        self.launch(label, KernelSpec::Gemv(shape), vec![w.read("w"), x.read("x"), y.write("y")]);
    }

    fn residual_add(&mut self, label: &str, memory: &Memory) {
        let spec = ResidualAddShape { width: self.plan.shape.dimensions.hidden, threads: cost::ELEMENTWISE };
        let args = vec![memory.residual.read_write("x"), memory.projected.read("y")];
        self.launch(label, KernelSpec::ResidualAdd(spec), args);
    }

    fn embed(&mut self, memory: &Memory) -> View {
        let shape = &self.plan.shape;
        let (vocab, hidden, ty) = (shape.dimensions.vocab, shape.dimensions.hidden, shape.embedding);
        let name = "token_embd".to_owned();
        let (weights, _) = self.matrices(name.clone(), hidden, &[(name, ty, vocab, false)]);
        let spec = EmbedShape { ty, vocab, cols: hidden, threads: cost::ELEMENTWISE };
        let args = vec![
            weights.read("w"),
            memory.tokens.read("tokens"),
            memory.state.read("state"),
            memory.residual.write("x"),
        ];
        self.launch("embed", KernelSpec::Embed(spec), args);
        weights
    }

    fn attention_block(&mut self, layer: usize, types: &LayerTypes, memory: &Memory) {
        let shape = self.plan.shape.clone();
        let (d, arch) = (&shape.dimensions, &shape.architecture);
        let (q_width, kv_width) = (shape.q_width(), shape.kv_width());
        let name = |part: &str| format!("blk.{layer}.{part}");

        let w = self.vector(name("attn_norm.weight"), d.hidden);
        self.norm(&name("attn_norm"), 1, d.hidden, [memory.residual, w, memory.normed]);

        let members =
            [("attn_q", types.q, q_width), ("attn_k", types.k, kv_width), ("attn_v", types.v, kv_width)]
                .map(|(tensor, ty, rows)| (name(tensor), ty, rows, arch.qkv_bias));
        let (w, gemv) = self.matrices(name("attn_qkv"), d.hidden, &members);
        self.gemv(&name("attn_qkv"), gemv, [w, memory.normed, memory.qkv]);

        let q = memory.qkv.part(0, f32s(q_width));
        let k = memory.qkv.part(f32s(q_width), f32s(kv_width));
        let v = memory.qkv.part(f32s(q_width + kv_width), f32s(kv_width));
        if arch.qk_norm {
            for (part, heads, view) in [("attn_q_norm", d.heads, q), ("attn_k_norm", d.kv_heads, k)] {
                let w = self.vector(name(&format!("{part}.weight")), d.head_dim);
                self.norm(&name(part), heads, d.head_dim, [view, w, view]);
            }
        }

        let rope = RopeShape {
            heads: d.heads + d.kv_heads,
            head_dim: d.head_dim,
            rotated: d.rotated,
            kind: arch.rope,
            threads: cost::ELEMENTWISE,
        };
        let rotated = memory.qkv.part(0, f32s(q_width + kv_width));
        let args = vec![rotated.read_write("x"), memory.rope_table.read("table"), memory.state.read("state")];
        self.launch(name("rope"), KernelSpec::Rope(rope), args);

        let cache_bytes =
            u64::from(self.plan.params.batch) * u64::from(self.plan.params.context) * u64::from(kv_width) * 2;
        let keys = self.buffer(name("keys"), cache_bytes, BufferKind::KvCache);
        let values = self.buffer(name("values"), cache_bytes, BufferKind::KvCache);
        let append = KvAppendShape { width: kv_width, threads: cost::ELEMENTWISE };
        let args = vec![
            k.read("k"),
            v.read("v"),
            keys.write("keys"),
            values.write("values"),
            memory.state.read("state"),
        ];
        self.launch(name("kv_append"), KernelSpec::KvAppend(append), args);

        let attention = cost::attention(self.plan.target, d);
        let args = vec![
            q.read("q"),
            keys.read("keys"),
            values.read("values"),
            memory.partial.write("partial"),
            memory.state.read("state"),
        ];
        self.launch(name("attention"), KernelSpec::Attention(attention.clone()), args);
        let args =
            vec![memory.partial.read("partial"), memory.attended.write("y"), memory.state.read("state")];
        self.launch(name("attention_combine"), KernelSpec::AttentionCombine(attention), args);

        let members = [(name("attn_output"), types.output, d.hidden, false)];
        let (w, gemv) = self.matrices(name("attn_output"), q_width, &members);
        self.gemv(&name("attn_output"), gemv, [w, memory.attended, memory.projected]);
        self.residual_add(&name("attn_residual"), memory);
    }

    fn feed_forward_block(&mut self, layer: usize, types: &LayerTypes, memory: &Memory) {
        let (hidden, ffn) = (self.plan.shape.dimensions.hidden, self.plan.shape.dimensions.ffn);
        let name = |part: &str| format!("blk.{layer}.{part}");

        let w = self.vector(name("ffn_norm.weight"), hidden);
        self.norm(&name("ffn_norm"), 1, hidden, [memory.residual, w, memory.normed]);

        let members = [(name("ffn_gate"), types.gate, ffn, false), (name("ffn_up"), types.up, ffn, false)];
        let (w, gemv) = self.matrices(name("ffn_gate_up"), hidden, &members);
        self.gemv(&name("ffn_gate_up"), gemv, [w, memory.normed, memory.gate_up]);

        let swiglu = SwigluShape { width: ffn, threads: cost::ELEMENTWISE };
        let args = vec![memory.gate_up.read("x"), memory.activated.write("y")];
        self.launch(name("swiglu"), KernelSpec::Swiglu(swiglu), args);

        let (w, gemv) =
            self.matrices(name("ffn_down"), ffn, &[(name("ffn_down"), types.down, hidden, false)]);
        self.gemv(&name("ffn_down"), gemv, [w, memory.activated, memory.projected]);
        self.residual_add(&name("ffn_residual"), memory);
    }

    fn head(&mut self, embedding: View, memory: &Memory) {
        let shape = self.plan.shape.clone();
        let d = &shape.dimensions;
        let w = self.vector("output_norm.weight".into(), d.hidden);
        self.norm("output_norm", 1, d.hidden, [memory.residual, w, memory.normed]);

        let (w, gemv) = match shape.head {
            Some(ty) => self.matrices("output".into(), d.hidden, &[("output".into(), ty, d.vocab, false)]),
            // Tied: the embedding's rows are the output matrix, and its planes lie as a stack of one.
            None => {
                let segment = Segment { ty: shape.embedding, rows: d.vocab, bias: false };
                (embedding, cost::gemv(self.plan.target, d.hidden, vec![segment]))
            }
        };
        self.gemv("output", gemv, [w, memory.normed, memory.logits]);

        let argmax = cost::argmax(self.plan.target, d.vocab);
        let args = vec![
            memory.logits.read("logits"),
            memory.best_values.write("values"),
            memory.best_tokens.write("tokens"),
        ];
        self.launch("argmax", KernelSpec::Argmax(argmax.clone()), args);
        let args = vec![
            memory.best_values.read("values"),
            memory.best_tokens.read("tokens"),
            memory.tokens.read_write("sequence"),
            memory.finished.write("finished"),
            memory.state.read_write("state"),
        ];
        self.launch("choose", KernelSpec::ChooseGreedy(argmax), args);
    }
}
