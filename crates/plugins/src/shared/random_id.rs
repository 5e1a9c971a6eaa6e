//! Random ids of requests. They are not secret, so they do not use the system's random numbers, which cost a call each.

use weir_plugin::Uuid;

/// A random UUID (version 4).
pub(crate) fn uuid() -> Uuid {
    uuid::Builder::from_random_bytes(fastrand::u128(..).to_ne_bytes()).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::uuid;
    use std::collections::HashSet;

    #[test]
    fn ids_are_of_version_4_and_differ_on_every_thread() {
        let some = || (0..1000).map(|_| uuid()).collect::<Vec<_>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(some)).collect();
        let all: Vec<_> = threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect();
        assert!(all.iter().all(|id| id.get_version_num() == 4));
        assert_eq!(all.iter().collect::<HashSet<_>>().len(), 4000);
    }
}
