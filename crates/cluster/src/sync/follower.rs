//! A data plane's side of one connection, without the connection. It outlives connections: what it knows of its content is
//! where the next one continues.
use super::Refusal;
use super::identity::{Digest, Identity};
use super::inventory::{BUCKETS, Inventory};
use super::message::{
    Applied, BucketMembers, Compare, Goodbye, Hello, Members, Message, MessageError, PROTOCOL_VERSION,
    Refused, Wanted, Welcome,
};
use super::transfer::{CHUNK_LEN, Received, Receiver, Staged, TransferError};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use weir_model::entity::EntityKind;
use weir_model::{PluginSchema, find_kind};

/// How many chunks may be on their way to a data plane.
pub const CREDIT: u32 = 64;

/// What a data plane has, and what it is receiving.
pub struct Follower {
    plugins: Arc<[PluginSchema]>,
    identity: Identity,
    inventory: Inventory,
    receiver: Option<Receiver>,
    /// Chunks that were taken since credit was given.
    taken: u32,
}

/// What follows from a message.
#[derive(Debug)]
pub enum Step {
    /// The control plane has what the data plane serves, which may be nothing at all.
    Current,
    /// Send these, if any.
    Reply(Vec<Message>),
    /// Apply the update, then call [`Follower::applied`] or [`Follower::refused`]. Send these messages before, if any.
    Apply(Box<Received>, Vec<Message>),
    /// The control plane ends the connection.
    Goodbye(Goodbye),
}

/// Why a data plane ends a connection.
#[derive(Debug, Clone, PartialEq)]
pub enum FollowerError {
    /// What came is no message.
    Message(MessageError),
    /// A message that the control plane must not send now.
    Unexpected(&'static str),
    /// A transfer is damaged.
    Transfer(TransferError),
}

impl fmt::Display for FollowerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FollowerError::Message(error) => error.fmt(f),
            FollowerError::Unexpected(why) => write!(f, "unexpected message: {why}"),
            FollowerError::Transfer(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for FollowerError {}

impl Follower {
    /// A data plane with these plugins that serves nothing.
    pub fn new(plugins: Arc<[PluginSchema]>) -> Follower {
        Follower::continuing(plugins, Identity::default(), Inventory::default())
    }

    /// A data plane that serves what its cache had.
    pub fn continuing(plugins: Arc<[PluginSchema]>, identity: Identity, inventory: Inventory) -> Follower {
        Follower { plugins, identity, inventory, receiver: None, taken: 0 }
    }

    /// What it serves.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// The digests of what it serves.
    pub fn inventory(&self) -> &Inventory {
        &self.inventory
    }

    /// The first message of a connection. What the last connection left behind is forgotten.
    pub fn hello(&mut self, about: Hello) -> Message {
        (self.receiver, self.taken) = (None, 0);
        let (protocol, credit, identity) = (PROTOCOL_VERSION, CREDIT, self.identity);
        Message::Hello(Hello { protocol, credit, identity, ..about })
    }

    /// Takes a message.
    ///
    /// # Errors
    /// The connection must end. What the data plane serves has not changed.
    pub fn receive(&mut self, message: Message) -> Result<Step, FollowerError> {
        match message {
            Message::Welcome(welcome) => {
                let is_current = self.adopt(&welcome);
                Ok(if is_current { Step::Current } else { Step::Reply(Vec::new()) })
            }
            Message::Compare(compare) => Ok(Step::Reply(vec![self.buckets(&compare)])),
            Message::Wanted(wanted) => Ok(Step::Reply(self.members(&wanted))),
            Message::Transfer(header, chunk) => {
                if self.receiver.is_some() {
                    return Err(FollowerError::Unexpected("a transfer begins within another"));
                }
                let receiver = Receiver::new(header, self.plugins.clone());
                self.chunk(receiver, &chunk)
            }
            Message::Chunk(chunk) => {
                let receiver = self.receiver.take();
                let receiver = receiver.ok_or(FollowerError::Unexpected("a chunk of no transfer"))?;
                self.chunk(receiver, &chunk)
            }
            Message::Goodbye(goodbye) => Ok(Step::Goodbye(goodbye)),
            Message::Unknown(_) => Ok(Step::Reply(Vec::new())),
            _ => Err(FollowerError::Unexpected("only data planes send it")),
        }
    }

    /// Takes over what the control plane calls the same content, if it has the same.
    fn adopt(&mut self, welcome: &Welcome) -> bool {
        let is_current = welcome.identity.digest == self.identity.digest;
        // A control plane that lags behind may have the same content by chance.
        if is_current && !self.identity.is_after(&welcome.identity) {
            self.identity = welcome.identity;
        }
        is_current
    }

    /// The digests of the buckets of each kind that differs.
    fn buckets(&self, compare: &Compare) -> Message {
        let named: BTreeMap<&str, EntityKind> =
            self.inventory.kinds().map(|(kind, _)| (kind.as_str(), kind)).collect();
        let ours = |name: &str| named.get(name).map(|kind| self.inventory.kind_digest(*kind));
        let names: BTreeSet<&str> =
            compare.kinds.keys().map(String::as_str).chain(named.keys().copied()).collect();
        let differing = names.into_iter().filter(|name| compare.kinds.get(*name).copied() != ours(name));
        let digests = |name: &str| -> Vec<u64> {
            let ours = named.get(name).and_then(|kind| self.inventory.buckets(*kind));
            let ours = ours.into_iter().flatten().map(Digest::short);
            ours.chain(std::iter::repeat(0)).take(BUCKETS).collect()
        };
        Message::Buckets(differing.map(|name| (name.to_owned(), digests(name))).collect())
    }

    /// The entities of buckets, in messages of about the length of a chunk.
    fn members(&self, wanted: &Wanted) -> Vec<Message> {
        let (mut messages, mut members, mut count) = (Vec::new(), Members::default(), 0);
        let lists =
            wanted.buckets.iter().flat_map(|(name, numbers)| numbers.iter().map(move |it| (name, *it)));
        for (name, number) in lists {
            let kind = find_kind(&self.plugins, name);
            let own = kind.map_or(&[][..], |kind| self.inventory.members(kind, usize::from(number)));
            count += own.len();
            let own = own.iter().map(|(id, digest)| (*id, digest.short())).collect();
            members.buckets.push(BucketMembers { kind: name.clone(), number, members: own });
            if count * 24 > CHUNK_LEN {
                messages.push(Message::Members(std::mem::take(&mut members)));
                count = 0;
            }
        }
        messages.push(Message::Members(members));
        messages
    }

    fn chunk(&mut self, mut receiver: Receiver, chunk: &[u8]) -> Result<Step, FollowerError> {
        receiver.chunk(chunk).map_err(FollowerError::Transfer)?;
        self.taken += 1;
        let mut replies = Vec::new();
        if self.taken >= CREDIT / 2 {
            replies.push(Message::Credit(std::mem::take(&mut self.taken)));
        }
        if !receiver.is_complete() {
            self.receiver = Some(receiver);
            return Ok(Step::Reply(replies));
        }
        let identity = receiver.to();
        match receiver.finish() {
            Ok(received) if received.staged.fits(&self.inventory) => {
                Ok(Step::Apply(Box::new(received), replies))
            }
            Ok(received) if received.staged.is_whole() => {
                let error = TransferError::Damaged("its digest is not that of its entities");
                Err(FollowerError::Transfer(error))
            }
            Ok(_) => {
                replies.push(Message::Diverged);
                Ok(Step::Reply(replies))
            }
            Err(TransferError::Refused(errors)) => {
                replies.push(Message::Refused(Refused { identity, errors }));
                Ok(Step::Reply(replies))
            }
            Err(error) => Err(FollowerError::Transfer(error)),
        }
    }

    /// Notes that every worker serves the update. `cache_error`: why the cache does not have it, if it does not.
    pub fn applied(&mut self, staged: Staged, cache_error: Option<String>) -> Message {
        let identity = staged.to;
        self.identity = identity;
        staged.apply(&mut self.inventory);
        Message::Applied(Applied { identity, cache_error })
    }

    /// Notes that the update could not be applied; what was served before still is.
    pub fn refused(&self, staged: &Staged, errors: Vec<Refusal>) -> Message {
        Message::Refused(Refused { identity: staged.to, errors })
    }
}
