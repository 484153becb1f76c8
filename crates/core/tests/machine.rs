//! Machine files: what reads, what does not, and what the errors say.

use expect_test::{Expect, expect};
use tiercel_core::{Bandwidth, Bytes, Machine, Nanos, TierId};

const SOUND: &str = r#"
name = "two"
[[tier]]
name = "fast"
capacity = "1 GiB"
read = "100 GB/s"
write = "80 GB/s"
[[tier]]
name = "slow"
capacity = "8 GiB"
read = "39 GB/s"
write = "13 GB/s"
latency = "174 ns"
price_per_gb = 7.85
[[link]]
from = "fast"
to = "slow"
threads = 2
bandwidth = { 1 = "4 GB/s", 4 = "12 GB/s", 8 = "10 GB/s" }
[[link]]
from = "slow"
to = "fast"
latency = "1 us"
threads = 8
bandwidth = { 1 = "5 GB/s", 8 = "29 GB/s" }
"#;

#[test]
fn a_machine_reads_back_what_it_wrote() {
    let machine = Machine::parse(SOUND).unwrap();
    assert_eq!(Machine::parse(&machine.to_toml()), Ok(machine.clone()));
    assert_eq!(machine.contention, 1.0);
    assert_eq!(machine.tier(TierId(1)).capacity, Bytes::gib(8));
    let backings = ["numa:3", "dax:/dev/dax0.0", "throttled"];
    for backing in backings {
        let toml = SOUND.replacen("latency = \"174 ns\"", &format!("backing = \"{backing}\""), 1);
        let machine = Machine::parse(&toml).unwrap();
        assert_eq!(machine.tiers[1].backing.to_string(), backing);
        assert_eq!(Machine::parse(&machine.to_toml()), Ok(machine));
    }
}

#[test]
fn how_directions_and_copies_share_a_device_reads_back() {
    let toml = SOUND.replace("price_per_gb = 7.85", "duplex = 1.25");
    let machine = Machine::parse(&toml.replace("\"1 us\"", "\"1 us\"\nspacing = \"400 ns\"")).unwrap();
    assert_eq!(machine.tiers[1].duplex, Some(1.25));
    assert_eq!(machine.links[1].spacing, Some(Nanos(400)));
    assert_eq!(Machine::parse(&machine.to_toml()), Ok(machine.clone()));
    // Both ways together have 1.25 of their full speeds: the bytes of a second each take 1.6 seconds.
    assert_eq!(machine.tiers[1].flow(39e9, 13e9), 1.6);
    assert_eq!(machine.tiers[1].flow(39e9, 0.0), 1.0);
}

#[test]
fn what_runs_kernels_beside_others_and_who_reaches_rows_reads_back() {
    let toml = SOUND.replace("price_per_gb = 7.85", "computable = false\nrows = true");
    let toml = toml.replace(
        "[[tier]]\nname = \"fast\"",
        "[detached]\nbandwidth = \"4 GB/s\"\n[[tier]]\nname = \"fast\"",
    );
    let machine = Machine::parse(&toml).unwrap();
    assert_eq!(machine.detached.map(|detached| detached.bandwidth), Some(Bandwidth::gb(4.0)));
    assert_eq!(Machine::parse(&machine.to_toml()), Ok(machine.clone()));
    let serves = |tier: u8, used: u64| machine.tier(TierId(tier)).serves(Bytes(used), Bytes(100));
    assert_eq!([serves(0, 100), serves(1, 100), serves(1, 99)], [true, false, true]);
    refuse(
        "latency = \"174 ns\"",
        "computable = false\nrows = true\nbacking = \"file:/tmp\"",
        expect!["machine `two`: tier `slow` is a file: kernels cannot reach rows of it"],
    );
    refuse(
        "name = \"two\"",
        "name = \"two\"\nbeside = { bandwidth = \"0 GB/s\" }",
        expect!["machine `two`: detached: bandwidth must be above zero"],
    );
}

#[test]
fn bandwidth_follows_the_curve() {
    let machine = Machine::parse(SOUND).unwrap();
    let link = machine.link(TierId(0), TierId(1)).unwrap();
    let at = |threads| link.bandwidth(threads);
    assert_eq!([at(1), at(4), at(8), at(99)], [4.0, 12.0, 10.0, 10.0].map(Bandwidth::gb));
    assert_eq!(at(6), Bandwidth::gb(11.0));
    assert!((link.speed().0 - (4e9 + 8e9 / 3.0)).abs() < 1.0);
}

#[test]
fn links_between_distant_tiers_go_through_those_between() {
    let third = r#"
        [[tier]]
        name = "disk"
        capacity = "1 TiB"
        read = "2 GB/s"
        write = "1 GB/s"
        computable = false
        backing = "file:/tmp"
        [[link]]
        from = "slow"
        to = "disk"
        latency = "100 us"
        threads = 1
        bandwidth = { 1 = "1 GB/s" }
        [[link]]
        from = "disk"
        to = "slow"
        latency = "50 us"
        threads = 4
        bandwidth = { 4 = "2 GB/s" }
    "#;
    let machine = Machine::parse(&format!("{SOUND}{third}")).unwrap();
    let link = machine.link(TierId(2), TierId(0)).unwrap();
    assert_eq!((link.speed(), link.latency.0, link.threads), (Bandwidth::gb(2.0), 51_000, 4));
    assert_eq!(link.via, Some(TierId(1)));
    let way = |from, to| {
        machine.way(TierId(from), TierId(to)).iter().map(|l| (l.from.0, l.to.0)).collect::<Vec<_>>()
    };
    assert_eq!(way(2, 0), [(2, 1), (1, 0)]);
    assert_eq!(way(1, 0), [(1, 0)]);
    assert_eq!(Machine::parse(&machine.to_toml()).as_ref(), Ok(&machine));
    assert_eq!(machine.grain(), Bytes(4096), "a file makes every heap hand out pages");
}

#[test]
fn links_may_share_a_bus_that_is_there() {
    let on = |name: &str| SOUND.replace("threads = 2", &format!("bus = \"{name}\"\nthreads = 2"));
    let bus = "[[bus]]\nname = \"upi\"\nbandwidth = \"20 GB/s\"\n";
    let machine = Machine::parse(&format!("{}{bus}", on("upi"))).unwrap();
    assert_eq!((machine.links[0].bus, machine.buses[0].bandwidth), (Some(0), Bandwidth::gb(20.0)));
    assert_eq!(Machine::parse(&machine.to_toml()).as_ref(), Ok(&machine));
    let error = |text: String| Machine::parse(&text).unwrap_err().to_string();
    assert!(error(format!("{}{bus}", on("pcie"))).contains("no [[bus]] of that name"));
    assert!(error(format!("{SOUND}{bus}")).contains("no link is on the bus `upi`"));
}

/// Changes the sound machine in one place and looks at what is said of it.
fn refuse(from: &str, to: &str, expected: Expect) {
    assert!(SOUND.contains(from), "{from}");
    let error = Machine::parse(&SOUND.replacen(from, to, 1)).unwrap_err().to_string();
    expected.assert_eq(&error);
}

#[test]
fn a_wrong_figure_is_named() {
    refuse(
        "capacity = \"1 GiB\"",
        "capacity = \"0\"",
        expect!["machine `two`: tier `fast` has a capacity of 0 B; the least is 64 B"],
    );
    refuse(
        "read = \"100 GB/s\"",
        "read = \"0 GB/s\"",
        expect!["machine `two`: tier `fast`: read bandwidth must be above zero"],
    );
    refuse(
        "from = \"slow\"\nto = \"fast\"",
        "from = \"slow\"\nto = \"tape\"",
        expect!["machine `two`: a link names the tier `tape`; the tiers are fast, slow"],
    );
    refuse("name = \"slow\"", "name = \"fast\"", expect!["machine `two`: two tiers are called `fast`"]);
    refuse(
        "threads = 2",
        "threads = 0",
        expect!["machine `two`: link fast → slow needs at least one copy thread and one bandwidth"],
    );
    refuse(
        "4 = \"12 GB/s\"",
        "many = \"12 GB/s\"",
        expect!["machine `two`: link fast → slow: `many` is no number of threads"],
    );
    refuse(
        "latency = \"174 ns\"",
        "backing = \"file:/tmp\"",
        expect![
            "machine `two`: tier `slow` is a file: kernels cannot work on it; write `computable = false`"
        ],
    );
    refuse(
        "name = \"two\"",
        "name = \"two\"\ncontention = 1.5",
        expect!["machine `two`: contention is 1.5; it lies between 0 and 1"],
    );
    refuse(
        "price_per_gb = 7.85",
        "duplex = 2.5",
        expect!["machine `two`: tier `slow`: duplex is 2.5; it is above 0 and at most 2"],
    );
    refuse(
        "latency = \"1 us\"",
        "latency = \"1 us\"\nspacing = \"2 us\"",
        expect!["machine `two`: link slow → fast: a spacing of 2 µs is more than the latency, 1 µs"],
    );
}

#[test]
fn a_missing_link_is_named() {
    let toml = &SOUND[..SOUND.rfind("[[link]]").unwrap()];
    let error = Machine::parse(toml).unwrap_err().to_string();
    expect!["machine `two`: link slow → fast is missing"].assert_eq(&error);
}

#[test]
fn a_wrong_word_is_shown_where_it_stands() {
    refuse(
        "latency = \"174 ns\"",
        "latencey = \"174 ns\"",
        expect![[r#"
            machine file: TOML parse error at line 13, column 1
               |
            13 | latencey = "174 ns"
               | ^^^^^^^^
            unknown field `latencey`, expected one of `name`, `capacity`, `read`, `write`, `combined`, `duplex`, `latency`, `computable`, `rows`, `caches`, `backing`, `price_per_gb`
        "#]],
    );
    refuse(
        "capacity = \"1 GiB\"",
        "capacity = \"1 potato\"",
        expect![[r#"
            machine file: TOML parse error at line 5, column 12
              |
            5 | capacity = "1 potato"
              |            ^^^^^^^^^^
            `1 potato` is not a size such as 64 KiB, 8GiB or 1.5 GB
        "#]],
    );
}

const KERNELS: &str = r#"
[kernels]
source = "a guess"
cache = "36 MB"
[kernels.tier.slow]
write = "3.4 GB/s"
write_setup = "150 us"
[kernels.default]
overlap = 2
[kernels.kind.conv]
rate = 0.8
[kernels.kind."batch-norm.backward"]
rows = true
start = "5 us"
"#;

#[test]
fn kernels_read_back_and_kinds_take_what_they_leave_out_from_the_default() {
    let machine = Machine::parse(&format!("{SOUND}{KERNELS}")).unwrap();
    assert_eq!(Machine::parse(&machine.to_toml()), Ok(machine.clone()));
    let kernels = machine.kernels.unwrap();
    let conv = kernels.kinds["conv"];
    assert_eq!((conv.rate, conv.overlap, conv.rows), (0.8, 2.0, false));
    assert!(kernels.kinds["batch-norm.backward"].rows);
    assert_eq!(kernels.tiers["slow"].write, Some(Bandwidth::gb(3.4)));
    assert_eq!(kernels.tiers["slow"].read, None);
}

#[test]
fn a_wrong_kernel_figure_is_named() {
    for (from, to, expected) in [
        (
            "rate = 0.8",
            "raet = 0.8",
            expect![
                "machine `two`: kernels.kind.conv: unknown field `raet`, expected one of `start`, `spread`, `ramp`, `read`, `write`, `spill`, `setup`, `rate`, `half`, `rows`, `overlap`, `cache`, `partial`"
            ],
        ),
        (
            "rate = 0.8",
            "rate = -1.0",
            expect!["machine `two`: kernels.kind.conv: rate is -1; it must not be below zero"],
        ),
        (
            "overlap = 2",
            "overlap = 0.5",
            expect!["machine `two`: kernels.default: overlap is 0.5; it is at least 1"],
        ),
        (
            "kernels.tier.slow",
            "kernels.tier.tape",
            expect!["machine `two`: kernels name the tier `tape`; the tiers are fast, slow"],
        ),
        (
            "write = \"3.4 GB/s\"",
            "write = \"0 GB/s\"",
            expect!["machine `two`: kernels.tier.slow: bandwidths must be above zero"],
        ),
    ] {
        assert!(KERNELS.contains(from), "{from}");
        let error = Machine::parse(&format!("{SOUND}{}", KERNELS.replacen(from, to, 1))).unwrap_err();
        expected.assert_eq(&error.to_string());
    }
}
