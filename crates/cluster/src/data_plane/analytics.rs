//! What a data plane measures, on its way to the control plane: one frame at a time, by Weir's protocol alone.
use super::LinkStatus;
use crate::sync::message::{ANALYTICS_CAPABILITY, AnalyticsTaken, Message, Welcome};
use bytes::Bytes;
use std::future::pending;
use tokio::sync::oneshot;

/// What happened to the frame before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastFrame {
    /// There is none: a connection begins. A frame without an answer is to be sent again.
    None,
    /// The control plane has taken it.
    Taken,
    /// The control plane has refused it. Its counts are lost.
    Refused,
}

/// Where frames come from.
pub trait Analytics: Send + Sync + 'static {
    /// Asks for the next frame. It comes once there is one; an older request is void.
    fn next(&self, last: LastFrame) -> oneshot::Receiver<Bytes>;
}

/// The frames of one connection.
pub(super) struct HandingIn<'a> {
    source: Option<&'a dyn Analytics>,
    status: &'a LinkStatus,
    /// The next frame, unless the control plane has not answered the one before.
    next: Option<oneshot::Receiver<Bytes>>,
    /// The longest message that the control plane reads.
    max_payload: u64,
    is_awaiting: bool,
}

impl<'a> HandingIn<'a> {
    pub(super) fn new(source: Option<&'a dyn Analytics>, status: &'a LinkStatus) -> HandingIn<'a> {
        HandingIn { source, status, next: None, max_payload: 0, is_awaiting: false }
    }

    /// Begins, if the control plane takes frames.
    pub(super) fn begin(&mut self, welcome: &Welcome) {
        if welcome.capabilities.iter().any(|name| name == ANALYTICS_CAPABILITY) {
            self.max_payload = welcome.max_payload;
            self.ask(LastFrame::None);
        }
    }

    fn ask(&mut self, last: LastFrame) {
        self.is_awaiting = false;
        self.next = self.source.map(|source| source.next(last));
    }

    /// Takes the control plane's answer. One to no question is ignored.
    pub(super) fn answered(&mut self, taken: &AnalyticsTaken) {
        if !self.is_awaiting {
            return;
        }
        match &taken.refused {
            None => self.ask(LastFrame::Taken),
            Some(reason) => self.refused(reason),
        }
    }

    fn refused(&mut self, reason: &str) {
        let to = self.status.now().control_plane.unwrap_or_default();
        tracing::warn!(control_plane = to, "it refuses analytics of ten seconds, which are lost: {reason}");
        self.ask(LastFrame::Refused);
    }

    /// Waits for the next message.
    pub(super) async fn next(&mut self) -> Bytes {
        loop {
            let Some(next) = &mut self.next else { return pending().await };
            let frame = next.await;
            self.next = None;
            let Ok(frame) = frame else { continue };
            let message = Message::Analytics(frame).encode();
            if message.len() as u64 <= self.max_payload {
                self.is_awaiting = true;
                return message;
            }
            let (length, allowed) = (message.len(), self.max_payload);
            self.refused(&format!("{length} bytes are more than its cluster_max_payload ({allowed})"));
        }
    }
}
