//! Limits of the tokens that requests to models use. How they stand is known before a request, what it uses behind it.

mod shared;

pub(crate) use shared::SharedTokens;

use super::Usage;
use crate::shared::counters::Table;
use crate::shared::limits_of_apisix::wall_clock;
use crate::shared::quota_window::{self, Limit, Window};
use crate::shared::request_key::Key;
use std::borrow::Cow;
use std::sync::Arc;
use weir_plugin::{Exchange, Fingerprint, Fingerprinter, Headers, LocalResponse};

/// Which tokens count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Total,
    Prompt,
    Completion,
}

impl TokenKind {
    fn of(self, usage: &Usage) -> u64 {
        match self {
            Self::Prompt => usage.prompt.unwrap_or(0),
            Self::Completion => usage.completion.unwrap_or(0),
            Self::Total => usage.total().or(usage.prompt).or(usage.completion).unwrap_or(0),
        }
    }
}

/// What a limit concerns.
pub(crate) enum Concerns {
    /// The instance of a model with this name.
    Instance(String),
    /// The instances without a limit of their own, together.
    Others,
    /// Requests with the same value of a key. Those without a value are not counted.
    Requests { key: Key, header_prefix: String },
}

/// A limit of tokens.
pub(crate) struct TokenLimit {
    pub(crate) concerns: Concerns,
    pub(crate) limit: Limit,
    /// The fingerprint of its counters on this node begins with it.
    pub(crate) scope: Fingerprinter,
    /// Its keys in Redis begin with it.
    pub(crate) shared_scope: String,
}

/// The limits of one plugin.
pub(crate) struct TokenLimiter {
    pub(crate) limits: Vec<TokenLimit>,
    pub(crate) kind: TokenKind,
    pub(crate) table: Arc<Table<Window>>,
    /// The store in which all nodes count together.
    pub(crate) shared: Option<SharedTokens>,
    pub(crate) rejected: LocalResponse,
    pub(crate) shows_headers: bool,
}

/// A limit as it concerns one request.
pub(crate) struct Standing {
    /// Its place among the limits.
    limit: usize,
    whose: Fingerprint,
    /// Its key in Redis, if nodes count together.
    key: String,
    usage: quota_window::Usage,
}

/// The limits that a request is under, for the plugins that send it to a model.
pub(crate) struct TokenLimits {
    limiter: Arc<TokenLimiter>,
    standings: Vec<Standing>,
    /// This node counts by itself.
    counts_here: bool,
    /// The instance of a model that the request is sent to.
    instance: String,
}

impl TokenLimiter {
    /// The limits that concern a request, as this node knows them.
    pub(crate) fn standings(&self, exchange: &Exchange) -> Vec<Standing> {
        let each = self.limits.iter().enumerate();
        each.filter_map(|(index, limit)| self.standing(index, limit, exchange)).collect()
    }

    fn standing(&self, index: usize, limit: &TokenLimit, exchange: &Exchange) -> Option<Standing> {
        let value: Cow<'_, [u8]> = match &limit.concerns {
            Concerns::Instance(name) => name.as_bytes().into(),
            Concerns::Others => b"".as_slice().into(),
            Concerns::Requests { key, .. } => key.value(exchange)?,
        };
        let whose = limit.scope.of(&value);
        let key = match &self.shared {
            Some(_) => limit.shared_key(exchange, value),
            None => String::new(),
        };
        let seconds = || wall_clock() / 1_000;
        let usage = self.table.with(whose, seconds, |window| window.look(limit.limit, wall_clock));
        Some(Standing { limit: index, whose, key, usage })
    }
}

impl TokenLimits {
    pub(crate) fn new(limiter: Arc<TokenLimiter>, standings: Vec<Standing>, counts_here: bool) -> Self {
        Self { limiter, standings, counts_here, instance: String::new() }
    }

    /// The limits that concern an instance of a model.
    fn of<'l>(&'l self, instance: &'l str) -> impl Iterator<Item = &'l Standing> {
        let limits = &self.limiter.limits;
        let has_own = |standing: &Standing| matches!(&limits[standing.limit].concerns, Concerns::Instance(name) if name == instance);
        let is_named = self.standings.iter().any(has_own);
        self.standings.iter().filter(move |standing| match &limits[standing.limit].concerns {
            Concerns::Instance(name) => name == instance,
            Concerns::Others => !is_named,
            Concerns::Requests { .. } => true,
        })
    }

    /// Whether the limits leave any tokens of an instance.
    pub(crate) fn admit(&self, instance: &str) -> bool {
        self.of(instance).all(|standing| standing.usage.admitted)
    }

    /// The request is sent to this instance: what is sent instead, if the limits leave none of its tokens.
    pub(crate) fn choose(&mut self, instance: &str) -> Option<LocalResponse> {
        instance.clone_into(&mut self.instance);
        (!self.admit(instance)).then(|| self.limiter.rejected.clone())
    }

    /// What is sent instead of the request to any instance, if a limit is used up that concerns all of them.
    pub(crate) fn refuse_all(&self) -> Option<LocalResponse> {
        let concerns_all = |standing: &Standing| {
            matches!(self.limiter.limits[standing.limit].concerns, Concerns::Requests { .. })
        };
        let is_used_up = |standing: &Standing| concerns_all(standing) && !standing.usage.admitted;
        self.standings.iter().any(is_used_up).then(|| self.limiter.rejected.clone())
    }

    /// Counts the tokens that the instance has used.
    pub(crate) fn count(&mut self, usage: &Usage) {
        let tokens = self.limiter.kind.of(usage);
        let instance = std::mem::take(&mut self.instance);
        let concerned: Vec<usize> = self.of(&instance).map(|standing| standing.limit).collect();
        self.instance = instance;
        let limiter = self.limiter.clone();
        for standing in self.standings.iter_mut().filter(|of| tokens > 0 && concerned.contains(&of.limit)) {
            let limit = limiter.limits[standing.limit].limit;
            match limiter.shared.as_ref().filter(|_| !self.counts_here) {
                Some(shared) => shared.add(&standing.key, limit, tokens),
                None => {
                    let seconds = || wall_clock() / 1_000;
                    limiter
                        .table
                        .with(standing.whose, seconds, |window| window.add(limit, tokens, wall_clock));
                }
            }
            standing.usage.remaining = standing.usage.remaining.saturating_sub(tokens);
        }
    }

    /// Shows the client how the limits stand.
    pub(crate) fn write_headers(&self, headers: &mut Headers) {
        if !self.limiter.shows_headers {
            return;
        }
        for standing in self.of(&self.instance) {
            let limit = &self.limiter.limits[standing.limit];
            if self.instance.is_empty() && !matches!(limit.concerns, Concerns::Requests { .. }) {
                continue;
            }
            let name = |what: &str| match &limit.concerns {
                Concerns::Requests { header_prefix, .. } => format!("X-AI-{header_prefix}-RateLimit-{what}"),
                _ => format!("X-AI-RateLimit-{what}-{}", in_header_name(&self.instance)),
            };
            let values = [
                ("Limit", limit.limit.count),
                ("Remaining", standing.usage.remaining),
                ("Reset", standing.usage.reset),
            ];
            for (what, value) in values {
                headers.set(name(what), value.to_string().as_bytes());
            }
        }
    }
}

/// The name of an instance as a part of a header's name.
fn in_header_name(instance: &str) -> String {
    instance.replace(|of: char| !of.is_ascii_alphanumeric() && !"-_.".contains(of), "-")
}

#[cfg(test)]
mod tests {
    use super::{TokenKind, Usage, in_header_name};

    #[test]
    fn any_name_of_an_instance_gives_a_header() {
        assert_eq!(in_header_name("gpt-4.1_eu"), "gpt-4.1_eu");
        assert_eq!(in_header_name("my model\r\nä"), "my-model---");
    }

    #[test]
    fn tokens_count_by_their_kind_as_far_as_they_are_known() {
        let usage = Usage { prompt: Some(3), completion: Some(4), total: None };
        let of = |usage: &Usage| {
            [TokenKind::Total, TokenKind::Prompt, TokenKind::Completion].map(|kind| kind.of(usage))
        };
        assert_eq!(of(&usage), [7, 3, 4]);
        assert_eq!(of(&Usage { total: Some(9), ..usage }), [9, 3, 4]);
        assert_eq!(of(&Usage { completion: None, ..usage }), [3, 3, 0]);
        assert_eq!(of(&Usage::default()), [0, 0, 0]);
    }
}
