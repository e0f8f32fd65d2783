//! A plan's launches as a graph, with equal layers folded.

use std::collections::HashMap;

use bespoke_kernels::plan::{Argument, ArgumentAccess, BufferKind, Launch, LaunchRole, Plan};
use serde::Serialize;

/// Graph of a plan's launches: before the layers, in the layers, and after the layers.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Graph {
    /// Nodes: launches; the same launch of several equal layers is one node.
    pub nodes: Vec<Node>,
    /// Dependencies between the launches.
    pub edges: Vec<Edge>,
    /// Indices of the nodes before the first layer.
    pub prologue: Vec<usize>,
    /// Groups of layers with equal kernels.
    pub groups: Vec<Group>,
    /// Indices of the nodes after the last layer.
    pub epilogue: Vec<usize>,
}

/// Layers with the same kernels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Group {
    /// Numbers of the layers.
    pub layers: Vec<u32>,
    /// Indices of the nodes of the layers' launches, in order.
    pub nodes: Vec<usize>,
}

/// A launch, or the same launch of several layers.
#[derive(Clone, Debug, Serialize)]
pub struct Node {
    /// Role: the label without the layer, such as `attn_qkv`.
    pub label: String,
    /// Index of the kernel in the plan.
    pub kernel: usize,
    /// Number of launches that the node stands for.
    pub launches: usize,
    /// Buffers that the node reads and no launch of the step writes: weights, the KV cache, the state.
    pub inputs: Vec<Transfer>,
    /// Buffers that the node writes and no launch of the step reads.
    pub outputs: Vec<Transfer>,
}

/// Part of a buffer that is read or written.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Transfer {
    /// The buffer's name, without the layer.
    pub buffer: String,
    /// Kind of the buffer, as in `plan.json`.
    pub kind: &'static str,
    /// Size of the part in bytes.
    pub bytes: u64,
}

/// Dependency of a launch on an earlier one, by order or by data.
#[derive(Clone, Debug, Serialize)]
pub struct Edge {
    /// Index of the node of the earlier launch.
    pub from: usize,
    /// Index of the node of the later launch.
    pub to: usize,
    /// Whether the later launch is in another layer, or outside of the layers.
    pub leaves_layer: bool,
    /// Number of dependencies between the plan's launches that the edge stands for.
    pub count: usize,
    /// Kind of order; `None` if other edges imply the order.
    pub order: Option<EdgeOrder>,
    /// Data written by the earlier launch and read by the later one.
    pub data: Vec<Transfer>,
}

/// How an edge orders two launches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum EdgeOrder {
    /// The later launch starts when the earlier one has ended.
    Full,
    /// The later launch may start earlier, and waits on the device.
    Programmatic,
}

impl Graph {
    /// Builds the graph of a plan's launches.
    pub fn of(plan: &Plan) -> Graph {
        let mut folding = Folding { plan, graph: Graph::default(), node_of: vec![0; plan.launches.len()] };
        folding.nodes();
        folding.edges();
        folding.graph
    }
}

struct Folding<'a> {
    plan: &'a Plan,
    graph: Graph,
    /// Index of the node of each launch.
    node_of: Vec<usize>,
}

impl Folding<'_> {
    fn nodes(&mut self) {
        let launches = &self.plan.launches;
        let mut groups: HashMap<Vec<(LaunchRole, usize)>, usize> = HashMap::new();
        let mut index = 0;
        while index < launches.len() {
            let layer = launches[index].label.layer;
            let Some(layer) = layer else {
                let node = self.node(&launches[index]);
                self.node_of[index] = node;
                let part = if self.graph.groups.is_empty() {
                    &mut self.graph.prologue
                } else {
                    &mut self.graph.epilogue
                };
                part.push(node);
                index += 1;
                continue;
            };
            let end = launches[index..].iter().take_while(|it| it.label.layer == Some(layer)).count() + index;
            let members = &launches[index..end];
            let key = members.iter().map(|it| (it.label.role, it.kernel)).collect();
            let next = self.graph.groups.len();
            let group = *groups.entry(key).or_insert(next);
            if group == next {
                let nodes = members.iter().map(|launch| self.node(launch)).collect();
                self.graph.groups.push(Group { layers: Vec::new(), nodes });
            }
            self.graph.groups[group].layers.push(layer);
            for (launch, &node) in (index..end).zip(&self.graph.groups[group].nodes) {
                self.node_of[launch] = node;
            }
            index = end;
        }
        for &node in &self.node_of {
            self.graph.nodes[node].launches += 1;
        }
    }

    fn node(&mut self, launch: &Launch) -> usize {
        let label = launch.label.role.to_string();
        let (inputs, outputs) = (Vec::new(), Vec::new());
        self.graph.nodes.push(Node { label, kernel: launch.kernel, launches: 0, inputs, outputs });
        self.graph.nodes.len() - 1
    }

    fn edges(&mut self) {
        let launches = &self.plan.launches;
        let mut edges: HashMap<(usize, usize, bool), usize> = HashMap::new();
        // For each argument of each launch: whether a later launch reads what is written there.
        let mut read_later: Vec<Vec<bool>> =
            launches.iter().map(|launch| vec![false; launch.args.len()]).collect();
        for (index, launch) in launches.iter().enumerate() {
            let mut sources: Vec<(usize, Option<EdgeOrder>, Vec<Transfer>)> = Vec::new();
            let order = if launch.programmatic { EdgeOrder::Programmatic } else { EdgeOrder::Full };
            sources.extend(launch.after.iter().map(|&earlier| (earlier, Some(order), Vec::new())));
            let mut inputs = Vec::new();
            for arg in launch.args.iter().filter(|arg| arg.access != ArgumentAccess::Write) {
                let Some((writer, written)) = self.writer(index, arg) else {
                    inputs.push(self.transfer(arg));
                    continue;
                };
                read_later[writer][written] = true;
                let data = self.transfer(arg);
                match sources.iter_mut().find(|(earlier, ..)| *earlier == writer) {
                    Some((.., list)) => list.push(data),
                    None => sources.push((writer, None, vec![data])),
                }
            }
            let node = self.node_of[index];
            if self.graph.nodes[node].inputs.is_empty() {
                self.graph.nodes[node].inputs = inputs;
            }
            for (earlier, order, data) in sources {
                let (own, other) = (launch.label.layer, launches[earlier].label.layer);
                let key = (self.node_of[earlier], node, own.is_none() || own != other);
                let next = self.graph.edges.len();
                let edge = *edges.entry(key).or_insert(next);
                if edge == next {
                    let (from, to, leaves_layer) = key;
                    self.graph.edges.push(Edge { from, to, leaves_layer, count: 0, order, data });
                }
                self.graph.edges[edge].count += 1;
            }
        }
        for (index, launch) in launches.iter().enumerate() {
            let node = self.node_of[index];
            let unread = launch.args.iter().zip(&read_later[index]);
            let outputs: Vec<Transfer> = unread
                .filter(|(arg, read)| arg.access != ArgumentAccess::Read && !**read)
                .map(|(arg, _)| self.transfer(arg))
                .collect();
            let known = &mut self.graph.nodes[node].outputs;
            known.extend(outputs.into_iter().filter(|it| !known.contains(it)).collect::<Vec<_>>());
        }
    }

    /// The last launch before `index` that writes part of `arg`'s memory, and the index of the argument through which
    /// it writes.
    fn writer(&self, index: usize, arg: &Argument) -> Option<(usize, usize)> {
        let overlaps = |other: &Argument| {
            other.buffer == arg.buffer
                && other.access != ArgumentAccess::Read
                && other.offset < arg.offset + arg.bytes
                && arg.offset < other.offset + other.bytes
        };
        let earlier = self.plan.launches[..index].iter().enumerate().rev();
        earlier.into_iter().find_map(|(index, launch)| Some((index, launch.args.iter().position(overlaps)?)))
    }

    fn transfer(&self, arg: &Argument) -> Transfer {
        let buffer = &self.plan.buffers[arg.buffer];
        Transfer { buffer: split(&buffer.name).1.to_owned(), kind: kind(&buffer.kind), bytes: arg.bytes }
    }
}

/// Splits `blk.3.attn_qkv` into layer and rest; no layer in other names.
pub fn split(name: &str) -> (Option<u32>, &str) {
    let parts = || {
        let (layer, rest) = name.strip_prefix("blk.")?.split_once('.')?;
        Some((layer.parse().ok()?, rest))
    };
    parts().map_or((None, name), |(layer, rest)| (Some(layer), rest))
}

fn kind(kind: &BufferKind) -> &'static str {
    match kind {
        BufferKind::Weights { .. } => "weights",
        BufferKind::RopeTable { .. } => "rope_table",
        BufferKind::Activation => "activation",
        BufferKind::Counters => "counters",
        BufferKind::KvCache => "kv_cache",
        BufferKind::PageTable => "page_table",
        BufferKind::State => "state",
        BufferKind::Sampling => "sampling",
        BufferKind::LogitBias => "logit_bias",
        BufferKind::TokenMask => "token_mask",
        BufferKind::Tokens => "tokens",
        BufferKind::HostTokens => "finished",
    }
}

#[cfg(test)]
mod tests {
    use bespoke_codegen::ptx::Target;
    use bespoke_kernels::plan::PlanParams;
    use bespoke_kernels::shape::builtin;

    use super::*;

    fn graph(name: &str) -> (Plan, Graph) {
        let file = builtin().into_iter().find(|file| file.name == name).unwrap();
        let shape = file.shapes().unwrap().remove(0);
        let plan = Plan::new(&shape, Target::Sm90, PlanParams::single(256)).unwrap();
        let graph = Graph::of(&plan);
        (plan, graph)
    }

    #[test]
    fn layers_with_the_same_kernels_are_one() {
        let (plan, graph) = graph("llama-3.1-8b");
        let layers: Vec<usize> = graph.groups.iter().map(|group| group.layers.len()).collect();
        assert_eq!(layers.iter().sum::<usize>(), 32, "every layer once");
        assert_eq!(layers, [16, 16], "half of the layers have Q6_K matrices");
        assert_eq!(graph.nodes.iter().map(|node| node.launches).sum::<usize>(), plan.launches.len());
        let edges: usize = plan.launches.iter().map(|launch| launch.after.len()).sum();
        let ordered = graph.edges.iter().filter(|edge| edge.order.is_some());
        assert_eq!(ordered.map(|edge| edge.count).sum::<usize>(), edges, "every edge once");
    }

    #[test]
    fn edges_carry_what_is_written_and_read() {
        let (_, graph) = graph("llama-3.2-1b");
        let named =
            |edge: &Edge| (graph.nodes[edge.from].label.as_str(), graph.nodes[edge.to].label.as_str());
        let within: Vec<_> = graph
            .edges
            .iter()
            .filter(|edge| !edge.leaves_layer && graph.groups[0].nodes.contains(&edge.from))
            .map(|edge| {
                (
                    named(edge),
                    edge.order.is_some(),
                    edge.data.iter().map(|it| (it.buffer.as_str(), it.bytes)).collect::<Vec<_>>(),
                )
            })
            .collect();
        let kib = |n: u64| n * 1024;
        assert!(within.contains(&(("attn_qkv", "attention"), true, vec![("qkv", kib(12))])), "{within:?}");
        assert!(
            within.contains(&(("attention", "attn_output"), true, vec![("attended", kib(8))])),
            "{within:?}"
        );
        assert!(
            within.contains(&(("attn_output", "ffn_down"), false, vec![("residual", kib(8))])),
            "{within:?}"
        );
        let qkv = &graph.nodes[graph.groups[0].nodes[0]];
        assert_eq!((qkv.inputs.len(), qkv.inputs[0].kind), (1, "weights"));
    }
}
