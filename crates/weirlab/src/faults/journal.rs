//! What upstream servers have seen of a run.
use super::behaviour::Behaviour;
use super::exchange::RequestId;
use std::collections::{HashMap, HashSet};
use std::time::Instant;

/// How many seconds may lie between the moment at which a gateway decides to trust a server and the one at which that accepts its
/// connection: a session is resumed because of what was verified before.
const GRACE_SECS: i64 = 1;

/// The reports of all servers together.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    /// Which servers have read each request whole, in their order.
    seen: HashMap<RequestId, Vec<usize>>,
    /// Which of them are POST.
    posts: HashSet<RequestId>,
    /// When the response of each was written whole.
    done: HashMap<RequestId, Instant>,
    /// Requests that a fault hit.
    hit: HashSet<RequestId>,
    /// Requests that were on their way while a server closed the connection, which was idle until then.
    unread: HashSet<RequestId>,
    /// Connections that a fault hit before a request could be read on them.
    anonymous_hits: usize,
    /// Servers and behaviours of theirs that a request or a connection has met. That excuses nothing.
    acted: HashSet<(usize, Behaviour)>,
    /// The last second in which the certificate of the first server is valid, if it expires in the run.
    expires: Option<i64>,
    /// Whether that server got a request of the load on a connection from before.
    was_valid: bool,
    /// What no correct gateway sends.
    bad: Vec<String>,
}

impl Journal {
    /// Of a run in which the certificate of the first server is valid until the end of this second, if it expires.
    #[must_use]
    pub(super) fn new(expires: Option<i64>) -> Self {
        Self { expires, ..Self::default() }
    }

    /// Takes in a line of the output of the server with this number.
    pub(super) fn note(&mut self, server: usize, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (word, rest.rsplit(' ').next().and_then(|id| id.parse::<RequestId>().ok())) {
            ("seen", Some(id)) => {
                self.seen.entry(id).or_default().push(server);
                if rest.starts_with("POST ") {
                    self.posts.insert(id);
                }
            }
            ("done", Some(id)) => drop(self.done.entry(id).or_insert_with(Instant::now)),
            ("hit", Some(id)) => drop(self.hit.insert(id)),
            ("hit", None) => self.anonymous_hits += 1,
            ("unread", Some(id)) => drop(self.unread.insert(id)),
            ("opened", Some(id)) if server == 0 => self.note_opened(id, rest),
            ("acts", _) => {
                if let Ok(behaviour) = rest.parse::<Behaviour>() {
                    self.acted.insert((server, behaviour));
                }
            }
            ("bad", _) => self.bad.push(rest.to_owned()),
            _ => {}
        }
    }

    /// A request came to the first server, on a connection that it accepted in the second that is written first.
    fn note_opened(&mut self, id: RequestId, rest: &str) {
        let second = rest.split(' ').next().and_then(|second| second.parse::<i64>().ok());
        let (Some(expires), Some(second)) = (self.expires, second) else { return };
        self.was_valid |= id.is_of_load() && second <= expires;
        if second > expires + GRACE_SECS {
            let what = "a request on a connection that was opened after its certificate had expired";
            self.bad.push(what.to_owned());
        }
    }

    /// So many requests more may be lost that no server has read.
    pub(super) fn excuse_unread(&mut self, requests: usize) {
        self.anonymous_hits += requests;
    }

    /// Whether a server has read the whole request.
    #[must_use]
    pub(super) fn has_seen(&self, id: RequestId) -> bool {
        self.seen.contains_key(&id)
    }

    /// Whether this server has read the whole request.
    #[must_use]
    pub(super) fn was_seen_by(&self, id: RequestId, server: usize) -> bool {
        self.seen.get(&id).is_some_and(|servers| servers.contains(&server))
    }

    /// Whether a fault hit the request.
    #[must_use]
    pub(super) fn was_hit(&self, id: RequestId) -> bool {
        self.hit.contains(&id)
    }

    /// Whether the request was on its way while a server closed the connection.
    #[must_use]
    pub(super) fn was_unread(&self, id: RequestId) -> bool {
        self.unread.contains(&id)
    }

    /// Whether a server had written the whole response by then.
    #[must_use]
    pub(super) fn was_done_by(&self, id: RequestId, moment: Instant) -> bool {
        self.done.get(&id).is_some_and(|done| *done <= moment)
    }

    /// How many connections a fault hit before a request could be read.
    #[must_use]
    pub(super) fn anonymous_hits(&self) -> usize {
        self.anonymous_hits
    }

    /// Whether a request or a connection has met this behaviour of a server.
    #[must_use]
    pub(super) fn has_acted(&self, server: usize, behaviour: Behaviour) -> bool {
        self.acted.contains(&(server, behaviour))
    }

    /// Why a load that ends in this second shows nothing about a certificate that expires; none if there is no such certificate.
    #[must_use]
    pub(super) fn missed_expiry(&self, now: i64) -> Option<&'static str> {
        let expires = self.expires?;
        if !self.was_valid {
            return Some("no request came to upstream server 0 before its certificate expired");
        }
        // A whole second is left in which a request would have been found.
        (now <= expires + GRACE_SECS + 1).then_some("the load ended before a certificate had expired")
    }

    /// POST requests that were read more than once.
    #[must_use]
    pub(super) fn duplicated(&self) -> usize {
        self.posts.iter().filter(|id| self.seen.get(id).is_some_and(|servers| servers.len() > 1)).count()
    }

    /// Other requests that were read more than once, as they may be.
    #[must_use]
    pub(super) fn repeated(&self) -> usize {
        self.seen.iter().filter(|(id, servers)| servers.len() > 1 && !self.posts.contains(id)).count()
    }

    /// What servers got that no client sent, or that a gateway must not send.
    #[must_use]
    pub(super) fn bad(&self) -> &[String] {
        &self.bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn journal(lines: &[(usize, &str)]) -> Journal {
        let mut journal = Journal::new(Some(100));
        lines.iter().for_each(|(server, line)| journal.note(*server, line));
        journal
    }

    #[test]
    fn a_post_that_came_twice_is_duplicated_and_a_get_is_repeated() {
        let lines =
            ["ready", "seen POST 1-1", "hit 1-1", "seen GET 1-2", "seen POST 1-1", "seen GET 1-2", "hit -"];
        let mut journal = journal(&lines.map(|line| (0, line)));
        assert_eq!((journal.duplicated(), journal.repeated(), journal.anonymous_hits()), (1, 1, 1));
        assert!(journal.was_hit("1-1".parse().unwrap()) && !journal.was_hit("1-2".parse().unwrap()));
        journal.note(0, "bad a chunk without a size");
        assert_eq!(journal.bad(), ["a chunk without a size"]);
    }

    #[test]
    fn what_a_server_did_is_its_own_and_no_excuse() {
        let journal = journal(&[(1, "seen POST 1-1"), (1, "acts drip"), (1, "acts close-idle")]);
        assert!(journal.has_acted(1, Behaviour::Drip) && journal.has_acted(1, Behaviour::CloseIdle));
        assert!(!journal.has_acted(0, Behaviour::Drip) && !journal.has_acted(1, Behaviour::Garbage));
        let id = "1-1".parse().unwrap();
        assert!(journal.was_seen_by(id, 1) && !journal.was_seen_by(id, 0));
        assert!(!journal.was_hit(id) && journal.anonymous_hits() == 0);
    }

    /// The certificate of the first server is valid until the end of the second 100.
    #[test]
    fn a_connection_that_was_opened_after_a_certificate_expired_is_bad() {
        let in_time = journal(&[(0, "opened 100 1-1"), (0, "opened 101 1-2"), (1, "opened 150 1-3")]);
        assert_eq!(in_time.bad(), [""; 0]);
        let late = journal(&[(0, "opened 102 1-1"), (0, "opened 150 1-2")]);
        assert_eq!(late.bad().len(), 2);
        let mut without = Journal::new(None);
        without.note(0, "opened 150 1-1");
        assert!(without.bad().is_empty());
    }

    #[test]
    fn a_certificate_has_to_expire_in_the_midst_of_the_load() {
        let used = journal(&[(0, "opened 100 1-1")]);
        assert!(used.missed_expiry(102).is_some() && used.missed_expiry(103).is_none());
        // Those who look whether the gateway answers, and those of another server, do not count.
        let unused = journal(&[(0, "opened 100 1000000-1"), (0, "opened 101 1-1"), (1, "opened 100 1-2")]);
        assert!(unused.missed_expiry(103).is_some());
        assert_eq!(Journal::new(None).missed_expiry(103), None);
    }
}
