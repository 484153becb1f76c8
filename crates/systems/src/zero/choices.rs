//! The argument of section 5.3: training with mixed precision is a graph of data and computation; every division of it
//! between GPU and host moves the bytes of the edges that it cuts, and leaves some states on the GPU.
//!
//! Here all divisions are counted rather than argued about: eight nodes with forward and backward on the GPU.

/// A node: data, or computation, with the bytes that it keeps for each parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Node {
    /// Parameters of 16 bits.
    P16,
    /// Gradients of 16 bits.
    G16,
    /// Master parameters.
    P32,
    /// First moments.
    M32,
    /// Second moments.
    V32,
    /// The update.
    Update,
    /// Rounding masters to 16 bits.
    Round,
}

impl Node {
    /// All but forward and backward, which stay on the GPU: the host is far too slow for them (5.3.2).
    pub const ALL: [Node; 7] =
        [Node::P16, Node::G16, Node::P32, Node::M32, Node::V32, Node::Update, Node::Round];

    /// Bytes kept for each parameter.
    pub fn bytes(self) -> u64 {
        match self {
            Node::P16 | Node::G16 => 2,
            Node::P32 | Node::M32 | Node::V32 => 4,
            Node::Update | Node::Round => 0,
        }
    }
}

/// Data that flow in each iteration: from, to, bytes for each parameter. None stands for forward and backward.
pub const EDGES: [(Option<Node>, Option<Node>, u64); 11] = [
    (Some(Node::P16), None, 4), // read by the forward pass and by the backward pass
    (None, Some(Node::G16), 2),
    (Some(Node::G16), Some(Node::Update), 2),
    (Some(Node::P32), Some(Node::Update), 4),
    (Some(Node::Update), Some(Node::P32), 4),
    (Some(Node::M32), Some(Node::Update), 4),
    (Some(Node::Update), Some(Node::M32), 4),
    (Some(Node::V32), Some(Node::Update), 4),
    (Some(Node::Update), Some(Node::V32), 4),
    (Some(Node::P32), Some(Node::Round), 4),
    (Some(Node::Round), Some(Node::P16), 2),
];

/// A division: which nodes are on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice(u8);

impl Choice {
    /// Every division there is.
    pub fn all() -> impl Iterator<Item = Choice> {
        (0..1 << Node::ALL.len()).map(Choice)
    }

    /// Whether a node is on the host.
    pub fn on_host(self, node: Node) -> bool {
        let index = Node::ALL.iter().position(|other| *other == node).unwrap_or_default();
        self.0 >> index & 1 == 1
    }

    /// Bytes that cross the link for each parameter and iteration.
    pub fn moved(self) -> u64 {
        let side = |node: Option<Node>| node.is_some_and(|node| self.on_host(node));
        EDGES.iter().filter(|(from, to, _)| side(*from) != side(*to)).map(|(_, _, bytes)| bytes).sum()
    }

    /// Bytes on the GPU for each parameter.
    pub fn on_gpu(self) -> u64 {
        Node::ALL.iter().filter(|node| !self.on_host(**node)).map(|node| node.bytes()).sum()
    }

    /// Bytes of host memory that the host's own part of the work reads and writes for each parameter.
    pub fn host_traffic(self) -> u64 {
        if self.on_host(Node::Update) { 28 } else { 0 }
    }
}

/// The least that must cross the link where anything is on the host.
pub fn least_moved() -> u64 {
    Choice::all().filter(|choice| choice.0 != 0).map(Choice::moved).min().unwrap_or_default()
}

/// Divisions that move the least, the baseline with all on the GPU first, and then those that leave more there.
pub fn valid() -> Vec<Choice> {
    let least = least_moved();
    let mut found: Vec<Choice> = Choice::all().filter(|c| c.0 == 0 || c.moved() == least).collect();
    found.sort_by_key(|choice| std::cmp::Reverse(choice.on_gpu()));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_paper_s_four_rows_and_no_others() {
        assert_eq!(least_moved(), 4);
        let bytes: Vec<u64> = valid().iter().map(|choice| choice.on_gpu()).collect();
        assert_eq!(bytes, [16, 14, 4, 2], "Table 5.1, whose last row prints 4M beside 8x");
        let best = valid()[3];
        assert!(
            [Node::G16, Node::P32, Node::M32, Node::V32, Node::Update, Node::Round]
                .iter()
                .all(|node| best.on_host(*node))
        );
        assert!(!best.on_host(Node::P16));
    }
}
