//! What a user is told: every error in one line, that names the thing and what would do. Nothing else is printed.

mod shell;

use expect_test::{Expect, expect};
use shell::{Folder, complains, tiercel};

fn check(arguments: &str, status: i32, expected: Expect) {
    complains(&arguments.split(' ').collect::<Vec<_>>(), status, expected);
}

#[test]
fn names_that_do_not_exist() {
    check(
        "plan resnet-200 --machine cxl",
        2,
        expect![[r#"
        tiercel: no network `resnet-200`; did you mean `resnet200`?
    "#]],
    );
    check(
        "run resnet-200 --machine cxl",
        2,
        expect![[r#"
        tiercel: no network `resnet-200`; did you mean `resnet200`?
    "#]],
    );
    check(
        "compare vgg19,resnet-200 --machine cxl",
        2,
        expect![[r#"
        tiercel: no network `resnet-200`; did you mean `resnet200`?
    "#]],
    );
    check(
        "compare vgg19 --machine optane",
        2,
        expect![[r#"
        tiercel: no machine `optane`; there are optane-autotm, optane-cachedarrays, optane-sentinel, redl, optane-4tier, optane-4tier-emulated, v100, rtx6000, h200, h100, a100-80gb, a100-40gb, rtx3090, rtx4090, rtx5090, l40s, a10g, cxl, dram-throttled
    "#]],
    );
    check(
        "plan vgg19 --machine heer",
        2,
        expect![[r#"
        tiercel: no machine `heer`; did you mean `here`?
    "#]],
    );
    check(
        "plan vgg19 --machine optane-autotn",
        2,
        expect![[r#"
        tiercel: no machine `optane-autotn`; did you mean `optane-autotm`?
    "#]],
    );
    check(
        "reproduce autotn",
        2,
        expect![[r#"
        tiercel: no paper `autotn`; did you mean `autotm`?
    "#]],
    );
    check(
        "reproduce everything",
        2,
        expect![[r#"
            tiercel: no paper `everything`; there are autotm, cachedarrays, redl, sentinel, hm-keeper, warpx-pm, zero-offload, dynn-offload
        "#]],
    );
}

/// The list of systems grows, so only its beginning is fixed here.
#[test]
fn systems_that_do_not_exist() {
    for (arguments, name) in [
        ("run vgg19 --machine optane-autotm --system spell", "spell"),
        ("plan vgg19 --machine optane-autotm --system magic", "magic"),
        ("compare vgg19 --machine optane-autotm --systems first-touch,sorcery", "sorcery"),
    ] {
        let output = tiercel(&arguments.split(' ').collect::<Vec<_>>());
        let complaint = String::from_utf8(output.stderr).expect("text");
        let expected = format!("tiercel: no system `{name}`; there are fast-only, slow-only, first-touch, ");
        assert!(complaint.starts_with(&expected) && complaint.lines().count() == 1, "{complaint}");
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0));
    }
    check(
        "run vgg19 --machine optane-autotm --system autotm-sink",
        2,
        expect![[r#"
            tiercel: no system `autotm-sink`; did you mean `autotm-sync`?
        "#]],
    );
}

#[test]
fn files_that_cannot_be_read() {
    check(
        "plan /no/such/trace --machine cxl",
        1,
        expect![[r#"
        tiercel: cannot read `/no/such/trace`: No such file or directory (os error 2)
    "#]],
    );
    check(
        "run mlp --machine /no/such/machine.toml",
        1,
        expect![[r#"
        tiercel: cannot read `/no/such/machine.toml`: No such file or directory (os error 2)
    "#]],
    );
    check(
        "run mlp --machine missing.toml",
        1,
        expect![[r#"
        tiercel: cannot read `missing.toml`: No such file or directory (os error 2)
    "#]],
    );
    check(
        "run mlp --plan /no/such/plan.json",
        1,
        expect![[r#"
        tiercel: cannot read `/no/such/plan.json`: No such file or directory (os error 2)
    "#]],
    );
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
    says(
        &binary,
        expect![[r#"
        tiercel: FILE: machine file: it is not text
    "#]],
    );
    says(
        &half,
        expect![[r#"
            tiercel: FILE: machine file: TOML parse error at line 1, column 1
              |
            1 | name = "half"
              | ^
            missing field `tier`
        "#]],
    );
    says(
        &slow,
        expect![[r#"
        tiercel: FILE: machine `slow`: tier `a`: read bandwidth must be above zero
    "#]],
    );
    says(
        &like,
        expect![[r#"
        tiercel: machine `copycat`: kernels are like those of `optane-autotn`: no machine `optane-autotn`; did you mean `optane-autotm`?
    "#]],
    );

    let plays = |plan: &str, expected: Expect| {
        let output = tiercel(&["run", "mlp", "--batch", "8", "--machine", "optane-autotm", "--plan", plan]);
        assert_eq!(output.status.code(), Some(1));
        let text = String::from_utf8(output.stderr).expect("text").replace(plan, "FILE");
        expected.assert_eq(&text);
    };
    plays(
        &folder.file("empty.json", ""),
        expect![[r#"
        tiercel: FILE: not a plan: EOF while parsing a value at line 1 column 0
    "#]],
    );
    plays(
        &folder.file("other.json", "{\"net\": \"mlp\"}"),
        expect![[r#"
        tiercel: FILE: not a plan: missing field `machine` at line 1 column 14
    "#]],
    );
    let plan = |net: &str, fast: u64, moves: &str| {
        format!(
            "{{\"net\":\"{net}\",\"machine\":\"optane-autotm\",\"fast_bytes\":{fast},\"iteration_ns\":1.0,\
             \"bound_ns\":1.0,\"births\":[],\"moves\":[{moves}]}}"
        )
    };
    plays(
        &folder.file("net.json", plan("vgg19", 1 << 30, "")),
        expect![[r#"
        tiercel: the plan does not fit: the plan is for `vgg19`, the trace is `mlp`
    "#]],
    );
    plays(
        &folder.file("small.json", plan("mlp", 1 << 20, "")),
        expect![[r#"
        tiercel: the plan does not fit: step 0: dram holds 11.2 MiB for hidden1.linear and others; it has 1 MiB
    "#]],
    );
    let ghost =
        "{\"start\":0,\"done\":0,\"tensor\":\"ghost\",\"action\":\"move\",\"from\":\"dram\",\"to\":\"pm\"}";
    plays(
        &folder.file("ghost.json", plan("mlp", 1 << 30, ghost)),
        expect![[r#"
        tiercel: the plan does not fit: the plan names the tensor `ghost`, which does not exist
    "#]],
    );
    let trace = folder.file("empty.trace", "");
    let output = tiercel(&["run", &trace, "--machine", "cxl"]);
    let text = String::from_utf8(output.stderr).expect("text").replace(&trace, "FILE");
    expect![[r#"
        tiercel: FILE: line 1, column 1: a trace starts with `tiercel-trace 1`
    "#]]
    .assert_eq(&text);
}

#[test]
fn memory_that_is_not_enough() {
    check(
        "plan resnet50 --machine h200 --fast 1%",
        1,
        expect![[r#"
        tiercel: with 1% of fast memory: tiercel: conv1.conv (step 0) cannot work with 53.7 MiB of hbm; all kernels can with 588 MiB
    "#]],
    );
    check(
        "run resnet50 --machine h200 --fast 1MiB --system cachedarrays-lm",
        1,
        expect![[r#"
        tiercel: cachedarrays-lm, kernel conv1.conv: step 0 works on 233 MiB at once; the tiers that kernels can work on hold 1 MiB
    "#]],
    );
    check(
        "run vgg19 --batch 64 --machine dram-throttled --system cachedarrays-lm",
        1,
        expect![[r#"
        tiercel: cachedarrays-lm: slow: conv4_3.weight.momentum needs 9 MiB; 5.58 MiB free, largest piece 5.58 MiB
    "#]],
    );
    check(
        "compare resnet50 --machine h200 --fast 1% --systems cachedarrays-lm",
        1,
        expect![[r#"
        tiercel: nothing could be run: cachedarrays-lm, kernel conv1.conv: step 0 works on 233 MiB at once; the tiers that kernels can work on hold 53.7 MiB
    "#]],
    );
    check(
        "plan mlp --machine optane-autotm --within 1% --system slow-only",
        1,
        expect![[r#"
        tiercel: slow-only is never within 1 % of fast-only (1.61 ms), not even with 28.9 MiB of fast memory
    "#]],
    );
}

#[test]
fn what_cannot_be_measured() {
    check(
        "profile resnet-200",
        2,
        expect![[r#"
        tiercel: no network `resnet-200`; did you mean `resnet200`?
    "#]],
    );
    check(
        "profile mlp --machine optane-autotm",
        1,
        expect![[r#"
        tiercel: kernels can be measured on this machine alone, and `optane-autotm` is another; give `--machine here`
    "#]],
    );
    check(
        "plan mlp --machine cxl --times measured",
        1,
        expect![[r#"
        tiercel: kernels can be measured on this machine alone, and `cxl` is another; give `--machine here`
    "#]],
    );
    check(
        "profile mlp --machine dram-throttled --slow throttled",
        2,
        expect![[r#"
        tiercel: --slow goes with `--machine here`; `dram-throttled` has a slow tier
    "#]],
    );
    check(
        "profile mlp --slow floppy",
        2,
        expect![[r#"
        error: invalid value 'floppy' for '--slow <BACKING>': `floppy` is not a backing; there are dram, numa:NODE, dax:PATH, file:PATH and throttled

        For more information, try '--help'.
    "#]],
    );
    check(
        "profile mlp --slow file:/no/such/folder/file",
        1,
        expect![[r#"
            tiercel: there is no folder `/no/such/folder/file`
        "#]],
    );
    check(
        "profile mlp --out /no/such/folder/mlp.trace",
        1,
        expect![[r#"
        tiercel: cannot write `/no/such/folder/mlp.trace`: there is no folder `/no/such/folder`
    "#]],
    );
    check(
        "profile mlp --threads 0",
        2,
        expect![[r#"
            error: invalid value '0' for '--threads <N>': `0` is no number of threads between 1 and 4096

            For more information, try '--help'.
        "#]],
    );
    let folder = Folder::new("measured-trace");
    let trace = folder.path("mlp.trace");
    assert!(tiercel(&["describe", "mlp", "--batch", "8", "--out", &trace]).status.success());
    for arguments in
        [&["profile", &trace][..], &["run", &trace, "--machine", "dram-throttled", "--times", "measured"]]
    {
        let output = tiercel(arguments);
        assert_eq!(output.status.code(), Some(1));
        expect![[r#"
            tiercel: FILE: a trace says what is computed on, not how; only a network can be measured
        "#]]
        .assert_eq(&String::from_utf8_lossy(&output.stderr).replace(&trace, "FILE"));
    }
}

#[test]
fn places_that_cannot_be_written() {
    check(
        "plan mlp --machine optane-autotm --out /no/such/folder/plan.json",
        1,
        expect![[r#"
            tiercel: cannot write `/no/such/folder/plan.json`: there is no folder `/no/such/folder`
        "#]],
    );
    check(
        "plan mlp --machine optane-autotm --system first-touch --out plan.json",
        1,
        expect![[r#"
        tiercel: first-touch does not plan ahead: there is no plan
    "#]],
    );
    check(
        "plan mlp --machine optane-autotm --fast 20%,40% --out plan.json",
        1,
        expect![[r#"
        tiercel: --out takes one plan; give one --fast
    "#]],
    );
    check(
        "compare mlp --machine optane-autotm --systems first-touch --out /no/such/folder/all.json",
        1,
        expect![[r#"
            tiercel: cannot write `/no/such/folder/all.json`: there is no folder `/no/such/folder`
        "#]],
    );
    check(
        "describe mlp --out /no/such/folder/mlp.trace",
        1,
        expect![[r#"
            tiercel: cannot write `/no/such/folder/mlp.trace`: there is no folder `/no/such/folder`
        "#]],
    );
    check(
        "probe --out /no/such/folder/machine.toml",
        1,
        expect![[r#"
        tiercel: cannot write `/no/such/folder/machine.toml`: there is no folder `/no/such/folder`
    "#]],
    );
    check(
        "probe --file /no/such/folder/file",
        1,
        expect![[r#"
            tiercel: --file: there is no folder `/no/such/folder/file`
        "#]],
    );
}

#[test]
fn command_lines_that_cannot_be_read() {
    check(
        "plan mlp --fast lots",
        2,
        expect![[r#"
        error: invalid value 'lots' for '--fast <20%|8GiB>': `lots` is neither a share of the peak above 0% and up to 1000%, such as 20%, nor a size such as 8GiB, nor `all`

        For more information, try '--help'.
    "#]],
    );
    check(
        "plan mlp --fast 0%",
        2,
        expect![[r#"
        error: invalid value '0%' for '--fast <20%|8GiB>': `0%` is neither a share of the peak above 0% and up to 1000%, such as 20%, nor a size such as 8GiB, nor `all`

        For more information, try '--help'.
    "#]],
    );
    check(
        "plan mlp --within much",
        2,
        expect![[r#"
        error: invalid value 'much' for '--within <5%>': `much` is no share such as 5% or 0.05

        For more information, try '--help'.
    "#]],
    );
    check(
        "plan mlp --within 5% --fast 20%",
        2,
        expect![[r#"
        error: the argument '--within <5%>' cannot be used with '--fast <20%|8GiB>'

        Usage: tiercel plan --within <5%> <NET|FILE>

        For more information, try '--help'.
    "#]],
    );
    check(
        "plan mlp --time never",
        2,
        expect![[r#"
        error: invalid value 'never' for '--time <10s>': `never` is no time such as 10s, 500ms or 2m

        For more information, try '--help'.
    "#]],
    );
    check(
        "run mlp --on moon",
        2,
        expect![[r#"
        error: invalid value 'moon' for '--on <ON>'
          [possible values: sim, host]

        For more information, try '--help'.
    "#]],
    );
    check(
        "run mlp --iterations 0",
        2,
        expect![[r#"
        error: invalid value '0' for '--iterations <K>': 0 is not in 1..=100000

        For more information, try '--help'.
    "#]],
    );
    check(
        "run mlp --plan p.json --system autotm-sync",
        2,
        expect![[r#"
        error: the argument '--plan <FILE>' cannot be used with '--system <S>'

        Usage: tiercel run --plan <FILE> <NET|FILE>

        For more information, try '--help'.
    "#]],
    );
    check(
        "compare",
        2,
        expect![[r#"
        error: the following required arguments were not provided:
          <NET,NET>...

        Usage: tiercel compare <NET,NET>...

        For more information, try '--help'.
    "#]],
    );
    check(
        "list trees",
        2,
        expect![[r#"
        error: invalid value 'trees' for '[WHAT]'
          [possible values: networks, machines, systems]

        For more information, try '--help'.
    "#]],
    );
    check(
        "probe --file . --no-file",
        2,
        expect![[r#"
        error: the argument '--file <PATH>' cannot be used with '--no-file'

        Usage: tiercel probe --file <PATH>

        For more information, try '--help'.
    "#]],
    );
    check(
        "completions tcsh",
        2,
        expect![[r#"
        error: invalid value 'tcsh' for '<SHELL>'
          [possible values: bash, elvish, fish, powershell, zsh]

          tip: a similar value exists: 'zsh'

        For more information, try '--help'.
    "#]],
    );
    check(
        "rn",
        2,
        expect![[r#"
        error: unrecognized subcommand 'rn'

        Usage: tiercel <COMMAND>

        For more information, try '--help'.
    "#]],
    );
}

#[test]
fn what_cannot_be_trained_with() {
    let more = "\n\nFor more information, try '--help'.\n";
    for (option, why) in [
        (
            "--fast lots",
            "'--fast <20%|8MiB>': `lots` is neither a share of the peak above 0% and up to 1000%, such as 20%, nor a size such as 8GiB, nor `all`",
        ),
        (
            "--slow tape",
            "'--slow <BACKING>': `tape` is not a backing; there are dram, numa:NODE, dax:PATH, file:PATH and throttled",
        ),
        ("--threads 0", "'--threads <N>': `0` is no number of threads between 1 and 4096"),
        ("--lr nan", "'--lr <RATE>': `nan` is no learning rate such as 0.01"),
        ("--time never", "'--time <10s>': `never` is no time such as 10s, 500ms or 2m"),
    ] {
        let output = tiercel(&format!("train mlp {option}").split(' ').collect::<Vec<_>>());
        let value = option.split(' ').nth(1).expect("one");
        let said = String::from_utf8(output.stderr).expect("text");
        assert_eq!(said, format!("error: invalid value '{value}' for {why}{more}"));
        assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{option}");
    }
    let output = tiercel(&["train", "mlp", "--schedule", "linear"]);
    let said = String::from_utf8(output.stderr).expect("text");
    assert!(said.contains("'--schedule <SCHEDULE>': `linear` is no schedule"), "{said}");
    check(
        "train mlp --system autotm-sink",
        2,
        expect![[r#"
        tiercel: no system `autotm-sink`; did you mean `autotm-sync`?
    "#]],
    );
}

#[test]
fn traces_cannot_be_computed_on() {
    let folder = Folder::new("trace");
    let trace = folder.path("mlp.trace");
    assert!(tiercel(&["describe", "mlp", "--batch", "8", "--out", &trace]).status.success());
    let output = tiercel(&["run", &trace, "--on", "host", "--machine", "dram-throttled"]);
    assert_eq!(output.status.code(), Some(1));
    expect![[r#"
        tiercel: FILE: a trace says what is computed on, not how; `--on host` needs a network
    "#]]
    .assert_eq(&String::from_utf8_lossy(&output.stderr).replace(&trace, "FILE"));
    assert!(
        tiercel(&["run", &trace, "--machine", "optane-autotm", "--system", "cachedarrays-lm"])
            .status
            .success()
    );
}

#[test]
fn traces_may_speak_of_tiers_that_are_not_there() {
    let folder = Folder::new("tiers");
    let path = folder.path("three.trace");
    let trace = "tiercel-trace 1\nname three\nlayer l\ntensor x input 4096\ntensor y activation 4096\n\
                 kernel k relu forward l flops 10\n  read x\n  write y\n  time 5ns at 0 2\n";
    std::fs::write(&path, trace).expect("the folder can be written");
    for verb in ["plan", "run", "compare"] {
        let output = tiercel(&[verb, path.as_str(), "--machine", "optane-autotm"]);
        let complaint = String::from_utf8(output.stderr).expect("text").replace(path.as_str(), "FILE");
        expect!["tiercel: FILE: kernel `k` (step 0) has a time with an operand in tier 2; the machine has 2, counted from 0"]
            .assert_eq(complaint.trim_end());
        assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
        let output = tiercel(&[verb, path.as_str(), "--machine", "optane-4tier"]);
        assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn sizes_that_a_network_does_not_have() {
    for verb in ["describe", "run", "train"] {
        check(
            &format!("{verb} mlp --sequence 5"),
            2,
            expect![[r#"
                tiercel: no size `--sequence` of mlp; it has --batch, --image, --depth, --width
            "#]],
        );
    }
    check(
        "compare vgg16 mobilenet --depth 5 --machine cxl",
        2,
        expect![[r#"
            tiercel: no size `--depth` of any of these networks
        "#]],
    );
}
