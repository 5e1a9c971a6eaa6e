//! Filters that change a response's body while it streams.

use super::Exchange;
use std::future::Future;
use std::pin::Pin;

/// Changes a response's body chunk by chunk, on its way to the client. The head has been sent by then, unless the filter
/// holds it. A filter that is dropped without [`BodyFilter::end`] has not got all of the body: the response broke off, or the client left.
pub trait BodyFilter: 'static {
    /// Takes the next chunk, which is never empty, and returns what is sent in its place: less, more or nothing.
    fn chunk(&mut self, exchange: &mut Exchange, chunk: Vec<u8>) -> Vec<u8>;
    /// Whether the head of an upstream's response waits for the next chunk or the end, because the filter may still change
    /// it: the status to another with a body, and headers. As long as it does, the filter returns nothing.
    fn holds_head(&self) -> bool {
        false
    }
    /// Whether nothing more of the body is of use. The response then ends behind what the filters return, and the upstream is
    /// left: nothing more of its response is read.
    fn is_done(&self) -> bool {
        false
    }
    /// The body has ended. Returns what is sent after the last chunk.
    fn end(self: Box<Self>, _exchange: &mut Exchange) -> Vec<u8> {
        Vec::new()
    }
}

/// The rest of a replacement that has waited: returns the body to send.
pub type ResumeBody = Box<dyn FnOnce(&mut Exchange) -> Vec<u8>>;

/// What a replacement waits for.
pub type WaitForBody = Pin<Box<dyn Future<Output = ResumeBody>>>;

/// Replaces a body, and waits before it does; it gets none that is too long to be buffered.
pub type ReplaceLater = Box<dyn FnOnce(&mut Exchange, Option<Vec<u8>>) -> WaitForBody>;

/// Returns what is sent in the place of a body that is too long to be buffered.
pub type RefuseTooLong = Box<dyn FnOnce(&mut Exchange) -> Vec<u8>>;

/// The filters of a response's body, in the order of their plugins: each gets what the one before returns.
#[derive(Default)]
pub struct BodyFilters(Vec<Box<dyn BodyFilter>>);

impl BodyFilters {
    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether one of them holds the head.
    pub fn hold_head(&self) -> bool {
        self.0.iter().any(|filter| filter.holds_head())
    }

    /// Whether one of them needs nothing more of the body.
    pub fn are_done(&self) -> bool {
        self.0.iter().any(|filter| filter.is_done())
    }

    pub(crate) fn push(&mut self, filter: impl BodyFilter) {
        self.0.push(Box::new(filter));
    }

    /// Takes the next chunk, and returns what the last filter does.
    pub fn chunk(&mut self, exchange: &mut Exchange, chunk: Vec<u8>) -> Vec<u8> {
        self.0.iter_mut().fold(
            chunk,
            |chunk, filter| {
                if chunk.is_empty() { chunk } else { filter.chunk(exchange, chunk) }
            },
        )
    }

    /// Ends the body, and returns what is left to send. There are no filters from now on.
    pub fn end(&mut self, exchange: &mut Exchange) -> Vec<u8> {
        let mut left = Vec::new();
        for mut filter in std::mem::take(&mut self.0) {
            if !left.is_empty() {
                left = filter.chunk(exchange, left);
            }
            left.extend(filter.end(exchange));
        }
        left
    }
}

/// What response hooks have asked for the body of their response.
#[derive(Default)]
pub struct BodyChanges {
    /// It is buffered until it is whole, so that it can be replaced.
    pub buffers: bool,
    /// It is buffered for hooks that run also where there is none, and that do not mean to replace it.
    pub runs_without_body: bool,
    /// This takes its place, also where it is too long to be buffered.
    pub replacement: Option<Vec<u8>>,
    /// This replaces it once it is buffered, or too long for that.
    pub later: Option<ReplaceLater>,
    /// This replaces it if it is too long to be buffered, and nothing else does.
    pub too_long: Option<RefuseTooLong>,
    /// It is left out.
    pub drops: bool,
    /// It goes through these.
    pub filters: BodyFilters,
}

impl BodyChanges {
    /// What replaces a body that is too long to be buffered; none where it passes as it is.
    pub fn refuse_too_long(&mut self, exchange: &mut Exchange) -> Option<Vec<u8>> {
        let refuse = self.too_long.take().filter(|_| self.later.is_none())?;
        Some(refuse(exchange))
    }

    /// Takes them, if there are any.
    pub(crate) fn take(&mut self) -> Option<Self> {
        (self.buffers || self.runs_without_body || self.drops || !self.filters.is_empty())
            .then(|| std::mem::take(self))
    }
}
