//! Dashboards: what they ask, and how Grafana fills in their variables.
use super::prometheus::Prometheus;
use serde::Deserialize;
use serde_json::Value as Json;
use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// A dashboard, as far as it asks something.
pub(crate) struct Dashboard {
    pub(crate) name: String,
    pub(crate) variables: Vec<Variable>,
    pub(crate) queries: Vec<Query>,
}

/// A variable whose values come from Prometheus.
#[derive(Deserialize)]
pub(crate) struct Variable {
    pub(crate) name: String,
    pub(crate) query: String,
    /// What stands for all values, where that is not their list.
    #[serde(rename = "allValue")]
    pub(crate) all: Option<String>,
}

/// An expression of a panel.
pub(crate) struct Query {
    pub(crate) panel: String,
    pub(crate) expression: String,
    /// Asked for one moment, not for a span of time.
    pub(crate) instant: bool,
    /// What its values are, and the most that they can be.
    pub(crate) unit: String,
    pub(crate) most: f64,
}

/// The file of queries of a dashboard that is not ours.
#[derive(Deserialize)]
struct Listed {
    variable: Vec<Variable>,
    panel: Vec<ListedPanel>,
}

#[derive(Deserialize)]
struct ListedPanel {
    title: String,
    #[serde(default)]
    instant: bool,
    queries: Vec<String>,
}

/// Kong's own.
pub(crate) fn kongs() -> Dashboard {
    let Listed { variable, panel } = toml::from_str(include_str!("kong-7424.toml")).unwrap();
    let of_panel = |ListedPanel { title, instant, queries }| {
        let query = move |expression| Query {
            panel: title.clone(),
            expression,
            instant,
            unit: String::new(),
            most: f64::MAX,
        };
        queries.into_iter().map(query).collect::<Vec<_>>()
    };
    let queries = panel.into_iter().flat_map(of_panel).collect();
    Dashboard { name: "7424".to_owned(), variables: variable, queries }
}

/// The files of ours, by name.
pub(crate) fn files() -> BTreeMap<String, Json> {
    let folder = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../grafana/dashboards"));
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let read = |path: &Path| {
        let text = fs::read_to_string(path).unwrap();
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    };
    entries.map(|path| (path.file_stem().unwrap().to_string_lossy().into_owned(), read(&path))).collect()
}

/// The panels of a dashboard that show something, wherever they are.
pub(crate) fn panels(dashboard: &Json) -> Vec<&Json> {
    let outer = dashboard["panels"].as_array().unwrap().iter();
    let with_inner =
        outer.flat_map(|panel| [panel].into_iter().chain(panel["panels"].as_array().into_iter().flatten()));
    with_inner.filter(|panel| panel["type"] != "row").collect()
}

/// Ours.
pub(crate) fn ours() -> Vec<Dashboard> {
    files().iter().map(|(name, file)| read(name, file)).collect()
}

fn read(name: &str, file: &Json) -> Dashboard {
    let variables = file["templating"]["list"].as_array().unwrap().iter().filter(|it| it["type"] == "query");
    let variable = |it: &Json| Variable {
        name: text(&it["name"]),
        query: text(&it["query"]["query"]),
        all: it["allValue"].as_str().map(str::to_owned),
    };
    let of_panel = |panel: &Json| {
        let (title, unit) = (text(&panel["title"]), text(&panel["fieldConfig"]["defaults"]["unit"]));
        let most = panel["fieldConfig"]["defaults"]["max"].as_f64().unwrap_or(f64::MAX);
        let targets = panel["targets"].as_array().unwrap().clone().into_iter();
        targets.map(move |target| Query {
            panel: title.clone(),
            expression: text(&target["expr"]),
            instant: target["instant"] == true,
            unit: unit.clone(),
            most,
        })
    };
    let queries = panels(file).into_iter().flat_map(of_panel).collect();
    Dashboard { name: name.to_owned(), variables: variables.map(variable).collect(), queries }
}

#[track_caller]
pub(crate) fn text(value: &Json) -> String {
    value.as_str().unwrap_or_else(|| panic!("{value} is a text")).to_owned()
}

/// What variables stand for, where all values of each are chosen.
pub(crate) struct Chosen(Vec<(String, String)>);

impl Chosen {
    /// Asks for the values of each variable, which may depend on those before it.
    #[track_caller]
    pub(crate) fn all(variables: &[Variable], prometheus: &Prometheus) -> Chosen {
        let intervals = [("__rate_interval", "1m"), ("__interval", "1s"), ("__range", "15m")];
        let mut chosen = Chosen(intervals.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        for variable in variables {
            let query = chosen.fill_in(&variable.query);
            let asked = query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')'));
            let (selector, label) =
                asked.and_then(|asked| asked.rsplit_once(',')).expect("label_values(…, …)");
            let values = prometheus.label_values(label.trim(), Some(selector));
            assert!(
                values.iter().any(|value| !value.is_empty()),
                "${} has no values: {query}",
                variable.name
            );
            let list = || values.iter().map(|value| escaped(value)).collect::<Vec<_>>();
            let value = variable.all.clone().unwrap_or_else(|| format!("({})", list().join("|")));
            chosen.0.push((variable.name.clone(), value));
        }
        chosen
    }

    /// An expression as Prometheus gets it.
    #[track_caller]
    pub(crate) fn fill_in(&self, expression: &str) -> String {
        let fill = |text: String, (name, value): &(String, String)| text.replace(&format!("${name}"), value);
        let filled = self.0.iter().fold(expression.to_owned(), fill);
        assert!(!filled.contains('$'), "a variable is not known: {filled}");
        filled
    }
}

/// A value within a regular expression within a text, as Grafana writes it for Prometheus.
fn escaped(value: &str) -> String {
    let special = |c| r"\^$*{}[]'+?.()|".contains(c);
    value
        .chars()
        .flat_map(|c| special(c).then_some("\\\\").into_iter().flat_map(str::chars).chain([c]))
        .collect()
}

/// The names of metrics in an expression.
pub(crate) fn metrics(expression: &str) -> Vec<&str> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let unquoted = expression.split('"').step_by(2);
    let words = unquoted.flat_map(|text| text.split(|c| !is_part(c)));
    let prefixes = ["kong_", "weir_", "process_"];
    words.filter(|word| prefixes.iter().any(|prefix| word.starts_with(prefix))).collect()
}
