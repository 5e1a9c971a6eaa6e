//! The frame around every page.
use crate::api::{Api, ApiError};
use crate::form::Pairs;
use crate::kinds::{IN_NAVIGATION, KINDS};
use crate::session::Expiring;
use crate::usage::CpuUsage;
use crate::{assets, texts};
use axum::http::{StatusCode, header};
use axum::response::{Html, IntoResponse, Response};
use maud::{DOCTYPE, Markup, PreEscaped, html};
use std::sync::Arc;

/// Forms that wait for their confirmation: their secrets are in no page.
pub(crate) type Drafts = Expiring<Pairs>;

/// A request of a browser.
pub(crate) struct Visit {
    pub(crate) api: Api,
    /// The way from this page to the root of the UI: empty, or `../` for each level.
    pub(crate) root: String,
    /// The address of this page, below the root.
    pub(crate) address: String,
    /// What forms carry.
    pub(crate) form_token: String,
    /// Why the configuration can only be looked at; none if the person may change it.
    pub(crate) read_only: Option<&'static str>,
    pub(crate) drafts: Arc<Drafts>,
    pub(crate) cpu_usage: Arc<CpuUsage>,
    /// Whether the person has logged in, and so can log out.
    pub(crate) is_logged_in: bool,
    pub(crate) theme: Theme,
}

/// The colours that a person has chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Theme {
    System,
    Light,
    Dark,
}

impl Theme {
    pub(crate) const ALL: [(Theme, &'static str); 3] =
        [(Theme::System, "system"), (Theme::Light, "light"), (Theme::Dark, "dark")];

    pub(crate) fn name(self) -> &'static str {
        Theme::ALL.into_iter().find(|(theme, _)| *theme == self).map_or("system", |(_, name)| name)
    }

    pub(crate) fn of(name: &str) -> Theme {
        Theme::ALL.into_iter().find(|(_, known)| *known == name).map_or(Theme::System, |(theme, _)| theme)
    }
}

/// A page of the UI.
pub(crate) struct Page {
    /// What the title of the document and the first heading say.
    pub(crate) title: String,
    /// The entry of the navigation that it belongs to.
    pub(crate) section: &'static str,
    /// Notes above the content, such as parameters that were overlooked.
    pub(crate) notes: Vec<String>,
    pub(crate) content: Markup,
    pub(crate) status: StatusCode,
}

impl Page {
    pub(crate) fn new(section: &'static str, title: impl Into<String>, content: Markup) -> Page {
        Page { title: title.into(), section, notes: Vec::new(), content, status: StatusCode::OK }
    }

    pub(crate) fn notes(mut self, notes: Vec<String>) -> Page {
        self.notes.extend(notes);
        self
    }

    pub(crate) fn status(mut self, status: StatusCode) -> Page {
        self.status = status;
        self
    }

    /// The response with this page.
    pub(crate) fn render(self, visit: &Visit) -> Response {
        let html = document(visit, &self);
        (self.status, [(header::CACHE_CONTROL, "no-cache")], Html(html.into_string())).into_response()
    }
}

/// The page for something that the Admin API did not do.
pub(crate) fn failed(visit: &Visit, error: &ApiError) -> Response {
    let (title, status) = match error.status {
        StatusCode::NOT_FOUND => (texts::of("words.not_found"), StatusCode::NOT_FOUND),
        StatusCode::FORBIDDEN => (texts::of("page.not_allowed"), StatusCode::FORBIDDEN),
        _ => (texts::of("page.the_admin_api_refused_this"), StatusCode::BAD_GATEWAY),
    };
    let content = html! {
        p { (texts::marked_up("page.asked_for", &[("request", html! { code { (error.asked) } })])) }
        p { (texts::filled("page.answer", &[("status", &error.status.as_u16()), ("message", &error.message())])) }
        p { a href=(visit.at("")) { (texts::of("page.back_to_the_overview")) } }
    };
    Page::new("", title, content).status(status).render(visit)
}

impl Visit {
    /// The address of a page.
    pub(crate) fn at(&self, path: &str) -> String {
        match self.root.is_empty() && path.is_empty() {
            true => "./".to_owned(),
            false => format!("{}{path}", self.root),
        }
    }

    /// The hidden input that each form carries.
    pub(crate) fn proof(&self) -> Markup {
        html! { input type="hidden" name="form_token" value=(self.form_token); }
    }
}

fn document(visit: &Visit, page: &Page) -> Markup {
    let chosen = Some(visit.theme.name()).filter(|_| visit.theme != Theme::System);
    html! {
        (DOCTYPE)
        html lang="en" data-theme=[chosen] {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content=(chosen.unwrap_or("light dark"));
                title { (page.title) " · Weir" }
                link rel="stylesheet" href=(visit.at(&assets::address("style.css")));
                link rel="icon" type="image/svg+xml" href=(visit.at(&assets::address("icon.svg")));
                script #texts type="application/json" { (PreEscaped(texts::of_script())) }
                script type="module" src=(visit.at(&assets::address("app.js"))) {}
            }
            body {
                a.skip href="#content" { (texts::of("messages.skip")) }
                header.top {
                    a.brand href=(visit.at("")) { "Weir" }
                    (search(visit))
                    (tools(visit))
                }
                nav.sections aria-label=(texts::of("page.sections")) { (navigation(visit, page.section)) }
                main id="content" tabindex="-1" {
                    h1 { (page.title) }
                    @for note in &page.notes { p.note role="status" { (texts::with_code(note)) } }
                    (page.content)
                    p.printed { "/" (visit.address) }
                }
            }
        }
    }
}

fn search(visit: &Visit) -> Markup {
    html! {
        form.search role="search" action=(visit.at("search")) {
            label.unseen for="search" { (texts::of("page.search")) }
            input id="search" type="search" name="q" placeholder=(texts::of("page.name_path_host_id_or")) autocomplete="off";
        }
    }
}

fn tools(visit: &Visit) -> Markup {
    html! {
        form.theme method="post" action=(visit.at("theme")) {
            (visit.proof())
            input type="hidden" name="back" value=(visit.address);
            @for (theme, name) in Theme::ALL {
                button name="theme" value=(name) aria-pressed=(if theme == visit.theme { "true" } else { "false" }) { (texts::of(&format!("page.theme.{name}"))) }
            }
        }
        @if let Some(why) = visit.read_only { span.help title=(why) { (texts::of("page.read_only")) } }
        @if visit.is_logged_in {
            form method="post" action=(visit.at("logout")) { (visit.proof()) button { (texts::of("page.log_out")) } }
        }
    }
}

/// The pages besides those of collections.
const TOP: [(&str, &str); 5] = [
    ("", "words.now"),
    ("traffic", "words.traffic"),
    ("errors", "words.errors"),
    ("requests", "words.requests"),
    ("changes", "words.changes"),
];
const TOOLS: [(&str, &str); 4] = [
    ("try", "words.try_a_request"),
    ("plugin-costs", "words.plugin_costs"),
    ("nodes", "words.nodes"),
    ("node", "words.this_node"),
];

fn navigation(visit: &Visit, section: &str) -> Markup {
    let collections = KINDS[..IN_NAVIGATION].iter().map(|kind| (kind.collection, kind.many()));
    let fixed = |(path, name): (&'static str, &str)| (path, texts::of(name));
    let groups: [Vec<_>; 3] =
        [TOP.into_iter().map(fixed).collect(), collections.collect(), TOOLS.into_iter().map(fixed).collect()];
    let is_here = |path: &str| (path == section).then_some("page");
    html! {
        @for group in groups {
            ul {
                @for (path, name) in group {
                    li { a href=(visit.at(path)) aria-current=[is_here(path)] { (name) } }
                }
            }
        }
    }
}
