//! The plugins that this program was built with, and which of them the settings allow.

use crate::options;
use crate::settings::Settings;
use std::sync::Arc;
use weir_guests::{LuaScripts, LuaSettings};
use weir_model::PluginSchema;
use weir_plugin::{Definition, Scripts};

/// Every plugin of this program, bundled or added; the list lasts as long as the process.
pub(crate) type Definitions = &'static [Definition];

/// The plugins that every gateway has: those in Rust, and those that run Lua. Code in configurations of the former runs as that
/// of the latter.
pub(crate) fn of_every_gateway() -> Vec<Definition> {
    <dyn Scripts>::install(&LuaScripts);
    [weir_plugins::PLUGINS, weir_guests::PLUGINS].concat()
}

/// The plugins of a node with its settings.
pub(crate) struct NodePlugins {
    /// Those of this program and those on disk, from the highest priority to the lowest.
    pub(crate) definitions: Definitions,
    /// Their schemas, switched off unless the setting `plugins` allows them.
    pub(crate) schemas: Vec<PluginSchema>,
    /// What those in Lua run with.
    pub(crate) lua: LuaSettings,
    /// What those on disk have that does not do what it seems to, with their names.
    pub(crate) warnings: Vec<(String, String)>,
}

/// What is wrong with a plugin on disk, or with all of them together.
pub(crate) struct Broken {
    /// The name of the plugin; empty for all.
    pub(crate) plugin: String,
    /// Lines of what is wrong.
    pub(crate) message: String,
}

impl NodePlugins {
    fn new(definitions: Definitions, settings: &Settings, lua: LuaSettings) -> Self {
        let mut schemas = schemas(definitions, &settings.plugins);
        let runs_code = |schema: &&mut PluginSchema| find(weir_guests::PLUGINS, schema.name).is_some();
        for schema in schemas.iter_mut().filter(runs_code) {
            *schema = lua.with_sandbox_warnings(*schema);
        }
        Self { definitions, schemas, lua, warnings: Vec::new() }
    }

    /// Those of this program alone.
    pub(crate) fn of_program(own: Definitions, settings: &Settings) -> Self {
        Self::new(own, settings, options::lua(settings))
    }

    /// Those of this program, and those on disk that the setting `plugins` names. The errors say which of them cannot be
    /// loaded, and what `check` finds in all of them together.
    pub(crate) fn load(
        own: Definitions,
        settings: &Settings,
        check: impl FnOnce(Definitions) -> Result<(), String>,
    ) -> Result<Self, Vec<String>> {
        let on_disk = named_on_disk(own, settings);
        if on_disk.is_empty() {
            return Ok(Self::of_program(own, settings));
        }
        let lua = options::lua(settings);
        let shared = Arc::new(lua.clone());
        let found = weir_guests::definitions(&shared, &on_disk)?;
        let all = all_in_order(own, &found);
        check(all).map_err(|conflict| vec![conflict])?;
        let warnings = on_disk.iter().flat_map(|name| warnings(&shared, name)).collect();
        Ok(Self { warnings, ..Self::new(all, settings, lua) })
    }

    /// The same without those on disk that cannot be loaded, for who serves nothing with them. Each runs in a VM of its own.
    pub(crate) fn load_good_ones(
        own: Definitions,
        (settings, lua): (&Settings, LuaSettings),
        check: impl FnOnce(Definitions) -> Result<(), String>,
    ) -> (Self, Vec<Broken>) {
        let (mut found, mut broken, mut said) = (Vec::new(), Vec::new(), Vec::new());
        for name in named_on_disk(own, settings) {
            let lua = Arc::new(lua.clone());
            match weir_guests::definitions(&lua, &[name]) {
                Ok(good) => {
                    found.extend(good);
                    said.extend(warnings(&lua, name));
                }
                Err(errors) => broken.push(Broken { plugin: name.to_owned(), message: errors.join("\n") }),
            }
        }
        let mut all = all_in_order(own, &found);
        if let Err(message) = check(all) {
            broken.push(Broken { plugin: String::new(), message });
            all = own;
        }
        let mut plugins = Self { warnings: said, ..Self::new(all, settings, lua) };
        let names = broken.iter().filter(|it| !it.plugin.is_empty()).map(|it| &*it.plugin.clone().leak());
        plugins.schemas.extend(names.map(PluginSchema::broken));
        (plugins, broken)
    }
}

/// The names in the setting `plugins` that are not of this program.
fn named_on_disk(own: Definitions, settings: &Settings) -> Vec<&str> {
    let is_own = |name: &str| own.iter().any(|plugin| plugin.name == name);
    let names = settings.plugins.iter().map(String::as_str);
    let mut on_disk: Vec<&str> =
        names.filter(|name| !matches!(*name, "bundled" | "off") && !is_own(name)).collect();
    on_disk.sort_unstable();
    on_disk.dedup();
    on_disk
}

fn all_in_order(own: Definitions, found: &[Definition]) -> Definitions {
    let mut all = [own, found].concat();
    in_order(&mut all);
    all.leak()
}

fn warnings(lua: &Arc<LuaSettings>, name: &str) -> Vec<(String, String)> {
    let found = weir_guests::warnings(lua, name).into_iter();
    found.map(|warning| (name.to_owned(), warning)).collect()
}

/// Puts plugins in the order in which they run: by priority, those of the same by name, both descending.
pub(crate) fn in_order(plugins: &mut [Definition]) {
    plugins.sort_by_key(|plugin| std::cmp::Reverse((plugin.priority, plugin.name)));
}

/// The schemas of all plugins, switched off unless the setting `plugins` allows them.
fn schemas(definitions: Definitions, names: &[String]) -> Vec<PluginSchema> {
    let schema = |plugin: &Definition| match is_allowed(plugin, names) {
        true => plugin.schema,
        false => plugin.schema.switched_off(),
    };
    definitions.iter().map(schema).collect()
}

/// The plugins that the setting `plugins` allows; the list lasts as long as the process.
pub(crate) fn allowed(definitions: Definitions, names: &[String]) -> Definitions {
    let allowed: Vec<_> = definitions.iter().filter(|plugin| is_allowed(plugin, names)).copied().collect();
    if allowed.len() == definitions.len() { definitions } else { allowed.leak() }
}

fn is_allowed(plugin: &Definition, names: &[String]) -> bool {
    names.iter().any(|allowed| allowed == "bundled" || allowed == plugin.name)
}

/// The names of the plugins on disk.
pub(crate) fn on_disk(definitions: Definitions) -> Vec<&'static str> {
    let on_disk = definitions.iter().filter(|plugin| plugin.schema.described.is_some());
    on_disk.map(|plugin| plugin.name).collect()
}

/// The plugin of that name.
pub(crate) fn find(definitions: Definitions, name: &str) -> Option<&'static Definition> {
    definitions.iter().find(|plugin| plugin.name == name)
}

/// The schemas of the bundled plugins, all of them allowed.
#[cfg(test)]
pub(crate) fn bundled() -> Vec<PluginSchema> {
    schemas(of_every_gateway().leak(), &["bundled".to_owned()])
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_plugins::PLUGINS;

    #[test]
    fn a_setting_names_the_plugins_that_are_allowed() {
        let none = schemas(PLUGINS, &["off".to_owned()]);
        assert!(none.iter().all(|plugin| !plugin.available));
        let names = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            allowed(PLUGINS, &names).iter().map(|plugin| plugin.name).collect::<Vec<_>>()
        };
        assert_eq!((names(&["cors"]), names(&["off"])), (vec!["cors"], vec![]));
        assert_eq!(names(&["bundled"]).len(), PLUGINS.len());
    }
}
