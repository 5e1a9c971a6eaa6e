//! Warnings about groups that no consumer is in.
use super::Acl;
use super::group::Membership;
use std::collections::HashSet;
use weir_plugin::entity::EntityKind;
use weir_plugin::schema::{did_you_mean, quoted};
use weir_plugin::{Document, EntityWarning, Plugin};

/// Warns about groups that a configuration names and no consumer is in. No warning if a group is only denied or may
/// come from certificates, unless its name is nearly that of another group.
pub(super) fn unknown_groups(document: &Document) -> Vec<EntityWarning> {
    let groups: HashSet<&str> = document.custom.of().map(|it: &Membership| it.group.as_str()).collect();
    let from_elsewhere = document.plugins.iter().any(|plugin| plugin.config["skip_consumer_lookup"] == true);
    let mut found = Vec::new();
    for (index, plugin) in document.plugins.iter().enumerate().filter(|(_, plugin)| plugin.name == Acl::NAME)
    {
        for (field, is_allowed) in [("allow", true), ("deny", false)] {
            let named = plugin.config[field].as_array().into_iter().flatten().enumerate();
            let unknown = named.filter_map(|(at, name)| Some((at, name.as_str()?)));
            for (at, group) in unknown.filter(|(_, group)| !groups.contains(group)) {
                // The search for a misspelt name takes time.
                let known = groups.iter().copied().filter(|_| found.len() < 20);
                let hint = did_you_mean(group, known);
                if hint.is_empty() && (from_elsewhere || !is_allowed) {
                    continue;
                }
                let fix =
                    if hint.is_empty() { "; write `acls: [{group: NAME}]` in consumers" } else { &hint };
                let message = format!("no consumer is in the group `{}`{fix}", quoted(group));
                found.push(EntityWarning::new(
                    (EntityKind::Plugins, index),
                    format!("config.{field}[{at}]"),
                    message,
                ));
            }
        }
    }
    found
}
