//! Allows or denies consumers by the groups that they belong to.
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
//! With `allow`, a consumer must be in one of these groups; with `deny`, in none of them. The plugin needs an
//! authentication plugin beside it. Some authentication plugins find groups but no consumer, such as mtls-auth with
//! `skip_consumer_lookup`. Their groups are checked if the request has no consumer or only the anonymous one; with
//! `always_use_authenticated_groups`, also if it has another consumer.
//!
//! ## To the upstream
//!
//! `X-Consumer-Groups` contains the consumer's groups, joined by `, `; `X-Authenticated-Groups` contains those that an
//! authentication plugin found. If a client sends these headers itself, they are removed on every route.
//!
//! ## Responses
//!
//! | status | message | when |
//! |---|---|---|
//! | 401 | `Unauthorized` | the request has no consumer, or only an anonymous one that is in no group |
//! | 403 | `You cannot consume this service` | the consumer is in no allowed group, or in a denied one |

mod group;
mod warnings;

use foldhash::fast::RandomState;
use group::Membership;
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weir_plugin::{
    AccessEffect, BuildContext, ConsumerIndex, CustomEntity, CustomEntitySchema, Document, EntityWarning,
    Exchange, FieldError, Flow, Hooks, Known, LocalResponse, Phases, Plugin, Record,
};

/// Which groups are allowed.
#[derive(Debug, Clone, Record)]
#[record(check = violations)]
#[record(hint(
    "group",
    "groups",
    "consumers are put into a group by `acls: [{group: NAME}]` in `consumers`, or by a POST to /consumers/NAME/acls; \
     here write the groups that may pass as `allow`"
))]
#[record(hint("whitelist", "Kong calls it `allow` since 3.0"))]
#[record(hint("blacklist", "Kong calls it `deny` since 3.0"))]
pub(super) struct Config {
    /// The groups that are allowed. All others are denied.
    pub allow: Option<Vec<String>>,
    /// The groups that are denied. All others are allowed.
    pub deny: Option<Vec<String>>,
    /// Does not send the groups to the upstream.
    #[field(default = false)]
    pub hide_groups_header: bool,
    /// Checks the groups from the authentication plugin, if there are any, for every consumer.
    #[field(default = false)]
    pub always_use_authenticated_groups: bool,
}

fn violations(config: &Config) -> Vec<FieldError> {
    let named = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|list| !list.is_empty());
    let message = match (named(&config.allow), named(&config.deny)) {
        (true, true) => "`allow` and `deny` exclude each other; leave one of them out",
        (false, false) => "name at least one group in `allow` or in `deny`",
        _ => return Vec::new(),
    };
    vec![FieldError::new("", message)]
}

/// One configured instance.
pub(super) struct Acl {
    named: HashSet<String, RandomState>,
    /// Whether `named` are the denied groups, not the allowed ones.
    denies: bool,
    hide_groups_header: bool,
    always_use_authenticated_groups: bool,
    groups: Arc<Groups>,
}

/// The groups of each consumer, in the order of the configuration.
struct Groups(HashMap<ConsumerIndex, Vec<Box<str>>, RandomState>);

impl Groups {
    fn new(build: &BuildContext<'_>) -> Self {
        let mut groups: HashMap<_, Vec<Box<str>>, _> = HashMap::default();
        for membership in build.entities::<Membership>() {
            if let Some(consumer) = build.consumer(membership.consumer) {
                groups.entry(consumer).or_default().push(membership.group.as_str().into());
            }
        }
        Groups(groups)
    }

    fn of(&self, consumer: Option<ConsumerIndex>) -> &[Box<str>] {
        consumer.and_then(|consumer| self.0.get(&consumer)).map(Vec::as_slice).unwrap_or_default()
    }
}

impl Plugin for Acl {
    const NAME: &'static str = "acl";
    const PRIORITY: i32 = 950;
    const FOR_CONSUMERS: bool = false;
    const ENTITIES: &'static [&'static CustomEntitySchema] = &[Membership::ENTITY];
    type Config = Config;

    fn document_warnings(document: &Document) -> Vec<EntityWarning> {
        warnings::unknown_groups(document)
    }

    fn new(config: Config, build: &BuildContext<'_>) -> Result<Self, String> {
        let (allow, deny) = (config.allow.unwrap_or_default(), config.deny.unwrap_or_default());
        Ok(Self {
            denies: !deny.is_empty(),
            named: if deny.is_empty() { allow } else { deny }.into_iter().collect(),
            hide_groups_header: config.hide_groups_header,
            always_use_authenticated_groups: config.always_use_authenticated_groups,
            groups: build.once(Groups::new),
        })
    }
}

impl Hooks for Acl {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access_effect(&self, _: &Exchange) -> AccessEffect {
        AccessEffect::Predictable
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let has_credential = exchange.credential().is_some();
        let is_consumer = has_credential && exchange.consumer().is_some();
        let authenticated = exchange.authenticated_groups();
        if !authenticated.is_empty() && (!is_consumer || self.always_use_authenticated_groups) {
            let admitted = self.admitted(authenticated);
            return self.decide(exchange, AUTHENTICATED, admitted);
        }
        let declared = self.groups.of(exchange.consumer_index());
        if declared.is_empty() && !is_consumer {
            let unauthorized = || LocalResponse::error(401, "Unauthorized");
            return Flow::Respond(if has_credential { refusal() } else { unauthorized() });
        }
        let admitted = self.admitted(declared);
        self.decide(exchange, DECLARED, admitted)
    }
}

const DECLARED: (Known, &str) = (Known::XConsumerGroups, "X-Consumer-Groups");
const AUTHENTICATED: (Known, &str) = (Known::XAuthenticatedGroups, "X-Authenticated-Groups");

impl Acl {
    /// The groups header for the upstream if these groups are admitted, none if they are denied.
    fn admitted<G: Borrow<str>>(&self, groups: &[G]) -> Option<String> {
        let is_named = groups.iter().any(|group| self.named.contains(group.borrow()));
        let header = || if self.hide_groups_header { String::new() } else { groups.join(", ") };
        (is_named != self.denies).then(header)
    }

    fn decide(
        &self,
        exchange: &mut Exchange,
        header: (Known, &'static str),
        admitted: Option<String>,
    ) -> Flow {
        let Some(groups) = admitted else { return Flow::Respond(refusal()) };
        if !self.hide_groups_header {
            exchange.request.headers.remove_known(header.0);
            exchange.request.headers.append_known(header.0, header.1, groups.as_bytes());
        }
        Flow::Continue
    }
}

fn refusal() -> LocalResponse {
    LocalResponse::error(403, "You cannot consume this service")
}

#[cfg(test)]
mod tests;
