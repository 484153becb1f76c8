//! Training traces of tiny networks, kernel by kernel, as one derives them by hand.

use expect_test::{Expect, expect};
use tiercel_workload::graph::{Activation, Builder, ConvLayer, DType, Op, Optimizer};
use tiercel_workload::schedule::{Options, Program, Updates};
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

fn check(write: impl FnOnce(&mut Builder), options: Options, expected: Expect) {
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
        Options::default(),
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
        Options { in_place: false, updates: Updates::WhenReady },
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
        Options::default(),
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
        Options::default(),
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
