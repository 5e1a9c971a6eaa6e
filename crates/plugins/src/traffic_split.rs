//! Sends a share of the requests, or those that meet a condition, to other upstreams: canary releases, blue and green. Like
//! APISIX's plugin of this name.
//!
//! ```yaml
//! plugins:
//!   - name: traffic-split
//!     route: shop
//!     config:
//!       hash_on: consumer_name
//!       rules:
//!         - match: [{vars: [[http_x_canary, "==", always]]}]
//!           weighted_upstreams: [{upstream: shop-v2}]
//!         - weighted_upstreams: [{upstream: shop-v2, weight: 1}, {weight: 9}]
//! upstreams:
//!   - {name: shop-v2, targets: [{target: "shop-v2.internal:8080"}]}
//! ```
//!
//! The first rule that the request matches counts: one without `match`, or one with a [condition](../coming-from-apisix.md#conditions)
//! in `match` that is met. Its `weighted_upstreams` get requests in proportion to their weights, at random. One without `upstream` stands
//! for the service's own host. Only the host changes, and with `tls` whether TLS is spoken to it: path and timeouts are the service's.
//!
//! With `hash_on`, requests with the same value of a [variable](../coming-from-apisix.md#variables) get the same upstream on every node of one version, such as
//! `remote_addr`, `consumer_name`, `http_x_user` or `cookie_session`. Without a value it is chosen at random.
//!
//! While there is no upstream of a name, its requests go to the service's own host, and `weir check` warns. In
//! [APISIX's objects](../coming-from-apisix.md), `upstream_id` or `upstream` stands in the place of a name.

use crate::shared::expression::Expression;
use crate::shared::variables::Variable;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hasher};
use weir_plugin::entity::EntityKind;
use weir_plugin::schema::{did_you_mean, quoted};
use weir_plugin::{
    AccessEffect, BuildContext, Document, EntityWarning, Exchange, FieldError, Flow, Hooks, Json, Phases,
    Plugin, Record,
};

/// Where requests go.
#[derive(Debug, Clone, Record)]
#[record(check = violations, hint(
    "percentage", "upstream_host", "canary_by_header_name", "write `rules`, with `weighted_upstreams` of an `upstream` and a `weight`",
))]
pub(super) struct Config {
    /// The rules; the first that a request matches counts.
    #[field(len_min = 1)]
    pub rules: Vec<Rule>,
    /// The variable whose value decides, rather than chance.
    #[field(check = variable)]
    pub hash_on: Option<String>,
}

/// A rule.
#[derive(Debug, Clone, Record)]
pub(super) struct Rule {
    /// Conditions, one of which must be met; none for every request.
    pub r#match: Option<Vec<Match>>,
    /// The upstreams.
    #[field(len_min = 1, len_max = 20)]
    pub weighted_upstreams: Vec<WeightedUpstream>,
}

/// A condition.
#[derive(Debug, Clone, Record)]
pub(super) struct Match {
    /// The condition on variables.
    pub vars: Json,
}

/// An upstream and its share.
#[derive(Debug, Clone, Record)]
pub(super) struct WeightedUpstream {
    /// The name of the upstream; the service's own host if it is unset.
    pub upstream: Option<String>,
    /// The share of the requests, among those of the rule's upstreams.
    #[field(default = 1, between = [0, 65535])]
    pub weight: u32,
    /// Whether TLS is spoken to the upstream; if unset, the service's protocol says so.
    #[field(extension)]
    pub tls: Option<bool>,
}

fn variable(name: &str) -> Result<(), String> {
    Variable::named(name).map(drop)
}

fn violations(config: &Config) -> Vec<FieldError> {
    let found = config.rules.iter().enumerate().filter_map(|(index, rule)| {
        let (field, message) = Split::new(rule).err()?;
        Some(FieldError::new(format!("rules[{index}].{field}"), message))
    });
    found.collect()
}

/// One configured instance.
pub(super) struct TrafficSplit {
    rules: Vec<Split>,
    hash_on: Option<Variable>,
}

/// A rule as requests need it.
struct Split {
    /// None for every request.
    conditions: Option<Vec<Expression>>,
    upstreams: Vec<(Option<Chosen>, u64)>,
    total: u64,
}

/// An upstream in the place of the service's own host.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Chosen {
    name: String,
    tls: Option<bool>,
}

impl Split {
    /// The error names its field.
    fn new(rule: &Rule) -> Result<Self, (&'static str, String)> {
        let parse =
            |of: &Vec<Match>| of.iter().map(|of| Expression::parse(&of.vars)).collect::<Result<_, _>>();
        let conditions =
            rule.r#match.as_ref().map(parse).transpose().map_err(|message| ("match", message))?;
        let chosen = |of: &WeightedUpstream| Some(Chosen { name: of.upstream.clone()?, tls: of.tls });
        let upstreams = rule.weighted_upstreams.iter().map(|of| (chosen(of), of.weight.into()));
        let upstreams: Vec<(_, u64)> = upstreams.collect();
        match upstreams.iter().map(|(_, weight)| weight).sum() {
            0 => Err(("weighted_upstreams", "no weight is above 0".to_owned())),
            total => Ok(Self { conditions, upstreams, total }),
        }
    }

    fn concerns(&self, exchange: &Exchange) -> bool {
        self.conditions
            .as_ref()
            .is_none_or(|any| any.is_empty() || any.iter().any(|one| one.is_met(exchange)))
    }

    /// Whether requests may go to another host than the service's.
    fn names_upstream(&self) -> bool {
        self.upstreams.iter().any(|(upstream, weight)| upstream.is_some() && *weight > 0)
    }

    fn upstream(&self, number: u64) -> Option<&Chosen> {
        let mut rest = number % self.total;
        let (upstream, _) = self.upstreams.iter().find(|(_, weight)| {
            let is_it = rest < *weight;
            rest = rest.saturating_sub(*weight);
            is_it
        })?;
        upstream.as_ref()
    }
}

impl Plugin for TrafficSplit {
    const NAME: &'static str = "traffic-split";
    const PRIORITY: i32 = 966;
    const FOR_CONSUMER_GROUPS: bool = true;
    const EXTENSION: bool = true;
    type Config = Config;

    fn document_warnings(document: &Document) -> Vec<EntityWarning> {
        unknown_upstreams(document)
    }

    fn upstreams(config: &Json) -> Vec<&str> {
        let rules = list(&config["rules"]);
        let upstreams = rules.flat_map(|rule| list(&rule["weighted_upstreams"]));
        upstreams.filter_map(|upstream| upstream["upstream"].as_str()).collect()
    }

    fn new(config: Config, _: &BuildContext<'_>) -> Result<Self, String> {
        let rules =
            config.rules.iter().map(Split::new).collect::<Result<_, _>>().map_err(|(_, message)| message)?;
        Ok(Self { rules, hash_on: config.hash_on.as_deref().map(Variable::named).transpose()? })
    }
}

impl Hooks for TrafficSplit {
    fn phases(&self) -> Phases {
        Phases::ACCESS
    }

    fn access_effect(&self, exchange: &Exchange) -> AccessEffect {
        let rule = self.rules.iter().find(|rule| rule.concerns(exchange));
        match rule.is_some_and(Split::names_upstream) {
            true => AccessEffect::ChoosesUpstream,
            false => AccessEffect::Passes,
        }
    }

    fn access(&self, exchange: &mut Exchange) -> Flow {
        let rule = self.rules.iter().find(|rule| rule.concerns(exchange));
        let upstream = rule.and_then(|rule| rule.upstream(self.number(exchange)));
        // An upstream that is missing is in the warnings.
        if let Some(Chosen { name, tls }) = upstream
            && exchange.set_upstream(name).is_ok()
            && let Some(tls) = tls
        {
            exchange.set_upstream_tls(*tls);
        }
        Flow::Continue
    }
}

impl TrafficSplit {
    /// What decides between upstreams.
    fn number(&self, exchange: &Exchange) -> u64 {
        let value = self.hash_on.as_ref().and_then(|variable| variable.value(exchange));
        value.map_or_else(|| fastrand::u64(..), |value| hash(&value))
    }
}

/// The same on every node, because its keys are fixed.
fn hash(value: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    hasher.write(value);
    hasher.finish()
}

/// The elements of a list.
fn list(value: &Json) -> impl Iterator<Item = &Json> {
    value.as_array().into_iter().flatten()
}

/// Warns of upstreams that do not exist.
fn unknown_upstreams(document: &Document) -> Vec<EntityWarning> {
    let known: HashSet<&str> = document.upstreams.iter().map(|upstream| upstream.name.as_str()).collect();
    let mut found = Vec::new();
    for (index, plugin) in document.plugins.iter().enumerate() {
        if plugin.name != TrafficSplit::NAME {
            continue;
        }
        for (at, rule) in list(&plugin.config["rules"]).enumerate() {
            for upstream in list(&rule["weighted_upstreams"]) {
                let Some(name) = upstream["upstream"].as_str().filter(|name| !known.contains(name)) else {
                    continue;
                };
                let hint = did_you_mean(name, known.iter().copied());
                let message =
                    format!("there is no upstream `{}`{hint}; its requests go to the service", quoted(name));
                let place = format!("config.rules[{at}].weighted_upstreams");
                found.push(EntityWarning::new((EntityKind::Plugins, index), place, message));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{Rule, Split, WeightedUpstream, hash};

    fn split(weights: &[(&str, u32)]) -> Split {
        let weighted = weights.iter().map(|(name, weight)| WeightedUpstream {
            upstream: (!name.is_empty()).then(|| (*name).to_owned()),
            weight: *weight,
            tls: None,
        });
        Split::new(&Rule { r#match: None, weighted_upstreams: weighted.collect() }).unwrap()
    }

    #[test]
    fn each_upstream_gets_its_share() {
        let split = split(&[("a", 2), ("b", 0), ("", 3), ("c", 1)]);
        let chosen: Vec<_> =
            (0..6).map(|number| split.upstream(number).map_or("-", |of| of.name.as_str())).collect();
        assert_eq!(chosen, ["a", "a", "-", "-", "-", "c"]);
        assert_eq!(split.upstream(6).map(|of| &*of.name), Some("a"));
    }

    #[test]
    fn values_are_spread_evenly() {
        let split = split(&[("a", 1), ("", 9)]);
        let of = |n: u32| split.upstream(hash(format!("user-{n}").as_bytes()));
        let share = (0..10_000).filter(|n| of(*n).is_some()).count();
        assert!((900..1_100).contains(&share), "{share}");
    }
}
