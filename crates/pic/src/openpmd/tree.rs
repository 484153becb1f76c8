//! What a file of either format has: groups in groups, with attributes, and numbers on a grid.

/// What an attribute says.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Says {
    /// A text.
    Text(String),
    /// Some texts.
    Texts(Vec<String>),
    /// A number.
    Number(f64),
    /// A number of single precision.
    Single(f32),
    /// A whole number.
    Count(u32),
    /// Some numbers.
    Numbers(Vec<f64>),
    /// Some whole numbers.
    Counts(Vec<u64>),
    /// The powers of length, mass, time, current, temperature, amount and luminous intensity.
    Powers([f64; 7]),
}

/// A group, or numbers if it has any.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Node {
    pub attributes: Vec<(&'static str, Says)>,
    pub inside: Vec<(String, Node)>,
    pub data: Option<Data>,
}

/// Numbers on a grid, the last axis fastest.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Data {
    pub shape: Vec<usize>,
    pub values: Vec<f64>,
}

impl Node {
    /// A group, or what numbers will be put into, with its attributes.
    pub fn new(attributes: Vec<(&'static str, Says)>) -> Node {
        Node { attributes, ..Node::default() }
    }

    /// With another node inside.
    pub fn with(mut self, name: &str, node: Node) -> Node {
        self.inside.push((name.to_string(), node));
        self
    }

    /// With numbers.
    pub fn holding(mut self, shape: Vec<usize>, values: Vec<f64>) -> Node {
        self.data = Some(Data { shape, values });
        self
    }
}
