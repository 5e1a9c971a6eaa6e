//! The report: lines for a terminal, and an HTML page that needs nothing beside it.
use super::rules::{Compare, Rule, Rules};
use super::summary::{Example, Group, Summary};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

const STYLE: &str = include_str!("report.css");

/// The lines for a terminal.
pub(super) fn text(summary: &Summary, page: &Path) -> String {
    let mut lines: Vec<_> =
        summary.causes().iter().map(|(cause, group)| format!("{:>6}  {cause}", group.requests)).collect();
    if !lines.is_empty() {
        lines.insert(0, "requests  difference".to_owned());
    }
    lines.push(headline(summary));
    lines.extend(counted("not compared", &summary.failed));
    lines.extend(counted("not sent", &summary.skipped));
    lines.push(format!("The page: {}", page.display()));
    lines.join("\n") + "\n"
}

fn headline(summary: &Summary) -> String {
    format!("{} of {} requests were answered alike.", summary.equal, summary.compared)
}

fn counted<'a>(what: &'a str, reasons: &'a BTreeMap<String, usize>) -> impl Iterator<Item = String> + 'a {
    reasons.iter().map(move |(why, count)| format!("{count} {what}: {why}"))
}

/// The page.
pub(super) fn page(summary: &Summary, rules: &Rules, (a, b): (&str, &str)) -> String {
    let mut page = format!(
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width\">\n<title>Comparison of two gateways</title>\n\
         <style>\n{STYLE}</style>\n<h1>Comparison of two gateways</h1>\n\
         <p><b>a</b> is {}, <b>b</b> is {}.</p>\n<p class=\"headline\">{}</p>\n",
        escaped(a),
        escaped(b),
        headline(summary),
    );
    list(&mut page, "Not compared", counted("not compared", &summary.failed));
    list(&mut page, "Not sent", counted("not sent", &summary.skipped));
    if !summary.causes().is_empty() {
        page.push_str("<h2>Differences, by cause</h2>\n");
    }
    for (place, (cause, group)) in summary.causes().into_iter().enumerate() {
        group_of(&mut page, cause, group, place == 0);
    }
    page.push_str(
        "<h2>What was not compared</h2>\n<p>What <b>a</b> answers differently when it is asked twice is not \
                   compared. These rules hold beside that; <code>--rules</code> changes them.</p>\n",
    );
    rules_of(&mut page, rules);
    page
}

fn list(page: &mut String, title: &str, lines: impl Iterator<Item = String>) {
    let items: String = lines.map(|line| format!("<li>{}\n", escaped(&line))).collect();
    if !items.is_empty() {
        push(page, format_args!("<h2>{title}</h2>\n<ul>\n{items}</ul>\n"));
    }
}

fn group_of(page: &mut String, cause: &str, group: &Group, open: bool) {
    let open = if open { " open" } else { "" };
    let requests =
        if group.requests == 1 { "1 request".to_owned() } else { format!("{} requests", group.requests) };
    push(
        page,
        format_args!("<details{open}>\n<summary>{} <span>{requests}</span></summary>\n", escaped(cause)),
    );
    page.push_str("<table>\n<tr><th>request<th>a<th>b\n");
    for Example { request, difference } in &group.examples {
        let value = |side: &Option<String>| match side {
            Some(value) => format!("<code>{}</code>", escaped(value)),
            None => "<i>none</i>".to_owned(),
        };
        let (a, b) = (value(&difference.a), value(&difference.b));
        push(page, format_args!("<tr><td><code>{}</code><td>{a}<td>{b}\n", escaped(request)));
    }
    page.push_str("</table>\n</details>\n");
}

fn rules_of(page: &mut String, rules: &Rules) {
    page.push_str("<table>\n<tr><th>what<th>how<th>why\n");
    let rows = |kind: &'static str, rules: &[Rule]| -> String {
        let row = |rule: &Rule| {
            let how = match rule.compare {
                Compare::Value => "compared",
                Compare::Presence => "whether it is there",
                Compare::Ignore => "not compared",
            };
            format!(
                "<tr><td>{kind} <code>{}</code><td>{how}<td>{}\n",
                escaped(&rule.name),
                escaped(&rule.why)
            )
        };
        rules.iter().map(row).collect()
    };
    page.push_str(&rows("header", &rules.header));
    page.push_str(&rows("JSON member", &rules.json));
    page.push_str("</table>\n");
}

fn push(page: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = page.write_fmt(text);
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
