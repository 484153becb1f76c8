//! Tells the crate that carries the compiled library where its sources are, wherever this crate lies.

fn main() {
    let folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo names the folder");
    println!("cargo::metadata=sources={folder}/src");
    println!("cargo::rerun-if-changed=build.rs");
}
