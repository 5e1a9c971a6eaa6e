//! A control plane's side of one connection, without the connection: what a data plane's messages lead to.
use super::cohort::{Cohort, Draft, Next};
use super::identity::{Digest, Identity};
use super::inventory::{BUCKETS, Inventory, Key, differing_ids};
use super::message::{
    Applied, BucketMembers, Hello, Members, Message, PROTOCOL_VERSION, Refused, Wanted, Welcome,
};
use super::transfer::Transfer;
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use weir_model::Uuid;
use weir_model::entity::EntityKind;

/// One data plane, as its control plane knows it.
#[derive(Debug)]
pub struct ControlSession {
    /// What the data plane serves.
    held: Identity,
    /// What was sent and is not acknowledged.
    outstanding: Option<Identity>,
    /// The last content that it refused. The same is not sent again.
    refused: Option<Digest>,
    phase: Phase,
    /// What is asked next. It needs no credit.
    question: Option<Message>,
    /// Chunks that wait for credit.
    queue: VecDeque<Bytes>,
    credit: u32,
}

#[derive(Debug)]
enum Phase {
    /// It gets each change.
    Following,
    /// The digests of its buckets are awaited.
    Buckets,
    /// The entities of some buckets are awaited.
    Members(Comparison),
    /// What differs is to be sent.
    Compared(Comparison),
    /// What it holds is unknown: everything is to be sent.
    Unknown,
}

#[derive(Debug)]
struct Comparison {
    /// What the buckets were compared with.
    at: Identity,
    wanted: BTreeSet<(EntityKind, u16)>,
    /// What differs.
    keys: BTreeSet<Key>,
}

/// What a message reports.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The data plane serves this content.
    Applied(Applied),
    /// The data plane refuses this content.
    Refused(Refused),
}

/// A message that a data plane must not send now. The connection ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnexpectedMessage(pub &'static str);

impl fmt::Display for UnexpectedMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unexpected message: {}", self.0)
    }
}

impl std::error::Error for UnexpectedMessage {}

impl ControlSession {
    /// The session of a data plane that has said hello, and the answer to that.
    pub fn new(hello: &Hello, cohort: &Cohort, about: Welcome) -> (ControlSession, Message) {
        let identity = cohort.identity();
        let is_current = hello.identity.digest == identity.digest;
        let session = ControlSession {
            held: if is_current { identity } else { hello.identity },
            outstanding: None,
            refused: None,
            phase: Phase::Following,
            question: None,
            queue: VecDeque::new(),
            credit: hello.credit,
        };
        let protocol = hello.protocol.min(PROTOCOL_VERSION);
        (session, Message::Welcome(Welcome { protocol, identity, ..about }))
    }

    /// What the data plane serves.
    pub fn held(&self) -> Identity {
        self.held
    }

    /// Whether it serves what the cohort has.
    pub fn is_current(&self, cohort: &Cohort) -> bool {
        self.held.digest == cohort.identity().digest
    }

    /// Whether it has refused what the cohort has.
    pub fn has_refused(&self, cohort: &Cohort) -> bool {
        self.refused == Some(cohort.identity().digest)
    }

    /// Whether something is sent and not acknowledged, or asked and not answered.
    pub fn is_busy(&self) -> bool {
        self.outstanding.is_some() || matches!(self.phase, Phase::Buckets | Phase::Members(_))
    }

    /// What is to be sent next, unless it is encoded already. Encode it and [begin](Self::begin) it; [`poll`](Self::poll) does
    /// both at once.
    pub fn draft(&self, cohort: &Cohort) -> Option<Draft> {
        match self.next(cohort) {
            Next::Draft(draft) => Some(draft),
            _ => None,
        }
    }

    fn next(&self, cohort: &Cohort) -> Next {
        if self.is_busy() || self.has_refused(cohort) {
            return Next::Nothing;
        }
        match &self.phase {
            Phase::Compared(comparison) => match cohort.changed_after(comparison.at) {
                Some(keys) => {
                    // What changed while it was looked for is sent, too.
                    let keys = comparison.keys.iter().copied().chain(keys).collect();
                    cohort.differing(self.held.digest, keys)
                }
                // More changed than is remembered.
                None => Next::Compare,
            },
            Phase::Unknown => cohort.whole(),
            _ => cohort.next(self.held.digest),
        }
    }

    /// Begins to send a transfer.
    pub fn begin(&mut self, transfer: Transfer) {
        self.outstanding = Some(transfer.to);
        self.phase = Phase::Following;
        self.queue.extend(transfer.messages);
    }

    /// What can be sent now. Call it after each message and after each change of the cohort.
    pub fn poll(&mut self, cohort: &mut Cohort) -> Vec<Bytes> {
        match self.next(cohort) {
            Next::Nothing if self.is_current(cohort) => self.held = cohort.identity(),
            Next::Nothing => {}
            Next::Transfer(transfer) => self.begin(transfer),
            Next::Draft(draft) => {
                let transfer = draft.encode();
                cohort.keep(transfer.clone());
                self.begin(transfer);
            }
            Next::Compare => {
                self.phase = Phase::Buckets;
                self.question = Some(Message::Compare(cohort.compare()));
            }
        }
        let ready = self.queue.len().min(self.credit as usize);
        self.credit -= ready as u32;
        let question = self.question.take().map(|question| question.encode());
        question.into_iter().chain(self.queue.drain(..ready)).collect()
    }

    /// Takes a message.
    ///
    /// # Errors
    /// A message that the data plane must not send now.
    pub fn receive(&mut self, message: Message, cohort: &Cohort) -> Result<Option<Event>, UnexpectedMessage> {
        match message {
            Message::Buckets(kinds) => self.buckets(&kinds, cohort)?,
            Message::Members(members) => self.members(members, cohort)?,
            Message::Credit(chunks) => self.credit = self.credit.saturating_add(chunks),
            Message::Applied(applied) => {
                self.held = self.acknowledged(applied.identity)?;
                self.refused = None;
                return Ok(Some(Event::Applied(applied)));
            }
            Message::Refused(refused) => {
                self.refused = Some(self.acknowledged(refused.identity)?.digest);
                return Ok(Some(Event::Refused(refused)));
            }
            Message::Diverged => {
                self.outstanding.take().ok_or(UnexpectedMessage("`diverged` without a transfer"))?;
                // What it holds is unknown: no transfer that others share begins there.
                self.phase = Phase::Unknown;
            }
            Message::Goodbye(_) | Message::Unknown(_) => {}
            _ => return Err(UnexpectedMessage("only control planes send it, or it comes too late")),
        }
        Ok(None)
    }

    fn acknowledged(&mut self, identity: Identity) -> Result<Identity, UnexpectedMessage> {
        match self.outstanding {
            Some(outstanding) if outstanding == identity => {
                self.outstanding = None;
                Ok(identity)
            }
            _ => Err(UnexpectedMessage("it acknowledges what was not sent")),
        }
    }

    /// Finds the buckets that differ. Those that the data plane has nothing in need no further question.
    fn buckets(&mut self, kinds: &[(String, Vec<u64>)], cohort: &Cohort) -> Result<(), UnexpectedMessage> {
        if !matches!(self.phase, Phase::Buckets) {
            return Err(UnexpectedMessage("nothing asked for digests of buckets"));
        }
        let mut comparison =
            Comparison { at: cohort.identity(), wanted: BTreeSet::new(), keys: BTreeSet::new() };
        for (name, theirs) in kinds {
            match cohort.kind_called(name) {
                Some(kind) => comparison.compare(kind, theirs, cohort.inventory()),
                // There is no name to delete its entities by.
                None => {
                    self.phase = Phase::Unknown;
                    return Ok(());
                }
            }
        }
        let wanted = comparison.wanted();
        if wanted.buckets.is_empty() {
            self.phase = Phase::Compared(comparison);
        } else {
            self.phase = Phase::Members(comparison);
            self.question = Some(Message::Wanted(wanted));
        }
        Ok(())
    }

    fn members(&mut self, members: Members, cohort: &Cohort) -> Result<(), UnexpectedMessage> {
        let Phase::Members(comparison) = &mut self.phase else {
            return Err(UnexpectedMessage("nothing asked for entities of buckets"));
        };
        for BucketMembers { kind: name, number, members: theirs } in members.buckets {
            let kind = comparison.wanted.iter().map(|(kind, _)| *kind).find(|kind| kind.as_str() == name);
            let Some(kind) = kind.filter(|kind| comparison.wanted.remove(&(*kind, number))) else {
                return Err(UnexpectedMessage("nothing asked for entities of this bucket"));
            };
            let ours = cohort.inventory().members(kind, usize::from(number));
            let ours: Vec<(Uuid, u64)> = ours.iter().map(|(id, digest)| (*id, digest.short())).collect();
            comparison.keys.extend(differing_ids(&ours, &theirs).into_iter().map(|id| (kind, id)));
        }
        if comparison.wanted.is_empty()
            && let Phase::Members(comparison) = std::mem::replace(&mut self.phase, Phase::Following)
        {
            self.phase = Phase::Compared(comparison);
        }
        Ok(())
    }
}

impl Comparison {
    /// Compares the buckets of a kind.
    fn compare(&mut self, kind: EntityKind, theirs: &[u64], inventory: &Inventory) {
        let ours = inventory.buckets(kind).into_iter().flatten().map(Digest::short);
        let ours = ours.chain(std::iter::repeat(0)).take(BUCKETS);
        for (number, (ours, theirs)) in ours.zip(theirs).enumerate() {
            if *theirs == 0 {
                self.keys.extend(inventory.members(kind, number).iter().map(|(id, _)| (kind, *id)));
            } else if ours != *theirs {
                self.wanted.insert((kind, number as u16));
            }
        }
    }

    fn wanted(&self) -> Wanted {
        let mut buckets = BTreeMap::<String, Vec<u16>>::new();
        for (kind, number) in &self.wanted {
            buckets.entry(kind.as_str().to_owned()).or_default().push(*number);
        }
        Wanted { buckets }
    }
}
