//! What upstream servers have seen of a run.
use super::exchange::RequestId;
use std::collections::{HashMap, HashSet};
use std::time::Instant;

/// The reports of all servers together.
#[derive(Clone, Debug, Default)]
pub(super) struct Journal {
    /// How often each request was read whole.
    seen: HashMap<RequestId, u32>,
    /// Which of them are POST.
    posts: HashSet<RequestId>,
    /// When the response of each was written whole.
    done: HashMap<RequestId, Instant>,
    /// Requests that a fault hit.
    hit: HashSet<RequestId>,
    /// Connections that a fault hit before a request could be read on them.
    anonymous_hits: usize,
    /// What no correct gateway sends.
    bad: Vec<String>,
}

impl Journal {
    /// Takes in a line of a server's output.
    pub(super) fn note(&mut self, line: &str) {
        let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
        match (word, rest.rsplit(' ').next().and_then(|id| id.parse::<RequestId>().ok())) {
            ("seen", Some(id)) => {
                *self.seen.entry(id).or_default() += 1;
                if rest.starts_with("POST ") {
                    self.posts.insert(id);
                }
            }
            ("done", Some(id)) => drop(self.done.entry(id).or_insert_with(Instant::now)),
            ("hit", Some(id)) => drop(self.hit.insert(id)),
            ("hit", None) => self.anonymous_hits += 1,
            ("bad", _) => self.bad.push(rest.to_owned()),
            _ => {}
        }
    }

    /// Whether a server has read the whole request.
    #[must_use]
    pub(super) fn has_seen(&self, id: RequestId) -> bool {
        self.seen.contains_key(&id)
    }

    /// Whether a fault hit the request.
    #[must_use]
    pub(super) fn was_hit(&self, id: RequestId) -> bool {
        self.hit.contains(&id)
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

    /// POST requests that were read more than once.
    #[must_use]
    pub(super) fn duplicated(&self) -> usize {
        self.posts.iter().filter(|id| self.seen.get(id).is_some_and(|count| *count > 1)).count()
    }

    /// Other requests that were read more than once, as they may be.
    #[must_use]
    pub(super) fn repeated(&self) -> usize {
        self.seen.iter().filter(|(id, count)| **count > 1 && !self.posts.contains(id)).count()
    }

    /// What servers got that no client sent.
    #[must_use]
    pub(super) fn bad(&self) -> &[String] {
        &self.bad
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_post_that_came_twice_is_duplicated_and_a_get_is_repeated() {
        let mut journal = Journal::default();
        for line in
            ["ready", "seen POST 1-1", "hit 1-1", "seen GET 1-2", "seen POST 1-1", "seen GET 1-2", "hit -"]
        {
            journal.note(line);
        }
        assert_eq!((journal.duplicated(), journal.repeated(), journal.anonymous_hits()), (1, 1, 1));
        assert!(journal.was_hit("1-1".parse().unwrap()) && !journal.was_hit("1-2".parse().unwrap()));
        journal.note("bad a chunk without a size");
        assert_eq!(journal.bad(), ["a chunk without a size"]);
    }
}
