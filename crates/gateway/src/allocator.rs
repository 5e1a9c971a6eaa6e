//! What allocates memory, so that it goes back to the system once it is not used any more: `docs/decisions/allocator.md`.

/// The allocator of a program with this gateway: `#[global_allocator] static ALLOCATOR: Allocator = Allocator;`. A thread of its
/// own returns what was freed, for C code as well.
#[cfg(not(target_env = "musl"))]
pub use tikv_jemallocator::Jemalloc as Allocator;

/// The allocator of a static program, because musl's takes one lock for all threads, and jemalloc has no thread of its own
/// there.
#[cfg(target_env = "musl")]
pub use mimalloc::MiMalloc as Allocator;
