//! Compiles the library that is preloaded into programs (`crates/preload`) without the standard library, so that the crate can
//! carry it: whoever installs the binary has it. It takes the Rust compiler that builds everything else, and its linker.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

fn main() {
    let sources =
        PathBuf::from(env::var_os("DEP_TIERCEL_PRELOAD_SOURCES").expect("that crate says where they are"));
    println!("cargo::rerun-if-changed={}", sources.display());
    println!("cargo::rerun-if-changed=build.rs");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo names a folder"));
    let object = out.join("preloaded.so");
    let is = |what: &str, value: &str| env::var(what).is_ok_and(|found| found == value);
    if !(is("CARGO_CFG_TARGET_OS", "linux")
        && is("CARGO_CFG_TARGET_ARCH", "x86_64")
        && is("CARGO_CFG_TARGET_ENV", "gnu"))
    {
        // It is written for one kind of processor; elsewhere there is none, and `tiercel keep` says so.
        std::fs::write(&object, []).expect("a file in the folder that cargo named");
        return;
    }
    let library = out.join("libtiercel_preload.rlib");
    let parts = ["--crate-name", "tiercel_preload", "--crate-type", "rlib"];
    compile(&sources.join("lib.rs"), &library, &parts, &[]);
    let whole = ["--crate-name", "preloaded", "--crate-type", "cdylib", "-C", "link-arg=-nostartfiles"];
    let found = format!("tiercel_preload={}", library.display());
    compile(&sources.join("preloaded.rs"), &object, &whole, &["--extern", &found]);
}

fn compile(source: &Path, object: &Path, kind: &[&str], more: &[&str]) {
    let mut rustc = Command::new(env::var_os("RUSTC").expect("cargo names the compiler"));
    rustc.arg("--edition=2024").args(["--target", &env::var("TARGET").expect("cargo names the target")]);
    rustc.args([
        "-C",
        "opt-level=2",
        "-C",
        "panic=abort",
        "-C",
        "relocation-model=pic",
        "-C",
        "strip=symbols",
    ]);
    if let Ok(linker) = env::var("RUSTC_LINKER") {
        rustc.args(["-C", &format!("linker={linker}")]);
    }
    rustc.args(kind).args(more).arg(source).arg("-o").arg(object);
    let status = rustc.status().expect("the compiler runs");
    assert!(status.success(), "{} does not compile", source.display());
}
