//! Connections to PostgreSQL that break within a commit: between the request and its answer, and at every point around.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::print_stdout)]

use crate::harness::{Break, Gateway, PostgresServer, Relay, eventually};

/// The results of writes.
#[derive(Debug, Default)]
struct Outcomes {
    acknowledged: usize,
    refused: usize,
    uncertain_and_stored: usize,
    uncertain_and_lost: usize,
}

/// A node behind a relay, and its database.
struct Setup {
    port: u16,
    schema: &'static str,
    relay: Relay,
    node: Gateway,
    outcomes: Outcomes,
}

impl Setup {
    fn new(schema: &'static str, timeout: &str) -> Setup {
        let port = PostgresServer::shared_port();
        // A connection that listens is not the one that commits.
        let relay = Relay::start(port, "LISTEN");
        let mut settings = PostgresServer::settings(relay.port, schema);
        settings.push(("pg_timeout".to_owned(), timeout.to_owned()));
        let [node] = Gateway::sharing_by(&settings);
        Setup { port, schema, relay, node, outcomes: Outcomes::default() }
    }

    /// How many of a consumer and its key are in the database.
    fn stored(&self, number: usize) -> usize {
        let count =
            format!("SELECT count(*) FROM {}.weir_entities WHERE body LIKE '%of-{number}\"%'", self.schema);
        PostgresServer::select(self.port, &count).parse().unwrap()
    }

    /// Deletes a consumer with its key, in one commit, while the connection breaks; false if it did not break.
    fn delete(&mut self, number: usize, kind: Break, pieces: usize) -> bool {
        let (consumer, node) = (format!("/consumers/of-{number}"), &self.node);
        let put = |path: &str, body: &str| node.ask_admin("PUT", path, body).status == 200;
        eventually("there is a consumer", || put(&consumer, "{}"));
        let key = format!("{{\"key\": \"key-of-{number}\"}}");
        eventually("it has a key", || put(&format!("{consumer}/key-auth/{}", id(number)), &key));
        assert_eq!(self.stored(number), 2);
        self.relay.break_after(kind, pieces);
        let answer = node.ask_admin("DELETE", &consumer, "");
        let is_broken = !self.relay.spare();
        let left = self.stored(number);
        assert_ne!(left, 1, "half of the commit was stored");
        let said = answer.text().to_owned();
        let is_uncertain = said.contains("it is not known whether the change was stored");
        match (answer.status, left) {
            (204, 0) => self.outcomes.acknowledged += 1,
            (503, 2) if !is_uncertain => self.outcomes.refused += 1,
            (500, 0) if is_uncertain => self.outcomes.uncertain_and_stored += 1,
            (500, 2) if is_uncertain => self.outcomes.uncertain_and_lost += 1,
            (status, left) => panic!("{kind:?} after {pieces}: {status} with {left} of 2 left: {said}"),
        }
        let expected = if left == 0 { 404 } else { 200 };
        eventually("the node has what the database has", || node.admin(&consumer).status == expected);
        is_broken
    }

    /// Breaks connections after 0, 1, 2, … pieces, until a commit is over before.
    fn sweep(&mut self, kind: Break) {
        for pieces in 0.. {
            if !self.delete(fastrand::usize(..), kind, pieces) {
                return;
            }
        }
    }
}

fn id(number: usize) -> String {
    format!("00000000-0000-4000-8000-{:012x}", number & 0xffff_ffff_ffff)
}

#[test]
fn no_write_is_acknowledged_and_lost_wherever_its_connection_breaks() {
    let mut setup = Setup::new("broken", "60000");
    for _ in 0..5 {
        for kind in [Break::Request, Break::Answer, Break::EndOfAnswer] {
            setup.sweep(kind);
        }
    }
    println!("{:?}", setup.outcomes);
    assert!(setup.outcomes.uncertain_and_stored > 0 && setup.outcomes.uncertain_and_lost > 0);
}

#[test]
fn a_commit_that_is_never_answered_is_uncertain() {
    let mut setup = Setup::new("silent_commit", "1500");
    // Where pieces come together, a sweep passes over the answer to the commit.
    for _ in 0..5 {
        setup.sweep(Break::Silence);
        if setup.outcomes.uncertain_and_stored > 0 {
            break;
        }
    }
    println!("{:?}", setup.outcomes);
    assert!(setup.outcomes.uncertain_and_stored > 0);
}
