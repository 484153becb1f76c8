//! Files that other programs wrote, as training programs.

pub mod onnx;
