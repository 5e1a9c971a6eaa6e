//! Whether the plugins of a program go together. What they add to the configuration and to the Admin API must have names
//! of its own; otherwise the program ends with a message before it does anything else.
use super::paths as paths_of_api;
use crate::plugins::Definitions;
use std::collections::BTreeSet;
use weir_model::PluginSchema;
use weir_model::entity::{CustomEntitySchema, EntityKind};
use weir_plugin::{AdminMethod, Definition};

/// The owner of the paths that are no plugin's.
const GATEWAY: &str = "the gateway";

/// A path of the Admin API.
struct ApiPath {
    path: String,
    /// Whose it is, for messages.
    owner: String,
    /// Of a plugin's route, the method; other paths have several.
    method: Option<AdminMethod>,
}

/// Everything that is wrong with the plugins of a program, a line each.
pub(crate) fn check(definitions: Definitions) -> Result<(), String> {
    let of_gateway = paths_of_api(&[]);
    let reserved: BTreeSet<&str> = of_gateway.iter().filter_map(|path| path.split('/').nth(1)).collect();
    let is_reserved = |definition: &&Definition| reserved.contains(definition.name);
    let names = definitions.iter().filter(is_reserved).map(|Definition { name, .. }| {
        format!(
            "plugin `{name}`: `/{name}` is a path of the gateway's Admin API; give the plugin another name"
        )
    });
    let malformed = definitions.iter().flat_map(malformed_routes);
    let found: Vec<_> = names
        .chain(malformed)
        .chain(entities(definitions))
        .chain(overlapping(&paths(&of_gateway, definitions)))
        .collect();
    if found.is_empty() { Ok(()) } else { Err(found.join("\n")) }
}

/// Collections of two plugins, or of the gateway, with one name, and references to collections that are missing.
fn entities(definitions: Definitions) -> Vec<String> {
    let declared = || {
        let of = |definition: &'static Definition| {
            definition.schema.entities.iter().map(move |it| (definition.name, *it))
        };
        definitions.iter().flat_map(of)
    };
    let is_known = |name: &str| {
        EntityKind::from_name(name).is_some() || declared().any(|(_, entity)| entity.name == name)
    };
    let mut found = Vec::new();
    let mut names: BTreeSet<&str> = EntityKind::BUILT_IN.iter().map(|kind| kind.as_str()).collect();
    for (plugin, CustomEntitySchema { name, referenced, .. }) in declared() {
        if !names.insert(name) {
            found.push(format!("plugin `{plugin}`: there is another collection `{name}`; rename one"));
        }
        for missing in referenced.iter().filter(|entity| !is_known(entity.name)) {
            let missing = missing.name;
            found.push(format!(
                "plugin `{plugin}`: `{name}` refers to `{missing}`, which no plugin here declares"
            ));
        }
    }
    found
}

/// Routes whose paths cannot be matched.
fn malformed_routes(definition: &Definition) -> Vec<String> {
    let is_parameter = |segment: &str| {
        let name = segment.strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        name.is_some_and(|name| !name.trim_start_matches('*').is_empty() && !name.contains(['{', '}']))
    };
    let is_well_formed = |path: &str| {
        let segments: Vec<_> = path.split('/').skip(1).collect();
        let last = segments.len().saturating_sub(1);
        segments.iter().enumerate().all(|(index, segment)| {
            let is_plain = !segment.is_empty() && !segment.contains(['{', '}', '*']);
            is_plain || is_parameter(segment) && (index == last || !segment.contains('*'))
        })
    };
    let malformed = definition.admin_routes.iter().filter(|route| !is_well_formed(route.path));
    let message = |path: &str| {
        format!(
            "plugin `{}`: the path `{path}` of the Admin API is malformed; write parameters as `{{name}}`, and the rest \
             of a path as `{{*name}}` at its end",
            definition.name
        )
    };
    malformed.map(|route| message(route.path)).collect()
}

/// Every path of the Admin API.
fn paths(of_gateway: &[String], definitions: Definitions) -> Vec<ApiPath> {
    let path =
        |path: &String, owner: &str| ApiPath { path: path.clone(), owner: owner.to_owned(), method: None };
    let schemas: Vec<PluginSchema> = definitions.iter().map(|definition| definition.schema).collect();
    // Each of these once: the second is a plugin's.
    let mut known: BTreeSet<&String> = of_gateway.iter().collect();
    let all = paths_of_api(&schemas);
    let of_entities = all.iter().filter(|path| !known.remove(path));
    let of_routes = definitions.iter().flat_map(|definition| {
        let owner = format!("plugin `{}`", definition.name);
        definition.admin_routes.iter().map(move |route| ApiPath {
            path: route.path.to_owned(),
            owner: owner.clone(),
            method: Some(route.method),
        })
    });
    let of_gateway = of_gateway.iter().map(|it| path(it, GATEWAY));
    of_gateway.chain(of_entities.map(|it| path(it, "the entities of plugins"))).chain(of_routes).collect()
}

/// Paths of plugins that conflict with others.
fn overlapping(paths: &[ApiPath]) -> Vec<String> {
    let mut found = Vec::new();
    // The gateway's own paths come first, and do not overlap.
    for (index, later) in paths.iter().enumerate().filter(|(_, path)| path.owner != GATEWAY) {
        let overlaps = |earlier: &&ApiPath| {
            let is_other_method = earlier.path == later.path
                && earlier.method.is_some()
                && later.method.is_some()
                && earlier.method != later.method;
            overlap(&earlier.path, &later.path) && !is_other_method
        };
        if let Some(earlier) = paths[..index].iter().find(overlaps) {
            let (one, other) = (&earlier.path, &later.path);
            found.push(format!(
                "{}: the path `{other}` of the Admin API is the same as `{one}` of {}; rename one",
                later.owner, earlier.owner
            ));
        }
    }
    found
}

/// Whether a router cannot tell two paths apart: where both have a parameter, or one of them the rest of a path.
fn overlap(one: &str, other: &str) -> bool {
    let segments = |path: &str| path.trim_end_matches('/').split('/').map(str::to_owned).collect::<Vec<_>>();
    let (one, other) = (segments(one), segments(other));
    for (a, b) in one.iter().zip(&other) {
        match (a.starts_with('{'), b.starts_with('{')) {
            (true, true) if a.starts_with("{*") || b.starts_with("{*") => return true,
            (true, true) => {}
            (false, false) if a == b => {}
            _ => return false,
        }
    }
    one.len() == other.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::entity::CustomEntity;
    use weir_model::schema::Record;
    use weir_plugin::{AdminHandler, AdminRequest, AdminResponse, AdminRoute, Uuid};
    use weir_plugins::PLUGINS;

    /// No fields.
    #[derive(Debug, Clone, Record)]
    struct Config {}

    /// A team.
    #[derive(PartialEq, Record)]
    struct Team {
        id: Uuid,
    }

    impl CustomEntity for Team {
        const ENTITY: &'static CustomEntitySchema = &CustomEntitySchema::of::<Self>("teams");
    }

    /// A member of a team.
    #[derive(PartialEq, Record)]
    struct Badge {
        id: Uuid,
        #[field(foreign = "teams")]
        team: Uuid,
    }

    impl CustomEntity for Badge {
        const ENTITY: &'static CustomEntitySchema =
            &CustomEntitySchema::of::<Self>("badges").with_referenced(&[Team::ENTITY]);
    }

    const fn route(method: AdminMethod, path: &'static str) -> AdminRoute {
        fn handle(_: &AdminRequest<'_>) -> AdminResponse {
            AdminResponse::no_content()
        }
        AdminRoute { method, path, operation: "", summary: "", handle: AdminHandler::Now(handle) }
    }

    fn plugin(
        name: &'static str,
        entities: &'static [&'static CustomEntitySchema],
        admin_routes: &'static [AdminRoute],
    ) -> Definition {
        let schema = PluginSchema::of::<Config>(name).with_entities(entities);
        Definition {
            fails_open: false,
            name,
            priority: 1,
            version: "1.0.0",
            schema,
            admin_routes,
            handovers: &[],
            build: |_, _| Err(String::new()),
            init: None,
            configure: None,
        }
    }

    /// What is wrong with these plugins beside the bundled ones.
    fn wrong(plugins: &[Definition]) -> String {
        check([PLUGINS, plugins].concat().leak()).err().unwrap_or_default()
    }

    const GET: AdminMethod = AdminMethod::Get;

    #[test]
    fn plugins_that_go_together_are_accepted() {
        static ROUTES: [AdminRoute; 5] = [
            route(GET, "/a"),
            route(GET, "/a/{one}"),
            route(AdminMethod::Delete, "/a/{one}"),
            route(GET, "/a/all/{two}"),
            route(GET, "/a/rest/{*rest}"),
        ];
        assert_eq!(wrong(&[]), "");
        assert_eq!(wrong(&[plugin("a", &[Badge::ENTITY], &ROUTES), plugin("b", &[Team::ENTITY], &[])]), "");
    }

    #[test]
    fn a_plugin_is_not_called_like_a_path_of_the_gateway() {
        for name in ["status", "routes", "plugins", "key-auths", "openapi.json"] {
            let is_of_plugin = name == "key-auths";
            let message = wrong(&[plugin(name, &[], &[])]);
            let expected = format!("plugin `{name}`: `/{name}` is a path of the gateway's Admin API");
            assert_eq!(message.starts_with(&expected), !is_of_plugin, "{message}");
        }
    }

    #[test]
    fn collections_have_names_of_their_own() {
        let message = wrong(&[plugin("a", &[Team::ENTITY], &[]), plugin("b", &[Team::ENTITY], &[])]);
        assert!(message.starts_with("plugin `b`: there is another collection `teams`"), "{message}");
        assert!(wrong(&[plugin("a", &[Badge::ENTITY], &[])]).contains("refers to `teams`, which no plugin"));
    }

    #[test]
    fn routes_that_conflict_are_refused() {
        static TWICE: [AdminRoute; 2] = [route(GET, "/a/{one}"), route(GET, "/a/{two}/")];
        static CALLED_OTHERWISE: [AdminRoute; 2] =
            [route(GET, "/a/{one}"), route(AdminMethod::Put, "/a/{two}")];
        static REST: [AdminRoute; 2] = [route(GET, "/a/{one}/b"), route(GET, "/a/{*rest}")];
        for routes in [&TWICE, &CALLED_OTHERWISE, &REST] {
            let message = wrong(&[plugin("a", &[], routes)]);
            assert!(message.contains("is the same as `/a/{one}"), "{message}");
        }
        static OF_ENTITIES: [AdminRoute; 1] = [route(GET, "/teams/{name}")];
        let message = wrong(&[plugin("teams", &[Team::ENTITY], &OF_ENTITIES)]);
        assert!(message.contains("the same as `/teams/{id}` of the entities of plugins"), "{message}");
    }

    #[test]
    fn malformed_routes_are_refused() {
        static ROUTES: [AdminRoute; 5] = [
            route(GET, "/a//b"),
            route(GET, "/a/{}"),
            route(GET, "/a/{one}x"),
            route(GET, "/a/{*rest}/b"),
            route(GET, "/a/{one"),
        ];
        let message = wrong(&[plugin("a", &[], &ROUTES)]);
        for path in ROUTES.iter().map(|route| route.path) {
            assert!(
                message.contains(&format!("the path `{path}` of the Admin API is malformed")),
                "{message}"
            );
        }
    }
}
