//! What a data plane measures, on its way to the control plane: one frame at a time, by Weir's protocol alone.
use super::LinkStatus;
use crate::sync::message::{ANALYTICS_CAPABILITY, AnalyticsTaken, Message, Welcome};
use bytes::Bytes;
use std::future::pending;
use tokio::sync::oneshot;

/// What happened to the frame before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LastFrame {
    /// A connection has just begun. A frame without an answer is to be sent again.
    None,
    /// The control plane has taken it.
    Taken,
    /// The control plane may take it later, so it is kept.
    Later,
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
    /// The log says already that the control plane takes frames later.
    is_logged: bool,
}

impl<'a> HandingIn<'a> {
    pub(super) fn new(source: Option<&'a dyn Analytics>, status: &'a LinkStatus) -> HandingIn<'a> {
        HandingIn { source, status, next: None, max_payload: 0, is_awaiting: false, is_logged: false }
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
            None => {
                self.is_logged = false;
                self.ask(LastFrame::Taken);
            }
            Some(reason) if taken.later => self.postponed(reason),
            Some(reason) => self.refused(reason),
        }
    }

    fn postponed(&mut self, reason: &str) {
        if !std::mem::replace(&mut self.is_logged, true) {
            let to = self.status.now().control_plane.unwrap_or_default();
            tracing::warn!(control_plane = to, "it takes no analytics now, so they are kept: {reason}");
        }
        self.ask(LastFrame::Later);
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

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use std::sync::Mutex;

    /// Has three frames, and notes what happened to the ones before.
    #[derive(Default)]
    struct Source(Mutex<Vec<LastFrame>>);

    impl Analytics for Source {
        fn next(&self, last: LastFrame) -> oneshot::Receiver<Bytes> {
            let (sender, next) = oneshot::channel();
            let mut asked = self.0.lock().unwrap();
            asked.push(last);
            if asked.len() <= 3 {
                sender.send(Bytes::from(vec![7; 100])).unwrap();
            }
            next
        }
    }

    fn welcome(max_payload: u64) -> Welcome {
        Welcome { capabilities: vec![ANALYTICS_CAPABILITY.to_owned()], max_payload, ..Welcome::default() }
    }

    #[test]
    fn a_control_plane_without_the_capability_is_sent_nothing() {
        let (source, status) = (Source::default(), LinkStatus::default());
        let mut analytics = HandingIn::new(Some(&source), &status);
        analytics.begin(&Welcome { max_payload: 1 << 20, ..Welcome::default() });
        assert_eq!(analytics.next().now_or_never(), None);
        assert!(source.0.lock().unwrap().is_empty());
        let mut without = HandingIn::new(None, &status);
        without.begin(&welcome(1 << 20));
        assert_eq!(without.next().now_or_never(), None);
    }

    #[test]
    fn a_frame_follows_the_answer_to_the_one_before() {
        let (source, status) = (Source::default(), LinkStatus::default());
        let mut analytics = HandingIn::new(Some(&source), &status);
        analytics.begin(&welcome(1 << 20));
        let refused = |later| AnalyticsTaken { refused: Some("no".to_owned()), later };
        analytics.answered(&refused(false));
        for answer in [AnalyticsTaken::default(), refused(false), refused(true)] {
            assert!(analytics.next().now_or_never().is_some());
            assert_eq!(analytics.next().now_or_never(), None);
            analytics.answered(&answer);
        }
        let expected = [LastFrame::None, LastFrame::Taken, LastFrame::Refused, LastFrame::Later];
        assert_eq!(*source.0.lock().unwrap(), expected);
    }

    #[test]
    fn a_frame_that_the_control_plane_cannot_read_is_given_up() {
        let (source, status) = (Source::default(), LinkStatus::default());
        let mut analytics = HandingIn::new(Some(&source), &status);
        analytics.begin(&welcome(50));
        assert_eq!(analytics.next().now_or_never(), None);
        let expected = [LastFrame::None, LastFrame::Refused, LastFrame::Refused, LastFrame::Refused];
        assert_eq!(*source.0.lock().unwrap(), expected);
    }
}
