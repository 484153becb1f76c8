//! Memory for programs whose storages and kernels belong to somebody else, as PyTorch's do.
//!
//! ```text
//! operations ──► Recording ──► trace ──► a system's plan or policy
//!                                                │
//! operations ──► Books: manager and policy ──► orders: copy, wait, free ──► whoever holds the bytes
//! ```
//!
//! The house's manager keeps the books and the house's policies decide, as everywhere; only the bytes are out of reach.
//! So the backend of these books writes down what is to be done ([`Order`]), and the program that owns the storages does
//! it: it copies, makes its kernels wait, and takes memory away. Nothing here knows of Python or of any device.
//!
//! | file | what |
//! |---|---|
//! | `ledger.rs` | the backend that writes orders down |
//! | `books.rs` | objects by the number that the program gives them, with and without a known sequence |
//! | `recording.rs` | an iteration as it was seen, and the trace that it becomes |
//! | `planning.rs` | from that trace to books that follow a system |
//! | `scheduling.rs` | from that trace to acts that a compiler writes into the program |
//! | `arena.rs` | the device's memory in one stretch, handed out where a plan has its places |
//! | `paths.rs` | the paths of a program whose iterations differ, and which comes next |

pub mod arena;
mod books;
pub mod clock;
mod ledger;
pub mod paths;
mod planning;
mod recording;
pub mod report;
mod scheduling;

pub use books::{Books, BooksError, Storage, Task};
pub use ledger::{Ledger, Order};
pub use planning::{Asked, Decided, FollowError, decide, on_demand, with_capacities};
pub use recording::{Operation, Recording, Role, StorageInfo};
pub use scheduling::{Allowed, Scheduled, schedule};
pub use tiercel_plan::{Act, Places, Schedule};
