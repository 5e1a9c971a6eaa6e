//! Writes that wait for their turn.
use super::{Op, WriteError, Written};
use tokio::sync::oneshot;
use weir_model::Entities;

/// How a write went.
pub(super) type Outcome<E> = Result<Written, WriteError<E>>;

/// A write, whatever it may be decided against for.
pub(super) trait Job: Send {
    /// What to do; called again when the entities are others than it was decided on.
    fn decide(&mut self, entities: &Entities) -> Result<Vec<Op>, WriteError<()>>;

    /// Tells the writer how it went.
    fn end(self: Box<Self>, outcome: Outcome<()>);
}

/// A write whose outcome is waited for.
pub(super) struct Waiting<D, E> {
    decide: D,
    /// Why it was decided against.
    against: Option<E>,
    reply: oneshot::Sender<Outcome<E>>,
}

impl<D, E> Waiting<D, E> {
    pub(super) fn new(decide: D) -> (Waiting<D, E>, oneshot::Receiver<Outcome<E>>) {
        let (reply, answer) = oneshot::channel();
        (Waiting { decide, against: None, reply }, answer)
    }
}

impl<D, E> Job for Waiting<D, E>
where
    D: FnMut(&Entities) -> Result<Vec<Op>, E> + Send,
    E: Send,
{
    fn decide(&mut self, entities: &Entities) -> Result<Vec<Op>, WriteError<()>> {
        (self.decide)(entities).map_err(|against| {
            self.against = Some(against);
            WriteError::Decided(())
        })
    }

    fn end(self: Box<Self>, outcome: Outcome<()>) {
        let Waiting { against, reply, .. } = *self;
        let outcome = outcome.map_err(|error| match (error, against) {
            (WriteError::Decided(()), Some(against)) => WriteError::Decided(against),
            (WriteError::Decided(()), None) => WriteError::Unavailable("it was decided against".to_owned()),
            (WriteError::Refused(refusal), _) => WriteError::Refused(refusal),
            (WriteError::Uncompilable(error), _) => WriteError::Uncompilable(error),
            (WriteError::Unavailable(message), _) => WriteError::Unavailable(message),
            (WriteError::ReadOnly, _) => WriteError::ReadOnly,
        });
        // Whoever asked may have left.
        let _ = reply.send(outcome);
    }
}
