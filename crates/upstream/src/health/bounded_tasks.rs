//! A bounded set of concurrent tasks, with at most one task for each key.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::task::{AbortHandle, JoinSet};

/// The running tasks, by key. Dropping the set aborts them.
pub(super) struct BoundedTasks<K> {
    tasks: JoinSet<()>,
    about: HashMap<K, AbortHandle>,
    at_once: usize,
    permits: Arc<Semaphore>,
}

impl<K: Eq + Hash> BoundedTasks<K> {
    pub(super) fn new(at_once: usize) -> BoundedTasks<K> {
        let permits = Arc::new(Semaphore::new(at_once));
        BoundedTasks { tasks: JoinSet::new(), about: HashMap::new(), at_once, permits }
    }

    /// Sets the limit of concurrent tasks. Running tasks continue.
    pub(super) fn allow(&mut self, at_once: usize) {
        if self.at_once != at_once {
            (self.at_once, self.permits) = (at_once, Arc::new(Semaphore::new(at_once)));
        }
    }

    /// Runs a task as soon as there is room, unless one with the same key is running, so that a slow task delays only
    /// itself.
    pub(super) fn begin(&mut self, about: K, work: impl Future<Output = ()> + 'static) {
        if self.about.get(&about).is_some_and(|task| !task.is_finished()) {
            return;
        }
        let permits = self.permits.clone();
        let task = self.tasks.spawn_local(async move {
            let Ok(_permit) = permits.acquire_owned().await else { return };
            work.await;
        });
        self.about.insert(about, task);
    }

    /// Removes finished tasks.
    pub(super) fn tidy(&mut self) {
        while self.tasks.try_join_next().is_some() {}
        self.about.retain(|_, task| !task.is_finished());
    }
}

#[cfg(test)]
mod tests {
    use super::BoundedTasks;
    use std::cell::RefCell;
    use std::rc::Rc;
    use tokio::task::{LocalSet, yield_now};

    #[tokio::test]
    async fn what_does_not_end_holds_up_itself_alone_and_its_place() {
        let begun: Rc<RefCell<Vec<u8>>> = Rc::default();
        let note = |number| {
            let begun = begun.clone();
            async move { begun.borrow_mut().push(number) }
        };
        let test = async {
            let mut bounded_tasks = BoundedTasks::new(2);
            for _ in 0..3 {
                bounded_tasks.tidy();
                let endless = note(1);
                bounded_tasks.begin(1, async move {
                    endless.await;
                    std::future::pending().await
                });
                bounded_tasks.begin(2, note(2));
                for _ in 0..10 {
                    yield_now().await;
                }
            }
            assert_eq!(*begun.borrow(), [1, 2, 2, 2]);
            bounded_tasks.allow(1);
            bounded_tasks.begin(3, std::future::pending());
            bounded_tasks.begin(4, note(4));
            yield_now().await;
            assert_eq!(begun.borrow().len(), 4, "there is no room");
        };
        LocalSet::new().run_until(test).await;
    }
}
