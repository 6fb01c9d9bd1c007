//! Links the program at a fixed address.
//!
//! A program that can be loaded anywhere has 232 kB of addresses (tables of functions and texts) that the loader changes in
//! every process, so no two processes share them. At a fixed address nothing has to be changed, and a `leash run` needs less
//! than half the memory. The price: the address of the program's code is not random. Stack, heap and libraries still are.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let target = |part: &str| std::env::var(format!("CARGO_CFG_TARGET_{part}")).unwrap_or_default();
    // For musl, `cargo xtask dist` gives the same to the compiler, which chooses the start code of a static program by it.
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
