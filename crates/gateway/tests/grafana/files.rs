//! What the files of dashboards are held to.
use super::dashboards::{files, panels, text};
use serde_json::Value as Json;
use std::collections::BTreeSet;

/// Kinds of panels that Grafana still has.
const TYPES: [&str; 5] = ["heatmap", "stat", "state-timeline", "table", "timeseries"];
const DATASOURCE: &str = "${datasource}";

#[test]
fn each_dashboard_can_be_told_from_others() {
    let files = files();
    assert!(files.len() >= 5);
    let mut titles = BTreeSet::new();
    for (name, file) in &files {
        assert_eq!(file["uid"], **name, "links lead to a dashboard by its uid");
        assert!(titles.insert(text(&file["title"])), "{name}: its title is another's too");
        assert_eq!(file["schemaVersion"], 42, "{name}");
        assert!(file["id"].is_null() && file["tags"] == serde_json::json!(["weir"]), "{name}");
        assert!(!text(&file["description"]).is_empty(), "{name}");
        let variables = file["templating"]["list"].as_array().unwrap();
        assert_eq!(
            (&variables[0]["name"], &variables[0]["type"]),
            (&"datasource".into(), &"datasource".into())
        );
        for variable in variables.iter().skip(1) {
            assert_eq!(variable["datasource"]["uid"], DATASOURCE, "{name}: {variable}");
            assert!(!text(&variable["label"]).is_empty(), "{name}: {variable}");
        }
    }
}

#[test]
fn each_panel_says_what_it_shows() {
    for (name, file) in files() {
        for panel in panels(&file) {
            let what = format!("{name}: {}", panel["title"]);
            assert!(!text(&panel["title"]).is_empty(), "{what}");
            assert!(text(&panel["description"]).ends_with('.'), "{what} has a description");
            assert!(!text(&panel["fieldConfig"]["defaults"]["unit"]).is_empty(), "{what} has a unit");
            assert!(TYPES.contains(&&*text(&panel["type"])), "{what}: {}", panel["type"]);
            assert_eq!(panel["datasource"]["uid"], DATASOURCE, "{what}");
            let targets = panel["targets"].as_array().unwrap();
            let ids: BTreeSet<_> = targets.iter().map(|target| text(&target["refId"])).collect();
            assert!(!ids.is_empty() && ids.len() == targets.len(), "{what}: {ids:?}");
        }
    }
}

#[test]
fn panels_do_not_lie_on_each_other() {
    for (name, file) in files() {
        let rows = file["panels"].as_array().unwrap().iter().filter(|panel| panel["type"] == "row");
        let all: Vec<_> = rows.chain(panels(&file)).collect();
        let ids: BTreeSet<_> = all.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
        assert_eq!(ids.len(), all.len(), "{name}: ids are given twice");
        let mut taken = BTreeSet::new();
        for panel in all {
            for cell in cells(&panel["gridPos"]) {
                assert!(cell.0 < 24 && taken.insert(cell), "{name}: {} is at {cell:?}", panel["title"]);
            }
        }
    }
}

fn cells(place: &Json) -> impl Iterator<Item = (u64, u64)> {
    let [x, y, w, h] = ["x", "y", "w", "h"].map(|name| place[name].as_u64().unwrap());
    (x..x + w).flat_map(move |column| (y..y + h).map(move |row| (column, row)))
}
