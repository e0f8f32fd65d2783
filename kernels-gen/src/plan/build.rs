//! From a shape to buffers and launches.

use bespoke_codegen::ptx::Target;

use super::cost::Machine;
use super::sampling::{self, Ends};
use super::tuning::{Role, Rule, Tuning};
use super::weights::{Member, segments, stack};
use super::{
    Access, Argument, Buffer, BufferKind, Launch, Part, PartKind, Plan, PlanKernel, PlanParams, Sampling,
    cost,
};
use crate::kernels::attention::AttentionShape;
use crate::kernels::embed::EmbedShape;
use crate::kernels::gemv::{GemvShape, Input, Output, Schedule};
use crate::kernels::launching::Trigger;
use crate::kernels::state;
use crate::shape::{LayerTypes, ModelShape};
use crate::spec::{KernelSpec, matrix_name};

/// A view into a buffer of the plan being built.
#[derive(Clone, Copy)]
pub(super) struct View {
    buffer: usize,
    offset: u64,
    bytes: u64,
}

impl View {
    pub(super) fn read(self, param: &str) -> Argument {
        self.argument(param, Access::Read)
    }

    pub(super) fn write(self, param: &str) -> Argument {
        self.argument(param, Access::Write)
    }

    pub(super) fn read_write(self, param: &str) -> Argument {
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
    qkv: View,
    partial: View,
    counters: View,
    attended: View,
    activated: View,
    logits: View,
    best_values: View,
    best_tokens: View,
    rope_table: View,
    state: View,
    tokens: View,
    finished: View,
}

pub(super) struct Builder<'a> {
    pub(super) plan: Plan,
    machine: Machine,
    tuning: &'a Tuning,
}

pub(super) fn build(shape: &ModelShape, target: Target, params: PlanParams, tuning: &Tuning) -> Plan {
    let plan = Plan {
        shape: shape.clone(),
        target,
        params,
        buffers: Vec::new(),
        kernels: Vec::new(),
        launches: Vec::new(),
    };
    let mut builder = Builder { plan, machine: Machine::of(target), tuning };
    let memory = builder.memory();
    let embedding = builder.embed(&memory);
    for (layer, types) in shape.layers.iter().enumerate() {
        builder.attention_block(layer, types, &memory);
        builder.feed_forward_block(layer, types, &memory);
    }
    builder.head(embedding, &memory);
    builder.plan
}

pub(super) fn f32s(n: u32) -> u64 {
    u64::from(n) * 4
}

impl Builder<'_> {
    pub(super) fn buffer(&mut self, name: impl Into<String>, bytes: u64, kind: BufferKind) -> View {
        self.plan.buffers.push(Buffer { name: name.into(), bytes, kind });
        View { buffer: self.plan.buffers.len() - 1, offset: 0, bytes }
    }

    /// Adds a launch that waits for the one before.
    pub(super) fn launch(&mut self, label: impl Into<String>, spec: KernelSpec, args: Vec<Argument>) {
        let name = spec.name();
        let kernel = match self.plan.kernels.iter().position(|kernel| kernel.name == name) {
            Some(index) => index,
            None => {
                self.plan.kernels.push(PlanKernel { name, spec: spec.clone() });
                self.plan.kernels.len() - 1
            }
        };
        let geometry = spec.geometry();
        let first = self.plan.launches.is_empty();
        let after = self.plan.launches.len().checked_sub(1).into_iter().collect();
        self.plan.launches.push(Launch {
            label: label.into(),
            kernel,
            grid: geometry.grid,
            threads: geometry.threads,
            dynamic_shared: geometry.dynamic_shared,
            args,
            after,
            programmatic: self.machine.programmatic && !first && spec.may_start_early(),
        });
    }

    fn memory(&mut self) -> Memory {
        let shape = self.plan.shape.clone();
        let batch = u64::from(self.plan.params.batch);
        let d = &shape.dimensions;
        let attention = self.attention();
        // One for each CTA of the head.
        let candidates = self.divided(&Stack::head(&shape, &head_member(&shape))).schedule.grid;
        let mut activation =
            |name: &str, elements: u32| self.buffer(name, batch * f32s(elements), BufferKind::Activation);
        let qkv_width = shape.q_width() + 2 * shape.kv_width();
        let residual = activation("residual", d.hidden);
        let qkv = activation("qkv", qkv_width);
        let partial = activation("attention_partial", attention.workspace());
        let attended = activation("attended", shape.q_width());
        let activated = activation("activated", d.ffn);
        let logits = activation("logits", d.vocab);
        let best_values = activation("best_values", candidates);
        let best_tokens = activation("best_tokens", candidates);
        let positions = self.plan.params.context;
        Memory {
            residual,
            qkv,
            partial,
            counters: self.buffer(
                "attention_counters",
                batch * f32s(attention.counters()),
                BufferKind::Counters,
            ),
            attended,
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

    /// Divides a stack of matrices and places its weights.
    fn matrices(&mut self, stack_of: Stack<'_>) -> (View, GemvShape) {
        let shape = self.divided(&stack_of);
        let (parts, bytes) = stack(&shape, stack_of.members, stack_of.norm);
        (self.buffer(stack_of.name, bytes, BufferKind::Weights { parts }), shape)
    }

    fn divided(&self, stack: &Stack<'_>) -> GemvShape {
        let shape = GemvShape {
            cols: stack.cols,
            segments: segments(stack.members, stack.output == Output::Swiglu),
            bias: stack.bias,
            input: match stack.norm {
                Some(_) => Input::Normed { eps: self.plan.shape.dimensions.eps },
                None => Input::Plain,
            },
            output: stack.output,
            schedule: Schedule::MINIMAL,
        };
        let role = Role::of(&stack.name);
        // An embedding has none: it is placed, and no product of it divided.
        let rule = role.map(|role| self.tuning.rule(self.plan.target, role, Some(&matrix_name(&shape))));
        cost::gemv(&self.machine, shape, stack.trigger, &rule.unwrap_or_else(|| Rule::of(Role::Output)))
    }

    fn attention(&self) -> AttentionShape {
        let rule = self.tuning.rule(self.plan.target, Role::Attention, None);
        cost::attention(&self.machine, &self.plan.shape, &rule)
    }

    /// A GEMV over `x` to `y`.
    fn gemv(&mut self, stack: Stack<'_>, x: View, y: View) {
        let label = stack.name.clone();
        let residual = stack.output == Output::Residual;
        let (w, shape) = self.matrices(stack);
        let y = if residual { y.read_write("y") } else { y.write("y") };
        self.launch(label, KernelSpec::Gemv(shape), vec![w.read("w"), x.read("x"), y]);
    }

    fn embed(&mut self, memory: &Memory) -> View {
        let shape = &self.plan.shape;
        let (vocab, hidden, ty) = (shape.dimensions.vocab, shape.dimensions.hidden, shape.embedding);
        let members = [Member { tensor: "token_embd".into(), ty, rows: vocab }];
        // Where it is the output matrix as well, it lies as that one's stack does.
        let norm = shape.head.is_none().then(|| "output_norm.weight".to_owned());
        let (weights, _) =
            self.matrices(Stack { norm, ..Stack::plain("token_embd".into(), hidden, &members) });
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

        let members =
            [("attn_q", types.q, q_width), ("attn_k", types.k, kv_width), ("attn_v", types.v, kv_width)]
                .map(|(tensor, ty, rows)| Member { tensor: name(tensor), ty, rows });
        let stack = Stack {
            norm: Some(name("attn_norm.weight")),
            bias: arch.qkv_bias,
            // Attention reads the position, and earlier keys and values, before it waits.
            trigger: Trigger::AfterWait,
            ..Stack::plain(name("attn_qkv"), d.hidden, &members)
        };
        self.gemv(stack, memory.residual, memory.qkv);

        let attention = self.attention();
        let cache_bytes = u64::from(self.plan.params.batch) * attention.cache_bytes(self.plan.params.context);
        let keys = self.buffer(name("keys"), cache_bytes, BufferKind::KvCache);
        let values = self.buffer(name("values"), cache_bytes, BufferKind::KvCache);
        let mut args = vec![memory.qkv.read("qkv")];
        if arch.qk_norm {
            for (part, param) in [("attn_q_norm", "q_norm"), ("attn_k_norm", "k_norm")] {
                args.push(self.vector(name(&format!("{part}.weight")), d.head_dim).read(param));
            }
        }
        args.extend([
            memory.rope_table.read("rope_table"),
            keys.read_write("keys"),
            values.read_write("values"),
            memory.partial.read_write("partial"),
            memory.counters.read_write("counters"),
            memory.attended.write("y"),
            memory.state.read("state"),
        ]);
        self.launch(name("attention"), KernelSpec::Attention(attention), args);

        let members = [Member { tensor: name("attn_output"), ty: types.output, rows: d.hidden }];
        let stack =
            Stack { output: Output::Residual, ..Stack::plain(name("attn_output"), q_width, &members) };
        self.gemv(stack, memory.attended, memory.residual);
    }

    fn feed_forward_block(&mut self, layer: usize, types: &LayerTypes, memory: &Memory) {
        let (hidden, ffn) = (self.plan.shape.dimensions.hidden, self.plan.shape.dimensions.ffn);
        let name = |part: &str| format!("blk.{layer}.{part}");

        let members = [("ffn_gate", types.gate), ("ffn_up", types.up)].map(|(tensor, ty)| Member {
            tensor: name(tensor),
            ty,
            rows: ffn,
        });
        let stack = Stack {
            norm: Some(name("ffn_norm.weight")),
            output: Output::Swiglu,
            ..Stack::plain(name("ffn_gate_up"), hidden, &members)
        };
        self.gemv(stack, memory.residual, memory.activated);

        let members = [Member { tensor: name("ffn_down"), ty: types.down, rows: hidden }];
        let stack = Stack { output: Output::Residual, ..Stack::plain(name("ffn_down"), ffn, &members) };
        self.gemv(stack, memory.activated, memory.residual);
    }

    fn head(&mut self, embedding: View, memory: &Memory) {
        let shape = self.plan.shape.clone();
        let members = head_member(&shape);
        let sampled = self.plan.params.sampling == Sampling::Sampled;
        let mut stack = Stack::head(&shape, &members);
        if sampled {
            stack.output = Output::Store;
        }
        let (w, gemv) = match shape.head {
            Some(_) => self.matrices(stack),
            None => (embedding, self.divided(&stack)),
        };
        if sampled {
            let args = vec![w.read("w"), memory.residual.read("x"), memory.logits.write("y")];
            self.launch("output", KernelSpec::Gemv(gemv), args);
            let &Memory { logits, tokens, finished, state, .. } = memory;
            return sampling::launches(self, &Ends { logits, tokens, finished, state });
        }
        let choose = cost::choose(&gemv);
        let (values, best) = (memory.best_values, memory.best_tokens);
        let args = vec![
            w.read("w"),
            memory.residual.read("x"),
            memory.logits.write("y"),
            values.write("values"),
            best.write("rows"),
        ];
        self.launch("output", KernelSpec::Gemv(gemv), args);
        let args = vec![
            values.read("values"),
            best.read("tokens"),
            memory.tokens.read_write("sequence"),
            memory.finished.write("finished"),
            memory.state.read_write("state"),
        ];
        self.launch("choose", KernelSpec::ChooseGreedy(choose), args);
    }
}

/// The matrix of the head: the embedding's, where they are tied.
fn head_member(shape: &ModelShape) -> [Member; 1] {
    let (tensor, ty) = match shape.head {
        Some(ty) => ("output", ty),
        None => ("token_embd", shape.embedding),
    };
    [Member { tensor: tensor.to_owned(), ty, rows: shape.dimensions.vocab }]
}

/// A stack of matrices to be placed.
struct Stack<'a> {
    /// The buffer's name, and the launch's label.
    name: String,
    cols: u32,
    members: &'a [Member],
    /// The tensor of the norm's weights.
    norm: Option<String>,
    bias: bool,
    output: Output,
    trigger: Trigger,
}

impl<'a> Stack<'a> {
    fn plain(name: String, cols: u32, members: &'a [Member]) -> Stack<'a> {
        let (output, trigger) = (Output::Store, Trigger::AtStart);
        Stack { name, cols, members, norm: None, bias: false, output, trigger }
    }

    fn head(shape: &ModelShape, members: &'a [Member]) -> Stack<'a> {
        Stack {
            norm: Some("output_norm.weight".into()),
            output: Output::Argmax,
            ..Stack::plain("output".into(), shape.dimensions.hidden, members)
        }
    }
}
