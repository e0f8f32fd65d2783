//! Builds the buffers and launches of a plan.

mod attention;

use super::builder::{Builder, View, f32s};
use super::gpu::Gpu;
use super::sampling::{self, SharedBuffers};
use super::tuning::{Site, Tuning};
use super::weights::{segments, stack};
use super::{
    BufferKind, BufferName, LaunchLabel, LaunchRole, Part, PartForm, Plan, PlanParams, Sampling, StepKind,
    cost, prefill_cost,
};
use crate::kernels::attention::{AppendShape, AttentionShape, ROW_GROUP, SharesShape};
use crate::kernels::embed::EmbedShape;
use crate::kernels::gemm::GemmShape;
use crate::kernels::gemv::{Arithmetic, GemvShape, Input, Output, Schedule};
use crate::kernels::launching::Trigger;
use crate::kernels::norm_add::NormAddShape;
use crate::kernels::select_rows::SelectRowsShape;
use crate::kernels::state;
use crate::shape::tensors::{Tensor, TensorName};
use crate::shape::{Dimensions, FeedForward, Layer, Matrix, ModelShape, TensorSlice};
use crate::spec::{KernelSpec, matrix_name};
use crate::weights::WeightType;

/// Views of the activations, tables and state that the launches share.
struct Memory {
    residual: View,
    /// Residual stream of the prefill step before, in first-token steps.
    prompt_residual: Option<View>,
    qkv: View,
    partial: View,
    counters: View,
    /// Tables of shares of the CTAs of attention, where they are divided by the lengths of the rows' contexts: one for each
    /// shape.
    shares: Vec<(SharesShape, View)>,
    /// Prepared queries, in prefill steps.
    queries: Option<View>,
    attended: View,
    activated: View,
    logits: View,
    best_values: View,
    best_tokens: View,
    /// Output of a block before its norm, in models with norms after blocks.
    block_output: Option<View>,
    /// One for each of the shape's tables.
    rope_tables: Vec<View>,
    page_table: View,
    state: View,
    tokens: View,
    host_tokens: View,
}

pub(super) fn build(shape: &ModelShape, gpu: Gpu, params: PlanParams, tuning: &Tuning) -> Plan {
    let plan = Plan {
        shape: shape.clone(),
        gpu,
        params,
        buffers: Vec::new(),
        kernels: Vec::new(),
        launches: Vec::new(),
    };
    let mut builder = Builder { plan, tuning };
    let memory = builder.memory();
    builder.attention_shares(&memory);
    let kind = builder.plan.params.kind;
    let embedding = match kind {
        StepKind::FirstToken => builder.select_rows(&memory),
        _ => Some(builder.embed(&memory)),
    };
    for (index, Layer { attention, feed_forward }) in (0u32..).zip(&shape.layers).skip(builder.first_layer())
    {
        // A prefill step fills the cache, so it ends with the last layer's keys and values.
        let only_appends = kind == StepKind::Prefill && index + 1 == shape.dimensions.layers;
        builder.attention_block(index, attention, only_appends, &memory);
        if !only_appends {
            builder.feed_forward_block(index, feed_forward, &memory);
        }
    }
    if kind != StepKind::Prefill {
        builder.head(embedding, &memory);
    }
    builder.plan
}

impl Builder<'_> {
    /// Index of the first layer of the step.
    fn first_layer(&self) -> usize {
        match self.plan.params.kind {
            StepKind::FirstToken => self.plan.shape.layers.len() - 1,
            _ => 0,
        }
    }

    fn memory(&mut self) -> Memory {
        let shape = self.plan.shape.clone();
        let PlanParams { rows, outputs, slots, kind, .. } = self.plan.params;
        let d = &shape.dimensions;
        let layers = &shape.layers[self.first_layer()..];
        let attention: Vec<AttentionShape> =
            layers.iter().map(|layer| self.attention(&layer.attention)).collect();
        let most = |size: fn(&AttentionShape) -> u32| attention.iter().map(size).max().unwrap_or(0);
        // One candidate for each CTA of the head.
        let candidates = self.divided(&Stack::head(&shape, &head_member(&shape))).schedule.grid;
        let mut activation = |name: BufferName, rows: u32, elements: u32| {
            self.buffer(name, u64::from(rows) * f32s(elements), BufferKind::Activation)
        };
        let is_prefill = kind == StepKind::Prefill;
        let residual = if is_prefill { BufferName::PromptResidual } else { BufferName::Residual };
        let residual = activation(residual, rows, d.hidden);
        // The rows of a sequence begin at a multiple of `ROW_GROUP`; prefill steps may have more rows than these.
        let prompt_residual = (kind == StepKind::FirstToken)
            .then(|| activation(BufferName::PromptResidual, rows * ROW_GROUP, d.hidden));
        let qkv = activation(BufferName::Qkv, rows, d.q_width() + 2 * d.kv_width());
        let partial = activation(BufferName::AttentionPartial, 1, most(AttentionShape::workspace));
        let attended = activation(BufferName::Attended, rows, d.q_width());
        let activated = activation(BufferName::Activated, rows, d.ffn);
        let outputs = outputs.max(1);
        let logits = activation(BufferName::Logits, outputs, d.vocab);
        let best_values = activation(BufferName::BestValues, outputs, candidates);
        let best_tokens = activation(BufferName::BestTokens, outputs, candidates);
        let queries = is_prefill.then(|| {
            // Whole groups of 16 rows, two elements per word.
            let bytes = attention
                .iter()
                .map(|s| AppendShape::of(&AttentionShape { tokens: rows, ..s.clone() }, true).query_bytes());
            self.buffer(BufferName::Queries, bytes.max().unwrap_or(0), BufferKind::Activation)
        });
        let mut shares = Vec::new();
        for shape in attention.iter().filter_map(SharesShape::of) {
            if !shares.contains(&shape) {
                shares.push(shape);
            }
        }
        let has_post_norms = shape.layers.iter().any(|layer| layer.attention.norms.after.is_some());
        let block_output = has_post_norms.then(|| {
            let bytes = u64::from(rows) * f32s(d.hidden);
            self.buffer(BufferName::BlockOutput, bytes, BufferKind::Activation)
        });
        let counters = f32s(most(AttentionShape::counters));
        let pages = u64::from(slots) * f32s(self.plan.params.slot_pages());
        let tokens = u64::from(slots) * f32s(self.plan.params.slot_tokens());
        Memory {
            residual,
            prompt_residual,
            qkv,
            partial,
            counters: self.buffer(BufferName::AttentionCounters, counters, BufferKind::Counters),
            shares: self.share_tables(shares),
            queries,
            attended,
            activated,
            logits,
            best_values,
            best_tokens,
            block_output,
            rope_tables: (0..shape.ropes.len())
                .map(|table| {
                    let name = BufferName::rope_table(table);
                    self.buffer(name, f32s(d.rotated), BufferKind::RopeTable { table })
                })
                .collect(),
            page_table: self.buffer(BufferName::PageTable, pages, BufferKind::PageTable),
            state: self.buffer(
                if is_prefill { BufferName::PromptState } else { BufferName::State },
                u64::from(rows) * f32s(state::WORDS),
                BufferKind::State,
            ),
            tokens: self.buffer(BufferName::Tokens, tokens, BufferKind::Tokens),
            host_tokens: self.buffer(BufferName::HostTokens, tokens, BufferKind::HostTokens),
        }
    }

    fn vector(&mut self, tensor: TensorName, elements: u32) -> View {
        let tensor = tensor.to_string();
        let form = PartForm::Vector { elements };
        let parts = vec![Part { tensor: tensor.clone(), first_row: 0, offset: 0, form }];
        self.buffer(tensor, f32s(elements), BufferKind::Weights { parts })
    }

    /// Divides a stack of matrices among CTAs, and adds the buffer of its weights to the plan.
    fn matrices(&mut self, stack_of: Stack<'_>) -> (View, GemvShape) {
        let shape = self.divided(&stack_of);
        let (parts, bytes) = stack(&shape, stack_of.members, stack_of.norm);
        (self.buffer(stack_of.buffer, bytes, BufferKind::Weights { parts }), shape)
    }

    fn divided(&self, stack: &Stack<'_>) -> GemvShape {
        let PlanParams { rows, outputs, kind, arithmetic, .. } = self.plan.params;
        let tokens = match stack.label.role {
            LaunchRole::Output => outputs,
            // The embedding's stack only describes weights; it is not launched as a product.
            LaunchRole::Embed => 1,
            _ => rows,
        };
        let shape = GemvShape {
            tokens,
            cols: stack.cols,
            segments: segments(stack.members, matches!(stack.output, Output::Glu(_))),
            bias: stack.members.iter().any(|member| member.bias.is_some()),
            input: match stack.norm {
                Some(_) => Input::Normed { eps: self.plan.shape.dimensions.eps },
                None => Input::Plain,
            },
            output: stack.output,
            scale: stack.scale,
            softcap: stack.softcap,
            // The embedding's stack is not launched as a product, so it does not depend on the arithmetic.
            arithmetic: if rows > 1 && kind != StepKind::Prefill && stack.label.role != LaunchRole::Embed {
                arithmetic
            } else {
                Arithmetic::Integers
            },
            schedule: Schedule::MINIMAL,
        };
        if kind == StepKind::Prefill {
            return shape;
        }
        let (gpu, name) = (&self.plan.gpu, matrix_name(&shape));
        let (role, arithmetic) = (stack.label.role, shape.arithmetic);
        let rule = self.tuning.rule(&Site { gpu, role, shape: Some(&name), rows: tokens, arithmetic });
        cost::gemv(gpu, shape, stack.trigger, &rule)
    }

    /// Adds the launches of a product with inputs `x` and outputs `y`.
    fn product(&mut self, stack: Stack<'_>, x: View, y: View, memory: &Memory) {
        let label = stack.label;
        let residual = stack.output == Output::Residual;
        let (w, shape) = self.matrices(stack);
        let y = if residual { y.read_write("y") } else { y.write("y") };
        if self.plan.params.kind == StepKind::Prefill {
            let shape = prefill_cost::divide(&self.plan.gpu, shape);
            let x = self.convert(label.layer, w, x, &shape, memory);
            let args = vec![w.read("w"), x.read("x"), y, memory.state.read("state")];
            return self.launch(label, KernelSpec::Gemm(shape), args);
        }
        let x = self.prepare(label.layer, w, x, &shape);
        self.launch(label, KernelSpec::Gemv(shape), vec![w.read("w"), x.read("x"), y]);
    }

    /// Adds the launch that converts the inputs `x` of a product of many tokens. Returns the product's inputs.
    fn convert(
        &mut self,
        layer: Option<u32>,
        w: View,
        x: View,
        product: &GemmShape,
        memory: &Memory,
    ) -> View {
        let convert = product.convert();
        let prepared = self.prepared(convert.bytes());
        let mut args = vec![x.read("x")];
        if convert.eps.is_some() {
            args.push(norm_of(w, &product.product).read("norm"));
        }
        args.extend([prepared.write("y"), memory.state.read("state")]);
        self.launch(LaunchLabel { layer, role: LaunchRole::Prepare }, KernelSpec::Convert(convert), args);
        prepared
    }

    /// The buffer of prepared inputs, which serves all products, with at least `bytes` bytes.
    fn prepared(&mut self, bytes: u64) -> View {
        let buffer = match self.plan.buffer(BufferName::Prepared) {
            Some(buffer) => buffer,
            None => self.buffer(BufferName::Prepared, 0, BufferKind::Activation).buffer,
        };
        let size = &mut self.plan.buffers[buffer].bytes;
        *size = bytes.max(*size);
        View { buffer, offset: 0, bytes }
    }

    /// Adds the launch that prepares the inputs `x` of a product with the weights `w`, if the product needs one and `x` is not in
    /// the buffer of prepared inputs already. Returns the product's inputs.
    fn prepare(&mut self, layer: Option<u32>, w: View, x: View, shape: &GemvShape) -> View {
        let Some(prepare) = shape.prepare() else { return x };
        if self.plan.buffer(BufferName::Prepared) == Some(x.buffer) {
            return x;
        }
        let prepared = self.prepared(prepare.bytes());
        let mut args = vec![View { bytes: u64::from(shape.tokens) * f32s(shape.cols), ..x }.read("x")];
        if prepare.normed {
            args.push(norm_of(w, shape).read("norm"));
        }
        args.push(prepared.write("y"));
        self.launch(LaunchLabel { layer, role: LaunchRole::Prepare }, KernelSpec::Prepare(prepare), args);
        prepared
    }

    /// Adds the buffer of the embedding.
    fn embedding(&mut self) -> View {
        let shape = &self.plan.shape;
        let (vocab, hidden, ty) = (shape.dimensions.vocab, shape.dimensions.hidden, shape.embedding);
        let members = [model_matrix(Tensor::TokenEmbd, vocab, ty)];
        // An embedding that serves as the output matrix has the layout of the head's stack.
        let norm = shape.head.is_none().then(|| Tensor::OutputNorm.of_model());
        let stack = Stack::plain(LaunchRole::Embed.into(), hidden, &members);
        self.matrices(Stack { norm, buffer: "token_embd".into(), ..stack }).0
    }

    /// Adds the launch that loads the tokens' rows of the embedding. Returns the embedding.
    fn embed(&mut self, memory: &Memory) -> View {
        let weights = self.embedding();
        let shape = &self.plan.shape;
        let (vocab, hidden, ty) = (shape.dimensions.vocab, shape.dimensions.hidden, shape.embedding);
        let scale = shape.multipliers.embedding;
        let tokens = self.plan.params.rows;
        let spec = EmbedShape { tokens, ty, vocab, cols: hidden, scale, threads: cost::ELEMENTWISE };
        let args = vec![
            weights.read("w"),
            memory.tokens.read("tokens"),
            memory.state.read("state"),
            memory.residual.write("x"),
        ];
        self.launch(LaunchRole::Embed, KernelSpec::Embed(spec), args);
        weights
    }

    /// Adds the launch that selects rows of the prefill step before. Returns the embedding, if it serves as the output matrix.
    fn select_rows(&mut self, memory: &Memory) -> Option<View> {
        let embedding = self.plan.shape.head.is_none().then(|| self.embedding());
        let (tokens, cols) = (self.plan.params.rows, self.plan.shape.dimensions.hidden);
        let spec = SelectRowsShape { tokens, cols, threads: cost::ELEMENTWISE };
        let source = memory.prompt_residual.expect("first-token steps have this buffer");
        let args = vec![source.read("x"), memory.state.read("state"), memory.residual.write("y")];
        self.launch(LaunchRole::SelectRows, KernelSpec::SelectRows(spec), args);
        embedding
    }

    fn feed_forward_block(&mut self, layer: u32, facts: &FeedForward, memory: &Memory) {
        let (hidden, ffn) = (self.plan.shape.dimensions.hidden, self.plan.shape.dimensions.ffn);
        let label = |role| LaunchLabel { layer: Some(layer), role };
        let FeedForward::Dense { norms, activation, gate, up, down } = facts;

        let members = [*gate, *up];
        let stack = Stack {
            norm: norms.before,
            output: Output::Glu(*activation),
            ..Stack::plain(label(LaunchRole::FfnGateUp), hidden, &members)
        };
        self.product(stack, memory.residual, memory.activated, memory);

        let members = [*down];
        let after = norms.after.map(|norm| (LaunchRole::FfnPostNorm, norm));
        let stack = Stack::plain(label(LaunchRole::FfnDown), ffn, &members);
        let stack = self.end_of_block(stack, after.is_some());
        self.end_block(stack, after, memory.activated, memory);
    }

    /// The last product of a block. Its outputs are added to the residual stream, unless there is a norm after the block.
    fn end_of_block<'a>(&self, stack: Stack<'a>, has_norm_after: bool) -> Stack<'a> {
        if has_norm_after {
            return stack;
        }
        Stack { output: Output::Residual, scale: self.plan.shape.multipliers.residual, ..stack }
    }

    /// Adds the last product of a block ([`Builder::end_of_block`]) and, with a norm after the block, a launch that adds the
    /// normalised outputs to the residual stream.
    fn end_block(
        &mut self,
        stack: Stack<'_>,
        after: Option<(LaunchRole, TensorName)>,
        x: View,
        memory: &Memory,
    ) {
        let Some((role, norm)) = after else {
            return self.product(stack, x, memory.residual, memory);
        };
        let label = LaunchLabel { role, ..stack.label };
        let output = memory.block_output.expect("models with norms after blocks have this buffer");
        self.product(stack, x, output, memory);
        let Dimensions { hidden, eps, .. } = self.plan.shape.dimensions;
        let only_existing = self.plan.params.kind == StepKind::Prefill;
        let scale = self.plan.shape.multipliers.residual;
        let shape = NormAddShape::new(self.plan.params.rows, hidden, eps, scale);
        let spec = NormAddShape { only_existing, ..shape };
        let weights = self.vector(norm, hidden);
        let mut args = vec![output.read("x"), weights.read("w"), memory.residual.read_write("y")];
        args.extend(only_existing.then(|| memory.state.read("state")));
        self.launch(label, KernelSpec::NormAdd(spec), args);
    }

    /// Adds the launches of the LM head and of the choice. `embedding` serves as the output matrix of models without one.
    fn head(&mut self, embedding: Option<View>, memory: &Memory) {
        let shape = self.plan.shape.clone();
        let members = head_member(&shape);
        let sampled = self.plan.params.sampling == Sampling::Sampled;
        let mut stack = Stack::head(&shape, &members);
        if sampled {
            stack.output = Output::Store;
        }
        let (w, gemv) = match embedding.filter(|_| shape.head.is_none()) {
            None => self.matrices(stack),
            Some(embedding) => (embedding, self.divided(&stack)),
        };
        let bytes = u64::from(self.plan.params.outputs) * f32s(gemv.cols);
        let x = self.prepare(None, w, View { bytes, ..memory.residual }, &gemv);
        if sampled {
            let args = vec![w.read("w"), x.read("x"), memory.logits.write("y")];
            self.launch(LaunchRole::Output, KernelSpec::Gemv(gemv), args);
            let &Memory { logits, tokens, host_tokens, state, .. } = memory;
            return sampling::launches(self, &SharedBuffers { logits, tokens, host_tokens, state });
        }
        let choose = cost::choose(&gemv);
        let (values, best) = (memory.best_values, memory.best_tokens);
        let args = vec![
            w.read("w"),
            x.read("x"),
            memory.logits.write("y"),
            values.write("values"),
            best.write("rows"),
        ];
        self.launch(LaunchRole::Output, KernelSpec::Gemv(gemv), args);
        let args = vec![
            values.read("values"),
            best.read("tokens"),
            memory.tokens.read_write("sequence"),
            memory.host_tokens.write("finished"),
            memory.state.read_write("state"),
        ];
        self.launch(LaunchRole::Choose, KernelSpec::ChooseGreedy(choose), args);
    }
}

/// The norm's weights in the stack `w`.
fn norm_of(w: View, shape: &GemvShape) -> View {
    View { offset: w.offset + shape.offsets().norm, bytes: f32s(shape.cols), ..w }
}

/// The matrix of the head: the embedding, if it serves as the output matrix.
fn head_member(shape: &ModelShape) -> [Matrix; 1] {
    let (tensor, ty) = match shape.head {
        Some(ty) => (Tensor::Output, ty),
        None => (Tensor::TokenEmbd, shape.embedding),
    };
    [model_matrix(tensor, shape.dimensions.vocab, ty)]
}

/// A whole tensor of the model as a matrix without a bias.
fn model_matrix(tensor: Tensor, rows: u32, ty: WeightType) -> Matrix {
    Matrix { slice: TensorSlice { tensor: tensor.of_model(), first_row: 0, rows }, ty, bias: None }
}

/// A stack of matrices that are multiplied with the same input vector.
struct Stack<'a> {
    label: LaunchLabel,
    /// Name of the weight buffer.
    buffer: String,
    cols: u32,
    members: &'a [Matrix],
    /// Weights of the norm before the product.
    norm: Option<TensorName>,
    output: Output,
    /// Factor of the product.
    scale: f32,
    /// Soft cap of the product.
    softcap: Option<f32>,
    trigger: Trigger,
}

impl<'a> Stack<'a> {
    fn plain(label: LaunchLabel, cols: u32, members: &'a [Matrix]) -> Stack<'a> {
        let (output, trigger) = (Output::Store, Trigger::AtStart);
        let buffer = label.to_string();
        Stack { label, buffer, cols, members, norm: None, output, scale: 1.0, softcap: None, trigger }
    }

    fn head(shape: &ModelShape, members: &'a [Matrix]) -> Stack<'a> {
        Stack {
            norm: Some(Tensor::OutputNorm.of_model()),
            output: Output::Argmax,
            scale: shape.multipliers.logits,
            softcap: shape.multipliers.softcap,
            ..Stack::plain(LaunchRole::Output.into(), shape.dimensions.hidden, members)
        }
    }
}
