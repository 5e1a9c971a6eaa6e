//! What data planes measure, as a control plane takes it: one frame at a time of each.
use super::bounds::{MAX_MESSAGE_LEN, shortened};
use super::link::Link;
use crate::sync::message::{AnalyticsTaken, Message};
use bytes::Bytes;
use std::future::pending;
use tokio::sync::oneshot;
use uuid::Uuid;

/// Where the frames of all data planes go.
pub trait Collect: Send + Sync + 'static {
    /// A data plane has connected.
    fn connected(&self, data_plane: Uuid) -> Box<dyn Inbox>;
}

/// Where the frames of one connection go.
pub trait Inbox: Send {
    /// Takes a frame. The outcome comes once it is stored, or says why it is not taken.
    fn take(&mut self, frame: Bytes) -> oneshot::Receiver<FrameOutcome>;
}

/// What happens to a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameOutcome {
    /// It is stored.
    Taken,
    /// It cannot be taken now, for this reason. The data plane sends it again.
    Later(String),
    /// It will never be taken, for this reason. Its counts are lost.
    Refused(String),
}

/// The frames of one connection.
pub(super) struct Collecting<'a> {
    link: &'a Link,
    inbox: Option<Box<dyn Inbox>>,
    /// What happens to the frame that came last.
    answer: Option<oneshot::Receiver<FrameOutcome>>,
    is_logged: bool,
}

impl<'a> Collecting<'a> {
    pub(super) fn new(collect: Option<&dyn Collect>, link: &'a Link) -> Collecting<'a> {
        let inbox = collect.map(|collect| collect.connected(link.id));
        Collecting { link, inbox, answer: None, is_logged: false }
    }

    /// Takes a frame; the error is why the connection must end.
    pub(super) fn take(&mut self, frame: Bytes) -> Result<(), String> {
        match &mut self.inbox {
            None => Err("unexpected message: this control plane takes no analytics".to_owned()),
            Some(_) if self.answer.is_some() => {
                Err("unexpected message: the analytics before are not answered yet".to_owned())
            }
            Some(inbox) => {
                self.answer = Some(inbox.take(frame));
                Ok(())
            }
        }
    }

    /// Waits for the answer to the last frame.
    pub(super) async fn answer(&mut self) -> Bytes {
        let Some(answer) = &mut self.answer else { return pending().await };
        let outcome = answer.await;
        self.answer = None;
        let Ok(outcome) = outcome else { return pending().await };
        let (reason, later) = match outcome {
            FrameOutcome::Taken => (None, false),
            FrameOutcome::Later(reason) => (Some(reason), true),
            FrameOutcome::Refused(reason) => (Some(reason), false),
        };
        let refused = reason.map(|reason| shortened(reason, MAX_MESSAGE_LEN));
        if let Some(reason) = &refused {
            self.log(reason, later);
        }
        Message::AnalyticsTaken(AnalyticsTaken { refused, later }).encode()
    }

    /// Logs the first refusal of a connection. The others are in the data plane's log.
    fn log(&mut self, reason: &str, later: bool) {
        let (link, what) = (self.link, if later { "wait" } else { "are refused" });
        if std::mem::replace(&mut self.is_logged, true) {
            tracing::debug!("analytics of data plane {link} {what}: {reason}");
        } else {
            tracing::warn!("analytics of data plane {link} {what}: {reason}");
        }
    }
}
