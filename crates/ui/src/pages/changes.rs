//! Changes of the configuration: did it begin with one?
use super::charts::off;
use super::{Shown, csv};
use crate::form::{Pairs, first};
use crate::format::time;
use crate::frame::Frame;
use crate::history::{Change, History, is_off};
use crate::kinds;
use crate::page::{Page, Visit};
use crate::texts;
use crate::url::{Address, segment};
use maud::{Markup, html};

/// The most changes of a page.
const MAX_ROWS: usize = 200;
/// A chart around a change shows so many seconds before and after it.
const AROUND: u64 = 300;

pub(super) async fn page(visit: &Visit, asked: &Pairs) -> Shown {
    let (frame, mut notes) = Frame::read(asked, "-24h");
    let history = History { api: &visit.api, frame: &frame };
    let mut changes = match history.changes().await {
        Err(error) if is_off(&error) => return Ok(Page::new("changes", texts::of("words.changes"), off())),
        found => found?,
    };
    let wanted = first(asked, "q").trim().to_lowercase();
    changes.retain(|change| change.what.to_lowercase().contains(&wanted));
    if changes.len() > MAX_ROWS {
        notes.push(texts::first_of_many(MAX_ROWS));
    }
    let address = frame.on(Address::new("changes").with("q", &wanted));
    let content = html! {
        (frame.picker(visit, &address))
        form.filter action=(visit.at("changes")) {
            @for (name, value) in address.members().filter(|(name, _)| *name != "q") { input type="hidden" name=(name) value=(value); }
            label for="q" { (texts::of("changes.entity")) } input id="q" name="q" value=(wanted); button { (texts::of("words.filter")) }
        }
        div #live data-live=[frame.refresh(3)] {
            section #changes {
                @match changes.is_empty() {
                    true => div.empty { p { (texts::of("messages.no_changes")) } },
                    false => (table(visit, &changes[..changes.len().min(MAX_ROWS)])),
                }
            }
        }
        (csv::link(visit, &frame.in_seconds(Address::new("changes")).to_string()))
    };
    Ok(Page::new("changes", texts::of("words.changes"), content).notes(notes))
}

/// Changes, the newest first; each leads to what was changed, and to what the node did around it.
pub(super) fn table(visit: &Visit, changes: &[Change]) -> Markup {
    html! {
        div.scroll #changed tabindex="0" role="region" aria-label=(texts::of("words.changes")) {
            table {
                caption.unseen { (texts::of("words.changes")) }
                thead { tr { th scope="col" { (texts::of("words.time")) } th scope="col" { (texts::of("changes.what")) } th scope="col" { (texts::of("words.from")) } th.number scope="col" { (texts::of("words.revision")) } } }
                tbody { @for change in changes { (line(visit, change)) } }
            }
        }
    }
}

fn line(visit: &Visit, change: &Change) -> Markup {
    let at = change.at as u64;
    let (from, to) = (at.saturating_sub(AROUND).to_string(), (at + AROUND).to_string());
    let around = Address::new("").with("from", &from).with("to", &to).to_string();
    html! {
        tr {
            th.time scope="row" { a href=(visit.at(&around)) title=(texts::filled("changes.around", &[("time", &time(at as i64))])) { (time(at as i64)) } }
            td.name { (what(visit, &change.what)) }
            td { (change.source) }
            td.number { (change.revision) }
        }
    }
}

/// What was changed, with links to entities that are there.
fn what(visit: &Visit, what: &str) -> Markup {
    html! {
        @for (index, edit) in what.split(", ").enumerate() {
            @if index > 0 { ", " }
            @match entity(edit) {
                Some((verb, path, address)) => { (verb) " " a href=(visit.at(&address)) { bdi { (path) } } }
                None => bdi { (edit) },
            }
        }
    }
}

/// The verb and the path of an edit that put an entity which has a page, and the address of that.
fn entity(edit: &str) -> Option<(&str, &str, String)> {
    let (verb, path) = edit.split_once(' ')?;
    let (entity, name) = path.split_once('/')?;
    // The page of a target needs its upstream, which the change does not name.
    let kind = kinds::of_entity(entity).filter(|kind| kind.collection != "targets")?;
    let address = format!("{}/{}", kind.collection, segment(name));
    (verb == "put" && !name.is_empty()).then_some((verb, path, address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_put_has_a_page_and_what_was_deleted_has_none() {
        for (edit, address) in [
            ("put routes/a/b", "routes/a%2Fb"),
            ("put oauth2_credentials/app", "oauth2/app"),
            ("put key_sets/a", "key-sets/a"),
        ] {
            let expected = ("put", edit.strip_prefix("put ").unwrap(), address.to_owned());
            assert_eq!(entity(edit), Some(expected));
        }
        for edit in [
            "delete routes/a",
            "put 12 targets",
            "apply the configuration again",
            "put nope/a",
            "put targets/a",
            "put routes/",
        ] {
            assert_eq!(entity(edit), None, "{edit}");
        }
    }
}
