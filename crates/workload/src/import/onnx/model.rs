//! The parts of an ONNX model that a training trace depends on, borrowed from the file.
//!
//! Attributes and tensors stay undecoded until a rule asks for them; graphs inside attributes are never read, so nothing
//! here recurses. The numbers of fields are those of `onnx.proto3`.

use std::collections::HashMap;

use super::constant::shape_of;
use super::wire::{Message, WireError};
use crate::graph::Shape;

/// More nodes, inputs or tensors than any network has; a list this long comes from a broken file.
const MOST: usize = 1 << 20;

/// A model: its graph, and the version of the operators that it uses.
#[derive(Debug, Default)]
pub(super) struct Model<'a> {
    /// The version of the standard operators.
    pub opset: i64,
    /// What computes.
    pub nodes: Vec<Node<'a>>,
    /// Tensors with data in the file, by name.
    pub initializers: HashMap<&'a str, Tensor<'a>>,
    /// What comes from outside; old files list the initializers here too.
    pub inputs: Vec<Input<'a>>,
    /// The names of the results.
    pub outputs: Vec<&'a str>,
}

/// One operator with its operands.
#[derive(Clone, Debug, Default)]
pub(super) struct Node<'a> {
    /// Its position in the file.
    pub at: usize,
    /// Its name, often empty.
    pub name: &'a str,
    /// The operator.
    pub op: &'a str,
    /// The operator's domain, empty for the standard ones.
    pub domain: &'a str,
    /// The names of the operands; an empty one is absent.
    pub inputs: Vec<&'a str>,
    /// The names of the results; an empty one is not wanted.
    pub outputs: Vec<&'a str>,
    attributes: Vec<Message<'a>>,
}

/// A tensor with data in the file.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tensor<'a> {
    /// Its message.
    pub message: Message<'a>,
    /// Its number format, as ONNX numbers them.
    pub format: i64,
    /// Its extents, where they are few enough and none is negative.
    pub shape: Option<Shape>,
}

/// What comes from outside.
#[derive(Clone, Debug, Default)]
pub(super) struct Input<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its number format, as ONNX numbers them; 0 where the file does not say.
    pub format: i64,
    /// Its extents, or `None` where the file does not say how many there are.
    pub dims: Option<Vec<Extent<'a>>>,
}

/// One extent of an input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extent<'a> {
    /// A number.
    Fixed(i64),
    /// A name, possibly empty, for which a number is chosen later.
    Named(&'a str),
}

impl<'a> Model<'a> {
    /// Reads a file.
    pub fn read(bytes: &'a [u8]) -> Result<Model<'a>, WireError> {
        let mut model = Model { opset: 0, ..Model::default() };
        let mut graph = None;
        Message::file(bytes).fields(|f| {
            match f.number {
                7 => graph = Some(f.message()?),
                8 => {
                    let (mut domain, mut version) = ("", 0);
                    f.message()?.fields(|f| {
                        match f.number {
                            1 => domain = f.text()?,
                            2 => version = f.int()?,
                            _ => {}
                        }
                        Ok(())
                    })?;
                    if domain.is_empty() || domain == "ai.onnx" {
                        model.opset = version;
                    }
                }
                _ => {}
            }
            Ok(())
        })?;
        match graph {
            Some(graph) => model.graph(graph)?,
            None => return Err(WireError { at: bytes.len(), message: "there is no graph".to_string() }),
        }
        Ok(model)
    }

    fn graph(&mut self, graph: Message<'a>) -> Result<(), WireError> {
        graph.fields(|f| {
            match f.number {
                1 => {
                    let node = Node::read(f.message()?, self.nodes.len())?;
                    self.nodes.push(node);
                }
                5 => {
                    let (name, tensor) = Tensor::read(f.message()?)?;
                    self.initializers.insert(name, tensor);
                }
                11 => self.inputs.push(Input::read(f.message()?)?),
                12 => self.outputs.push(Input::read(f.message()?)?.name),
                _ => {}
            }
            if self.nodes.len() > MOST || self.inputs.len() > MOST || self.outputs.len() > MOST {
                let message = format!("a graph of more than {MOST} parts");
                return Err(WireError { at: 0, message });
            }
            Ok(())
        })
    }
}

impl<'a> Node<'a> {
    fn read(message: Message<'a>, at: usize) -> Result<Node<'a>, WireError> {
        let mut node = Node { at, ..Node::default() };
        message.fields(|f| {
            match f.number {
                1 => node.inputs.push(f.text()?),
                2 => node.outputs.push(f.text()?),
                3 => node.name = f.text()?,
                4 => node.op = f.text()?,
                5 => node.attributes.push(f.message()?),
                7 => node.domain = f.text()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(node)
    }

    /// The name of operand `at`; empty where it is absent.
    pub fn input(&self, at: usize) -> &'a str {
        self.inputs.get(at).copied().unwrap_or("")
    }

    /// The name of result `at`; empty where nobody wants it.
    pub fn output(&self, at: usize) -> &'a str {
        self.outputs.get(at).copied().unwrap_or("")
    }

    /// The names of its attributes.
    pub fn attribute_names(&self) -> Result<Vec<&'a str>, String> {
        let mut names = Vec::with_capacity(self.attributes.len());
        for message in &self.attributes {
            let mut name = "";
            message
                .fields(|f| if f.number == 1 { f.text().map(|n| name = n) } else { Ok(()) })
                .map_err(say)?;
            names.push(name);
        }
        Ok(names)
    }

    fn attribute(&self, name: &str) -> Result<Option<Attribute<'a>>, String> {
        for message in &self.attributes {
            let mut found = "";
            message
                .fields(|f| if f.number == 1 { f.text().map(|n| found = n) } else { Ok(()) })
                .map_err(say)?;
            if found == name {
                return Attribute::read(*message).map(Some).map_err(say);
            }
        }
        Ok(None)
    }

    /// A whole number.
    pub fn int(&self, name: &str, default: i64) -> Result<i64, String> {
        Ok(self.attribute(name)?.and_then(|a| a.int).unwrap_or(default))
    }

    /// A floating-point number.
    pub fn float(&self, name: &str, default: f32) -> Result<f32, String> {
        Ok(self.attribute(name)?.and_then(|a| a.float).unwrap_or(default))
    }

    /// Text; empty where there is none.
    pub fn text(&self, name: &str) -> Result<&'a str, String> {
        Ok(self.attribute(name)?.and_then(|a| a.text).unwrap_or(""))
    }

    /// A list of whole numbers.
    pub fn ints(&self, name: &str) -> Result<Option<Vec<i64>>, String> {
        Ok(self.attribute(name)?.map(|a| a.ints))
    }

    /// A list of floating-point numbers.
    pub fn floats(&self, name: &str) -> Result<Option<Vec<f32>>, String> {
        Ok(self.attribute(name)?.map(|a| a.floats))
    }

    /// A list of texts.
    pub fn texts(&self, name: &str) -> Result<Vec<&'a str>, String> {
        Ok(self.attribute(name)?.map(|a| a.texts).unwrap_or_default())
    }

    /// A tensor.
    pub fn tensor(&self, name: &str) -> Result<Option<Tensor<'a>>, String> {
        Ok(self.attribute(name)?.and_then(|a| a.tensor))
    }
}

fn say(error: WireError) -> String {
    error.to_string()
}

/// One decoded attribute.
#[derive(Default)]
struct Attribute<'a> {
    int: Option<i64>,
    float: Option<f32>,
    text: Option<&'a str>,
    tensor: Option<Tensor<'a>>,
    ints: Vec<i64>,
    floats: Vec<f32>,
    texts: Vec<&'a str>,
}

impl<'a> Attribute<'a> {
    fn read(message: Message<'a>) -> Result<Attribute<'a>, WireError> {
        let mut attribute = Attribute::default();
        message.fields(|f| {
            match f.number {
                2 => attribute.float = Some(f.float()?),
                3 => attribute.int = Some(f.int()?),
                4 => attribute.text = Some(f.text()?),
                5 => attribute.tensor = Some(Tensor::read(f.message()?)?.1),
                7 => f.floats(&mut attribute.floats)?,
                8 => f.ints(&mut attribute.ints)?,
                9 => attribute.texts.push(f.text()?),
                _ => {}
            }
            Ok(())
        })?;
        Ok(attribute)
    }
}

impl<'a> Tensor<'a> {
    fn read(message: Message<'a>) -> Result<(&'a str, Tensor<'a>), WireError> {
        let (mut name, mut format, mut dims) = ("", 0, Vec::new());
        message.fields(|f| {
            match f.number {
                1 => f.ints(&mut dims)?,
                2 => format = f.int()?,
                8 => name = f.text()?,
                _ => {}
            }
            Ok(())
        })?;
        Ok((name, Tensor { message, format, shape: shape_of(&dims).ok() }))
    }
}

impl<'a> Input<'a> {
    fn read(message: Message<'a>) -> Result<Input<'a>, WireError> {
        let mut input = Input::default();
        let mut kind = None;
        message.fields(|f| {
            match f.number {
                1 => input.name = f.text()?,
                2 => kind = Some(f.message()?),
                _ => {}
            }
            Ok(())
        })?;
        let mut tensor = None;
        kind.unwrap_or_default().fields(|f| {
            if f.number == 1 {
                tensor = Some(f.message()?);
            }
            Ok(())
        })?;
        let mut shape = None;
        tensor.unwrap_or_default().fields(|f| {
            match f.number {
                1 => input.format = f.int()?,
                2 => shape = Some(f.message()?),
                _ => {}
            }
            Ok(())
        })?;
        if let Some(shape) = shape {
            let mut dims = Vec::new();
            shape.fields(|f| {
                if f.number == 1 {
                    let mut extent = Extent::Named("");
                    f.message()?.fields(|f| {
                        match f.number {
                            1 => extent = Extent::Fixed(f.int()?),
                            2 => extent = Extent::Named(f.text()?),
                            _ => {}
                        }
                        Ok(())
                    })?;
                    dims.push(extent);
                }
                Ok(())
            })?;
            input.dims = Some(dims);
        }
        Ok(input)
    }
}
