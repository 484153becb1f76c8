//! The shared object itself, compiled by `tiercel-cli` without the standard library: it begins when it is loaded.

#![no_std]

use core::arch::{asm, global_asm};

use tiercel_preload::begin;

// Where the C library has no such function, forks are heard of from the kernel alone.
global_asm!(".weak __register_atfork");

// Nothing is ever unwound here; what the compiler's own library has for that names this.
global_asm!(".hidden rust_eh_personality", ".globl rust_eh_personality", "rust_eh_personality:", "ud2");

type Handler = extern "C" fn();

/// Called by the loader.
extern "C" fn loaded() {
    let register: u64;
    // SAFETY: reads an address that the loader has filled in, zero where there is no such function.
    unsafe { asm!("mov {}, qword ptr [rip + __register_atfork@GOTPCREL]", out(reg) register, options(nostack)) };
    if register != 0 {
        // SAFETY: the GNU C library's function of this name, which has this type.
        let register: extern "C" fn(Handler, Handler, Handler, u64) -> i32 =
            unsafe { core::mem::transmute(register) };
        register(begin::before_fork, begin::after_fork, begin::in_child, 0);
    }
    begin::begin();
}

#[used]
// SAFETY: a list of functions that the loader calls without arguments that matter.
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

/// Something is not as it can be: the program ends before anything wrong can be read.
#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // SAFETY: an instruction that is none ends the process.
    unsafe { asm!("ud2", options(noreturn)) }
}
