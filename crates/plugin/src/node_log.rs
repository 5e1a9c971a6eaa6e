//! The node's own messages, for plugins that pass them on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::SystemTime;
use tracing::Level;

/// What is said of deliveries is not delivered: it would never end.
const OF_DELIVERIES: [&str; 3] =
    ["weir_plugin::background", "weir_plugin::http_client", "weir_plugins::opentelemetry"];

/// Nor is what libraries say: deliveries are made with them.
fn is_delivered(target: &str) -> bool {
    target.starts_with("weir") && !OF_DELIVERIES.iter().any(|own| target.starts_with(own))
}

/// One message.
#[derive(Debug, Clone)]
pub struct NodeMessage {
    /// When it was logged.
    pub at: SystemTime,
    /// How severe it is.
    pub level: Level,
    /// What it says.
    pub text: String,
    /// What it is said of, by name.
    pub fields: Vec<(&'static str, String)>,
}

/// Who is told of messages.
pub trait Listener: Send + Sync {
    /// Is told of one. Must not wait, nor log.
    fn hear(&self, message: &NodeMessage);
}

/// Those who are told of the node's messages.
#[derive(Default)]
pub struct NodeLog {
    is_heard: AtomicBool,
    listeners: RwLock<Vec<Weak<dyn Listener>>>,
}

impl NodeLog {
    /// Tells a listener of messages from now on, for as long as it is there.
    pub fn add(&self, listener: &Arc<impl Listener + 'static>) {
        let mut listeners = self.listeners.write().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.strong_count() > 0);
        let listener: Weak<dyn Listener> = Arc::downgrade(listener) as Weak<dyn Listener>;
        listeners.push(listener);
        self.is_heard.store(true, Ordering::Relaxed);
    }

    /// Tells all listeners of a message that was logged by this module.
    pub fn tell(&self, target: &str, message: impl FnOnce() -> NodeMessage) {
        if !self.is_heard.load(Ordering::Relaxed) || !is_delivered(target) {
            return;
        }
        let listeners: Vec<_> = {
            let known = self.listeners.read().unwrap_or_else(PoisonError::into_inner);
            known.iter().filter_map(Weak::upgrade).collect()
        };
        if listeners.is_empty() {
            return self.is_heard.store(false, Ordering::Relaxed);
        }
        let message = message();
        listeners.iter().for_each(|listener| listener.hear(&message));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;

    #[derive(Default)]
    struct Heard(Mutex<Vec<String>>);

    impl Listener for Heard {
        fn hear(&self, message: &NodeMessage) {
            self.0.lock().unwrap().push(message.text.clone());
        }
    }

    #[test]
    fn listeners_hear_of_all_but_deliveries_until_they_are_gone() {
        let (log, listener) = (NodeLog::default(), Arc::new(Heard::default()));
        let say = |target: &str, text: &str| {
            log.tell(target, || NodeMessage {
                at: SystemTime::now(),
                level: Level::WARN,
                text: text.to_owned(),
                fields: Vec::new(),
            });
        };
        say("weir_proxy::telemetry", "before");
        log.add(&listener);
        say("weir_proxy::telemetry", "one");
        say("weir_plugin::background::queue", "of a queue");
        say("hyper_util::client::legacy::pool", "of a library");
        say("weir", "two");
        assert_eq!(*listener.0.lock().unwrap(), ["one", "two"]);
        drop(listener);
        log.tell("weir", || panic!("nobody listens"));
        assert!(!log.is_heard.load(Ordering::Relaxed));
    }
}
