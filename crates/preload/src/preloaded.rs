//! The shared object itself, compiled by `tiercel-cli` without the standard library: it begins when it is loaded.

#![no_std]

use core::arch::{asm, global_asm};

use tiercel_preload::begin;

// Where the C library has no such function, forks are heard of from the kernel alone.
global_asm!(".weak __register_atfork");

// Nothing is ever unwound here; what the compiler's own library has for that names this.
global_asm!(".hidden rust_eh_personality", ".globl rust_eh_personality", "rust_eh_personality:", "ud2");

// Where there is no such function nobody asks what went wrong.
global_asm!(".weak __errno_location");

type Handler = extern "C" fn();

/// What the C library's function of the same name gives back: it goes through our hands so that threads change the memory of
/// a program that is kept one after another, and are told of in order.
fn change(number: u64, arguments: [u64; 5]) -> u64 {
    begin::change(number, arguments).unwrap_or_else(|error| {
        let place: u64;
        // SAFETY: reads an address that the loader has filled in, zero where there is no such function.
        unsafe {
            asm!("mov {}, qword ptr [rip + __errno_location@GOTPCREL]", out(reg) place, options(nostack));
        }
        if place != 0 {
            // SAFETY: the C library's function of this name, which has this type and gives the address of a number.
            unsafe {
                let place: extern "C" fn() -> *mut i32 = core::mem::transmute(place);
                *place() = error.0;
            }
        }
        u64::MAX
    })
}

/// As in the C library.
// SAFETY: it takes the place of a function of the same type, and does the same.
#[unsafe(no_mangle)]
pub extern "C" fn munmap(at: u64, bytes: u64) -> i32 {
    change(11, [at, bytes, 0, 0, 0]) as i32
}

/// As in the C library.
// SAFETY: as above; its last argument is there or not used.
#[unsafe(no_mangle)]
pub extern "C" fn mremap(at: u64, old: u64, new: u64, flags: u64, to: u64) -> u64 {
    change(25, [at, old, new, flags, to])
}

/// As in the C library.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn madvise(at: u64, bytes: u64, advice: i32) -> i32 {
    change(28, [at, bytes, advice as u64, 0, 0]) as i32
}

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
