//! What the benchmark of kernels measures: every family, with shapes that networks have.

use tiercel_workload::graph::{Activation, Attention, Conv, Op, Pool, PoolKind, ResponseNorm, Shape};

/// An operand of an operation.
#[derive(Clone, Copy)]
pub enum Value {
    /// Numbers, by which the gradient is wanted.
    Number(Shape),
    /// Whole numbers below a bound.
    Id(Shape, u64),
    /// State that the operation changes.
    State(Shape),
}

fn n<const N: usize>(dims: [u64; N]) -> Value {
    Value::Number(Shape::from(dims))
}

/// What is measured.
pub struct Case {
    /// What is printed.
    pub name: String,
    /// The case as `scripts/torch_bench.py` reads it, or nothing.
    pub torch: String,
    /// The operation that is differentiated.
    pub op: Op,
    /// Its operands.
    pub operands: Vec<Value>,
    /// The type of the kernel that is timed.
    pub kernel: &'static str,
}

/// Cases that are being gathered.
struct Cases(Vec<Case>);

impl Cases {
    fn add(&mut self, name: &str, torch: &str, op: Op, operands: &[Value], kernel: &'static str) {
        let (name, torch, operands) = (name.into(), torch.into(), operands.to_vec());
        self.0.push(Case { name, torch, op, operands, kernel });
    }
}

/// All that is measured, family by family.
pub fn cases() -> Vec<Case> {
    let mut cases = Cases(Vec::new());
    convolutions(&mut cases);
    products(&mut cases);
    norms(&mut cases);
    activations(&mut cases);
    pools(&mut cases);
    elements(&mut cases);
    arrangement(&mut cases);
    losses(&mut cases);
    sequences(&mut cases);
    tables(&mut cases);
    updates(&mut cases);
    cases.0
}

/// The three kernels of a convolution with square windows whose padding keeps the image's side.
fn square(cases: &mut Cases, [batch, from, to, side, window, stride, groups]: [u64; 7]) {
    let conv = Conv { padding: [window / 2; 4], stride: [stride; 2], groups, ..Conv::default() };
    let operands = [n([batch, from, side, side]), n([to, from / groups, window, window])];
    for (kernel, torch) in
        [("conv", "conv"), ("conv.backward-data", "conv_data"), ("conv.backward-weight", "conv_weight")]
    {
        let name = format!("{kernel} {from}→{to} {side}² {window}x{window}/{stride} g{groups} b{batch}");
        let torch = format!("{torch} {batch} {from} {to} {side} {window} {stride} {groups}");
        cases.add(&name, &torch, Op::Conv(conv), &operands, kernel);
    }
}

/// The three kernels of any convolution: what is told of it, the image, the channels after it and the window.
fn any(cases: &mut Cases, about: &str, x: [u64; 4], to: u64, window: [u64; 2], conv: Conv) {
    let [a, b] = window;
    let (weight, kernels) = if conv.transposed {
        let names = ["conv-transposed", "conv-transposed.backward-data", "conv-transposed.backward-weight"];
        ([x[1], to / conv.groups, a, b], names)
    } else {
        ([to, x[1] / conv.groups, a, b], ["conv", "conv.backward-data", "conv.backward-weight"])
    };
    for kernel in kernels {
        let name = format!("{kernel} {}→{to} {}² {a}x{b} {about} b{}", x[1], x[2], x[0]);
        cases.add(&name, "", Op::Conv(conv), &[n(x), n(weight)], kernel);
    }
}

fn convolutions(cases: &mut Cases) {
    for shape in [
        [16, 64, 64, 32, 3, 1, 1],
        [16, 128, 128, 16, 3, 1, 1],
        [16, 256, 256, 8, 3, 1, 1],
        [16, 512, 512, 4, 3, 1, 1],
        [16, 512, 512, 2, 3, 1, 1],
        [4, 64, 64, 56, 3, 1, 1],
        [16, 256, 64, 16, 1, 1, 1],
        [16, 64, 256, 16, 1, 1, 1],
        [16, 1024, 512, 4, 1, 1, 1],
        [16, 512, 1024, 8, 1, 2, 1],
        [16, 128, 128, 16, 3, 2, 1],
        // First layers: of VGG, ResNet, MobileNet and Inception.
        [16, 3, 64, 64, 3, 1, 1],
        [16, 3, 64, 64, 7, 2, 1],
        [4, 3, 64, 224, 7, 2, 1],
        [16, 3, 32, 96, 3, 2, 1],
        [16, 32, 64, 32, 5, 1, 1],
        // Groups, as ResNeXt and ShuffleNet have them, down to one channel each.
        [16, 128, 128, 32, 3, 1, 2],
        [16, 128, 128, 32, 3, 1, 8],
        [16, 128, 128, 32, 3, 1, 32],
        [16, 256, 256, 16, 3, 2, 32],
        [16, 512, 512, 8, 3, 1, 32],
        [16, 128, 128, 32, 3, 1, 128],
        [16, 128, 128, 32, 3, 2, 128],
        [16, 128, 128, 32, 5, 1, 128],
        [16, 240, 240, 16, 5, 2, 240],
        [16, 512, 512, 8, 3, 1, 512],
        [16, 64, 64, 112, 3, 1, 64],
    ] {
        square(cases, shape);
    }
    let plain = Conv::default();
    let wide = [16, 128, 17, 17];
    any(cases, "flat", wide, 128, [1, 7], Conv { padding: [0, 3, 0, 3], ..plain });
    any(cases, "tall", wide, 128, [7, 1], Conv { padding: [3, 0, 3, 0], ..plain });
    any(cases, "unpadded", [16, 32, 32, 32], 64, [3, 3], plain);
    let dilated = Conv { padding: [2; 4], dilation: [2; 2], ..plain };
    any(cases, "dilated", [16, 128, 32, 32], 128, [3, 3], dilated);
    let up = Conv { transposed: true, stride: [2; 2], padding: [1; 4], ..plain };
    any(cases, "/2", [16, 256, 8, 8], 128, [4, 4], up);
    any(cases, "/2", [16, 128, 16, 16], 64, [4, 4], up);
    any(cases, "/2", [16, 64, 32, 32], 3, [4, 4], up);
    let down = Conv { stride: [2; 2], padding: [1; 4], ..plain };
    any(cases, "/2", [16, 3, 64, 64], 64, [4, 4], down);
    any(cases, "/2", [16, 64, 32, 32], 128, [4, 4], down);
    any(
        cases,
        "depthwise doubled",
        [16, 64, 32, 32],
        128,
        [3, 3],
        Conv { padding: [1; 4], groups: 64, ..plain },
    );
}

fn products(cases: &mut Cases) {
    let linear = [n([512, 1024]), n([1024, 1024]), n([1024])];
    cases.add("linear 512x1024x1024", "linear 512 1024 1024", Op::Linear, &linear, "linear");
    cases.add(
        "linear.backward-data",
        "linear_data 512 1024 1024",
        Op::Linear,
        &linear,
        "linear.backward-data",
    );
    let torch = "linear_weight 512 1024 1024";
    cases.add("linear.backward-weight", torch, Op::Linear, &linear, "linear.backward-weight");
    let small = [n([32, 4096]), n([4096, 4096]), n([4096])];
    cases.add("linear 32x4096x4096", "linear 32 4096 4096", Op::Linear, &small, "linear");
    cases.add("linear.backward-data 32x4096²", "", Op::Linear, &small, "linear.backward-data");
    cases.add("linear.backward-weight 32x4096²", "", Op::Linear, &small, "linear.backward-weight");
    let narrow = [n([2048, 512]), n([10, 512]), n([10])];
    cases.add("linear 2048x512x10", "", Op::Linear, &narrow, "linear");
    cases.add("linear.backward-data 2048x512x10", "", Op::Linear, &narrow, "linear.backward-data");
    cases.add("linear.backward-weight 2048x512x10", "", Op::Linear, &narrow, "linear.backward-weight");
    let one = [n([1, 4096]), n([4096, 4096]), n([4096])];
    cases.add("linear 1x4096x4096", "", Op::Linear, &one, "linear");
    cases.add("linear.backward-data 1x4096²", "", Op::Linear, &one, "linear.backward-data");
    cases.add("linear.backward-weight 1x4096²", "", Op::Linear, &one, "linear.backward-weight");
    let product = Op::MatMul { transpose_a: false, transpose_b: false };
    cases.add("matmul 1024³", "matmul 1024", product.clone(), &[n([1024, 1024]); 2], "matmul");
    cases.add("matmul 64 of 128³", "", product, &[n([64, 128, 128]); 2], "matmul");
}

fn norms(cases: &mut Cases) {
    let batch = Op::BatchNorm { epsilon: 1e-5, momentum: 0.1 };
    for (x, about) in [([16, 64, 56, 56], "16 64 56"), ([64, 512, 4, 4], "64 512 4")] {
        let (c, state) = (n([x[1]]), Value::State(Shape::from([x[1]])));
        let all = [n(x), c, c, state, state];
        let name = format!("{}x{}x{}²", x[0], x[1], x[2]);
        cases.add(
            &format!("batch-norm {name}"),
            &format!("batch_norm {about}"),
            batch.clone(),
            &all,
            "batch-norm",
        );
        let (back, torch) = (format!("batch-norm.backward {name}"), format!("batch_norm_back {about}"));
        cases.add(&back, &torch, batch.clone(), &all, "batch-norm.backward");
    }
    let layer = Op::LayerNorm { epsilon: 1e-5 };
    let rows = [n([2048, 1024]), n([1024]), n([1024])];
    cases.add("layer-norm 2048x1024", "layer_norm 2048 1024", layer.clone(), &rows, "layer-norm");
    cases.add("layer-norm.backward", "layer_norm_back 2048 1024", layer, &rows, "layer-norm.backward");
    let response = Op::ResponseNorm(ResponseNorm { size: 5, alpha: 1e-4, beta: 0.75, bias: 1.0 });
    cases.add("response-norm 8x96x55²", "", response.clone(), &[n([8, 96, 55, 55])], "response-norm");
    cases.add("response-norm.backward", "", response, &[n([8, 96, 55, 55])], "response-norm.backward");
}

fn activations(cases: &mut Cases) {
    let image = [n([16, 64, 56, 56])];
    for (kind, kernel, back, torch) in [
        (Activation::Relu, "relu", "relu.backward", "relu"),
        (Activation::Relu6, "relu6", "relu6.backward", ""),
        (Activation::LeakyRelu { slope: 0.2 }, "leaky-relu", "leaky-relu.backward", ""),
        (Activation::Sigmoid, "sigmoid", "sigmoid.backward", "sigmoid"),
        (Activation::Tanh, "tanh", "tanh.backward", "tanh"),
        (Activation::Gelu, "gelu", "gelu.backward", "gelu"),
        (Activation::GeluTanh, "gelu-tanh", "gelu-tanh.backward", "gelu_tanh"),
        (Activation::Erf, "erf", "erf.backward", ""),
        (Activation::Exp, "exp", "exp.backward", ""),
        (Activation::Power { exponent: 3.0 }, "power", "power.backward", ""),
    ] {
        let torch =
            |suffix| if torch.is_empty() { String::new() } else { format!("{torch}{suffix} 16 64 56") };
        cases.add(kernel, &torch(""), Op::Activate(kind), &image, kernel);
        cases.add(back, &torch("_back"), Op::Activate(kind), &image, back);
    }
}

fn pools(cases: &mut Cases) {
    let image = [n([16, 64, 56, 56])];
    for (window, stride, padding) in [(2, 2, 0), (3, 2, 1), (3, 2, 0), (3, 1, 1), (5, 3, 0), (5, 1, 2)] {
        for (kind, kernel, back, torch) in [
            (PoolKind::Max, "max-pool", "max-pool.backward", "max_pool"),
            (
                PoolKind::Average { count_padding: false },
                "average-pool",
                "average-pool.backward",
                if padding == 0 { "avg_pool" } else { "" },
            ),
        ] {
            let (window, stride, sides) = ([window; 2], [stride; 2], [padding; 4]);
            let op = Op::Pool(Pool { kind, window, stride, padding: sides, ceil: false });
            let about = format!("{}/{} {padding}", window[0], stride[0]);
            for (kernel, suffix) in [(kernel, ""), (back, "_back")] {
                let torch = match torch {
                    "" => String::new(),
                    name => format!("{name}{suffix} 16 64 56 {} {} {padding}", window[0], stride[0]),
                };
                cases.add(&format!("{kernel} {about}"), &torch, op.clone(), &image, kernel);
            }
        }
    }
    let small = [n([64, 256, 8, 8])];
    let two =
        Op::Pool(Pool { kind: PoolKind::Max, window: [2; 2], stride: [2; 2], padding: [0; 4], ceil: false });
    cases.add("max-pool 2/2 of 8²", "max_pool 64 256 8 2 2 0", two.clone(), &small, "max-pool");
    cases.add(
        "max-pool.backward 2/2 of 8²",
        "max_pool_back 64 256 8 2 2 0",
        two,
        &small,
        "max-pool.backward",
    );
    for kind in [PoolKind::Max, PoolKind::Average { count_padding: false }] {
        let three = Op::Pool(Pool { kind, window: [3; 2], stride: [1; 2], padding: [1; 4], ceil: false });
        let (name, back) = match kind {
            PoolKind::Max => ("max-pool", "max-pool.backward"),
            _ => ("average-pool", "average-pool.backward"),
        };
        cases.add(&format!("{name} 3/1 of 8²"), "", three.clone(), &small, name);
        cases.add(&format!("{back} 3/1 of 8²"), "", three, &small, back);
    }
    cases.add("global-pool", "global_pool 16 64 56", Op::GlobalPool, &image, "global-pool");
    cases.add("global-pool.backward", "", Op::GlobalPool, &image, "global-pool.backward");
}

fn elements(cases: &mut Cases) {
    let image = n([16, 64, 56, 56]);
    cases.add("add", "add 16 64 56", Op::Add, &[image; 2], "add");
    cases.add("mul", "", Op::Mul, &[image; 2], "mul");
    let channels = [image, n([16, 64, 1, 1])];
    cases.add("mul stretched", "mul_stretched 16 64 56", Op::Mul, &channels, "mul");
    cases.add("sum-to channels", "", Op::Mul, &channels, "sum-to");
    cases.add("sum-to features", "", Op::Add, &[n([8, 256, 768]), n([768])], "sum-to");
    cases.add("sum-to positions", "", Op::Add, &[n([16, 128, 768]), n([128, 768])], "sum-to");
    cases.add("scale", "", Op::Scale { factor: 2.0 }, &[image], "scale");
    cases.add("dropout", "dropout 16 64 56", Op::Dropout { rate: 0.1, seed: 1 }, &[image], "dropout");
    cases.add("dropout.backward", "", Op::Dropout { rate: 0.1, seed: 1 }, &[image], "dropout.backward");
}

fn arrangement(cases: &mut Cases) {
    let image = n([16, 64, 56, 56]);
    cases.add("concat", "concat 16 64 56", Op::Concat { axis: 1 }, &[image; 2], "concat");
    cases.add("slice", "", Op::Slice { axis: 1, start: 16, length: 40 }, &[image], "slice");
    cases.add("split", "", Op::Split { axis: 2, sizes: vec![1024; 3] }, &[n([4, 256, 3072])], "split");
    cases.add("pad", "", Op::Pad { axis: 1, before: 8, after: 8 }, &[image], "pad");
    let heads = Op::Transpose { order: vec![0, 2, 1, 3] };
    cases.add("transpose 0213", "transpose0213 8 256 16 64", heads, &[n([8, 256, 16, 64])], "transpose");
    let matrix = Op::Transpose { order: vec![1, 0] };
    cases.add("transpose 01", "transpose01 2048 2048", matrix, &[n([2048, 2048])], "transpose");
    let last = Op::Transpose { order: vec![0, 2, 3, 1] };
    cases.add("transpose 0231", "", last, &[n([16, 64, 56, 56])], "transpose");
    let reversed = Op::Transpose { order: vec![2, 1, 0] };
    cases.add("transpose 210", "", reversed, &[n([64, 128, 256])], "transpose");
}

fn losses(cases: &mut Cases) {
    let rows = [n([2048, 1024])];
    cases.add("softmax 2048x1024", "softmax 2048 1024", Op::Softmax, &rows, "softmax");
    cases.add("softmax.backward", "softmax_back 2048 1024", Op::Softmax, &rows, "softmax.backward");
    let logits = [n([256, 10_000]), Value::Id(Shape::from([256]), 10_000)];
    let torch = "cross_entropy 256 10000";
    cases.add("cross-entropy 256x10000", torch, Op::CrossEntropy, &logits, "cross-entropy");
    cases.add("cross-entropy.backward", "", Op::CrossEntropy, &logits, "cross-entropy.backward");
    let few = [n([65_536, 10]), Value::Id(Shape::from([65_536]), 10)];
    cases.add("cross-entropy 65536x10", "cross_entropy 65536 10", Op::CrossEntropy, &few, "cross-entropy");
    cases.add("cross-entropy.backward 65536x10", "", Op::CrossEntropy, &few, "cross-entropy.backward");
    let pair = [n([16, 64, 56, 56]), Value::State(Shape::from([16, 64, 56, 56]))];
    cases.add("binary-cross-entropy", "", Op::BinaryCrossEntropy, &pair, "binary-cross-entropy");
    let back = "binary-cross-entropy.backward";
    cases.add(back, "", Op::BinaryCrossEntropy, &pair, back);
    cases.add("mean-square", "", Op::MeanSquare, &pair, "mean-square");
    cases.add("mean-square.backward", "", Op::MeanSquare, &pair, "mean-square.backward");
}

fn sequences(cases: &mut Cases) {
    for (causal, shape, heads) in
        [(true, [4, 256, 768], 12), (false, [4, 128, 1024], 16), (true, [16, 64, 128], 4)]
    {
        let attention = Op::Attention(Attention { heads, causal, dropout: 0.0, seed: 1 });
        let [b, t, w] = shape;
        let name = format!("{b}x{t}x{w}{}", if causal { " causal" } else { "" });
        let qkv = [n(shape); 3];
        let torch =
            |suffix| if causal { format!("attention{suffix} {b} {t} {w} {heads}") } else { String::new() };
        cases.add(&format!("attention {name}"), &torch(""), attention.clone(), &qkv, "attention");
        let back = format!("attention.backward {name}");
        cases.add(&back, &torch("_back"), attention, &qkv, "attention.backward");
    }
    let dropped = Op::Attention(Attention { heads: 12, causal: true, dropout: 0.1, seed: 1 });
    cases.add("attention with dropout", "", dropped.clone(), &[n([4, 256, 768]); 3], "attention");
    cases.add("attention.backward with dropout", "", dropped, &[n([4, 256, 768]); 3], "attention.backward");
    let cell = [n([64, 650]), n([64, 650]), n([64, 650]), n([2600, 650]), n([2600, 650]), n([2600])];
    cases.add("lstm-cell 64x650", "lstm 64 650", Op::LstmCell, &cell, "lstm-cell");
    cases.add("lstm-cell.backward-data", "", Op::LstmCell, &cell, "lstm-cell.backward-data");
    cases.add("lstm-cell.backward-weight", "", Op::LstmCell, &cell, "lstm-cell.backward-weight");
}

fn tables(cases: &mut Cases) {
    for (rows, width, ids) in [(50_000, 256, 8192), (100_000, 16, 65_536), (30_000, 1024, 4096)] {
        let table = [n([rows, width]), Value::Id(Shape::from([ids]), rows)];
        let lookup = Op::Embedding { bag: false };
        let (name, torch) = (format!("{ids} of {rows}x{width}"), format!("embedding {rows} {width} {ids}"));
        cases.add(&format!("embedding {name}"), &torch, lookup.clone(), &table, "embedding");
        cases.add(&format!("sgd-rows {name}"), "", lookup.clone(), &table, "sgd-rows");
        cases.add(&format!("adamw-rows {name}"), "", lookup, &table, "adamw-rows");
    }
    let bags = [n([100_000, 64]), Value::Id(Shape::from([2048, 20]), 100_000)];
    cases.add("embedding 2048 bags of 20, 64 wide", "", Op::Embedding { bag: true }, &bags, "embedding");
    cases.add("sgd-rows 2048 bags of 20, 64 wide", "", Op::Embedding { bag: true }, &bags, "sgd-rows");
    for (batch, features, width) in [(2048, 27, 16), (2048, 27, 64), (512, 27, 128), (4096, 9, 32)] {
        let (name, all) = (format!("{batch}x{features}x{width}"), vec![n([batch, width]); features]);
        cases.add(&format!("dot-interaction {name}"), "", Op::DotInteraction, &all, "dot-interaction");
        let back = "dot-interaction.backward";
        cases.add(&format!("{back} {name}"), "", Op::DotInteraction, &all, back);
    }
}

fn updates(cases: &mut Cases) {
    let weight = [n([1, 2048]), n([2048, 2048])];
    cases.add("sgd with momentum", "sgd 2048 2048", Op::Linear, &weight, "sgd");
    cases.add("adamw", "adamw 2048 2048", Op::Linear, &weight, "adamw");
}
