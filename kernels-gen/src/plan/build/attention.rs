//! Launches of attention: the products around it, the append to the cache, and the division of the rows among CTAs.

use super::memory::Memory;
use super::stack::Stack;
use crate::kernels::attention::{AppendShape, AttentionShape, PAGE, SharesShape};
use crate::plan::builder::{Builder, View};
use crate::plan::{Argument, BufferKind, BufferName, LaunchLabel, LaunchRole, Site, StepKind, cost};
use crate::shape::Attention;
use crate::spec::KernelSpec;

/// Views of a layer's cache.
struct Cache {
    keys: View,
    values: View,
    page_table: View,
}

impl Cache {
    /// Arguments of a launch that appends to the cache.
    fn read_write(&self) -> [Argument; 3] {
        [self.keys.read_write("keys"), self.values.read_write("values"), self.page_table.read("page_table")]
    }

    /// Arguments of a launch that only reads the cache.
    fn read(&self) -> [Argument; 3] {
        [self.keys.read("keys"), self.values.read("values"), self.page_table.read("page_table")]
    }
}

impl Builder<'_> {
    /// Shape of attention in a decode, verify or first-token step; in a prefill step that of a step of one row, from which
    /// [`Builder::attend_to_prompt`] derives its shape.
    pub(super) fn attention(&self, layer: &Attention) -> AttentionShape {
        let rows = match self.plan.params.kind {
            StepKind::Decode | StepKind::Verify | StepKind::FirstToken => self.plan.params.rows,
            StepKind::Prefill => 1,
        };
        let (gpu, arithmetic) = (&self.plan.gpu, self.plan.params.arithmetic);
        let site = Site { gpu, role: LaunchRole::Attention, shape: None, rows, arithmetic };
        let rule = self.tuning.rule(&site);
        cost::attention(gpu, &self.plan.shape, layer, self.plan.params.kv, rows, &rule)
    }

    /// Adds the launches of a layer's attention and of the products around it: of the stack of QKV, with inputs `x`, and of the output,
    /// which `next` reads; with `only_appends`, those up to the append to the cache. Returns the inputs of `next`.
    pub(super) fn attention_block(
        &mut self,
        layer: u32,
        facts: &Attention,
        only_appends: bool,
        [qkv, next]: [Stack; 2],
        x: View,
        memory: &Memory,
    ) -> View {
        let d = self.plan.shape.dimensions.clone();
        let label = |role| LaunchLabel { layer: Some(layer), role };

        let after = facts.norms.after.map(|norm| (LaunchRole::AttnPostNorm, norm));
        let qkv = Stack { stores_factors: self.receives(&next), ..qkv };
        self.product(&qkv, x, memory.qkv, None, memory);

        let output = Stack::plain(label(LaunchRole::AttnOutput), d.q_width(), vec![facts.output]);
        let output = self.end_of_block(output, after.is_some());

        let attention = self.attention(facts);
        let cache_bytes = attention.cache_bytes(self.plan.params.pages * PAGE);
        let keys = self.buffer(format!("blk.{layer}.keys"), cache_bytes, BufferKind::KvCache);
        let values = self.buffer(format!("blk.{layer}.values"), cache_bytes, BufferKind::KvCache);
        let norms = facts.qk_norm.zip(attention.norm_widths());
        let norms = norms.map(|(norm, [q, k])| [self.vector(norm.q, q), self.vector(norm.k, k)]);
        let mut inputs = vec![memory.qkv.read("qkv")];
        if let Some([q, k]) = norms {
            inputs.extend([q.read("q_norm"), k.read("k_norm")]);
        }
        inputs.extend(facts.rope.map(|table| memory.rope_tables[table].read("rope_table")));
        let cache = Cache { keys, values, page_table: memory.page_table };
        let attended = match self.plan.params.kind {
            StepKind::Prefill => {
                self.attend_to_prompt(layer, attention, inputs, &cache, only_appends, memory)
            }
            StepKind::Decode | StepKind::Verify | StepKind::FirstToken => {
                Some(self.attend(layer, attention, inputs, &cache, &output, memory))
            }
        };
        match attended {
            Some(attended) => self.end_block(&output, after, attended, &next, memory),
            None => memory.residual,
        }
    }

    /// Adds the launches of attention in a prefill step, with `inputs` as the first arguments; with `only_appends`, the append to
    /// the cache alone. Returns attention's output.
    fn attend_to_prompt(
        &mut self,
        layer: u32,
        attention: AttentionShape,
        mut inputs: Vec<Argument>,
        cache: &Cache,
        only_appends: bool,
        memory: &Memory,
    ) -> Option<View> {
        let label = |role| LaunchLabel { layer: Some(layer), role };
        let queries = memory.queries.expect("prefill steps have this buffer");
        let chunk = cost::chunk(&self.plan.gpu, attention, self.plan.params.rows);
        let append = KernelSpec::Append(AppendShape::of(&chunk.attention, true));
        let state = memory.state.read("state");
        inputs.push(queries.write("queries"));
        inputs.extend(cache.read_write().into_iter().chain([state.clone()]));
        self.launch(label(LaunchRole::Append), append, inputs);
        if only_appends {
            return None;
        }
        let mut args = vec![queries.read("queries")];
        args.extend(cache.read().into_iter().chain([memory.attended.write("y"), state]));
        self.launch(label(LaunchRole::Attention), KernelSpec::AttentionChunk(chunk), args);
        Some(memory.attended)
    }

    /// Adds the launches of attention in a decode, verify or first-token step, with `inputs` as the first arguments, before the
    /// product `output`. Returns attention's output, quantised if that product reads prepared inputs and attention can prepare them.
    fn attend(
        &mut self,
        layer: u32,
        mut attention: AttentionShape,
        inputs: Vec<Argument>,
        cache: &Cache,
        output: &Stack,
        memory: &Memory,
    ) -> View {
        let label = |role| LaunchLabel { layer: Some(layer), role };
        let layout = self.divided(output).prepare().map(|prepare| prepare.layout);
        attention.output_layout = layout.filter(|layout| attention.can_quantise(layout));
        let mut args = inputs;
        if self.plan.params.kind == StepKind::Verify {
            let append = KernelSpec::Append(AppendShape::of(&attention, false));
            let of_append = [&args[..], &cache.read_write(), &[memory.state.read("state")]].concat();
            self.launch(label(LaunchRole::Append), append, of_append);
            attention.appended = true;
            args.extend(cache.read());
        } else {
            args.extend(cache.read_write());
        }
        args.extend([memory.partial.read_write("partial"), memory.counters.read_write("counters")]);
        let attended = match attention.output_layout {
            None => memory.attended,
            Some(layout) => self.prepared(BufferName::Prepared, layout.bytes().into()),
        };
        args.push(attended.write(if attention.output_layout.is_none() { "y" } else { "inputs" }));
        let shares = memory.shares.iter().find(|(shape, _)| Some(*shape) == SharesShape::of(&attention));
        args.push(shares.map_or(memory.state.read("state"), |(_, table)| table.read("shares")));
        self.launch(label(LaunchRole::Attention), KernelSpec::Attention(attention), args);
        attended
    }

    /// Adds the launches that divide the rows among the CTAs of attention.
    pub(super) fn attention_shares(&mut self, memory: &Memory) {
        for (shape, table) in &memory.shares {
            let args =
                vec![memory.page_table.read("page_table"), memory.state.read("state"), table.write("shares")];
            self.launch(LaunchRole::AttentionShares, KernelSpec::AttentionShares(*shape), args);
        }
    }
}
