//! A data plane's frames, from the store to the connection with its control plane.
//!
//! The connection asks, and the collector answers: so the thread of connections never waits for the store.
use bytes::Bytes;
use std::sync::mpsc::{Receiver, Sender, channel};
use tokio::sync::oneshot;
use weir_analytics::outbox::Outbox;
use weir_analytics::store::Store;
use weir_cluster::data_plane::{Analytics, LastFrame};

struct Request {
    last: LastFrame,
    reply: oneshot::Sender<Bytes>,
}

/// The connection's side.
pub(crate) struct Outgoing(Sender<Request>);

/// The collector's side.
pub(super) struct HandingIn {
    requests: Receiver<Request>,
    /// Who waits for the next frame.
    waiting: Option<oneshot::Sender<Bytes>>,
}

pub(super) fn outgoing() -> (Outgoing, HandingIn) {
    let (sender, requests) = channel();
    (Outgoing(sender), HandingIn { requests, waiting: None })
}

impl Analytics for Outgoing {
    fn next(&self, last: LastFrame) -> oneshot::Receiver<Bytes> {
        let (reply, next) = oneshot::channel();
        // The collector has ended if this fails, so no frame comes.
        self.0.send(Request { last, reply }).ok();
        next
    }
}

impl HandingIn {
    /// Answers requests, as far as there are frames.
    pub(super) fn turn(&mut self, store: &mut Store) {
        for Request { last, reply } in self.requests.try_iter() {
            match last {
                LastFrame::None => store.outbox_mut().into_iter().for_each(Outbox::begin),
                LastFrame::Taken => store.frame_taken(),
                LastFrame::Later => store.frame_postponed(),
                LastFrame::Refused => store.frame_refused(),
            }
            self.waiting = Some(reply);
        }
        let Some(reply) = self.waiting.take() else { return };
        match store.next_frame() {
            // If the connection has ended, the next one gets the same frame.
            Some(frame) => drop(reply.send(frame.into())),
            None => self.waiting = Some(reply),
        }
    }
}
