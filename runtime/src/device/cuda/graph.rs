//! Captured graphs: instantiated, launched, and read back to be compared with the plan.

use std::collections::{HashMap, VecDeque};
use std::ffi::{CStr, c_uchar};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::Arc;

use cudarc::driver::sys;

use super::super::{GraphReport, Result};
use super::context::{Context, Stream};
use super::driver::call;

/// `CU_GRAPH_NODE_TYPE_KERNEL`. Types are kept as numbers: a newer driver may return one the bindings do not know.
const KERNEL_NODE: u32 = 0;
/// `CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC`.
const PROGRAMMATIC_EDGE: c_uchar = 1;

/// A graph as captured, not yet runnable.
pub(super) struct Template {
    context: Arc<Context>,
    raw: sys::CUgraph,
}

impl Template {
    /// Takes over what a capture returned, which is null if it failed.
    pub fn new(context: &Arc<Context>, raw: sys::CUgraph) -> Template {
        Template { context: context.clone(), raw }
    }

    /// Makes the graph runnable, moves it to the GPU and reads it back.
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
        // The first replay would do this otherwise.
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

    /// The edges: from, to, type.
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

    /// A kernel's name, or the type of any other node in parentheses.
    fn node_name(&self, node: sys::CUgraphNode) -> Result<String> {
        let driver = self.context.driver;
        let mut kind = u32::MAX;
        call!(driver, cuGraphNodeGetType(node, (&raw mut kind).cast()), "reading a graph node's type")?;
        if kind != KERNEL_NODE {
            return Ok(format!("({})", node_type(kind)));
        }
        // SAFETY: a struct of plain numbers and handles, for which zeroes are valid.
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
        // SAFETY: the driver's string, which lives as long as the module, and the sequence keeps that loaded.
        Ok(unsafe { CStr::from_ptr(name) }.to_string_lossy().into_owned())
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        if !self.raw.is_null() && self.context.enter().is_ok() {
            // Nothing is left to do about a failure.
            let _ = call!(self.context.driver, cuGraphDestroy(self.raw), "destroying a captured graph");
        }
    }
}

/// A graph that runs. The kernels' modules must stay loaded as long as it lives.
pub(super) struct Graph {
    context: Arc<Context>,
    raw: sys::CUgraphExec,
    report: GraphReport,
}

impl Graph {
    /// What it consists of.
    pub fn report(&self) -> &GraphReport {
        &self.report
    }

    /// Enqueues it.
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
            // Nothing is left to do about a failure.
            let _ = call!(self.context.driver, cuGraphExecDestroy(self.raw), "destroying a graph");
        }
    }
}

/// The positions `0..count` so that every edge goes forward; those free to go first keep their order (Kahn's
/// algorithm).
fn dependency_order(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut waits_for = vec![0usize; count];
    let mut next = vec![Vec::new(); count];
    for &(from, to) in edges {
        waits_for[to] += 1;
        next[from].push(to);
    }
    let mut ready: VecDeque<_> = (0..count).filter(|&node| waits_for[node] == 0).collect();
    let mut order = Vec::with_capacity(count);
    while let Some(node) = ready.pop_front() {
        order.push(node);
        for &after in &next[node] {
            waits_for[after] -= 1;
            if waits_for[after] == 0 {
                ready.push_back(after);
            }
        }
    }
    order
}

/// A node type in words, by its number in the driver API's `CUgraphNodeType`.
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
    fn nodes_are_told_in_the_order_in_which_they_run() {
        assert!(dependency_order(0, &[]).is_empty());
        assert_eq!(dependency_order(3, &[]), [0, 1, 2]);
        assert_eq!(dependency_order(4, &[(2, 0), (0, 3), (3, 1)]), [2, 0, 3, 1]);
        assert_eq!(dependency_order(4, &[(3, 1), (3, 2), (1, 0), (2, 0)]), [3, 1, 2, 0]);
    }
}
