//! Calls of language models, on their way from the plugins that make them to the node's analytics.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

/// The most calls that wait to be counted.
const MAX_WAITING: usize = 16 * 1024;

/// A call of a language model that has ended.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelCall {
    /// The model, behind its provider: `openai/gpt-4o`.
    pub model: String,
    /// The configuration names the model: it is no client's word.
    pub is_configured: bool,
    /// The status of the response.
    pub status: u16,
    /// The tokens of the prompts.
    pub prompt_tokens: u64,
    /// The tokens of the response.
    pub completion_tokens: u64,
    /// From the request to the end of the response.
    pub latency: Duration,
    /// How long the first text of a stream took.
    pub first_token: Option<Duration>,
    /// How many tokens a second the response had; of a stream from its first text on.
    pub tokens_per_second: Option<f64>,
}

/// The calls that analytics are to count; none is kept until there is a receiver. It is retained.
#[derive(Default)]
pub struct ModelCalls {
    sender: OnceLock<Sender<ModelCall>>,
    waiting: AtomicUsize,
    dropped: AtomicU64,
}

impl ModelCalls {
    /// Has calls kept for the receiver from now on; none if another has it.
    pub fn receiver(&self) -> Option<Receiver<ModelCall>> {
        let (sender, receiver) = channel();
        self.sender.set(sender).ok().map(|()| receiver)
    }

    /// Whether calls are counted.
    pub fn are_counted(&self) -> bool {
        self.sender.get().is_some()
    }

    /// Has a call counted. Nothing is waited for: if too many wait, it is dropped.
    pub fn push(&self, call: ModelCall) {
        let Some(sender) = self.sender.get() else { return };
        if self.waiting.fetch_add(1, Relaxed) >= MAX_WAITING || sender.send(call).is_err() {
            self.waiting.fetch_sub(1, Relaxed);
            self.dropped.fetch_add(1, Relaxed);
        }
    }

    /// So many calls were received. Returns how many were dropped since the last time.
    pub fn received(&self, count: usize) -> u64 {
        self.waiting.fetch_sub(count, Relaxed);
        self.dropped.swap(0, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> ModelCall {
        ModelCall {
            model: "openai/m".to_owned(),
            is_configured: true,
            status: 200,
            prompt_tokens: 1,
            completion_tokens: 2,
            latency: Duration::from_secs(1),
            first_token: None,
            tokens_per_second: None,
        }
    }

    #[test]
    fn calls_are_kept_for_the_receiver_alone() {
        let calls = ModelCalls::default();
        calls.push(call());
        assert!(!calls.are_counted());
        let receiver = calls.receiver().unwrap();
        assert!(calls.are_counted() && calls.receiver().is_none());
        (0..MAX_WAITING + 3).for_each(|_| calls.push(call()));
        assert_eq!(receiver.try_iter().count(), MAX_WAITING);
        assert_eq!((calls.received(MAX_WAITING), calls.received(0)), (3, 0));
        calls.push(call());
        assert_eq!(receiver.try_iter().next(), Some(call()));
    }
}
