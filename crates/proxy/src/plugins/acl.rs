//! Lets consumers pass by the groups that they are in.
//!
//! ```yaml
//! consumers:
//!   - username: alice
//!     keyauth_credentials: [{ key: correct-horse-battery }]
//!     acls: [{ group: staff }]
//! plugins:
//!   - name: key-auth
//!     service: orders
//!   - name: acl
//!     service: orders
//!     config:
//!       allow: [staff, partners]
//! ```
//!
//! With `allow`, a consumer must be in one of its groups; with `deny`, in none of them. It needs an authentication
//! plugin beside it. One that knows groups but no consumer, as mtls-auth with `skip_consumer_lookup`, lets its groups be
//! asked about in place of a consumer's: where there is no consumer, or only the anonymous one, and with
//! `always_use_authenticated_groups` also where there is another.
//!
//! ## To the upstream
//!
//! `X-Consumer-Groups` has the groups of the consumer, joined by `, `; `X-Authenticated-Groups` those that an
//! authentication plugin knew. A client's own are removed on every route.
//!
//! ## Responses
//!
//! | status | message | when |
//! |---|---|---|
//! | 401 | `Unauthorized` | nobody is known to ask, or the anonymous consumer, who is in no group |
//! | 403 | `You cannot consume this service` | whoever asks is in no group that is allowed, or in one that is denied |

use super::authentication::AuthenticatedGroups;
use crate::plugin::{Answer, Build, ConsumerIndex, Define, Exchange, Flow, Hooks, Known, Record, Violation};
use foldhash::fast::RandomState;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Which groups may pass.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
pub(super) struct Config {
    /// The groups that may pass; nobody else may.
    pub allow: Option<Vec<String>>,
    /// The groups that may not pass; everybody else may.
    pub deny: Option<Vec<String>>,
    /// Does not tell the upstream the groups.
    #[field(default = false)]
    pub hide_groups_header: bool,
    /// Asks about the groups that an authentication plugin knows, if there are any, for every consumer.
    #[field(default = false)]
    pub always_use_authenticated_groups: bool,
}

fn violations(config: &Config) -> Vec<Violation> {
    let named = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| !list.is_empty());
    let message = match (named(&config.allow), named(&config.deny)) {
        (true, true) => "`allow` and `deny` exclude each other; leave one of them out",
        (false, false) => "name at least one group in `allow` or in `deny`",
        _ => return Vec::new(),
    };
    vec![Violation::new("", message)]
}

/// One configured instance.
pub(super) struct Acl {
    named: HashSet<String, RandomState>,
    /// Whether those named are denied, not allowed.
    denies: bool,
    hide_groups_header: bool,
    always_use_authenticated_groups: bool,
    members: Arc<Members>,
}

impl Define for Acl {
    const NAME: &'static str = "acl";
    const PRIORITY: i32 = 950;
    const FOR_CONSUMERS: bool = false;
    type Config = Config;

    fn new(config: Config, build: &Build<'_>) -> Result<Self, String> {
        let (allow, deny) = (config.allow.unwrap_or_default(), config.deny.unwrap_or_default());
        Ok(Self {
            denies: !deny.is_empty(),
            named: if deny.is_empty() { allow } else { deny }.into_iter().collect(),
            hide_groups_header: config.hide_groups_header,
            always_use_authenticated_groups: config.always_use_authenticated_groups,
            members: build.once(Members::new),
        })
    }
}

/// The groups of each consumer that is in one.
struct Members(HashMap<ConsumerIndex, Groups, RandomState>);

#[derive(Default)]
struct Groups {
    names: Vec<String>,
    /// As the upstream is told them.
    joined: String,
}

impl Members {
    fn new(build: &Build<'_>) -> Self {
        let mut members = HashMap::<_, Groups, _>::default();
        for acl in &build.document().acls {
            let Some(consumer) = build.consumer(acl.consumer) else { continue };
            members.entry(consumer).or_default().names.push(acl.group.clone());
        }
        members.values_mut().for_each(|groups| groups.joined = groups.names.join(", "));
        Self(members)
    }
}

impl Hooks for Acl {
    fn access(&self, exchange: &mut Exchange) -> Flow {
        let by_credential = exchange.consumer.is_some() && exchange.credential().is_some();
        if !by_credential || self.always_use_authenticated_groups {
            if let Some(groups) = exchange.kept::<AuthenticatedGroups>() {
                let (admits, joined) = (self.admits(&groups.0), groups.0.join(", "));
                return self.decide(exchange, admits, AUTHENTICATED, &joined);
            }
        }
        let declared = exchange.consumer.and_then(|consumer| self.members.0.get(&consumer));
        match declared {
            Some(groups) => self.decide(exchange, self.admits(&groups.names), DECLARED, &groups.joined),
            None if by_credential => self.decide(exchange, self.denies, DECLARED, ""),
            None if exchange.credential().is_some() => Flow::Respond(refusal()),
            None => Flow::Respond(Answer::error(401, "Unauthorized")),
        }
    }
}

const DECLARED: (Known, &str) = (Known::XConsumerGroups, "X-Consumer-Groups");
const AUTHENTICATED: (Known, &str) = (Known::XAuthenticatedGroups, "X-Authenticated-Groups");

impl Acl {
    fn admits(&self, groups: &[String]) -> bool {
        groups.iter().any(|group| self.named.contains(group)) != self.denies
    }

    fn decide(
        &self,
        exchange: &mut Exchange,
        admits: bool,
        told: (Known, &'static str),
        groups: &str,
    ) -> Flow {
        if !admits {
            return Flow::Respond(refusal());
        }
        if !self.hide_groups_header {
            exchange.request.headers.remove_known(told.0);
            exchange.request.headers.append_known(told.0, told.1, groups.as_bytes());
        }
        Flow::Continue
    }
}

fn refusal() -> Answer {
    Answer::error(403, "You cannot consume this service")
}

#[cfg(test)]
mod tests;
