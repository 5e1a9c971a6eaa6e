//! Logging in with a token of the Admin API.
use crate::api::Api;
use crate::page::{Page, Visit};
use axum::http::StatusCode;
use axum::response::Response;
use maud::html;

/// The form; `next` is where it leads afterwards.
pub(crate) fn page(visit: &Visit, next: &str, wrong: Option<&str>) -> Response {
    let content = html! {
        form.card method="post" action=(visit.at("login")) {
            (visit.proof())
            input type="hidden" name="next" value=(next);
            @if let Some(wrong) = wrong { p.error role="alert" { (wrong) } }
            div.field {
                label for="token" { "Token of the Admin API" }
                input id="token" name="token" type="password" autocomplete="current-password" required autofocus;
                p.help { "One of the setting " code { "admin_auth" } ". It stays on this node; your browser keeps a cookie." }
            }
            button.primary { "Log in" }
        }
    };
    let status = if wrong.is_some() { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
    Page::new("login", "Log in", content).status(status).render(visit)
}

/// Whether the Admin API takes a token.
pub(crate) async fn is_valid(api: &Api, token: &str) -> bool {
    match api.with_token(token) {
        Some(api) => api.get("/status").await.is_ok(),
        None => false,
    }
}
