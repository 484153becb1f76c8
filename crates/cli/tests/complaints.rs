//! What a user is told: every error in one line, that names the thing and what would do. Nothing else is printed.

mod shell;

use expect_test::{Expect, expect};
use shell::{Folder, complains, tiercel};

fn check(arguments: &str, status: i32, expected: Expect) {
    complains(&arguments.split(' ').collect::<Vec<_>>(), status, expected);
}

#[test]
fn names_that_do_not_exist() {
    check("plan resnet-200 --machine cxl", 1, expect![""]);
    check("run resnet-200 --machine cxl", 1, expect![""]);
    check("compare vgg19,resnet-200 --machine cxl", 1, expect![""]);
    check("compare vgg19 --machine optane", 1, expect![""]);
    check("plan vgg19 --machine optane-autotn", 1, expect![""]);
    check("run vgg19 --machine optane-autotm --system autotm", 1, expect![""]);
    check("plan vgg19 --machine optane-autotm --system magic", 1, expect![""]);
    check("compare vgg19 --machine optane-autotm --systems first-touch,sentinal-x", 1, expect![""]);
    check("reproduce autotn", 1, expect![""]);
    check("reproduce everything", 1, expect![""]);
}

#[test]
fn files_that_cannot_be_read() {
    check("plan /no/such/trace --machine cxl", 1, expect![""]);
    check("run mlp --machine /no/such/machine.toml", 1, expect![""]);
    check("run mlp --machine missing.toml", 1, expect![""]);
    check("run mlp --plan /no/such/plan.json", 1, expect![""]);
}

#[test]
fn files_that_say_the_wrong_thing() {
    let folder = Folder::new("wrong");
    let binary = folder.file("binary.toml", [0xFF, 0xFE, 0x00]);
    let half = folder.file("half.toml", "name = \"half\"\n");
    let slow = folder.file(
        "slow.toml",
        "name = \"slow\"\n[[tier]]\nname = \"a\"\ncapacity = \"1 GiB\"\nread = \"0 GB/s\"\nwrite = \"1 GB/s\"\n",
    );
    let like = folder.file(
        "like.toml",
        "name = \"copycat\"\n[[tier]]\nname = \"a\"\ncapacity = \"1 GiB\"\nread = \"1 GB/s\"\nwrite = \"1 GB/s\"\n\
         [kernels]\nlike = \"optane-autotn\"\n",
    );
    let says = |file: &str, expected: Expect| {
        let output = tiercel(&["run", "mlp", "--machine", file]);
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).expect("text").replace(file, "FILE");
        expected.assert_eq(&text);
    };
    says(&binary, expect![""]);
    says(&half, expect![""]);
    says(&slow, expect![""]);
    says(&like, expect![""]);

    let plays = |plan: &str, expected: Expect| {
        let output = tiercel(&["run", "mlp", "--batch", "8", "--machine", "optane-autotm", "--plan", plan]);
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).expect("text").replace(plan, "FILE");
        expected.assert_eq(&text);
    };
    plays(&folder.file("empty.json", ""), expect![""]);
    plays(&folder.file("other.json", "{\"net\": \"mlp\"}"), expect![""]);
    let plan = |net: &str, fast: u64, moves: &str| {
        format!(
            "{{\"net\":\"{net}\",\"machine\":\"optane-autotm\",\"fast_bytes\":{fast},\"iteration_ns\":1.0,\
             \"bound_ns\":1.0,\"births\":[],\"moves\":[{moves}]}}"
        )
    };
    plays(&folder.file("net.json", plan("vgg19", 1 << 30, "")), expect![""]);
    plays(&folder.file("small.json", plan("mlp", 1 << 20, "")), expect![""]);
    let ghost =
        "{\"start\":0,\"done\":0,\"tensor\":\"ghost\",\"action\":\"move\",\"from\":\"dram\",\"to\":\"pm\"}";
    plays(&folder.file("ghost.json", plan("mlp", 1 << 30, ghost)), expect![""]);
    let trace = folder.file("empty.trace", "");
    let output = tiercel(&["run", &trace, "--machine", "cxl"]);
    let text = String::from_utf8(output.stderr).expect("text").replace(&trace, "FILE");
    expect![""].assert_eq(&text);
}

#[test]
fn memory_that_is_not_enough() {
    check("plan resnet50 --machine h200 --fast 1%", 1, expect![""]);
    check("run resnet50 --machine h200 --fast 1MiB --system cachedarrays-lm", 1, expect![""]);
    check("run vgg19 --batch 64 --machine dram-throttled --system cachedarrays-lm", 1, expect![""]);
    check("compare resnet50 --machine h200 --fast 1% --systems cachedarrays-lm", 1, expect![""]);
    check("plan mlp --machine optane-autotm --within 1% --system slow-only", 1, expect![""]);
}

#[test]
fn places_that_cannot_be_written() {
    check("plan mlp --machine optane-autotm --out /no/such/folder/plan.json", 1, expect![""]);
    check("plan mlp --machine optane-autotm --system first-touch --out plan.json", 1, expect![""]);
    check("plan mlp --machine optane-autotm --fast 20%,40% --out plan.json", 1, expect![""]);
    check(
        "compare mlp --machine optane-autotm --systems first-touch --out /no/such/folder/all.json",
        1,
        expect![""],
    );
    check("describe mlp --out /no/such/folder/mlp.trace", 1, expect![""]);
    check("probe --file /no/such/folder/file", 1, expect![""]);
}

#[test]
fn command_lines_that_cannot_be_read() {
    check("plan mlp --fast lots", 2, expect![""]);
    check("plan mlp --fast 0%", 2, expect![""]);
    check("plan mlp --within much", 2, expect![""]);
    check("plan mlp --within 5% --fast 20%", 2, expect![""]);
    check("plan mlp --time never", 2, expect![""]);
    check("run mlp --on moon", 2, expect![""]);
    check("run mlp --iterations 0", 2, expect![""]);
    check("run mlp --plan p.json --system autotm-sync", 2, expect![""]);
    check("compare", 2, expect![""]);
    check("list trees", 2, expect![""]);
    check("probe --file . --no-file", 2, expect![""]);
    check("completions tcsh", 2, expect![""]);
    check("rn", 2, expect![""]);
}

#[test]
fn traces_cannot_be_computed_on() {
    let folder = Folder::new("trace");
    let trace = folder.path("mlp.trace");
    assert!(tiercel(&["describe", "mlp", "--batch", "8", "--out", &trace]).status.success());
    let output = tiercel(&["run", &trace, "--on", "host", "--machine", "dram-throttled"]);
    assert_eq!(output.status.code(), Some(1));
    expect![""].assert_eq(&String::from_utf8_lossy(&output.stderr));
    assert!(
        tiercel(&["run", &trace, "--machine", "optane-autotm", "--system", "cachedarrays-lm"])
            .status
            .success()
    );
}
