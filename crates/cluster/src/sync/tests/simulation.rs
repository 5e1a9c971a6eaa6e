//! One control plane and some data planes. Every message is encoded, waits on its connection, and is decoded.
use super::changed;
use crate::sync::message::{Hello, Message, Welcome};
use crate::sync::record::MAX_BODY_LEN;
use crate::sync::{Cohort, ControlSession, Event, Follower, Refusal, Replacement, Step, Update, digests};
use bytes::Bytes;
use std::collections::VecDeque;
use std::sync::Arc;
use weir_model::{Change, Document};

/// A data plane with its connection.
pub(super) struct Node {
    pub(super) follower: Follower,
    pub(super) document: Document,
    pub(super) connection: Option<Connection>,
    /// Whether it refuses what it gets.
    pub(super) refuses: bool,
    /// Bytes that it received.
    pub(super) received: usize,
    /// Bytes that it sent.
    pub(super) sent: usize,
}

#[derive(Default)]
pub(super) struct Connection {
    session: Option<ControlSession>,
    to_node: VecDeque<Bytes>,
    to_control_plane: VecDeque<Bytes>,
}

/// The fleet.
pub(super) struct Simulation {
    pub(super) cohort: Cohort,
    pub(super) nodes: Vec<Node>,
    pub(super) events: Vec<Event>,
}

impl Simulation {
    pub(super) fn new(document: Document, nodes: usize) -> Simulation {
        let cohort = Cohort::new(Arc::new([]), 1, 1, Arc::new(document));
        let node = || Node {
            follower: Follower::new(Arc::new([])),
            document: Document::default(),
            connection: None,
            refuses: false,
            received: 0,
            sent: 0,
        };
        Simulation { cohort, nodes: (0..nodes).map(|_| node()).collect(), events: Vec::new() }
    }

    /// Commits changes at the control plane.
    pub(super) fn commit(&mut self, changes: &[Change]) {
        self.cohort.apply(self.cohort.identity().sequence + 1, changes, digests(changes));
        self.poll();
    }

    /// Commits changes that the control plane learns of only as a new document.
    pub(super) fn replace(&mut self, changes: &[Change]) {
        let document = changed(self.cohort.document(), changes);
        self.cohort.replace(self.cohort.identity().sequence + 1, Replacement::new(document));
        self.poll();
    }

    /// The control plane starts again, with the same content and no memory.
    pub(super) fn restart(&mut self) {
        let (identity, document) = (self.cohort.identity(), self.cohort.document().clone());
        self.cohort = Cohort::new(Arc::new([]), identity.epoch + 1, identity.sequence, document);
        self.nodes.iter_mut().for_each(|node| node.connection = None);
    }

    pub(super) fn connect(&mut self, node: usize) {
        let node = &mut self.nodes[node];
        if node.connection.is_none() {
            let hello = node.follower.hello(Hello::default()).encode();
            node.connection = Some(Connection { to_control_plane: [hello].into(), ..Connection::default() });
        }
    }

    pub(super) fn disconnect(&mut self, node: usize) {
        self.nodes[node].connection = None;
    }

    fn poll(&mut self) {
        for connection in self.nodes.iter_mut().filter_map(|node| node.connection.as_mut()) {
            if let Some(session) = &mut connection.session {
                connection.to_node.extend(session.poll(&mut self.cohort));
            }
        }
    }

    /// Delivers the next message of a connection to the control plane; false if there is none.
    pub(super) fn deliver_up(&mut self, node: usize) -> bool {
        let node = &mut self.nodes[node];
        let Some(connection) = &mut node.connection else { return false };
        let Some(bytes) = connection.to_control_plane.pop_front() else { return false };
        node.sent += bytes.len();
        let message = Message::decode(bytes).unwrap();
        match (&mut connection.session, message) {
            (session @ None, Message::Hello(hello)) => {
                let (new, welcome) = ControlSession::new(&hello, &self.cohort, Welcome::default());
                connection.to_node.push_back(welcome.encode());
                *session = Some(new);
            }
            (Some(session), message) => {
                self.events.extend(session.receive(message, &self.cohort).unwrap());
            }
            (None, other) => panic!("{other:?} is the first message"),
        }
        let session = connection.session.as_mut().unwrap();
        connection.to_node.extend(session.poll(&mut self.cohort));
        true
    }

    /// Delivers the next message of a connection to the data plane; false if there is none.
    pub(super) fn deliver_down(&mut self, node: usize) -> bool {
        let node = &mut self.nodes[node];
        let Some(connection) = &mut node.connection else { return false };
        let Some(bytes) = connection.to_node.pop_front() else { return false };
        node.received += bytes.len();
        assert!(bytes.len() <= 64 << 10 || bytes.len() > MAX_BODY_LEN, "{} bytes at once", bytes.len());
        let replies = match node.follower.receive(Message::decode(bytes).unwrap()).unwrap() {
            Step::Current => Vec::new(),
            Step::Reply(replies) => replies,
            Step::Apply(received, mut replies) if node.refuses => {
                let error = Refusal { entity: "route `a`".into(), field: None, message: "no".into() };
                replies.push(node.follower.refused(&received.staged, vec![error]));
                replies
            }
            Step::Apply(received, mut replies) => {
                match received.update {
                    Update::Whole(document) => node.document = *document,
                    Update::Changes(changes) => {
                        changes.iter().for_each(|change| node.document.apply(change));
                    }
                }
                replies.push(node.follower.applied(received.staged, None));
                replies
            }
            Step::Goodbye(goodbye) => panic!("{goodbye:?}"),
        };
        connection.to_control_plane.extend(replies.iter().map(Message::encode));
        true
    }

    /// Connects every data plane, and delivers until nothing is left to deliver.
    pub(super) fn settle(&mut self) {
        (0..self.nodes.len()).for_each(|node| self.connect(node));
        self.poll();
        let mut rounds = 0;
        while (0..self.nodes.len()).any(|node| self.deliver_up(node) || self.deliver_down(node)) {
            rounds += 1;
            assert!(rounds < 1_000_000, "the fleet never comes to rest");
        }
    }

    pub(super) fn assert_converged(&self) {
        for node in &self.nodes {
            assert_eq!(node.document, **self.cohort.document());
            // A commit that changed nothing has a sequence that data planes need not know.
            assert_eq!(node.follower.identity().digest, self.cohort.identity().digest);
            assert_eq!(node.follower.inventory().digest(), self.cohort.identity().digest);
        }
    }
}
