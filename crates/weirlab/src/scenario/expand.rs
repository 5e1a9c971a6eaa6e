//! A scenario with its variables set becomes a case.
use super::file::{ScenarioFile, Scheme};
use super::fill::{Fill, usual_method};
use super::{
    ActionKind, CasePlan, ConfigTemplate, GatewayPlan, LoadPlan, Measure, Scenario, ScenarioError, document,
};
use crate::load::{Pace, Protocol};
use crate::result::{Axis, Case, Step};
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

pub(super) type Variables = BTreeMap<String, serde_json::Value>;

/// A point of a sweep: which variables it sets, and where it lies.
struct Point {
    label: String,
    set: Variables,
    /// What distinguishes it in results: the swept variable, without those that follow from it.
    varies: BTreeMap<String, String>,
    axis: Option<Axis>,
}

pub(super) fn cases(scenario: &Scenario, scheme: Scheme) -> Result<Vec<CasePlan>, ScenarioError> {
    let manifest = scenario.folder.join("scenario.toml");
    if !scenario.file.schemes.contains(&scheme) {
        let allowed: Vec<_> = scenario.file.schemes.iter().map(|scheme| scheme.as_str()).collect();
        let message = format!("is for {} alone", allowed.join(" and "));
        return Err(ScenarioError::Unfit(manifest, message));
    }
    points(&scenario.file, &manifest)?
        .into_iter()
        .map(|point| case(scenario, &manifest, scheme, point))
        .collect()
}

fn points(file: &ScenarioFile, manifest: &Path) -> Result<Vec<Point>, ScenarioError> {
    if file.sweep.is_empty() {
        return Ok(vec![Point {
            label: String::new(),
            set: Variables::new(),
            varies: BTreeMap::new(),
            axis: None,
        }]);
    }
    let mut points = Vec::new();
    for sweep in &file.sweep {
        if let Some((name, values)) = sweep.with.iter().find(|(_, values)| values.len() != sweep.values.len())
        {
            let message = format!(
                "the sweep of {} has {} values, but {name} beside it {}; give each one",
                sweep.variable,
                sweep.values.len(),
                values.len()
            );
            return Err(ScenarioError::Unfit(manifest.to_owned(), message));
        }
        for (index, value) in sweep.values.iter().enumerate() {
            let mut set: Variables =
                sweep.with.iter().map(|(name, all)| (name.clone(), all[index].clone())).collect();
            set.insert(sweep.variable.clone(), value.clone());
            let axis = value.as_f64().map(|value| Axis { name: sweep.variable.clone(), value });
            points.push(Point {
                label: format!("[{}={}]", sweep.variable, words(value)),
                set,
                varies: BTreeMap::from([(sweep.variable.clone(), words(value))]),
                axis,
            });
        }
    }
    Ok(points)
}

pub(super) fn words(value: &serde_json::Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

fn case(
    scenario: &Scenario,
    manifest: &Path,
    scheme: Scheme,
    point: Point,
) -> Result<CasePlan, ScenarioError> {
    let file = &scenario.file;
    let mut variables = file.variables.clone();
    variables.extend(point.set.clone());
    let fill = Fill { manifest, variables: &variables };
    let load = fill.load(&file.load, scheme)?;
    let usual = usual_method(load.protocol);
    let mut plan = CasePlan {
        case: described(scenario, scheme, point, &load),
        measure: file.measure,
        needs: BTreeSet::new(),
        upstream: fill.upstream(&file.upstream)?,
        gateway: GatewayPlan {
            instances: fill.whole::<usize>(&file.gateway.instances)?.max(1),
            workers: file.gateway.workers.as_ref().map(|workers| fill.whole(workers)).transpose()?,
        },
        load,
        parity: file.parity.iter().map(|check| fill.parity(check, usual)).collect::<Result<_, _>>()?,
        actions: file.action.iter().map(|action| fill.action(action)).collect::<Result<_, _>>()?,
        config: ConfigTemplate {
            path: scenario.folder.join("kong.yml"),
            variables: variables.clone(),
            private: false,
        },
    };
    fits(&plan).map_err(|message| fill.unfit(message.to_owned()))?;
    plan.needs = needs(file, scheme, &plan)?;
    expect_upstream_bodies(&mut plan);
    Ok(plan)
}

/// Where the parity check says that the upstream's body comes through, each answer of the load must be as long as it.
fn expect_upstream_bodies(plan: &mut CasePlan) {
    let fixed = plan.upstream.arguments.iter().all(|argument| !argument.starts_with("--body"));
    if !fixed || !plan.parity.iter().any(|check| check.upstream_body) {
        return;
    }
    for request in &mut plan.load.requests.templates {
        let plain = request.method != "HEAD" && request.expect.status.iter().all(|status| *status == 200);
        if plain && request.expect.body_contains.is_none() {
            request.expect.body_length.get_or_insert(plan.upstream.body_bytes);
        }
    }
}

/// Whether what is measured goes together with the rest.
fn fits(plan: &CasePlan) -> Result<(), &'static str> {
    if plan.measure == Measure::Load {
        return Ok(());
    }
    if plan.load.protocol != Protocol::Http1 {
        return Err("measures what HTTP/1.1 alone is asked for: take http or https, or measure = \"load\"");
    }
    if !plan.actions.is_empty() {
        return Err("has actions, which happen under load: take them out, or measure = \"load\"");
    }
    if plan.gateway.instances > 1 {
        return Err("measures one gateway and has several: set instances to 1, or measure = \"load\"");
    }
    if plan.parity.is_empty() {
        return Err("has no [[parity]] that says what a right answer is; add one");
    }
    Ok(())
}

/// What results say of the case.
fn described(scenario: &Scenario, scheme: Scheme, point: Point, load: &LoadPlan) -> Case {
    let step = scenario.file.waterfall.as_ref().map(|step| Step {
        waterfall: step.name.clone(),
        index: step.index,
        label: step.label.clone(),
    });
    Case {
        name: format!("{}{} {}", scenario.name, point.label, scheme.as_str()),
        scenario: scenario.name.clone(),
        title: scenario.title.clone(),
        scheme: scheme.as_str().to_owned(),
        variables: point.varies,
        load: match scenario.file.measure {
            Measure::Load => in_words(load),
            Measure::Start => "no load: from the start to the first right answer".to_owned(),
            Measure::Reload => "no load: a changed configuration until it is active".to_owned(),
            Measure::IdleConnections => format!("{} idle connections", load.connections),
        },
        axis: point.axis,
        step,
        published: scenario.file.published.clone(),
    }
}

fn needs(file: &ScenarioFile, scheme: Scheme, plan: &CasePlan) -> Result<BTreeSet<String>, ScenarioError> {
    let mut needs = file.needs.clone();
    needs.insert(scheme.as_str().to_owned());
    match plan.load.protocol {
        Protocol::Grpc { .. } => needs.extend(["grpc".to_owned()]),
        Protocol::WebSocket => needs.extend(["websocket".to_owned()]),
        Protocol::Http1 | Protocol::Http2 { .. } => {}
    }
    match plan.measure {
        Measure::Start => needs.extend(["process".to_owned()]),
        Measure::Reload => needs.extend(["reload", "reload-confirmed"].map(str::to_owned)),
        Measure::Load | Measure::IdleConnections => {}
    }
    for action in &plan.actions {
        match &action.kind {
            ActionKind::Reload => needs.insert("reload".to_owned()),
            ActionKind::Http { listener, .. } if listener == "status" => needs.insert("status".to_owned()),
            _ => false,
        };
    }
    // Which addresses the upstream gets does not change what the file needs.
    let placeholders: Vec<_> =
        (1..=plan.upstream.listeners).map(|port| ([127, 0, 0, 1], port.min(65535) as u16).into()).collect();
    needs.extend(document::features(&plan.document(&placeholders)?));
    Ok(needs)
}

fn in_words(load: &LoadPlan) -> String {
    let pace = match load.pace {
        Pace::Closed => "closed loop".to_owned(),
        Pace::Constant(rate) => format!("{rate} requests/s"),
        Pace::Poisson(rate) => format!("{rate} requests/s, Poisson arrivals"),
    };
    let kept = if load.keep_alive { "" } else { ", a connection per request" };
    let what = load.protocol.in_words();
    format!("{} connections{what} in {} threads, {pace}{kept}", load.connections, load.threads)
}
