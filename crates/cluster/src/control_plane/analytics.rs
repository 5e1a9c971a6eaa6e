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
    /// Takes a frame. The answer comes once it is stored, or says why it is refused.
    fn take(&mut self, frame: Bytes) -> oneshot::Receiver<Result<(), String>>;
}

/// The frames of one connection.
pub(super) struct Collecting<'a> {
    link: &'a Link,
    inbox: Option<Box<dyn Inbox>>,
    /// What happens to the frame that came last.
    answer: Option<oneshot::Receiver<Result<(), String>>>,
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
        let refused = outcome.err().map(|reason| shortened(reason, MAX_MESSAGE_LEN));
        if let Some(reason) = &refused {
            self.log(reason);
        }
        Message::AnalyticsTaken(AnalyticsTaken { refused }).encode()
    }

    /// Logs the first refusal of a connection. The others are in the data plane's log.
    fn log(&mut self, reason: &str) {
        let link = self.link;
        if std::mem::replace(&mut self.is_logged, true) {
            tracing::debug!("analytics of data plane {link} are refused: {reason}");
        } else {
            tracing::warn!("analytics of data plane {link} are refused: {reason}");
        }
    }
}
