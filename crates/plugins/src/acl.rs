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

mod group;
mod warnings;

use foldhash::fast::RandomState;
use group::Membership;
use std::borrow::Borrow;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weir_plugin::{
    BuildContext, ConsumerIndex, CustomEntity, CustomEntitySchema, Document, EntityWarning, Exchange,
    FieldError, Flow, Hooks, Known, LocalResponse, Phases, Plugin, Record,
};

/// Which groups may pass.
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
    /// Whether those named are denied, not allowed.
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
            let nobody = || LocalResponse::error(401, "Unauthorized");
            return Flow::Respond(if has_credential { refusal() } else { nobody() });
        }
        let admitted = self.admitted(declared);
        self.decide(exchange, DECLARED, admitted)
    }
}

const DECLARED: (Known, &str) = (Known::XConsumerGroups, "X-Consumer-Groups");
const AUTHENTICATED: (Known, &str) = (Known::XAuthenticatedGroups, "X-Authenticated-Groups");

impl Acl {
    /// What the upstream is told of whoever is in these groups, if they may pass.
    fn admitted<G: Borrow<str>>(&self, groups: &[G]) -> Option<String> {
        let is_named = groups.iter().any(|group| self.named.contains(group.borrow()));
        let told = || if self.hide_groups_header { String::new() } else { groups.join(", ") };
        (is_named != self.denies).then(told)
    }

    fn decide(&self, exchange: &mut Exchange, told: (Known, &'static str), admitted: Option<String>) -> Flow {
        let Some(groups) = admitted else { return Flow::Respond(refusal()) };
        if !self.hide_groups_header {
            exchange.request.headers.remove_known(told.0);
            exchange.request.headers.append_known(told.0, told.1, groups.as_bytes());
        }
        Flow::Continue
    }
}

fn refusal() -> LocalResponse {
    LocalResponse::error(403, "You cannot consume this service")
}

#[cfg(test)]
mod tests;
