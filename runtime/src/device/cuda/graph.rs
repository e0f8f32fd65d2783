//! Captured graphs: instantiated, launched, and described for comparison with the plan.

use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_uchar};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;

use super::super::{GraphReport, Result};
use super::context::{Context, Stream};
use super::driver::call;

/// `CU_GRAPH_NODE_TYPE_KERNEL`. Node types are integers, because a newer driver may return a type that the bindings
/// lack.
const KERNEL_NODE: u32 = 0;
/// `CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC`.
const PROGRAMMATIC_EDGE: c_uchar = 1;

/// A captured graph that is not instantiated.
pub(super) struct CapturedGraph {
    context: Arc<Context>,
    raw: sys::CUgraph,
}

impl CapturedGraph {
    /// Takes ownership of `raw`, the result of a capture, which is null if the capture failed.
    pub fn new(context: &Arc<Context>, raw: sys::CUgraph) -> CapturedGraph {
        CapturedGraph { context: context.clone(), raw }
    }

    /// Instantiates the graph, uploads it to the GPU and describes it.
    pub fn instantiate(&self, stream: &Stream) -> Result<Graph> {
        let report = self.report()?;
        let driver = self.context.driver;
        let mut raw = ptr::null_mut();
        call!(
            driver,
            cuGraphInstantiateWithFlags(&mut raw, self.raw, 0),
            "instantiating a graph of {} nodes",
            report.nodes
        )?;
        let graph = Graph { context: self.context.clone(), raw, report };
        // Without this call, the first replay would upload the graph.
        call!(driver, cuGraphUpload(raw, stream.raw()), "uploading a graph")?;
        Ok(graph)
    }

    fn report(&self) -> Result<GraphReport> {
        let nodes = self.nodes()?;
        let index: HashMap<_, _> = nodes.iter().enumerate().map(|(index, &node)| (node, index)).collect();
        let edges = self.edges()?;
        let pairs: Vec<_> =
            edges.iter().filter_map(|(from, to, _)| Some((*index.get(from)?, *index.get(to)?))).collect();
        let order = dependency_order(nodes.len(), &pairs);
        Ok(GraphReport {
            nodes: nodes.len(),
            kernels: order.into_iter().map(|node| self.node_name(nodes[node])).collect::<Result<_>>()?,
            edges: edges.len(),
            programmatic_edges: edges.iter().filter(|(_, _, kind)| *kind == PROGRAMMATIC_EDGE).count(),
        })
    }

    fn nodes(&self) -> Result<Vec<sys::CUgraphNode>> {
        let driver = self.context.driver;
        let mut count = 0;
        call!(driver, cuGraphGetNodes(self.raw, ptr::null_mut(), &mut count), "counting a graph's nodes")?;
        let mut nodes = vec![ptr::null_mut(); count];
        if count > 0 {
            call!(
                driver,
                cuGraphGetNodes(self.raw, nodes.as_mut_ptr(), &mut count),
                "reading a graph's nodes"
            )?;
        }
        Ok(nodes)
    }

    /// Edges as (from, to, type).
    fn edges(&self) -> Result<Vec<(sys::CUgraphNode, sys::CUgraphNode, c_uchar)>> {
        let driver = self.context.driver;
        let mut count = 0;
        let none = ptr::null_mut;
        call!(
            driver,
            cuGraphGetEdges_v2(self.raw, none(), none(), ptr::null_mut(), &mut count),
            "counting a graph's edges"
        )?;
        if count == 0 {
            return Ok(Vec::new());
        }
        let (mut from, mut to) = (vec![ptr::null_mut(); count], vec![ptr::null_mut(); count]);
        let blank = sys::CUgraphEdgeData { from_port: 0, to_port: 0, type_: 0, reserved: [0; 5] };
        let mut data = vec![blank; count];
        call!(
            driver,
            cuGraphGetEdges_v2(self.raw, from.as_mut_ptr(), to.as_mut_ptr(), data.as_mut_ptr(), &mut count),
            "reading a graph's edges"
        )?;
        let kinds = data.into_iter().map(|data| data.type_);
        Ok(from.into_iter().zip(to).zip(kinds).map(|((from, to), kind)| (from, to, kind)).collect())
    }

    /// Name of a kernel node, or the type of another node in parentheses.
    fn node_name(&self, node: sys::CUgraphNode) -> Result<String> {
        let driver = self.context.driver;
        let mut kind = u32::MAX;
        call!(driver, cuGraphNodeGetType(node, (&raw mut kind).cast()), "reading a graph node's type")?;
        if kind != KERNEL_NODE {
            return Ok(format!("({})", node_type(kind)));
        }
        // SAFETY: a struct of integers and handles, for which zero is valid.
        let mut params: sys::CUDA_KERNEL_NODE_PARAMS_v2 = unsafe { MaybeUninit::zeroed().assume_init() };
        call!(driver, cuGraphKernelNodeGetParams_v2(node, &mut params), "reading a graph's kernel node")?;
        let mut name = ptr::null();
        if params.func.is_null() {
            call!(driver, cuKernelGetName(&mut name, params.kern), "reading a graph kernel's name")?;
        } else {
            call!(driver, cuFuncGetName(&mut name, params.func), "reading a graph kernel's name")?;
        }
        if name.is_null() {
            return Ok("(kernel without a name)".to_owned());
        }
        // SAFETY: a string of the driver that lives as long as the module, which the sequence keeps loaded.
        Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }
}

impl Drop for CapturedGraph {
    fn drop(&mut self) {
        if !self.raw.is_null() && self.context.enter().is_ok() {
            // A failure cannot be handled here.
            let _ = call!(self.context.driver, cuGraphDestroy(self.raw), "destroying a captured graph");
        }
    }
}

/// An instantiated graph. The modules of its kernels must stay loaded while it exists.
pub(super) struct Graph {
    context: Arc<Context>,
    raw: sys::CUgraphExec,
    report: GraphReport,
}

impl Graph {
    /// Description of the graph.
    pub fn report(&self) -> &GraphReport {
        &self.report
    }

    /// Enqueues the graph.
    pub fn launch(&self, stream: &Stream) -> Result<()> {
        call!(
            self.context.driver,
            cuGraphLaunch(self.raw, stream.raw()),
            "replaying a graph of {} nodes",
            self.report.nodes
        )
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        if self.context.enter().is_ok() {
            // A failure cannot be handled here.
            let _ = call!(self.context.driver, cuGraphExecDestroy(self.raw), "destroying a graph");
        }
    }
}

/// Topological order of the nodes `0..count` (Kahn's algorithm). Nodes that are ready at the same time are in the order
/// of their numbers.
fn dependency_order(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut predecessors = vec![0usize; count];
    let mut successors = vec![Vec::new(); count];
    for &(from, to) in edges {
        predecessors[to] += 1;
        successors[from].push(to);
    }
    let mut ready: VecDeque<_> = (0..count).filter(|&node| predecessors[node] == 0).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(node) = ready.pop_front() {
        order.push(node);
        for &after in &successors[node] {
            predecessors[after] -= 1;
            if predecessors[after] == 0 {
                ready.push_back(after);
            }
        }
    }
    order
}

/// Name of a node type, by its number in `CUgraphNodeType`.
fn node_type(kind: u32) -> &'static str {
    match kind {
        1 => "memcpy",
        2 => "memset",
        3 => "host function",
        4 => "child graph",
        5 => "empty",
        6 => "event wait",
        7 => "event record",
        10 => "allocation",
        11 => "free",
        12 => "memory operations",
        13 => "conditional",
        _ => "node of another type",
    }
}

#[cfg(test)]
mod tests {
    use super::dependency_order;

    #[test]
    fn nodes_are_in_topological_order() {
        assert!(dependency_order(0, &[]).is_empty());
        assert_eq!(dependency_order(3, &[]), [0, 1, 2]);
        assert_eq!(dependency_order(4, &[(2, 0), (0, 3), (3, 1)]), [2, 0, 3, 1]);
        assert_eq!(dependency_order(4, &[(3, 1), (3, 2), (1, 0), (2, 0)]), [3, 1, 2, 0]);
    }
}
