//! Panics of a simulation, wherever they are caught: the runtime keeps those of tasks to itself, whether a simulation or the gateway has
//! spawned them, and the gateway makes responses of those within requests.

use std::cell::RefCell;
use std::panic::{set_hook, take_hook};
use std::sync::Once;

thread_local! {
    /// Those of this thread, which runs one simulation at a time.
    static NOTED: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// Notes the panics of this thread from now on, beside what is done with panics otherwise.
pub(super) fn note() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            // The place and the message are lines of their own.
            let text = panic.to_string().replace('\n', " ");
            // A panic within a panic would end the process.
            let _ = NOTED.try_with(|noted| noted.try_borrow_mut().map(|mut noted| noted.push(text)));
            usual(panic);
        }));
    });
    take();
}

/// Those that were noted since this was asked last.
pub(super) fn take() -> Vec<String> {
    NOTED.take()
}
