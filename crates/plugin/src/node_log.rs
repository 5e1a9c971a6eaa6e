//! The node's own log messages, for plugins that send them to a collector.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, Weak};
use std::time::SystemTime;
use tracing::Level;

/// Messages about deliveries are not delivered, because that would never end.
const OF_DELIVERIES: [&str; 3] =
    ["weir_plugin::background", "weir_plugin::http_client", "weir_plugins::opentelemetry"];

/// Messages of libraries are not delivered either, because deliveries use them.
fn is_delivered(target: &str) -> bool {
    target.starts_with("weir") && !OF_DELIVERIES.iter().any(|own| target.starts_with(own))
}

/// A log message.
#[derive(Debug, Clone)]
pub struct NodeMessage {
    /// When it was logged.
    pub at: SystemTime,
    /// Its severity.
    pub level: Level,
    /// The message.
    pub text: String,
    /// Its fields by name.
    pub fields: Vec<(&'static str, String)>,
}

/// Receives log messages.
pub trait Listener: Send + Sync {
    /// Receives a message. Must not wait, nor log.
    fn hear(&self, message: &NodeMessage);
}

/// The listeners of the node's log.
#[derive(Default)]
pub struct NodeLog {
    is_heard: AtomicBool,
    listeners: RwLock<Vec<Weak<dyn Listener>>>,
}

impl NodeLog {
    /// Adds a listener. It receives messages from now on, as long as it exists.
    pub fn add(&self, listener: &Arc<impl Listener + 'static>) {
        let mut listeners = self.listeners.write().unwrap_or_else(PoisonError::into_inner);
        listeners.retain(|listener| listener.strong_count() > 0);
        let listener: Weak<dyn Listener> = Arc::downgrade(listener) as Weak<dyn Listener>;
        listeners.push(listener);
        self.is_heard.store(true, Ordering::Relaxed);
    }

    /// Sends a message that this module logged to all listeners.
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
        log.tell("weir", || panic!("no listener is left"));
        assert!(!log.is_heard.load(Ordering::Relaxed));
    }
}
