//! Queued writes.
use super::{CommittedWrite, Op, WriteError};
use tokio::sync::oneshot;
use weir_model::Entities;

/// The outcome of a write.
pub(super) type Outcome<E> = Result<CommittedWrite, WriteError<E>>;

/// A queued write, whatever its own type of error is.
pub(super) trait Job: Send {
    /// Returns the changes; called again when the entities have changed since.
    fn decide(&mut self, entities: &Entities) -> Result<Vec<Op>, WriteError<()>>;

    /// Sends the outcome to the client of the write.
    fn end(self: Box<Self>, outcome: Outcome<()>);
}

/// A queued write whose client waits for the outcome.
pub(super) struct QueuedWrite<D, E> {
    decide: D,
    /// The error of `decide`.
    rejection: Option<E>,
    reply: oneshot::Sender<Outcome<E>>,
}

impl<D, E> QueuedWrite<D, E> {
    pub(super) fn new(decide: D) -> (QueuedWrite<D, E>, oneshot::Receiver<Outcome<E>>) {
        let (reply, answer) = oneshot::channel();
        (QueuedWrite { decide, rejection: None, reply }, answer)
    }
}

impl<D, E> Job for QueuedWrite<D, E>
where
    D: FnMut(&Entities) -> Result<Vec<Op>, E> + Send,
    E: Send,
{
    fn decide(&mut self, entities: &Entities) -> Result<Vec<Op>, WriteError<()>> {
        (self.decide)(entities).map_err(|rejection| {
            self.rejection = Some(rejection);
            WriteError::Rejected(())
        })
    }

    fn end(self: Box<Self>, outcome: Outcome<()>) {
        let QueuedWrite { rejection, reply, .. } = *self;
        let outcome = outcome.map_err(|error| match (error, rejection) {
            (WriteError::Rejected(()), Some(rejection)) => WriteError::Rejected(rejection),
            (WriteError::Rejected(()), None) => WriteError::Unavailable(
                "the write was rejected without a reason; this is a defect".to_owned(),
            ),
            (WriteError::Refused(refusal), _) => WriteError::Refused(refusal),
            (WriteError::Uncompilable(error), _) => WriteError::Uncompilable(error),
            (WriteError::Unavailable(message), _) => WriteError::Unavailable(message),
            (WriteError::Uncertain(message), _) => WriteError::Uncertain(message),
            (WriteError::ReadOnly, _) => WriteError::ReadOnly,
        });
        // The client may have left.
        let _ = reply.send(outcome);
    }
}
