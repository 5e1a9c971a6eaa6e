//! The plugins that this program was built with, and which of them the settings allow.

use weir_model::PluginSchema;
use weir_plugin::Definition;

/// Every plugin of this program, bundled or added; the list lasts as long as the process.
pub(crate) type Definitions = &'static [Definition];

/// The plugins that every gateway has: those in Rust, and those that run Lua.
pub(crate) fn of_every_gateway() -> Vec<Definition> {
    [weir_plugins::PLUGINS, weir_guests::PLUGINS].concat()
}

/// The schemas of all plugins, switched off unless the setting `plugins` allows them, and a warning for each name in the
/// setting that no plugin has.
pub(crate) fn schemas(definitions: Definitions, names: &[String]) -> (Vec<PluginSchema>, Vec<String>) {
    let schema = |plugin: &Definition| match is_allowed(plugin, names) {
        true => plugin.schema,
        false => plugin.schema.switched_off(),
    };
    let is_known = |name: &str| definitions.iter().any(|plugin| plugin.name == name);
    let unknown = names.iter().filter(|name| !matches!(name.as_str(), "bundled" | "off") && !is_known(name));
    (
        definitions.iter().map(schema).collect(),
        unknown.map(|name| format!("plugins: there is no plugin `{name}` here; it is ignored")).collect(),
    )
}

/// The plugins that the setting `plugins` allows; the list lasts as long as the process.
pub(crate) fn allowed(definitions: Definitions, names: &[String]) -> Definitions {
    let allowed: Vec<_> = definitions.iter().filter(|plugin| is_allowed(plugin, names)).copied().collect();
    if allowed.len() == definitions.len() { definitions } else { allowed.leak() }
}

fn is_allowed(plugin: &Definition, names: &[String]) -> bool {
    names.iter().any(|allowed| allowed == "bundled" || allowed == plugin.name)
}

/// The plugin of that name.
pub(crate) fn find(definitions: Definitions, name: &str) -> Option<&'static Definition> {
    definitions.iter().find(|plugin| plugin.name == name)
}

/// The schemas of the bundled plugins, all of them allowed.
#[cfg(test)]
pub(crate) fn bundled() -> Vec<PluginSchema> {
    schemas(of_every_gateway().leak(), &["bundled".to_owned()]).0
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_plugins::PLUGINS;

    #[test]
    fn a_plugin_that_does_not_exist_is_named() {
        let (schemas, warnings) = schemas(PLUGINS, &["bundled".to_owned(), "teleport".to_owned()]);
        assert_eq!(schemas.len(), PLUGINS.len());
        assert!(warnings.len() == 1 && warnings[0].contains("`teleport`"), "{warnings:?}");
        let (none, _) = super::schemas(PLUGINS, &["off".to_owned()]);
        assert!(none.iter().all(|plugin| !plugin.available));
        let names = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            allowed(PLUGINS, &names).iter().map(|plugin| plugin.name).collect::<Vec<_>>()
        };
        assert_eq!((names(&["cors"]), names(&["off"])), (vec!["cors"], vec![]));
        assert_eq!(names(&["bundled"]).len(), PLUGINS.len());
    }
}
