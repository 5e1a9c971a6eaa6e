//! The CPU time of a worker, as others read it.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// The CPU time of a thread.
#[repr(align(128))]
#[derive(Default)]
pub(super) struct ThreadClock {
    /// The path of the kernel's scheduling statistics of the thread.
    file: OnceLock<Option<PathBuf>>,
    /// Nanoseconds, when the thread last looked.
    said: AtomicU64,
}

impl ThreadClock {
    /// By the thread itself: says how much it has used.
    pub(super) fn tick(&self) {
        self.file.get_or_init(|| {
            // The link is the id of the process, `task`, and that of the thread that reads it.
            let own = fs::read_link("/proc/thread-self").ok()?;
            Some(Path::new("/proc").join(own).join("schedstat"))
        });
        self.said.store(self.read().as_nanos() as u64, Relaxed);
    }

    /// What the thread said last.
    pub(super) fn said(&self) -> Duration {
        Duration::from_nanos(self.said.load(Relaxed))
    }

    /// What the kernel says now; what the thread said last, where it does not tell.
    pub(super) fn read(&self) -> Duration {
        let text = self.file.get().and_then(|file| fs::read_to_string(file.as_deref()?).ok());
        let used = text.and_then(|text| text.split(' ').next()?.parse().ok());
        used.map_or(self.said(), Duration::from_nanos)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn others_read_what_a_thread_has_used() {
        let clock = ThreadClock::default();
        assert_eq!(clock.read(), Duration::ZERO, "no thread runs by it yet");
        clock.tick();
        let before = clock.said();
        let mut number = 0u64;
        while clock.said() < before + Duration::from_millis(20) {
            number = std::hint::black_box(number.wrapping_mul(31) + 1);
            clock.tick();
        }
        let read = std::thread::scope(|scope| scope.spawn(|| clock.read()).join().unwrap());
        assert!(read >= before + Duration::from_millis(20), "{read:?}");
    }
}
