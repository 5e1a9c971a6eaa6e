//! A response's body on its way through the filters of plugins, one chunk at a time.

use crate::exchange::Exchange;
use weir_plugin::engine::BodyFilters;

/// The longest chunk that filters get of a body that is in memory already.
const MAX_CHUNK_LEN: usize = 64 * 1024;

/// What the filters have made of a body so far.
pub(crate) struct FilteredBody {
    filters: BodyFilters,
    /// What they have returned last, and how much of it was sent.
    output: Vec<u8>,
    sent: usize,
    has_ended: bool,
}

impl FilteredBody {
    pub(crate) fn new(filters: BodyFilters) -> Self {
        Self { filters, output: Vec::new(), sent: 0, has_ended: false }
    }

    /// What is to be sent before the filters may get more.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    /// Whether the head waits for what the filters make of more. They have returned nothing yet.
    pub(crate) fn holds_head(&self) -> bool {
        self.unsent().is_empty() && self.filters.hold_head()
    }

    /// Whether nothing more of the body is of use to them.
    pub(crate) fn is_done(&self) -> bool {
        self.filters.are_done()
    }

    /// Whether they have returned what they had left.
    pub(crate) fn has_ended(&self) -> bool {
        self.has_ended
    }

    /// So much more of it was sent.
    pub(crate) fn advance(&mut self, n: usize) {
        self.sent += n;
    }

    /// Gives the filters a chunk, once all that they returned before was sent.
    pub(crate) fn push(&mut self, exchange: &mut Exchange, data: &[u8]) {
        let mut chunk = std::mem::take(&mut self.output);
        chunk.clear();
        chunk.extend_from_slice(data);
        (self.output, self.sent) = (self.filters.chunk(&mut exchange.public, chunk), 0);
    }

    /// Gives the filters the next chunk of what is left of a body in memory, and returns how long it is: all that is left, where
    /// they need nothing more.
    pub(crate) fn push_from(&mut self, exchange: &mut Exchange, left: &[u8]) -> usize {
        if self.is_done() {
            return left.len();
        }
        let n = left.len().min(MAX_CHUNK_LEN);
        if n > 0 {
            self.push(exchange, &left[..n]);
        }
        n
    }

    /// Has the filters return what they have left; false if they have before.
    pub(crate) fn end(&mut self, exchange: &mut Exchange) -> bool {
        if std::mem::replace(&mut self.has_ended, true) {
            return false;
        }
        (self.output, self.sent) = (self.filters.end(&mut exchange.public), 0);
        true
    }

    /// Frees the buffer while the next chunk is awaited.
    pub(crate) fn release_buffer(&mut self) {
        (self.output, self.sent) = (Vec::new(), 0);
    }
}
