//! Logging in with a token of the Admin API.
use crate::api::Api;
use crate::page::{Page, Visit};
use crate::session::Login;
use crate::texts;
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
                label for="token" { (texts::of("login.token_of_the_admin_api")) }
                input id="token" name="token" type="password" autocomplete="current-password" required autofocus;
                p.help { (texts::marked_up("login.help", &[("setting", html! { code { "admin_auth" } })])) }
            }
            button.primary { (texts::of("login.log_in")) }
        }
    };
    let status = if wrong.is_some() { StatusCode::UNAUTHORIZED } else { StatusCode::OK };
    Page::new("login", texts::of("login.log_in"), content).status(status).render(visit)
}

/// Logs in with a token, if the Admin API takes it.
pub(crate) async fn login(api: &Api, token: &str) -> Option<Login> {
    let answer = api.with_token(token)?.get("/status").await.ok()?;
    Some(Login { token: token.to_owned(), is_read_only: answer.is_read_only })
}
