//! Calls of language models, from the plugins that make them to the store.
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use weir_analytics::model;
use weir_analytics::store::Store;
use weir_plugin::{ModelCall, ModelCalls};
use weir_proxy::Retained;

/// The other end of what plugins report.
pub(super) struct ModelReader {
    calls: Arc<ModelCalls>,
    receiver: Receiver<ModelCall>,
}

impl ModelReader {
    /// Has plugins report their calls from now on.
    pub(super) fn new(retained: &Retained) -> Option<Self> {
        let calls = retained.get::<ModelCalls>();
        let receiver = calls.receiver()?;
        Some(Self { calls, receiver })
    }

    /// Counts what plugins have reported until now.
    pub(super) fn read(&self, store: &mut Store) {
        let mut count = 0;
        for call in self.receiver.try_iter() {
            count += 1;
            store.record_model(&model::ModelCall {
                model: &call.model,
                is_configured: call.is_configured,
                status: call.status,
                tokens: [call.prompt_tokens, call.completion_tokens],
                latency: call.latency,
                first_token: call.first_token,
                tokens_per_second: call.tokens_per_second,
            });
        }
        store.lose(self.calls.received(count));
    }
}
