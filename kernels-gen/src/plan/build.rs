//! Builds the buffers and launches of a plan.

mod attention;
mod memory;
mod stack;

use self::memory::Memory;
use self::stack::{EMBEDDING, Stack, model_matrix};
use super::builder::{Builder, View, f32s};
use super::gpu::Gpu;
use super::sampling::{self, SharedBuffers};
use super::tuning::{Site, Tuning};
use super::weights::{segments, stack};
use super::{
    Argument, BufferKind, BufferName, LaunchLabel, LaunchRole, Part, PartForm, Plan, PlanParams, Sampling,
    StepKind, cost, prefill_cost,
};
use crate::kernels::embed::EmbedShape;
use crate::kernels::gemm::GemmShape;
use crate::kernels::gemv::tokens::NextInputs;
use crate::kernels::gemv::{Arithmetic, GemvShape, Input, Output, Schedule};
use crate::kernels::norm_add::NormAddShape;
use crate::kernels::select_rows::SelectRowsShape;
use crate::shape::description::Norms;
use crate::shape::tensors::{Tensor, TensorName};
use crate::shape::{Dimensions, FeedForward, Layer, ModelShape};
use crate::spec::{KernelSpec, matrix_name};

pub(super) fn build(shape: &ModelShape, gpu: Gpu, params: PlanParams, tuning: &Tuning) -> Plan {
    let plan = Plan {
        shape: shape.clone(),
        gpu,
        params,
        buffers: Vec::new(),
        kernels: Vec::new(),
        launches: Vec::new(),
    };
    let mut builder = Builder { plan, tuning, divided: Vec::new() };
    let memory = builder.memory();
    builder.attention_shares(&memory);
    let kind = builder.plan.params.kind;
    match kind {
        StepKind::FirstToken => builder.select_rows(&memory),
        _ => builder.embed(&memory),
    }
    let layers: Vec<(u32, &Layer)> = (0u32..).zip(&shape.layers).skip(builder.first_layer()).collect();
    // The product that reads the residual stream next, and its inputs: the residual stream, or what the product before made of it.
    let mut stack = Stack::qkv(layers[0].0, &layers[0].1.attention, shape);
    let mut x = memory.residual;
    for (place, &(index, Layer { attention, feed_forward })) in layers.iter().enumerate() {
        let gate_up = Stack::gate_up(index, feed_forward, shape).may_receive(passes_on(&attention.norms));
        let next = match layers.get(place + 1) {
            Some((index, layer)) => Stack::qkv(*index, &layer.attention, shape),
            None => builder.head_stack(),
        };
        let FeedForward::Dense { norms, .. } = feed_forward;
        let next = next.may_receive(passes_on(norms));
        // A prefill step fills the cache, so it ends with the last layer's keys and values.
        let only_appends = kind == StepKind::Prefill && index + 1 == shape.dimensions.layers;
        x = builder.attention_block(index, attention, only_appends, [stack, gate_up.clone()], x, &memory);
        if only_appends {
            return builder.plan;
        }
        x = builder.feed_forward_block(index, feed_forward, [gate_up, next.clone()], x, &memory);
        stack = next;
    }
    builder.head(stack, x, &memory);
    builder.plan
}

/// Whether the last product of a block may write the inputs of the next one: its outputs are not normalised, and it scales them by the
/// factors of the norm before the block.
fn passes_on(norms: &Norms) -> bool {
    norms.before.is_some() && norms.after.is_none()
}

impl Builder<'_> {
    /// Index of the first layer of the step.
    fn first_layer(&self) -> usize {
        match self.plan.params.kind {
            StepKind::FirstToken => self.plan.shape.layers.len() - 1,
            _ => 0,
        }
    }

    fn vector(&mut self, tensor: TensorName, elements: u32) -> View {
        let tensor = tensor.to_string();
        let form = PartForm::Vector { elements };
        let parts = vec![Part { tensor: tensor.clone(), first_row: 0, offset: 0, form }];
        self.buffer(tensor, f32s(elements), BufferKind::Weights { parts })
    }

    /// Divides a stack of matrices among CTAs, and adds the buffer of its weights to the plan, if it is not there.
    fn matrices(&mut self, stack_of: &Stack) -> (View, GemvShape) {
        let shape = self.divided(stack_of);
        if let Some(buffer) = self.plan.buffers.iter().position(|buffer| buffer.name == stack_of.buffer) {
            let bytes = self.plan.buffers[buffer].bytes;
            return (View { buffer, offset: 0, bytes }, shape);
        }
        let (parts, bytes) = stack(&shape, &stack_of.members, stack_of.norm);
        (self.buffer(stack_of.buffer.clone(), bytes, BufferKind::Weights { parts }), shape)
    }

    /// The product of a stack, before it is divided.
    fn undivided(&self, stack: &Stack) -> GemvShape {
        let PlanParams { rows, outputs, kind, arithmetic, .. } = self.plan.params;
        let tokens = match stack.label.role {
            LaunchRole::Output => outputs,
            // The embedding's stack only describes weights; it is not launched as a product.
            LaunchRole::Embed => 1,
            _ => rows,
        };
        GemvShape {
            tokens,
            cols: stack.cols,
            segments: segments(&stack.members, matches!(stack.output, Output::Glu(_))),
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
            received: false,
            next: None,
            stores_factors: stack.stores_factors,
            schedule: Schedule::MINIMAL,
        }
    }

    fn divided(&mut self, stack: &Stack) -> GemvShape {
        let shape = self.undivided(stack);
        if self.plan.params.kind == StepKind::Prefill {
            return shape;
        }
        let key = (GemvShape { received: self.receives(stack), ..shape }, stack.label.role, stack.trigger);
        if let Some((_, divided)) = self.divided.iter().find(|(other, _)| *other == key) {
            return divided.clone();
        }
        let (shape, role, trigger) = key.clone();
        let (gpu, name, arithmetic) = (&self.plan.gpu, matrix_name(&shape), shape.arithmetic);
        let site = Site { gpu, role, shape: Some(&name), rows: shape.tokens, arithmetic };
        let rule = self.tuning.rule(&site);
        let divided = cost::gemv(gpu, shape, trigger, &rule);
        self.divided.push((key, divided.clone()));
        divided
    }

    /// Whether the product before writes the inputs of a stack in the order in which the stack's product reads them. It can if it adds
    /// to the residual stream and the stack has a norm, or if the stack is down, without a norm.
    fn receives(&self, stack: &Stack) -> bool {
        let is_possible = stack.norm.is_some() != (stack.label.role == LaunchRole::FfnDown);
        stack.may_receive && is_possible && NextInputs::are_supported(&self.undivided(stack))
    }

    /// Adds the launches of a product with inputs `x` and outputs `y`, which `next` reads. Returns the inputs of `next`: `y`, or what
    /// the product made of it.
    fn product(&mut self, stack: &Stack, x: View, y: View, next: Option<&Stack>, memory: &Memory) -> View {
        let label = stack.label;
        let is_residual = stack.output == Output::Residual;
        let (w, shape) = self.matrices(stack);
        let outputs = if is_residual { y.read_write("y") } else { y.write("y") };
        if self.plan.params.kind == StepKind::Prefill {
            let shape = prefill_cost::divide(&self.plan.gpu, shape);
            let x = self.convert(label.layer, w, x, &shape, memory);
            let args = vec![w.read("w"), x.read("x"), outputs, memory.state.read("state")];
            self.launch(label, KernelSpec::Gemm(shape), args);
            return y;
        }
        let x = self.prepare(stack, w, x, &shape);
        let mut args = vec![w.read("w"), x.read("x")];
        let Some(next) = next.filter(|next| self.receives(next)) else {
            args.push(outputs);
            args.extend(norm_arguments(label.role, &shape, memory));
            self.launch(label, KernelSpec::Gemv(shape), args);
            return y;
        };
        let (next_w, next_shape) = self.matrices(next);
        let inputs = NextInputs::between(&shape, &next_shape)
            .expect("the outputs of a product are the inputs of the next one");
        let shape = GemvShape { next: Some(inputs), ..shape };
        args.extend(shape.stores_outputs().then_some(outputs));
        args.extend(norm_arguments(label.role, &shape, memory));
        if let Some(norms) = memory.norms.filter(|_| inputs.normed) {
            let squares = norms.squares(next.label.role).read_write("next_squares");
            let norm = norm_of(next_w, &next_shape).read("next_norm");
            args.extend([norms.factors.read("factors"), norm, squares]);
        }
        // Not the buffer from which this product reads its own inputs.
        let name = match self.plan.buffer(BufferName::Prepared) {
            Some(prepared) if prepared == x.buffer => BufferName::SecondPrepared,
            _ => BufferName::Prepared,
        };
        let next_inputs = self.prepared(name, inputs.bytes());
        args.push(next_inputs.write("next_inputs"));
        self.launch(label, KernelSpec::Gemv(shape), args);
        next_inputs
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
        let prepared = self.prepared(BufferName::Prepared, convert.bytes());
        let mut args = vec![x.read("x")];
        if convert.eps.is_some() {
            args.push(norm_of(w, &product.product).read("norm"));
        }
        args.extend([prepared.write("y"), memory.state.read("state")]);
        self.launch(LaunchLabel { layer, role: LaunchRole::Prepare }, KernelSpec::Convert(convert), args);
        prepared
    }

    /// One of the two buffers of prepared inputs, which serve all products, with at least `bytes` bytes.
    fn prepared(&mut self, name: BufferName, bytes: u64) -> View {
        let buffer = match self.plan.buffer(name) {
            Some(buffer) => buffer,
            None => self.buffer(name, 0, BufferKind::Activation).buffer,
        };
        let size = &mut self.plan.buffers[buffer].bytes;
        *size = bytes.max(*size);
        View { buffer, offset: 0, bytes }
    }

    /// Adds the launch that prepares the inputs `x` of the product of `stack` with the weights `w`, if the product needs one and
    /// an earlier launch has not prepared them. Returns the product's inputs.
    fn prepare(&mut self, stack: &Stack, w: View, x: View, shape: &GemvShape) -> View {
        let Some(prepare) = shape.prepare() else { return x };
        let buffers = [BufferName::Prepared, BufferName::SecondPrepared];
        if buffers.iter().any(|&name| self.plan.buffer(name) == Some(x.buffer)) {
            return x;
        }
        let prepared = self.prepared(BufferName::Prepared, prepare.bytes());
        let mut args = vec![View { bytes: u64::from(shape.tokens) * f32s(shape.cols), ..x }.read("x")];
        if prepare.normed {
            args.push(norm_of(w, shape).read("norm"));
        }
        args.push(prepared.write("y"));
        let label = LaunchLabel { layer: stack.label.layer, role: LaunchRole::Prepare };
        self.launch(label, KernelSpec::Prepare(prepare), args);
        prepared
    }

    /// Adds the buffer of the embedding.
    fn embedding(&mut self) -> View {
        let shape = &self.plan.shape;
        let (vocab, hidden, ty) = (shape.dimensions.vocab, shape.dimensions.hidden, shape.embedding);
        let members = vec![model_matrix(Tensor::TokenEmbd, vocab, ty)];
        // An embedding that serves as the output matrix has the layout of the head's stack.
        let norm = shape.head.is_none().then(|| Tensor::OutputNorm.of_model());
        let stack = Stack::plain(LaunchRole::Embed.into(), hidden, members);
        self.matrices(&Stack { norm, buffer: EMBEDDING.into(), ..stack }).0
    }

    /// Adds the launch that loads the tokens' rows of the embedding.
    fn embed(&mut self, memory: &Memory) {
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
    }

    /// Adds the launch that selects rows of the prefill step before.
    fn select_rows(&mut self, memory: &Memory) {
        if self.plan.shape.head.is_none() {
            self.embedding();
        }
        let (tokens, cols) = (self.plan.params.rows, self.plan.shape.dimensions.hidden);
        let spec = SelectRowsShape { tokens, cols, threads: cost::ELEMENTWISE };
        let source = memory.prompt_residual.expect("first-token steps have this buffer");
        let args = vec![source.read("x"), memory.state.read("state"), memory.residual.write("y")];
        self.launch(LaunchRole::SelectRows, KernelSpec::SelectRows(spec), args);
    }

    /// Adds the launches of a layer's feed-forward network: of the stack of gate and up, with inputs `x`, and of down, whose outputs
    /// `next` reads. Returns the inputs of `next`.
    fn feed_forward_block(
        &mut self,
        layer: u32,
        facts: &FeedForward,
        [gate_up, next]: [Stack; 2],
        x: View,
        memory: &Memory,
    ) -> View {
        let FeedForward::Dense { norms, down, .. } = facts;
        let label = LaunchLabel { layer: Some(layer), role: LaunchRole::FfnDown };
        let after = norms.after.map(|norm| (LaunchRole::FfnPostNorm, norm));
        let down = Stack::plain(label, self.plan.shape.dimensions.ffn, vec![*down]).may_receive(true);
        let down = self.end_of_block(down, after.is_some());
        let gate_up = Stack { stores_factors: self.receives(&next), ..gate_up };
        let x = self.product(&gate_up, x, memory.activated, Some(&down), memory);
        self.end_block(&down, after, x, &next, memory)
    }

    /// The last product of a block. Its outputs are added to the residual stream, unless there is a norm after the block.
    fn end_of_block(&self, stack: Stack, has_norm_after: bool) -> Stack {
        if has_norm_after {
            return stack;
        }
        Stack { output: Output::Residual, scale: self.plan.shape.multipliers.residual, ..stack }
    }

    /// Adds the last product of a block ([`Builder::end_of_block`]) and, with a norm after the block, a launch that adds the
    /// normalised outputs to the residual stream, which `next` reads. Returns the inputs of `next`.
    fn end_block(
        &mut self,
        stack: &Stack,
        after: Option<(LaunchRole, TensorName)>,
        x: View,
        next: &Stack,
        memory: &Memory,
    ) -> View {
        let Some((role, norm)) = after else {
            return self.product(stack, x, memory.residual, Some(next), memory);
        };
        let label = LaunchLabel { role, ..stack.label };
        let output = memory.block_output.expect("models with norms after blocks have this buffer");
        self.product(stack, x, output, None, memory);
        let Dimensions { hidden, eps, .. } = self.plan.shape.dimensions;
        let only_existing = self.plan.params.kind == StepKind::Prefill;
        let scale = self.plan.shape.multipliers.residual;
        let shape = NormAddShape::new(self.plan.params.rows, hidden, eps, scale);
        let spec = NormAddShape { only_existing, ..shape };
        let weights = self.vector(norm, hidden);
        let mut args = vec![output.read("x"), weights.read("w"), memory.residual.read_write("y")];
        args.extend(only_existing.then(|| memory.state.read("state")));
        self.launch(label, KernelSpec::NormAdd(spec), args);
        memory.residual
    }

    /// The stack of the LM head.
    fn head_stack(&self) -> Stack {
        let stack = Stack::head(&self.plan.shape);
        match self.plan.params.sampling {
            Sampling::Sampled => Stack { output: Output::Store, ..stack },
            Sampling::Greedy => stack,
        }
    }

    /// Adds the launches of the LM head, with inputs `x`, and of the choice.
    fn head(&mut self, stack: Stack, x: View, memory: &Memory) {
        let (w, gemv) = self.matrices(&stack);
        let x = self.prepare(&stack, w, x, &gemv);
        if stack.output == Output::Store {
            let mut args = vec![w.read("w"), x.read("x"), memory.logits.write("y")];
            args.extend(norm_arguments(LaunchRole::Output, &gemv, memory));
            self.launch(LaunchRole::Output, KernelSpec::Gemv(gemv), args);
            let &Memory { logits, tokens, host_tokens, state, .. } = memory;
            return sampling::launches(self, &SharedBuffers { logits, tokens, host_tokens, state });
        }
        let choose = cost::choose(&gemv);
        // Of each token, one candidate for each CTA of the head.
        let bytes = u64::from(gemv.tokens) * f32s(choose.candidates);
        let mut candidates = |name: BufferName| self.buffer(name, bytes, BufferKind::Activation);
        let [values, best] = [BufferName::BestValues, BufferName::BestTokens].map(&mut candidates);
        let mut args = vec![
            w.read("w"),
            x.read("x"),
            memory.logits.write("y"),
            values.write("values"),
            best.write("rows"),
        ];
        args.extend(norm_arguments(LaunchRole::Output, &gemv, memory));
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

/// Arguments of a product of f16 for its own norm.
fn norm_arguments(role: LaunchRole, shape: &GemvShape, memory: &Memory) -> Vec<Argument> {
    let Some(norms) = memory.norms.filter(|_| shape.normed()) else { return Vec::new() };
    let mut args = Vec::new();
    args.extend(shape.received.then(|| norms.squares(role).read("squares")));
    if shape.stores_factors {
        args.extend([norms.factors.write("factors"), norms.next_squares(role).write("next_squares")]);
    }
    args
}

/// The norm's weights in the stack `w`.
fn norm_of(w: View, shape: &GemvShape) -> View {
    View { offset: w.offset + shape.offsets().norm, bytes: f32s(shape.cols), ..w }
}
