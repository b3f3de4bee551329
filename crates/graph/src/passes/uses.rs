//! `Uses`: who reads each node.

use crate::graph::{Graph, Port};

/// The readers of each node's first output.
pub(super) struct Uses {
    readers: Vec<Vec<u32>>,
    /// `true` for a node that is fetched, or has another output than its first read.
    is_open: Vec<bool>,
}

impl Uses {
    pub(super) fn from_graph(graph: &Graph) -> Self {
        let mut readers = vec![Vec::new(); graph.nodes.len()];
        let mut is_open = vec![false; graph.nodes.len()];
        graph.fetches.iter().for_each(|port| is_open[port.node as usize] = true);
        for (number, node) in (0u32..).zip(&graph.nodes) {
            for port in &node.inputs {
                readers[port.node as usize].push(number);
                is_open[port.node as usize] |= port.output != 0;
            }
        }
        Self { readers, is_open }
    }

    /// The readers of a node, unless others may see it.
    pub(super) fn readers(&self, node: u32) -> &[u32] {
        if self.is_open[node as usize] { &[] } else { &self.readers[node as usize] }
    }

    /// Returns whether nobody but `root` and they themselves reads these nodes.
    pub(super) fn are_private(&self, nodes: &[u32], root: u32) -> bool {
        let within = |reader: &u32| *reader == root || nodes.contains(reader);
        nodes.iter().all(|node| {
            !self.is_open[*node as usize] && self.readers[*node as usize].iter().all(within)
        })
    }
}

/// The first output of a node.
pub(super) fn first(node: u32) -> Port {
    Port { node, output: 0 }
}
