//! Training traces of tiny networks, kernel by kernel, as one derives them by hand.

use expect_test::{Expect, expect};
use tiercel_workload::graph::{Activation, Builder, ConvLayer, DType, Init, Op, Optimizer, cost};
use tiercel_workload::schedule::{Program, ScheduleOptions, Updates};
use tiercel_workload::{TensorId, Trace};

/// One line a kernel: what it reads and writes, a `!` behind what it changes in place.
fn listing(trace: &Trace) -> String {
    let name = |t: TensorId| trace.tensor(t).name.clone();
    let mut text = String::new();
    for kernel in &trace.kernels {
        let inside = |t: TensorId| kernel.reads.iter().any(|u| u.tensor == t);
        let reads: Vec<String> = kernel.reads.iter().map(|u| name(u.tensor)).collect();
        let mark = |t: TensorId| if inside(t) { "!" } else { "" };
        let writes: Vec<String> =
            kernel.writes.iter().map(|u| format!("{}{}", name(u.tensor), mark(u.tensor))).collect();
        text += &format!("{}: {} -> {}\n", kernel.op, reads.join(" "), writes.join(" "));
    }
    text
}

fn check(write: impl FnOnce(&mut Builder), options: ScheduleOptions, expected: Expect) {
    let mut b = Builder::new("tiny", DType::F32);
    write(&mut b);
    let program = Program::new(b.finish().expect("fits"), options);
    assert_eq!(program.graph.nodes.len(), program.trace.kernels.len());
    for (node, kernel) in program.graph.nodes.iter().zip(&program.trace.kernels) {
        assert_eq!(node.name, kernel.name);
    }
    expected.assert_eq(&listing(&program.trace));
}

fn mlp(b: &mut Builder) {
    let x = b.input("x", [2, 4]);
    b.layer("fc1");
    let h = b.linear(x, 8);
    let h = b.relu(h);
    b.layer("fc2");
    let logits = b.linear(h, 3);
    let loss = b.cross_entropy(logits, "labels");
    b.train(&[loss], Optimizer::MOMENTUM);
}

#[test]
fn perceptron() {
    check(
        mlp,
        ScheduleOptions::default(),
        expect![[r#"
        linear: x fc1.weight fc1.bias -> fc1.linear
        relu: fc1.linear -> fc1.linear!
        linear: fc1.linear fc2.weight fc2.bias -> fc2.linear
        cross-entropy: fc2.linear labels -> fc2.cross-entropy fc2.linear!
        cross-entropy.backward: fc2.linear labels -> fc2.linear!
        linear.backward-weight: fc1.linear fc2.linear -> fc2.weight.grad fc2.bias.grad
        linear.backward-data: fc2.weight fc2.linear -> fc1.relu.grad
        relu.backward: fc1.linear fc1.relu.grad -> fc1.relu.grad!
        linear.backward-weight: x fc1.relu.grad -> fc1.weight.grad fc1.bias.grad
        sgd: fc1.weight fc1.weight.grad fc1.weight.momentum -> fc1.weight! fc1.weight.momentum!
        sgd: fc1.bias fc1.bias.grad fc1.bias.momentum -> fc1.bias! fc1.bias.momentum!
        sgd: fc2.weight fc2.weight.grad fc2.weight.momentum -> fc2.weight! fc2.weight.momentum!
        sgd: fc2.bias fc2.bias.grad fc2.bias.momentum -> fc2.bias! fc2.bias.momentum!
    "#]],
    );
}

#[test]
fn perceptron_with_early_updates_and_nothing_in_place() {
    check(
        mlp,
        ScheduleOptions { in_place: false, updates: Updates::WhenReady },
        expect![[r#"
        linear: x fc1.weight fc1.bias -> fc1.linear
        relu: fc1.linear -> fc1.relu
        linear: fc1.relu fc2.weight fc2.bias -> fc2.linear
        cross-entropy: fc2.linear labels -> fc2.cross-entropy fc2.cross-entropy.probabilities
        cross-entropy.backward: fc2.cross-entropy.probabilities labels -> fc2.linear.grad
        linear.backward-weight: fc1.relu fc2.linear.grad -> fc2.weight.grad fc2.bias.grad
        sgd: fc2.bias fc2.bias.grad fc2.bias.momentum -> fc2.bias! fc2.bias.momentum!
        linear.backward-data: fc2.weight fc2.linear.grad -> fc1.relu.grad
        sgd: fc2.weight fc2.weight.grad fc2.weight.momentum -> fc2.weight! fc2.weight.momentum!
        relu.backward: fc1.relu fc1.relu.grad -> fc1.linear.grad
        linear.backward-weight: x fc1.linear.grad -> fc1.weight.grad fc1.bias.grad
        sgd: fc1.weight fc1.weight.grad fc1.weight.momentum -> fc1.weight! fc1.weight.momentum!
        sgd: fc1.bias fc1.bias.grad fc1.bias.momentum -> fc1.bias! fc1.bias.momentum!
    "#]],
    );
}

#[test]
fn residual_block() {
    let net = |b: &mut Builder| {
        let x = b.input("x", [1, 3, 8, 8]);
        b.layer("stem");
        let x = b.conv(x, ConvLayer::new(4, 3).same().no_bias());
        let x = b.relu(x);
        b.layer("branch");
        let y = b.conv(x, ConvLayer::new(4, 3).same().no_bias());
        let y = b.batch_norm(y);
        let y = b.add(y, x);
        let y = b.relu(y);
        b.layer("head");
        let y = b.max_pool(y, 2, 2, 0);
        let y = b.global_pool(y);
        let logits = b.linear(y, 2);
        let loss = b.cross_entropy(logits, "labels");
        b.train(&[loss], Optimizer::SGD);
    };
    check(
        net,
        ScheduleOptions::default(),
        expect![[r#"
        conv: x stem.weight -> stem.conv
        relu: stem.conv -> stem.conv!
        conv: stem.conv branch.weight -> branch.conv
        batch-norm: branch.conv branch.gamma branch.beta branch.running-mean branch.running-variance -> branch.batch-norm branch.batch-norm.mean branch.batch-norm.deviation branch.running-mean! branch.running-variance!
        add: branch.batch-norm stem.conv -> branch.batch-norm!
        relu: branch.batch-norm -> branch.batch-norm!
        max-pool: branch.batch-norm -> head.max-pool
        global-pool: head.max-pool -> head.global-pool
        linear: head.global-pool head.weight head.bias -> head.linear
        cross-entropy: head.linear labels -> head.cross-entropy head.linear!
        cross-entropy.backward: head.linear labels -> head.linear!
        linear.backward-weight: head.global-pool head.linear -> head.weight.grad head.bias.grad
        linear.backward-data: head.weight head.linear -> head.global-pool.view.grad
        global-pool.backward: head.global-pool.view.grad -> head.max-pool.grad
        max-pool.backward: branch.batch-norm head.max-pool.grad -> branch.relu.grad
        relu.backward: branch.batch-norm branch.relu.grad -> branch.relu.grad!
        batch-norm.backward: branch.conv branch.gamma branch.batch-norm.mean branch.batch-norm.deviation branch.relu.grad -> branch.conv.grad branch.gamma.grad branch.beta.grad
        conv.backward-weight: stem.conv branch.conv.grad -> branch.weight.grad
        conv.backward-data: branch.weight branch.conv.grad -> stem.relu.grad
        add: branch.relu.grad stem.relu.grad -> branch.relu.grad!
        relu.backward: stem.conv branch.relu.grad -> branch.relu.grad!
        conv.backward-weight: x branch.relu.grad -> stem.weight.grad
        sgd: stem.weight stem.weight.grad -> stem.weight!
        sgd: branch.weight branch.weight.grad -> branch.weight!
        sgd: branch.gamma branch.gamma.grad -> branch.gamma!
        sgd: branch.beta branch.beta.grad -> branch.beta!
        sgd: head.weight head.weight.grad -> head.weight!
        sgd: head.bias head.bias.grad -> head.bias!
    "#]],
    );
}

#[test]
fn shared_table_gets_a_dense_gradient_and_a_lone_one_gets_rows() {
    let net = |b: &mut Builder| {
        let ids = b.ids("ids", [2, 3], 10);
        b.layer("words");
        let x = b.embedding(ids, 10, 4);
        let table = b.weights()[0];
        b.layer("positions");
        let places = b.ids("places", [2, 3], 3);
        let p = b.embedding(places, 3, 4);
        let x = b.add(x, p);
        let x = b.activate(x, Activation::Gelu);
        b.layer("head");
        let logits = b.apply(Op::Linear, &[x, table]);
        let loss = b.cross_entropy(logits, "labels");
        b.train(&[loss], Optimizer::SGD);
    };
    check(
        net,
        ScheduleOptions::default(),
        expect![[r#"
        embedding: words.table ids -> words.embedding
        embedding: positions.table places -> positions.embedding
        add: words.embedding positions.embedding -> words.embedding!
        gelu: words.embedding -> positions.gelu
        linear: positions.gelu words.table -> head.linear
        cross-entropy: head.linear labels -> head.cross-entropy head.linear!
        cross-entropy.backward: head.linear labels -> head.linear!
        linear.backward-weight: positions.gelu head.linear -> words.table.grad
        linear.backward-data: words.table head.linear -> positions.gelu.grad
        gelu.backward: words.embedding positions.gelu.grad -> positions.gelu.grad!
        embedding.backward: ids positions.gelu.grad -> words.table.grad.2
        add: words.table.grad words.table.grad.2 -> words.table.grad!
        sgd: words.table words.table.grad -> words.table!
        sgd-rows: positions.table places positions.gelu.grad -> positions.table!
    "#]],
    );
}

#[test]
fn products_in_every_orientation() {
    for (ta, tb) in [(false, false), (false, true), (true, false), (true, true)] {
        let mut b = Builder::new("tiny", DType::F32);
        b.layer("product");
        let x = b.weight("a", if ta { [5, 3, 2] } else { [5, 2, 3] }, Init::Normal(1.0));
        let y = b.weight("b", if tb { [5, 4, 3] } else { [5, 3, 4] }, Init::Normal(1.0));
        let product = b.apply(Op::MatMul { transpose_a: ta, transpose_b: tb }, &[x, y]);
        let loss = b.cross_entropy(product, "labels");
        // The builder checks that every backward product has the shape of what it is a gradient by.
        b.train(&[loss], Optimizer::SGD);
        let graph = b.finish().expect("fits");
        assert_eq!(graph.nodes.iter().filter(|n| n.op.name() == "matmul").count(), 3);
        let macs: Vec<u64> = graph.nodes.iter().map(|n| cost::macs(&graph, n)).filter(|m| *m > 0).collect();
        assert_eq!(macs, [5 * 2 * 3 * 4; 3]);
    }
}

#[test]
fn recurrent_cells_share_their_weights() {
    let net = |b: &mut Builder| {
        let xs = [b.input("x1", [2, 3]), b.input("x2", [2, 3])];
        b.layer("cell");
        let wx = b.weight("wx", [16, 3], Init::Normal(0.1));
        let wh = b.weight("wh", [16, 4], Init::Normal(0.1));
        let bias = b.weight("bias", [16], Init::Constant(0.0));
        let (mut h, mut c) = (b.input("h0", [2, 4]), b.input("c0", [2, 4]));
        for x in xs {
            let results = b.apply_all(Op::LstmCell, &[x, h, c, wx, wh, bias]);
            (h, c) = (results[0], results[1]);
        }
        b.layer("head");
        let loss = b.cross_entropy(h, "labels");
        b.train(&[loss], Optimizer::SGD);
    };
    check(
        net,
        ScheduleOptions::default(),
        expect![[r#"
            lstm-cell: x1 h0 c0 cell.wx cell.wh cell.bias -> cell.lstm-cell cell.lstm-cell.cell cell.lstm-cell.gates
            lstm-cell: x2 cell.lstm-cell cell.lstm-cell.cell cell.wx cell.wh cell.bias -> cell.lstm-cell.2 cell.lstm-cell.2.cell cell.lstm-cell.2.gates
            cross-entropy: cell.lstm-cell.2 labels -> head.cross-entropy cell.lstm-cell.2!
            cross-entropy.backward: cell.lstm-cell.2 labels -> cell.lstm-cell.2!
            fill:  -> cell.lstm-cell.2.cell.grad
            lstm-cell.backward-data: cell.lstm-cell.cell cell.lstm-cell.2.cell cell.wx cell.wh cell.lstm-cell.2.gates cell.lstm-cell.2 cell.lstm-cell.2.cell.grad -> x2.grad cell.lstm-cell.grad cell.lstm-cell.cell.grad cell.lstm-cell.2.gates!
            lstm-cell.backward-data: c0 cell.lstm-cell.cell cell.wx cell.wh cell.lstm-cell.gates cell.lstm-cell.grad cell.lstm-cell.cell.grad -> x1.grad h0.grad c0.grad cell.lstm-cell.gates!
            lstm-cell.backward-weight: x2 cell.lstm-cell cell.lstm-cell.2.gates -> cell.wx.grad cell.wh.grad cell.bias.grad
            lstm-cell.backward-weight: x1 h0 cell.lstm-cell.gates cell.wx.grad cell.wh.grad cell.bias.grad -> cell.wx.grad! cell.wh.grad! cell.bias.grad!
            sgd: cell.wx cell.wx.grad -> cell.wx!
            sgd: cell.wh cell.wh.grad -> cell.wh!
            sgd: cell.bias cell.bias.grad -> cell.bias!
        "#]],
    );
}

#[test]
fn no_gradient_passes_a_detached_value() {
    let net = |b: &mut Builder| {
        let x = b.input("x", [2, 4]);
        b.layer("first");
        let h = b.linear(x, 4);
        b.layer("second");
        let h = b.detach(h);
        let logits = b.linear(h, 3);
        let loss = b.cross_entropy(logits, "labels");
        b.train(&[loss], Optimizer::SGD);
    };
    check(
        net,
        ScheduleOptions::default(),
        expect![[r#"
        linear: x first.weight first.bias -> first.linear
        linear: first.linear second.weight second.bias -> second.linear
        cross-entropy: second.linear labels -> second.cross-entropy second.linear!
        cross-entropy.backward: second.linear labels -> second.linear!
        linear.backward-weight: first.linear second.linear -> second.weight.grad second.bias.grad
        sgd: second.weight second.weight.grad -> second.weight!
        sgd: second.bias second.bias.grad -> second.bias!
    "#]],
    );
}

/// A mean of squares has targets of its own; powers and the error function keep their operand for the gradient, the
/// exponential its result.
#[test]
fn mean_of_squares_behind_functions() {
    let functions = [Activation::Exp, Activation::Power { exponent: -0.5 }, Activation::Erf];
    check(
        |b| {
            let x = b.input("x", [2, 4]);
            b.layer("fc");
            let mut x = b.linear(x, 3);
            for function in functions {
                x = b.activate(x, function);
            }
            let targets = b.input("targets", [2, 3]);
            let loss = b.apply(Op::MeanSquare, &[x, targets]);
            b.keep(loss);
            b.train(&[loss], Optimizer::SGD);
        },
        ScheduleOptions::default(),
        expect![[r#"
            linear: x fc.weight fc.bias -> fc.linear
            exp: fc.linear -> fc.linear!
            power: fc.linear -> fc.power
            erf: fc.power -> fc.erf
            mean-square: fc.erf targets -> fc.mean-square
            mean-square.backward: fc.erf targets -> fc.erf!
            erf.backward: fc.power fc.erf -> fc.erf!
            power.backward: fc.linear fc.erf -> fc.erf!
            exp.backward: fc.linear fc.erf -> fc.erf!
            linear.backward-weight: x fc.erf -> fc.weight.grad fc.bias.grad
            sgd: fc.weight fc.weight.grad -> fc.weight!
            sgd: fc.bias fc.bias.grad -> fc.bias!
        "#]],
    );
}
