//! The processes of a node that were replaced and still drain. They may commit changes until they end, also after the process that
//! replaced them has been replaced itself.
use super::channel::{Channel, Message};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Those before this process, by the ends of their channels, which close when they end.
#[derive(Default)]
pub(crate) struct DrainingProcesses(Mutex<Vec<Arc<Channel>>>);

impl DrainingProcesses {
    pub(super) fn add(&self, channel: Arc<Channel>) {
        self.channels().push(channel);
    }

    /// Forgets those that have ended; false if none is left.
    pub(super) fn any_is_left(&self) -> bool {
        let mut channels = self.channels();
        channels.retain(|channel| channel.is_open());
        !channels.is_empty()
    }

    /// Hands them on to the process that follows.
    pub(super) fn send(&self, to: &Channel) -> io::Result<()> {
        self.any_is_left();
        self.channels().iter().try_for_each(|channel| to.send_descriptor(&Message::Draining, &**channel))
    }

    fn channels(&self) -> MutexGuard<'_, Vec<Arc<Channel>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_known_until_it_ends_also_to_those_that_follow_later() {
        let (oldest, end) = Channel::pair().unwrap();
        let second = DrainingProcesses::default();
        second.add(Arc::new(Channel::of(end)));
        let (channel, other) = Channel::pair().unwrap();
        second.send(&channel).unwrap();
        drop(second);
        let (message, descriptor) = Channel::of(other).receive().unwrap();
        assert!(matches!(message, Message::Draining));
        let third = DrainingProcesses::default();
        third.add(Arc::new(Channel::of(descriptor.unwrap())));
        assert!(third.any_is_left());
        drop(oldest);
        assert!(!third.any_is_left() && third.channels().is_empty());
        let (channel, other) = Channel::pair().unwrap();
        third.send(&channel).unwrap();
        drop(channel);
        assert!(Channel::of(other).receive().is_err(), "one that has ended is not handed on");
    }
}
